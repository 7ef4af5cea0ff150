package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/elazarl/goproxy"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/http1"
	"github.com/robotsproxy/robotsproxy/internal/limit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
)

// tunnel is what a CONNECT asked for: every request inside it is for this host and port.
type tunnel struct {
	client *Client
	share  string // of client: see Client.share
	host   string
	port   uint16
	clear  origin.Origin // whom requests in clear are for
	secure origin.Origin // whom requests over TLS are for
}

func newTunnel(host string, port uint16) (t *tunnel, err error) {
	t = &tunnel{host: host, port: port}
	if t.clear, err = origin.New("http", host, port); err != nil {
		return nil, err
	}
	t.secure, err = origin.New("https", host, port)
	return t, err
}

// origin returns whom a request inside the tunnel is for.
func (t *tunnel) origin(r *http.Request) origin.Origin {
	if r.TLS != nil {
		return t.secure
	}
	return t.clear
}

// tunnelConn is a client's connection after its CONNECT was answered. It first gives back what had been read of it
// already: a client may send its first TLS record in the segment of the CONNECT itself.
type tunnelConn struct {
	net.Conn
	tunnel *tunnel
	server *Server
	slot   *limit.Share[netip.Addr] // of tunnelLimit
	head   []byte                   // read from Conn, and still to be read from here

	handshakes bool   // the TLS handshake is under way
	last       []byte // the last bytes that were read during it
}

func (c *tunnelConn) Read(p []byte) (int, error) {
	if len(c.head) == 0 {
		n, err := c.Conn.Read(p)
		if c.handshakes {
			c.last = append(c.last[:0], p[max(0, n-alertLength):n]...)
		}
		return n, err
	}
	n := copy(p, c.head)
	if c.head = c.head[n:]; len(c.head) == 0 {
		c.head = nil // an idle tunnel keeps no buffer
	}
	return n, nil
}

func (c *tunnelConn) Close() error {
	c.server.untrack(c)
	c.slot.Release()
	return c.Conn.Close()
}

// CloseWrite ends what we send, so that a last answer can be read before the end.
func (c *tunnelConn) CloseWrite() error { return http1.CloseWrite(c.Conn) }

type tunnelKey struct{}

// connect answers a CONNECT. Where its requests are judged one by one, it opens nothing, and refuses only what names no
// host and port, wrong or missing credentials, which are asked for here or nowhere, and one tunnel too many. Any other
// refusal would be invisible to most clients; inside it is read. Who sent the CONNECT sends all that is inside.
func (s *Server) connect(w http.ResponseWriter, r *http.Request) {
	hw := &hijackWriter{ResponseWriter: w, tunnel: &tunnel{}, server: s}
	if !hw.admit(r) {
		return
	}
	defer hw.done()
	if s.interception(hw.tunnel) == policy.Tunnel {
		s.passOn(hw, r)
		return
	}
	s.goproxy.ServeHTTP(hw, r)
}

// interception says what becomes of t. One to the proxy itself has nowhere else to go.
func (s *Server) interception(t *tunnel) policy.Interception {
	if t.isVisit() {
		return policy.Intercept
	}
	return s.options.Policy.Interception(t.host)
}

// isVisit reports whether what comes through t is for the proxy itself.
func (t *tunnel) isVisit() bool { return t.clear == onboarding || t.secure == secureOnboarding }

// readConnect returns the tunnel that r asks for.
func readConnect(r *http.Request) (*tunnel, error) {
	host, port, err := origin.SplitAuthority(r.RequestURI)
	switch {
	case err != nil:
		return nil, err
	case port == 0:
		return nil, errors.New("CONNECT needs host and port, as in a.example:443")
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return nil, errors.New("CONNECT has no body (RFC 9110 section 9.3.6)")
	}
	return newTunnel(host, port)
}

// newConnectExchange begins the record of a CONNECT that is not opened here. Its origin is the one over TLS, by whose
// robots.txt a tunnel is judged.
func (s *Server) newConnectExchange(w http.ResponseWriter, r *http.Request, t *tunnel) *exchange {
	ex := s.newExchange(w, r, t)
	ex.identify(r)
	ex.tunnel = nil // r is the CONNECT itself, and came outside of it
	ex.origin = t.secure
	ex.rec.Via = audit.Tunnel
	ex.rec.Scheme, ex.rec.Host, ex.rec.Port = t.secure.Scheme(), t.host, t.port
	return ex
}

// hijackWriter takes a CONNECT's connection over as a tunnelConn, with the octets that came behind the CONNECT: goproxy
// would throw them away.
type hijackWriter struct {
	http.ResponseWriter
	tunnel *tunnel
	server *Server
	slot   *limit.Share[netip.Addr] // of tunnelLimit
	conn   *tunnelConn
}

