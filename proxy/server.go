// Package proxy is the server: it reads the requests of crawlers, judges, paces and records each, and forwards those
// that are allowed.
//
//	srv, err := proxy.New(proxy.Options{
//		Snapshots: cache, Policy: p, Limiter: l, Authority: ca, Recorder: w, Guard: g, Transport: t,
//	})
//	go srv.Serve(listener)
//	...
//	err = srv.Shutdown(ctx)
//
// A request comes in one of two ways: in absolute-form to the front server, or through a CONNECT, inside which the
// proxy ends the TLS, so that it sees the path (inner server). From there on both go the same way, from serve in
// exchange.go: look up the robots.txt of the origin, decide, refuse or pace, forward by goproxy, record. Every request
// is judged before it is sent, and exactly as it is sent. The proxy's own answers carry the fields of a refusal (RFC
// 9209, RFC 9457); inside a tunnel they are sent through it, since clients show no answer to a CONNECT but its status
// line.
//
// Rules are read by package rules, fetched by robots and applied by policy. A Recorder of the caller keeps the records.
package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elazarl/goproxy"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/internal/http1"
	"github.com/robotsproxy/robotsproxy/internal/limit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
)

// The onboarding pages have these names for clients that use the proxy. The one over TLS needs a client that trusts the
// CA; some browsers try it first.
var (
	onboarding, _       = origin.Parse("http://robots.proxy")
	secureOnboarding, _ = origin.Parse("https://robots.proxy")
)

// Server is a forward proxy. Its methods may be called by many goroutines at once.
type Server struct {
	settings atomic.Pointer[settings] // in force; an exchange reads them once
	log      *slog.Logger
	addrs    *clientAddrs // how log writes addresses
	ids      *audit.Sequence
	via      egress.Via // the name of this process in Via fields
	goproxy  *goproxy.ProxyHttpServer
	tls      *tls.Config  // of tunnels
	nearTLS  *tls.Config  // of those from this machine
	front    *http.Server // reads requests outside tunnels
	inner    *http.Server // reads requests inside tunnels
	tunnels  *connQueue   // from front to inner
	active   atomic.Int64 // requests in serve
	handlers *inflight
	opening  *inflight // CONNECTs up to the first request inside their tunnels

	undelivered undelivered // requests that a stop may end

	base         context.Context         // parent of all requests' contexts
	cancel       context.CancelCauseFunc // of base
	streams      context.Context         // parent of raw tunnels and WebSockets, and child of base
	endStreams   context.CancelCauseFunc // of streams
	retiring     atomic.Bool             // Retire was called
	unrecorded   atomic.Int64            // refusals that could not be recorded
	connLimit    *limit.Conns
	tunnelLimit  *limit.Conns
	requests     *limit.Counter[string] // by Client.share
	memory       *limit.Counter[string] // the bytes that requests hold, by Client.share
	caRejections *caRejections
	agents       *agents
	faults       faultLog     // of clients
	costly       *limit.Slots // for costly decisions, which leave one processor free

	timeouts timeouts

	mu    sync.Mutex // guards conns
	conns map[net.Conn]struct{}
}

// errStopping ends the requests that have not ended when the context of Shutdown ends.
var errStopping = errors.New("the proxy is stopping")

