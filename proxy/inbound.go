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
	most    int // connections in preparation; if zero, they are not bounded
	begin   sync.Once

	mu     sync.Mutex // guards the fields below
	conns  map[net.Conn]struct{}
	closed bool
}

// newPreparing returns a listener of the connections that prepare returns for those of l, at most most at a time unless
// most is zero. prepare must end within a bounded time. If it returns false, it has answered and closed the connection.
func newPreparing(l net.Listener, most int, prepare func(net.Conn) (net.Conn, bool)) *preparing {
	return &preparing{
		Listener: l, prepare: prepare, ready: newConnQueue(), failed: make(chan error), most: most,
		conns: make(map[net.Conn]struct{}),
	}
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
			if p.add(c) {
				go p.run(c)
			} else {
				c.Close()
			}
			continue
		}
		select {
		case p.failed <- err: // the next attempt follows that of the caller of Accept
		case <-p.ready.closed:
			return
		}
	}
}

func (p *preparing) run(c net.Conn) {
	prepared, ok := p.prepare(c)
	p.remove(c)
	if ok && !p.ready.deliver(prepared) {
		prepared.Close()
	}
}

// add reports whether c may be prepared: the listener is open, and not too many are in preparation.
func (p *preparing) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.most > 0 && len(p.conns) >= p.most {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *preparing) remove(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// Close closes the listener below and the connections in preparation.
func (p *preparing) Close() error {
	_ = p.ready.Close() // it cannot fail
	err := p.Listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for c := range p.conns {
		c.Close()
	}
	return err
}
