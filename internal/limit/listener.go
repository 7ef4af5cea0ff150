package limit

import (
	"net"
	"net/netip"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/http1"
)

// Conns caps concurrent connections, in total and for each client network.
type Conns = Counter[netip.Addr]

// Listener accepts connections while its Counter allows. It answers every other connection and closes it.
type Listener struct {
	net.Listener
	conns   *Conns
	network func(net.Addr) netip.Addr
	answer  []byte
	linger  chan struct{} // holds one element for each goroutine in reject
}

// maxLingering bounds how many rejected connections are kept open for their client to read the answer.
const maxLingering = 256

// NewListener returns a Listener of the connections of l that conns allows. network returns the client network of a
// remote address. A rejected connection gets the bytes answer, a response of HTTP/1.1.
func NewListener(l net.Listener, conns *Conns, network func(net.Addr) netip.Addr, answer []byte) *Listener {
	return &Listener{l, conns, network, answer, make(chan struct{}, maxLingering)}
}

// Accept returns the next connection within the limits. Closing it gives its share back.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if s := l.conns.Take(l.network(c.RemoteAddr()), 1); s != nil {
			return &countedConn{Conn: c, share: s}, nil
		}
		l.reject(c)
	}
}

// reject answers c without delaying Accept. If maxLingering connections linger already, it writes the answer and
// closes: the answer fits the send buffer of a new socket, and most clients still read it.
func (l *Listener) reject(c net.Conn) {
	select {
	case l.linger <- struct{}{}:
		go l.rejectAndLinger(c)
	default:
		_ = c.SetDeadline(time.Now().Add(time.Millisecond))
		_, _ = c.Write(l.answer)
		c.Close()
	}
}

// rejectAndLinger answers c after its request has begun, or soon: some clients, such as Go's, take an answer that
// arrives before their request for a fault.
func (l *Listener) rejectAndLinger(c net.Conn) {
	defer func() { <-l.linger }()
	_ = c.SetReadDeadline(time.Now().Add(http1.LingerTime / 2))
	_, _ = c.Read(make([]byte, 512))
	http1.CloseWithResponse(c, l.answer)
}

// countedConn is a connection with its share of Conns.
type countedConn struct {
	net.Conn
	share *Share[netip.Addr]
}

// Close closes the connection and gives its share back.
func (c *countedConn) Close() error {
	defer c.share.Release()
	return c.Conn.Close()
}

// CloseWrite ends what is sent. net/http calls it before Close, so that the client can read the last answer.
func (c *countedConn) CloseWrite() error { return http1.CloseWrite(c.Conn) }
