package proxy

import (
	"bytes"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/robotsproxy/robotsproxy/auth"
	"github.com/robotsproxy/robotsproxy/internal/http1"
	"github.com/robotsproxy/robotsproxy/policy"
)

// Limits bound what clients can hold of a Server. The zero value bounds nothing.
type Limits struct {
	Connections            int           // open at a time; if zero, no limit
	ConnectionsPerClient   int           // open at a time from one address, or one /64 network of IPv6; if zero, no limit
	Tunnels                int           // open at a time; if zero, no limit
	Requests               int           // waiting or being answered at a time; if zero, no limit
	RequestsPerClient      int           // the same of one client; if zero, no limit
	RequestMemory          int           // bytes for the headers and the buffered bodies of Requests; if zero, no limit
	RequestMemoryPerClient int           // the same of one client; if zero, no limit
	RequestTimeout         time.Duration // for one request and its answer, without the wait for its turn; if zero, no limit
}

// seats are connections or tunnels, counted by the network that they come from.
type (
	seats = quota[netip.Addr]
	seat  = share[netip.Addr]
)

func newSeats(log *slog.Logger, all, perNetwork bound) *seats {
	return newQuota[netip.Addr](log, "client_addr", all, perNetwork)
}

// peer returns what stands for the client at the other end of a connection: its address, or the first of its network.
func peer(addr net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(addrString(addr))
	if err != nil {
		return netip.Addr{}
	}
	return auth.Network(ap.Addr()).Addr()
}

// LimitListener returns a listener that takes at most limits.Connections connections from l at a time, and at most
// limits.ConnectionsPerClient from one address or one /64 network of IPv6. Further connections are answered 503 with
// Retry-After and closed. The log names the limit that is reached, as connections or connections_per_client of section in the
// configuration, once a minute. The other fields of limits do not count.
func LimitListener(l net.Listener, limits Limits, section string, log *slog.Logger) net.Listener {
	return newSeatedListener(l, limits.connectionSeats(section, log))
}

func (l Limits) connectionSeats(section string, log *slog.Logger) *seats {
	return newSeats(log, bound{most: l.Connections, key: section + ".connections"},
		bound{most: l.ConnectionsPerClient, key: section + ".connections_per_client"})
}

// seatedListener hands out connections that have a seat, and tells all others that there is none.
type seatedListener struct {
	net.Listener
	seats     *seats
	answer    []byte        // for those without a seat
	farewells chan struct{} // as many as may take their time
}

// maxFarewells bounds how many connections are told at a time, in good order, that there is no seat.
const maxFarewells = 256

func newSeatedListener(l net.Listener, s *seats) *seatedListener {
	return &seatedListener{Listener: l, seats: s, answer: overloadAnswer(), farewells: make(chan struct{}, maxFarewells)}
}

// overloadAnswer is the refusal of a connection of which nothing was read: it has no record, and so no id.
func overloadAnswer() []byte {
	ref := &Refusal{Reason: policy.ReasonOverload, Detail: "Too many connections are open.", RetryAfter: retryOverload}
	ref.complete(0)
	resp := ref.response(nothingRead, "")
	resp.Close = true
	var b bytes.Buffer
	_ = resp.Write(&b) // a Buffer takes all
	return b.Bytes()
}

func (l *seatedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if s := l.seats.take(peer(c.RemoteAddr()), 1); s != nil {
			return &seatedConn{Conn: c, seat: s}, nil
		}
		l.turnAway(c)
	}
}

// turnAway answers c without keeping who accepts. In a flood, when too many take their time over it already, it costs a
// write and a close: the answer fits the buffer of a fresh socket, and most clients still see it.
func (l *seatedListener) turnAway(c net.Conn) {
	select {
	case l.farewells <- struct{}{}:
		go l.farewell(c)
	default:
		_ = c.SetDeadline(time.Now().Add(time.Millisecond))
		_, _ = c.Write(l.answer)
		c.Close()
	}
}

// farewell answers c once it has asked, or soon: an answer that is there before its request is a fault to some clients,
// Go's among them.
func (l *seatedListener) farewell(c net.Conn) {
	defer func() { <-l.farewells }()
	_ = c.SetReadDeadline(time.Now().Add(http1.LingerTime / 2))
	_, _ = c.Read(make([]byte, 512))
	http1.CloseWithResponse(c, l.answer)
}

// seatedConn leaves its seat when it is closed.
type seatedConn struct {
	net.Conn
	seat *seat
}

func (c *seatedConn) Close() error {
	defer c.seat.leave()
	return c.Conn.Close()
}

// CloseWrite is what net/http looks for, to close a connection so that its last answer can be read.
func (c *seatedConn) CloseWrite() error { return http1.CloseWrite(c.Conn) }
