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
	"sync/atomic"
	"time"

	"github.com/elazarl/goproxy"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/http1"
	"github.com/robotsproxy/robotsproxy/internal/limit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
)

// tunnel is the target of a CONNECT and the client that sent it. Every request inside the tunnel is for this host and
// port.
type tunnel struct {
	identity
	client  *Client     // nil if unknown
	share   string      // see Client.share
	version int         // of the settings by which client was found
	opening atomic.Bool // see Server.opened
	agent   string      // the label of the CONNECT's User-Agent
	host    string
	port    uint16
	clear   origin.Origin // of requests without TLS
	secure  origin.Origin // of requests over TLS
}

func newTunnel(host string, port uint16) (t *tunnel, err error) {
	t = &tunnel{host: host, port: port}
	if t.clear, err = origin.New("http", host, port); err != nil {
		return nil, err
	}
	t.secure, err = origin.New("https", host, port)
	return t, err
}

// origin returns the origin of a request inside the tunnel.
func (t *tunnel) origin(r *http.Request) origin.Origin {
	if r.TLS != nil {
		return t.secure
	}
	return t.clear
}

// tunnelConn is a client's connection after its CONNECT was answered. Read first returns the bytes that net/http had
// read from it: a client may send its first TLS record in the same segment as the CONNECT.
type tunnelConn struct {
	net.Conn
	tunnel *tunnel
	server *Server
	slot   *limit.Share[netip.Addr] // of tunnelLimit
	head   []byte                   // read from Conn, and not yet returned by Read

	inHandshake bool   // of TLS
	lastRead    []byte // the last bytes that were read in the handshake: see rejectedCA
}

