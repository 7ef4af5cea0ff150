package proxy

import (
	"bytes"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
)

// Limits bound what clients can hold of a Server. The zero value bounds nothing.
type Limits struct {
	Connections          int           // open at a time; if zero, no limit
	ConnectionsPerClient int           // open at a time from one address, or one /64 network of IPv6; if zero, no limit
	Tunnels              int           // open at a time; if zero, no limit
	RequestTimeout       time.Duration // for one request and its answer, without the wait for its turn; if zero, no limit
}

// bound is how many there may be at a time.
type bound struct {
	most int    // if zero, no limit
	key  string // of the configuration that says so
	told time.Time
}

// toldAgain is how often the operator is told that a bound is reached.
const toldAgain = time.Minute

func (b *bound) reachedBy(n int) bool { return b.most > 0 && n >= b.most }

// seats are so many of something, in all and for each network that clients come from.
type seats struct {
	log *slog.Logger

	mu              sync.Mutex // guards what follows
	all, perNetwork bound
	taken           int
	by              map[netip.Addr]int // where perNetwork is a limit

	refused atomic.Int64
}

func newSeats(log *slog.Logger, all, perNetwork bound) *seats {
	return &seats{log: log, all: all, perNetwork: perNetwork, by: make(map[netip.Addr]int)}
}

// seat is one of them, taken. It must be left, which may be done more than once.
type seat struct {
	of      *seats
	network netip.Addr
	left    atomic.Bool
}

// take returns a seat for a client of network, or nil if there is none.
func (s *seats) take(network netip.Addr) *seat {
	t, news := s.tryTake(network, time.Now())
	if t == nil {
		s.refused.Add(1)
	}
	if news.key != "" {
		s.tell(news, network)
	}
	return t
}

// tell warns the operator of a bound. Tunnels are counted for nobody, and have no network.
func (s *seats) tell(b bound, network netip.Addr) {
	log := s.log
	if network.IsValid() {
		log = log.With("client_addr", network)
	}
	log.Warn("a limit is reached: who comes now is answered 503", "key", b.key, "limit", b.most)
}

// tryTake also returns the bound that is reached, if the operator has not been told of it lately.
func (s *seats) tryTake(network netip.Addr, now time.Time) (t *seat, news bound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if full := s.full(network); full != nil {
		if now.Sub(full.told) >= toldAgain {
			full.told, news = now, *full
		}
		return nil, news
	}
	s.taken++
	if s.perNetwork.most > 0 {
		s.by[network]++
	}
	return &seat{of: s, network: network}, news
}

// full returns the bound that leaves no seat for network; nil where there is one.
func (s *seats) full(network netip.Addr) *bound {
	switch {
	case s.all.reachedBy(s.taken):
		return &s.all
	case s.perNetwork.reachedBy(s.by[network]):
		return &s.perNetwork
	}
	return nil
}

func (t *seat) leave() {
	if !t.left.CompareAndSwap(false, true) {
		return
	}
	s := t.of
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.perNetwork.most == 0 {
		return
	}
	if s.by[t.network]--; s.by[t.network] == 0 {
		delete(s.by, t.network)
	}
}

func (s *seats) inUse() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.taken)
}

// peer returns what stands for the client at the other end of a connection: its address, or the first of its network.
func peer(addr net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(addrString(addr))
	if err != nil {
		return netip.Addr{}
	}
	return networkOf(ap.Addr()).Addr()
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
		if s := l.seats.take(peer(c.RemoteAddr())); s != nil {
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
	_ = c.SetReadDeadline(time.Now().Add(lingering / 2))
	_, _ = c.Read(make([]byte, 512))
	part(c, l.answer)
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
func (c *seatedConn) CloseWrite() error { return closeWrite(c.Conn) }