func (w *hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if c, ok := conn.(*http1.Conn); ok {
		conn = c.NetConn() // the checks end here
	}
	buffered, _ := rw.Reader.Peek(rw.Reader.Buffered())
	w.conn = &tunnelConn{Conn: conn, tunnel: w.tunnel, server: w.server, slot: w.slot, head: bytes.Clone(buffered)}
	w.server.track(w.conn)
	return w.conn, rw, nil
}

// admit reports whether the tunnel that r asks for may be opened; where it may not, r is answered. This alone of a CONNECT
// is work that a stop waits for: a tunnel that is open may be idle for long.
func (w *hijackWriter) admit(r *http.Request) bool {
	if !w.server.handlers.begin() {
		panic(http.ErrAbortHandler)
	}
	defer w.server.handlers.end()
	defer func() {
		if v := recover(); v != nil {
			w.refuse(r, w.newExchange(r).panicked(r, v))
		}
	}()
	ref := w.weigh(r)
	if ref != nil {
		w.refuse(r, w.newExchange(r).refuse(r, ref))
	}
	return ref == nil
}

// weigh finds out who asks for which tunnel, and takes a slot for it.
func (w *hijackWriter) weigh(r *http.Request) *Refusal {
	t, err := readConnect(r)
	if err == nil {
		w.tunnel = t
	}
	client, ref := w.server.identify(r)
	w.tunnel.client, w.tunnel.share = client, client.share(r.RemoteAddr)
	switch {
	case err != nil:
		return targetRefusal(err)
	case ref != nil:
		return ref
	case w.server.interception(t) == policy.NoTunnel:
		return &Refusal{Reason: policy.ReasonIntercept, Detail: "The operator of this proxy lets no tunnel to " + t.host + " through."}
	}
	return w.takeSlot()
}

func (w *hijackWriter) newExchange(r *http.Request) *exchange {
	return w.server.newConnectExchange(w.ResponseWriter, r, w.tunnel)
}

// takeSlot takes a slot among the tunnels, or refuses if all are taken.
func (w *hijackWriter) takeSlot() *Refusal {
	if w.slot = w.server.tunnelLimit.Take(netip.Addr{}, 1); w.slot == nil {
		return &Refusal{Reason: policy.ReasonOverload, Detail: "Too many tunnels are open.", RetryAfter: retryOverload}
	}
	return nil
}

// refuse answers the CONNECT with resp, whose reason stands in the first line too: most clients show no more of it.
func (w *hijackWriter) refuse(r *http.Request, resp *http.Response) {
	conn, _, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		writeResponse(w, r, resp)
		return
	}
	resp.Close = true
	var b bytes.Buffer
	_ = resp.Write(&b) // a Buffer takes all
	http1.CloseWithResponse(conn, b.Bytes())
}

// close ends the connection, if it was taken over.
func (w *hijackWriter) close() {
	if w.conn != nil {
		w.conn.Close()
	}
}

// done gives the slot back, unless the hijacked connection has it now.
func (w *hijackWriter) done() {
	if w.conn == nil {
		w.slot.Release()
	}
}

// handleConnect tells goproxy to give every CONNECT to openTunnel. It is the only CONNECT handler, and it always
// answers: where none does, goproxy opens a raw tunnel.
func (s *Server) handleConnect(host string, _ *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
	return &goproxy.ConnectAction{Action: goproxy.ConnectHijack, Hijack: s.openTunnel}, host
}

// openTunnel answers 200 and gives the connection to the inner server, decrypted where the client speaks TLS, and behind a
// gate where it speaks HTTP/1.x.
func (s *Server) openTunnel(_ *http.Request, conn net.Conn, _ *goproxy.ProxyCtx) {
	c := conn.(*tunnelConn)
	inner, err := s.upgrade(c)
	if err != nil {
		s.endUnused(c, err)
		return
	}
	if !s.tunnels.deliver(inner) {
		c.Close()
	}
}

// established answers the CONNECT. What comes next on c has the time of a header.
func (s *Server) established(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(s.options.HeaderTimeout)); err != nil {
		return err
	}
	_, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
	return err
}

// endUnused ends a tunnel that never got to a request. That a client opens one in advance and closes it is nothing to
// record; one that waits for the server to speak first, or for anything else that cannot come, should be found out why.
func (s *Server) endUnused(c *tunnelConn, cause error) {
	defer c.Close()
	s.log.Debug("a tunnel ended before its first request", "host", c.tunnel.host, "err", cause)
	if errors.Is(cause, os.ErrDeadlineExceeded) {
		s.recordTunnel(c, &Refusal{Reason: policy.ReasonBadRequest, Err: cause})
	}
}

