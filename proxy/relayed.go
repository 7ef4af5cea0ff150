package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/robotsproxy/robotsproxy/internal/http1"
	"github.com/robotsproxy/robotsproxy/policy"
)

// maxHeaders bounds the connections of load balancers whose PROXY header has not arrived. A load balancer sends it at
// once.
const maxHeaders = 1024

// relayedConn is a connection that a load balancer relays: its addresses are those of the connection from the client to
// the load balancer.
type relayedConn struct {
	net.Conn
	head          []byte // read from Conn after the PROXY header, and not yet returned by Read
	remote, local net.Addr
}

func (c *relayedConn) Read(p []byte) (int, error) {
	if len(c.head) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.head)
	if c.head = c.head[n:]; len(c.head) == 0 {
		c.head = nil // an idle connection keeps no buffer
	}
	return n, nil
}

func (c *relayedConn) RemoteAddr() net.Addr { return c.remote }
func (c *relayedConn) LocalAddr() net.Addr  { return c.local }

// CloseWrite ends what is sent, so that the client can read the last answer.
func (c *relayedConn) CloseWrite() error { return http1.CloseWrite(c.Conn) }

// readRelayed reads the PROXY header of a connection from one of Options.ProxyProtocol, and returns other connections
// as they are: if one of those begins with a header, it is refused as any bytes that are not a request. A trusted peer
// must send a header, since a peer that may leave it out could pass on one that its own client has sent (section 2 of
// the PROXY protocol's specification).
func (s *Server) readRelayed(c net.Conn) (net.Conn, bool) {
	o := s.settings.Load()
	if !isTrusted(o.ProxyProtocol, c.RemoteAddr()) {
		return c, true
	}
	if err := c.SetReadDeadline(time.Now().Add(o.HeaderTimeout)); err != nil {
		c.Close()
		return nil, false
	}
	r := bufio.NewReader(c)
	relayed, err := readHeader(c, r)
	if err == nil && c.SetReadDeadline(time.Time{}) == nil {
		return relayed, true
	}
	nothing := r.Buffered() == 0 && errors.Is(err, proxyproto.ErrNoProxyProtocol) // a check whether the port is open
	if err != nil && !nothing && !errors.Is(err, net.ErrClosed) {
		s.refuseRelayed(c, err)
	}
	c.Close()
	return nil, false
}

func isTrusted(peers []netip.Prefix, addr net.Addr) bool {
	ap, err := netip.ParseAddrPort(addrString(addr))
	contains := func(p netip.Prefix) bool { return p.Contains(ap.Addr().WithZone("").Unmap()) }
	return err == nil && slices.ContainsFunc(peers, contains)
}

var errNotTCP = errors.New("it names no client over TCP")

// readHeader reads the PROXY header of c, version 1 or 2, from r. The addresses of a connection that the load balancer
// made for itself (LOCAL), or whose client it does not know (UNKNOWN), are those of c.
func readHeader(c net.Conn, r *bufio.Reader) (*relayedConn, error) {
	header, err := proxyproto.Read(r)
	if err != nil {
		return nil, err
	}
	relayed := &relayedConn{Conn: c, remote: c.RemoteAddr(), local: c.LocalAddr()}
	if n := r.Buffered(); n > 0 {
		relayed.head = make([]byte, n)
		_, _ = io.ReadFull(r, relayed.head) // from its buffer
	}
	if header.Command == proxyproto.LOCAL || header.Version == 1 && header.TransportProtocol == proxyproto.UNSPEC {
		return relayed, nil
	}
	source, destination, ok := header.TCPAddrs()
	if !ok || source.IP.IsUnspecified() || source.IP.IsMulticast() {
		return nil, errNotTCP
	}
	relayed.remote, relayed.local = source, destination
	return relayed, nil
}

// refuseRelayed answers and records a connection of a trusted peer without a valid PROXY header.
func (s *Server) refuseRelayed(c net.Conn, err error) {
	s.warnConn(c, "a peer in proxy_protocol sent no valid PROXY header", err)
	err = fmt.Errorf("the PROXY header: %w", err)
	ref := &refusal{
		Reason: policy.ReasonBadRequest, Err: err,
		Detail: "This proxy expects a PROXY header, version 1 or 2, at the start of each connection from your address.",
	}
	answer := c
	if s.settings.Load().TLS != nil {
		answer = nil // the client would read it as a TLS record
	}
	s.refuseConn(c, nil, answer, ref)
	http1.Linger(c)
}