// New returns a Server, or an error if a required option is missing or options contradict each other.
func New(o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	addrs := &clientAddrs{}
	addrs.set(o.ClientAddr)
	o.Logger = slog.New(addrLog{o.Logger.Handler(), addrs})
	s := &Server{
		log: o.Logger, addrs: addrs, ids: o.IDs, via: egress.NewVia(o.Pseudonym),
		tunnels: newConnQueue(), conns: make(map[net.Conn]struct{}),
		handlers: newInflight(), opening: newInflight(),
		connLimit: o.Limits.connections("limits", o.Logger), tunnelLimit: o.Limits.tunnels(o.Logger),
		requests: o.Limits.requests(o.Logger), memory: o.Limits.memory(o.Logger),
		caRejections: newCARejections(o.Logger), agents: newAgents(), costly: limit.NewSlots(runtime.GOMAXPROCS(0) - 1),
	}
	s.settings.Store(newSettings(o, 0))
	s.base, s.cancel = context.WithCancelCause(context.Background())
	s.streams, s.endStreams = context.WithCancelCause(s.base)
	s.goproxy = s.newGoproxy()
	s.tls, s.nearTLS = s.tlsConfig(), s.nearTLSConfig()
	s.front, s.inner = s.newHTTPServer(o, s.serveFront), s.newHTTPServer(o, s.serveInner)
	s.inner.TLSConfig = s.tls // makes net/http speak HTTP/2 to a client that chose it in the handshake
	s.front.ConnContext, s.inner.ConnContext = frontContext, innerContext
	s.inner.ConnState = s.innerState
	http1.Install(s.front)
	http1.Install(s.inner)
	return s, nil
}

// Reload replaces the Options. Requests that began before keep theirs, except that a request that waits is judged by
// the new ones when it has its place, as the client that it is by then. Connections stay open, and a client may hold
// more than new Limits allow until it has given some back.
//
// Reload keeps TLS, ProxyProtocol, Pseudonym, IDs, Logger, HeaderTimeout and IdleTimeout. It returns an error and
// changes nothing if o is invalid. The caller must not change what o refers to afterwards, and must serialise calls.
func (s *Server) Reload(o Options) error {
	now := s.settings.Load()
	o.Pseudonym, o.IDs, o.Logger = now.Pseudonym, now.IDs, now.Logger
	o.HeaderTimeout, o.IdleTimeout = now.HeaderTimeout, now.IdleTimeout
	o.TLS, o.ProxyProtocol = now.TLS, now.ProxyProtocol
	if err := o.complete(); err != nil {
		return err
	}
	s.addrs.set(o.ClientAddr)
	s.settings.Store(newSettings(o, now.version+1))
	s.connLimit.SetMax(o.Limits.Connections, o.Limits.ConnectionsPerClient)
	s.tunnelLimit.SetMax(o.Limits.Tunnels, 0)
	s.requests.SetMax(o.Limits.Requests, o.Limits.RequestsPerClient)
	s.memory.SetMax(o.Limits.RequestMemory, o.Limits.RequestMemoryPerClient)
	return nil
}

// newGoproxy configures goproxy to pass each request to the RoundTrip of its exchange, and each CONNECT to openTunnel.
func (s *Server) newGoproxy() *goproxy.ProxyHttpServer {
	p := goproxy.NewProxyHttpServer()
	p.Logger = goproxyLog{s.log}
	p.KeepAcceptEncoding = true // bodies pass byte for byte
	p.KeepHeader = true         // prepare has removed the fields that goproxy would remove
	p.Tr = nil                  // the default skips certificate verification and uses HTTPS_PROXY
	p.ConnectDial = nil
	p.OnRequest().HandleConnectFunc(s.handleConnect)
	p.OnRequest().DoFunc(func(r *http.Request, ctx *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		ctx.RoundTripper = exchangeOf(r)
		return r, nil
	})
	return p
}

// newHTTP2Config limits the concurrent requests of one HTTP/2 connection and the bytes that are buffered for it. The
// defaults of net/http are 250 requests, 1 MiB for a frame, and 1 MiB for unread bodies.
func newHTTP2Config() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams: maxStreams, MaxReadFrameSize: 16 << 10,
		MaxReceiveBufferPerStream: streamWindow, MaxReceiveBufferPerConnection: connectionWindow,
	}
}

func (s *Server) newHTTPServer(o Options, h http.HandlerFunc) *http.Server {
	return &http.Server{
		Handler:                      h,
		BaseContext:                  func(net.Listener) context.Context { return s.base },
		ReadHeaderTimeout:            o.HeaderTimeout,
		IdleTimeout:                  o.IdleTimeout,
		MaxHeaderBytes:               http1.MaxHeaderBytes,
		HTTP2:                        newHTTP2Config(),
		ErrorLog:                     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		DisableGeneralOptionsHandler: true,
	}
}