// upgrade looks at the first octet. 0x16 begins a TLS handshake (RFC 8446 section 5.1); everything else must be HTTP in
// clear. Both must come in time: who waits for the other side to speak first, as in SMTP, waits for nothing.
func (s *Server) upgrade(c *tunnelConn) (net.Conn, error) {
	if err := s.established(c); err != nil {
		return nil, err
	}
	var first [1]byte
	if _, err := io.ReadFull(c, first[:]); err != nil {
		return nil, fmt.Errorf("waiting for the client to speak first: %w", err)
	}
	c.head = append(first[:], c.head...)
	if first[0] == 0x16 {
		return s.handshake(c)
	}
	return s.newInnerConn(c, c.tunnel, c.tunnel.clear), c.SetDeadline(time.Time{})
}

// handshake ends the client's TLS, in a time of its own behind that of the first octet. It is done before the inner server
// has the connection, since that would not tell why one failed.
func (s *Server) handshake(c *tunnelConn) (net.Conn, error) {
	if err := c.SetDeadline(time.Now().Add(s.options.HeaderTimeout)); err != nil {
		return nil, err
	}
	c.handshakes = true
	secure := tls.Server(c, s.tls)
	if err := secure.Handshake(); err != nil {
		if c.turnedDown(err) {
			s.distrust.count.Add(1)
			s.distrust.tell(c, "a client does not trust the CA")
			s.recordTunnel(c, &Refusal{Reason: policy.ReasonClientLeft, Err: fmt.Errorf("%w: %w", errDistrust, err)})
		}
		return nil, fmt.Errorf("the TLS handshake: %w", err)
	}
	c.handshakes, c.last = false, nil
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	if secure.ConnectionState().NegotiatedProtocol == "h2" {
		return secure, nil
	}
	return s.newInnerConn(secure, c.tunnel, c.tunnel.secure), nil
}

// tlsConfig is the one configuration of all tunnels, so that a client can resume its session in its next tunnel.
func (s *Server) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1", "http/1.0"},
		GetConfigForClient: s.checkServerName,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.options.Authority.Leaf(hello.Conn.(*tunnelConn).tunnel.host)
		},
	}
}

// checkServerName ends the handshake of a client that names another host than its CONNECT did. It runs for resumed
// sessions too, which ask for no certificate. A client that names none is fine, and an address needs none. The alert is
// internal_error: crypto/tls lets nobody choose another.
func (s *Server) checkServerName(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	c := hello.Conn.(*tunnelConn)
	if hello.ServerName == "" {
		return nil, nil
	}
	if host, err := origin.Host(hello.ServerName); err == nil && host == c.tunnel.host {
		return nil, nil
	}
	err := fmt.Errorf("the TLS server name %q is not the host of the CONNECT, %q", cut(hello.ServerName, 255), c.tunnel.host)
	s.recordTunnel(c, &Refusal{Reason: policy.ReasonMisdirected, Err: err})
	return nil, err
}

// recordTunnel records a tunnel that ended before its first request: nobody could be told but by a TLS alert.
func (s *Server) recordTunnel(c *tunnelConn, ref *Refusal) {
	if !s.handlers.begin() {
		return
	}
	defer s.handlers.end()
	r := &http.Request{Method: http.MethodConnect, RemoteAddr: c.RemoteAddr().String(), Header: http.Header{}}
	s.newConnectExchange(nil, r, c.tunnel).refuse(r, ref)
}

// inner serves one request that came through a tunnel.
func (s *Server) inner(w http.ResponseWriter, r *http.Request) {
	t, _ := r.Context().Value(tunnelKey{}).(*tunnel)
	if t.isVisit() {
		s.receiveVisit(w, r, t)
		return
	}
	s.serve(w, r, t)
}

// innerContext adds the tunnel of c to the contexts of its requests.
func innerContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, tunnelKey{}, tunnelOf(c).tunnel)
}

// tunnelOf returns the tunnelConn under c, a connection of the inner server.
func tunnelOf(c net.Conn) *tunnelConn {
	for {
		switch under := c.(type) {
		case *tunnelConn:
			return under
		case interface{ NetConn() net.Conn }:
			c = under.NetConn()
		}
	}
}

// connQueue is a listener whose connections are handed to it.
type connQueue struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newConnQueue() *connQueue {
	return &connQueue{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// deliver hands c to who accepts. It reports false when nobody does any more.
func (q *connQueue) deliver(c net.Conn) bool {
	select {
	case q.conns <- c:
		return true
	case <-q.closed:
		return false
	}
}

func (q *connQueue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

func (q *connQueue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

func (q *connQueue) Addr() net.Addr { return tunnelAddr{} }

type tunnelAddr struct{}

func (tunnelAddr) Network() string { return "tunnel" }
func (tunnelAddr) String() string  { return "tunnel" }