func (c *tunnelConn) Read(p []byte) (int, error) {
	if len(c.head) == 0 {
		n, err := c.Conn.Read(p)
		if c.inHandshake {
			c.lastRead = append(c.lastRead[:0], p[max(0, n-alertLength):n]...)
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

// CloseWrite ends what is sent, so that the client can read the last answer.
func (c *tunnelConn) CloseWrite() error { return http1.CloseWrite(c.Conn) }

type tunnelKey struct{}

// connect answers a CONNECT. For a host whose tunnels are decrypted it refuses only a target that is not host and port,
// missing or wrong credentials, and one tunnel too many: most clients do not show the answer to a CONNECT, but do show
// an answer inside the tunnel. The sender of the CONNECT is the client of every request inside.
func (s *Server) connect(w http.ResponseWriter, r *http.Request) {
	s.opening.begin()
	defer s.opening.end()
	hw := &hijackWriter{ResponseWriter: w, tunnel: &tunnel{}, server: s}
	ex, ok := hw.mayOpen(r)
	if !ok {
		return
	}
	defer hw.releaseUnused()
	if ex.settings.interception(hw.tunnel) == policy.Tunnel {
		s.serveRawTunnel(hw, ex, r)
		return
	}
	defer ex.recoverPanic(r)
	s.goproxy.ServeHTTP(hw, r)
}

// interception returns how t is handled. A tunnel to the proxy itself is always decrypted.
func (s *settings) interception(t *tunnel) policy.Interception {
	if t.isOnboarding() {
		return policy.Intercept
	}
	return s.Policy.Interception(t.host)
}

// isOnboarding reports whether requests inside t are for the proxy itself.
func (t *tunnel) isOnboarding() bool { return t.clear == onboarding || t.secure == secureOnboarding }

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

// hijackWriter hijacks the connection of a CONNECT as a tunnelConn. goproxy would lose the bytes that net/http read
// after the CONNECT.
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
	if c, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = c.NetConn() // without the checks of http1
	}
	buffered, _ := rw.Reader.Peek(rw.Reader.Buffered())
	w.conn = &tunnelConn{Conn: conn, tunnel: w.tunnel, server: w.server, slot: w.slot, head: bytes.Clone(buffered)}
	w.server.track(w.conn)
	return w.conn, rw, nil
}

// mayOpen reports whether the tunnel of r may be opened. If not, it answers r. Of a CONNECT, Shutdown waits for this
// only: an open tunnel may be idle for long.
func (w *hijackWriter) mayOpen(r *http.Request) (ex *exchange, ok bool) {
	w.server.handlers.begin()
	defer w.server.handlers.end()
	ex = w.server.newExchange(w.ResponseWriter, r, nil)
	ex.rec.Via = audit.Tunnel
	defer ex.recoverPanic(r)
	if ref := w.authorize(ex, r); ref != nil {
		ex.answer(r, ref)
		return nil, false
	}
	return ex, true
}

// authorize reads the target and the client of r, and takes a slot for the tunnel.
func (w *hijackWriter) authorize(ex *exchange, r *http.Request) *refusal {
	t, err := readConnect(r)
	if err == nil {
		w.tunnel = t
		ex.setTunnelTarget(t)
	}
	ex.identify(r)
	w.tunnel.identity, w.tunnel.client, w.tunnel.share = ex.identity, ex.client, ex.share
	w.tunnel.version, w.tunnel.agent = ex.settings.version, ex.rec.Agent
	switch {
	case err != nil:
		return targetRefusal(err)
	case ex.denied != nil:
		return ex.denied
	case ex.settings.interception(t) == policy.NoTunnel:
		return &refusal{Reason: policy.ReasonIntercept, Detail: "The operator of this proxy lets no tunnel to " + t.host + " through."}
	}
	if w.slot = w.server.tunnelLimit.Take(netip.Addr{}, 1); w.slot == nil {
		return overload("Too many tunnels are open.", nil)
	}
	return nil
}

// setTunnelTarget makes ex an exchange about t itself. The robots.txt of the origin over TLS judges a tunnel.
func (ex *exchange) setTunnelTarget(t *tunnel) {
	ex.origin = t.secure
	ex.rec.Scheme, ex.rec.Host, ex.rec.Port = t.secure.Scheme(), t.host, t.port
}

// close closes the connection if it was hijacked.
func (w *hijackWriter) close() {
	if w.conn != nil {
		w.conn.Close()
	}
}

// releaseUnused gives the slot back, unless the hijacked connection has it.
func (w *hijackWriter) releaseUnused() {
	if w.conn == nil {
		w.slot.Release()
	}
}

// handleConnect makes goproxy call openTunnel for every CONNECT. It is the only CONNECT handler and always answers:
// without an answer, goproxy opens a tunnel that is not judged.
func (s *Server) handleConnect(host string, _ *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
	return &goproxy.ConnectAction{Action: goproxy.ConnectHijack, Hijack: s.openTunnel}, host
}

// openTunnel answers 200 and gives the connection to the inner server: decrypted if the client speaks TLS, and checked
// by http1 if it speaks HTTP/1.x.
func (s *Server) openTunnel(_ *http.Request, conn net.Conn, _ *goproxy.ProxyCtx) {
	c, delivered := conn.(*tunnelConn), false
	defer func() {
		if !delivered {
			c.Close()
		}
	}()
	inner, err := s.upgrade(c)
	if err != nil {
		s.recordUnused(c, err)
		return
	}
	s.opening.begin()
	c.tunnel.opening.Store(true)
	if delivered = s.tunnels.deliver(inner); !delivered {
		s.opened(c.tunnel)
	}
}

// opened ends the opening of t: its first request is being served, or there will be none. Until then the inner server
// must not shut down, since it would drop that request unanswered.
func (s *Server) opened(t *tunnel) {
	if t.opening.CompareAndSwap(true, false) {
		s.opening.end()
	}
}

func (s *Server) innerState(c net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		s.opened(tunnelOf(c).tunnel)
	}
}

// established answers the CONNECT. The client has HeaderTimeout to send its first byte.
func (s *Server) established(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(s.settings.Load().HeaderTimeout)); err != nil {
		return err
	}
	_, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
	return err
}

// recordUnused records a tunnel without requests that timed out, so that an operator can find a client which waits for
// the server to speak first. A tunnel that its client opened in advance and closed is not recorded.
func (s *Server) recordUnused(c *tunnelConn, cause error) {
	s.log.Debug("a tunnel ended before its first request", "host", c.tunnel.host, "err", cause)
	if errors.Is(cause, os.ErrDeadlineExceeded) {
		s.recordTunnel(c, &refusal{Reason: policy.ReasonBadRequest, Err: cause})
	}
}

