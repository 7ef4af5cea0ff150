package proxy

import (
	"net"
	"sync"
)

// inbound returns the listener of the front server over l. From the outside in, a connection is that of a trusted load
// balancer, which names its client; it is counted for the client; it speaks TLS; and its requests are well-formed.
func (s *Server) inbound(l net.Listener) net.Listener {
	o := s.settings.Load()
	if len(o.ProxyProtocol) > 0 {
		l = newPreparing(l, maxHeaders, s.readRelayed)
	}
	rejected := overloadResponse()
	if o.TLS != nil {
		rejected = nil // the client would read it as a TLS record
	}
	l = limitListener(l, s.connLimit, rejected)
	if o.TLS != nil {
		l = newPreparing(l, 0, s.handshakeFront)
	}
	return l
}

// preparing is a net.Listener that prepares each connection in a goroutine of its own, so that a slow client delays no
// other.
type preparing struct {
	net.Listener
	prepare func(net.Conn) (net.Conn, bool)
	ready   *connQueue
	failed  chan error
	slots   chan struct{} // holds one element for each connection in preparation; nil if they are not bounded
	begin   sync.Once
}

// newPreparing returns a listener of the connections that prepare returns for those of l, at most most at a time unless
// most is zero. prepare must end within a bounded time. If it returns false, it has answered and closed the connection.
func newPreparing(l net.Listener, most int, prepare func(net.Conn) (net.Conn, bool)) *preparing {
	p := &preparing{Listener: l, prepare: prepare, ready: newConnQueue(), failed: make(chan error)}
	if most > 0 {
		p.slots = make(chan struct{}, most)
	}
	return p
}

// Accept returns the next connection that is prepared, or the next error of the listener below.
func (p *preparing) Accept() (net.Conn, error) {
	p.begin.Do(func() { go p.accept() })
	select {
	case c := <-p.ready.conns:
		return c, nil
	case err := <-p.failed:
		return nil, err
	case <-p.ready.closed:
		return nil, net.ErrClosed
	}
}

// accept runs until Close.
func (p *preparing) accept() {
	for {
		c, err := p.Listener.Accept()
		if err == nil {
			p.start(c)
			continue
		}
		select {
		case p.failed <- err: // the next attempt follows that of the caller of Accept
		case <-p.ready.closed:
			return
		}
	}
}

func (p *preparing) start(c net.Conn) {
	if p.slots == nil {
		go p.run(c)
		return
	}
	select {
	case p.slots <- struct{}{}:
		go func() {
			defer func() { <-p.slots }()
			p.run(c)
		}()
	default:
		c.Close()
	}
}

func (p *preparing) run(c net.Conn) {
	if prepared, ok := p.prepare(c); ok && !p.ready.deliver(prepared) {
		prepared.Close()
	}
}

// Close closes the listener below. Connections in preparation are closed when they are prepared.
func (p *preparing) Close() error {
	_ = p.ready.Close() // it cannot fail
	return p.Listener.Close()
}