// Serve accepts connections from l until Shutdown or Close, and then returns nil.
func (s *Server) Serve(l net.Listener) error {
	s.settings.Load().Guard.Protect(l.Addr())
	innerEnded := make(chan struct{})
	go func() {
		defer close(innerEnded)
		_ = s.inner.Serve(s.tunnels) // it returns when it is closed: the listener does not fail
	}()
	err := s.front.Serve(http1.NewListener(s.inbound(l), s.http1Options()))
	if !errors.Is(err, http.ErrServerClosed) {
		s.inner.Close()
	}
	<-innerEnded
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("proxy: serving %s: %w", l.Addr(), err)
}

// Shutdown accepts no new connections and waits until the requests in flight have ended, WebSockets and raw tunnels
// included. Requests that wait for their place in a lane get it. Other connections end after their current request,
// with Connection: close or the GOAWAY frame of HTTP/2. When ctx ends, Shutdown ends the rest as Close does, and returns
// the error of ctx: a request that waits gets 503 with Retry-After.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.drain(ctx)
	return errors.Join(err, s.Close())
}

// openingGrace is the time in which a tunnel may begin its first request after Shutdown began. For new connections,
// net/http has the same.
const openingGrace = 5 * time.Second

// drain waits until every request is answered, or until ctx ends. The inner server stops last, after the tunnels that
// are being opened have reached it: their clients have begun a request.
func (s *Server) drain(ctx context.Context) error {
	s.endKeepAlive()
	opening, cancel := context.WithTimeout(ctx, openingGrace)
	defer cancel()
	_ = s.front.Shutdown(opening)
	_ = s.opening.wait(opening)
	return s.finish(ctx)
}

// endKeepAlive ends every connection of HTTP/1.x after its current response, and idle ones at once.
func (s *Server) endKeepAlive() {
	s.front.SetKeepAlivesEnabled(false)
	s.inner.SetKeepAlivesEnabled(false)
}

// finish accepts no connections and waits until every request is answered, or until ctx ends.
func (s *Server) finish(ctx context.Context) error {
	s.endKeepAlive()
	ended := make(chan error, 3) // concurrently: each may take until ctx ends
	go func() { ended <- s.front.Shutdown(ctx) }()
	go func() { ended <- s.inner.Shutdown(ctx) }()
	go func() { ended <- s.handlers.wait(ctx) }()
	return errors.Join(<-ended, <-ended, <-ended)
}

// closeGrace is the time for canceled requests to be answered before their connections are closed.
const closeGrace = time.Second

// Close cancels all requests and returns when every one has ended, with a complete record. No request begins after
// that, so the caller may close the parts that the Server uses.
func (s *Server) Close() error {
	s.cancel(errStopping)
	grace, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	_ = s.finish(grace) // the connections of the rest are closed
	err := errors.Join(s.front.Close(), s.inner.Close())
	s.closeTracked()
	s.handlers.close()
	return err
}

// Active returns the number of requests that wait or are being answered.
func (s *Server) Active() int64 { return s.active.Load() }

// Unrecorded returns the number of requests that were refused because their decision could not be recorded.
func (s *Server) Unrecorded() int64 { return s.unrecorded.Load() }

// Tunnels returns the number of hijacked connections: tunnels and WebSockets.
func (s *Server) Tunnels() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.conns))
}

// Connections returns the number of open connections of clients.
func (s *Server) Connections() int64 { return s.connLimit.InUse() }

// Refused returns the number of connections and tunnels that exceeded a limit.
func (s *Server) Refused() int64 { return s.connLimit.Refused() + s.tunnelLimit.Refused() }

// Distrusted returns the number of TLS handshakes that ended because the client does not trust the CA.
func (s *Server) Distrusted() int64 { return s.caRejections.count.Load() }

// track keeps a hijacked connection for Close: net/http does not close it.
func (s *Server) track(c net.Conn) {
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	if s.base.Err() != nil {
		c.Close() // closeTracked may have run
	}
}