// upgrade returns the connection for the inner server. A first byte of 0x16 begins a TLS handshake (RFC 8446 section
// 5.1); otherwise the client speaks HTTP without TLS. The byte must arrive within HeaderTimeout: in some protocols,
// such as SMTP, the client waits for the server.
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

// handshake terminates the client's TLS, within another HeaderTimeout. The inner server could do it, but would not
// report why a handshake failed.
func (s *Server) handshake(c *tunnelConn) (net.Conn, error) {
	if err := c.SetDeadline(time.Now().Add(s.settings.Load().HeaderTimeout)); err != nil {
		return nil, err
	}
	c.inHandshake = true
	secure := tls.Server(c, s.tlsOf(c.RemoteAddr()))
	if err := secure.Handshake(); err != nil {
		if c.rejectedCA(err) {
			s.caRejections.add(c)
			s.recordTunnel(c, &refusal{Reason: policy.ReasonClientLeft, Err: fmt.Errorf("%w: %w", errCARejected, err)})
		}
		return nil, fmt.Errorf("the TLS handshake: %w", err)
	}
	c.inHandshake, c.lastRead = false, nil
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	if secure.ConnectionState().NegotiatedProtocol == "h2" {
		return secure, nil
	}
	return s.newInnerConn(secure, c.tunnel, c.tunnel.secure), nil
}

// tlsConfig returns the configuration for all tunnels. They share one so that a client can resume its session in the
// next tunnel.
func (s *Server) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1", "http/1.0"},
		GetConfigForClient: s.checkServerName,
		// Else crypto/tls sends the first answers of a tunnel in records of one packet, each with a system call.
		DynamicRecordSizingDisabled: true,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.settings.Load().Authority.Leaf(hello.Conn.(*tunnelConn).tunnel.host)
		},
	}
}

// nearTLSConfig returns the configuration for tunnels that do not leave this machine. The key exchange that protects
// recorded traffic from later quantum computers is a tenth of the cost of a new tunnel, and has no use there.
func (s *Server) nearTLSConfig() *tls.Config {
	near := s.tlsConfig()
	near.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521}
	return near
}

// tlsOf returns the configuration for tunnels from a client's address.
func (s *Server) tlsOf(remote net.Addr) *tls.Config {
	if tcp, ok := remote.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		return s.nearTLS
	}
	return s.tls
}

// checkServerName fails the handshake if the client's server name is not the host of its CONNECT. A handshake without a
// server name passes. (GetCertificate would not do: a resumed session does not call it.) The client gets the alert
// internal_error, since crypto/tls does not let a callback choose another.
func (s *Server) checkServerName(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	c := hello.Conn.(*tunnelConn)
	if hello.ServerName == "" {
		return nil, nil
	}
	if host, err := origin.Host(hello.ServerName); err == nil && host == c.tunnel.host {
		return nil, nil
	}
	err := fmt.Errorf("the TLS server name %q is not the host of the CONNECT, %q", cut(hello.ServerName, 255), c.tunnel.host)
	s.recordTunnel(c, &refusal{Reason: policy.ReasonMisdirected, Err: err})
	return nil, err
}

// recordTunnel records a tunnel that ended before its first request. The client gets no answer but the end of the
// connection.
func (s *Server) recordTunnel(c *tunnelConn, ref *refusal) {
	r := &http.Request{Method: http.MethodConnect, RemoteAddr: c.RemoteAddr().String(), Header: http.Header{}}
	ex := s.newExchange(nil, r, c.tunnel)
	ex.rec.Via = audit.Tunnel
	ex.setTunnelTarget(c.tunnel)
	ex.reject(r, ref)
}

// serveInner serves a request inside a tunnel.
func (s *Server) serveInner(w http.ResponseWriter, r *http.Request) {
	s.handlers.begin()
	defer s.handlers.end()
	t, _ := r.Context().Value(tunnelKey{}).(*tunnel)
	s.opened(t)
	if t.isOnboarding() {
		s.serveOnboarding(w, r, t)
		return
	}
	s.serve(w, r, t)
}

// innerContext adds the tunnel of c to the contexts of the requests on c.
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

// connQueue is a net.Listener that accepts the connections passed to deliver.
type connQueue struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newConnQueue() *connQueue {
	return &connQueue{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// deliver passes c to Accept. It reports false after Close.
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