func (s *Server) untrack(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

func (s *Server) closeTracked() {
	s.mu.Lock()
	conns := make([]net.Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

// serveFront serves a request outside tunnels: a CONNECT, a request for the proxy itself, or one for an origin.
func (s *Server) serveFront(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect:
		s.connect(w, r)
	case isOnboarding(r):
		s.serveOnboarding(w, r, nil)
	default:
		s.serve(w, r, nil)
	}
}

// serveOnboarding answers a request for the proxy itself, outside or inside tunnel t. It refuses a path that
// http.ServeMux would redirect, such as "//a.example/x": it was meant for another server.
func (s *Server) serveOnboarding(w http.ResponseWriter, r *http.Request, t *tunnel) {
	if !isClean(r.URL.EscapedPath()) {
		err := errors.New("the target is a path without a host, and no page of the proxy " +
			"has a path with empty or dot segments")
		s.newExchange(w, r, t).reject(r, targetRefusal(err))
		return
	}
	limitDrain(w, r)
	if t != nil {
		r.URL.Scheme, r.URL.Host = "http", r.Host // absolute, as in every request through the proxy
	}
	s.settings.Load().Onboarding.ServeHTTP(w, r)
}

// isClean reports whether http.ServeMux takes an escaped path as it is. An empty path is that of "/".
func isClean(p string) bool {
	clean := path.Clean("/" + p)
	return p == "" || p == clean || p == clean+"/" && clean != "/"
}

// isOnboarding reports whether r is for the proxy itself: its target is a path, or on the host of the onboarding pages.
func isOnboarding(r *http.Request) bool {
	if !r.URL.IsAbs() {
		return strings.HasPrefix(r.URL.Path, "/")
	}
	o, err := origin.FromURL(r.URL)
	return err == nil && o == onboarding
}

// goproxyLog writes the messages of goproxy to the debug log. In some the format string contains data of the request: a
// "%" in that is garbled, and harmless.
type goproxyLog struct{ log *slog.Logger }

func (l goproxyLog) Printf(format string, v ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("goproxy", "message", fmt.Sprintf(format, v...))
	}
}

// http1Options are the options of connections outside tunnels.
func (s *Server) http1Options() http1.Options {
	return http1.Options{Refuse: func(c net.Conn, e *http1.SyntaxError) { s.refuseMalformed(c, nil, e) }}
}

// newInnerConn returns the connection inside tunnel t for requests to o.
func (s *Server) newInnerConn(c net.Conn, t *tunnel, o origin.Origin) net.Conn {
	return http1.New(c, http1.Options{
		Refuse:    func(c net.Conn, e *http1.SyntaxError) { s.refuseMalformed(c, t, e) },
		CheckHost: func(host string) error { return checkHost(host, o) },
	})
}

// refuseMalformed answers and records bytes on c that are not a request.
func (s *Server) refuseMalformed(c net.Conn, t *tunnel, e *http1.SyntaxError) {
	s.refuseConn(c, t, c, malformedRefusal(e))
}

// refuseConn records the refusal of c, outside tunnels or inside t, before a request was read. It answers on answer
// unless that is nil.
func (s *Server) refuseConn(c net.Conn, t *tunnel, answer net.Conn, ref *refusal) {
	if !s.handlers.tryBegin() {
		return // the Server is closed
	}
	defer s.handlers.end()
	r := &http.Request{RemoteAddr: c.RemoteAddr().String(), Header: http.Header{}}
	ex := s.newExchange(nil, r, t)
	if t != nil {
		ex.rec.Host, ex.rec.Port = t.host, t.port
	}
	ex.response.conn = answer
	ex.reject(r, ref)
}

func malformedRefusal(e *http1.SyntaxError) *refusal {
	if e.Err != nil {
		return targetRefusal(e.Err)
	}
	detail := "This is not a well-formed HTTP/1.1 request (RFC 9112): " + e.Error() + "."
	return &refusal{Reason: policy.ReasonBadRequest, Status: e.Status, Detail: detail, Err: e}
}
