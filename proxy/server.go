// Package proxy is the server: it takes a crawler's requests, has each of them judged, paced and recorded, and sends what
// may be sent.
//
//	srv, err := proxy.New(proxy.Options{Snapshots: cache, Policy: p, Limiter: l, Authority: ca, Recorder: w, Guard: g, Transport: t})
//	go srv.Serve(listener)
//	...
//	err = srv.Shutdown(ctx)
//
// A request comes in one of two ways: in absolute-form to the front server, or through a CONNECT, inside which the proxy ends
// the TLS, so that it sees the path (inner server). From there on both go the same way, from serve in exchange.go: look up
// the robots.txt of the origin, decide, refuse or pace, forward by goproxy, record. Every request is judged before it is
// sent, and exactly as it is sent. The proxy's own answers carry the fields of a Refusal (RFC 9209, RFC 9457); inside a tunnel
// they are sent through it, since clients show no answer to a CONNECT but its status line.
//
// Rules are read by package rules, fetched by robots and applied by policy. The caller provides where records go.
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
	"github.com/robotsproxy/robotsproxy/auth"
	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/internal/http1"
	"github.com/robotsproxy/robotsproxy/internal/limit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots"
)

// Snapshots finds an origin's robots.txt as it stands now, for asker. An error means that not even its failure is known.
// Kept returns the newest copy that is in memory, fresh or not, and nil if there is none; it does not wait.
type Snapshots interface {
	Kept(o origin.Origin) *robots.Snapshot
	Snapshot(ctx context.Context, o origin.Origin, asker robots.Asker) (*robots.Snapshot, error)
}

// Recorder keeps records. Begin is called once the decision is made and before anything is sent or answered; its error
// refuses the request. End is called once for each record that was begun, when the request has ended.
type Recorder interface {
	Begin(ctx context.Context, r *audit.Record) error
	End(r *audit.Record)
}

// Options are the parts that a Server works with. Those without "if zero" are required.
type Options struct {
	Snapshots Snapshots
	Policy    *policy.Policy
	Limiter   *ratelimit.Limiter
	Authority *certs.Authority
	Recorder  Recorder
	Guard     *egress.Guard
	Transport http.RoundTripper // to origins; it must dial through Egress

	Clients        []Client        // who may use the proxy, the first that matches; if nil, every user, and without AuthRequired everybody, who is then "local"
	Users          *auth.Users     // users and their passwords; if nil, credentials are ignored
	AuthRequired   bool            // refuse requests without credentials
	MaxWait        time.Duration   // how long a request may be held for its host's pace; if zero, 150 s; if negative, not at all
	MaxWaitCap     time.Duration   // up to which a request may prefer to be held longer; if zero, none may
	Pace           Pace            // which hosts share a pace
	RefusalStatus  int             // of a refusal by robots.txt; if zero, 403
	Pseudonym      string          // our name in Via; if empty, one is made: see egress.NewPseudonym
	ResponseFields bool            // forwarded answers carry Robotsproxy-Request-Id and Robotsproxy-Waited
	ServeRobots    bool            // answer requests for /robots.txt with the file that is enforced
	IDs            *audit.Sequence // of the records, shared with ownfetch; if nil, the Server has its own
	Query          audit.QueryMode // what records keep of queries; if zero, credentials are masked
	HeaderTimeout  time.Duration   // for a request's header and a TLS handshake; if zero, 10 s
	IdleTimeout    time.Duration   // for a connection between two requests, a WebSocket, and an unread tunnel; if zero, 2 minutes
	Limits         Limits          // what clients can hold
	Onboarding     http.Handler    // answers requests for the proxy itself; their URL is absolute if they came through it; if nil, 404
	Logger         *slog.Logger    // if nil, nothing is logged
}

// The names under which the onboarding pages are reached through the proxy. Over TLS they are for who trusts the CA
// already, and whose browser asks that way first.
var (
	onboarding, _       = origin.Parse("http://robots.proxy")
	secureOnboarding, _ = origin.Parse("https://robots.proxy")
)

// Server is a forward proxy. Its methods may be called by many goroutines at once.
type Server struct {
	options   Options
	log       *slog.Logger
	ids       *audit.Sequence
	byUser    map[string]*Client // who they are where no clients are listed
	via       egress.Via         // our name in each message's path, different for each process
	goproxy   *goproxy.ProxyHttpServer
	tls       *tls.Config
	front     *http.Server // reads what clients send to the proxy
	innerHTTP *http.Server // reads what they send inside tunnels
	tunnels   *connQueue   // from the one to the other
	active    atomic.Int64 // requests under way
	handlers  *inflight

	life         context.Context // that of every request; it ends when Shutdown's grace does
	end          context.CancelCauseFunc
	unrecorded   atomic.Int64 // refusals that could not be recorded
	connLimit    *limit.Conns
	tunnelLimit  *limit.Conns
	requests     *limit.Counter[string] // by Client.share
	memory       *limit.Counter[string] // the bytes that requests hold, by Client.share
	caRejections *caRejections
	costly       *limit.Slots // for costly decisions; one processor has none

	timeouts timeouts

	mu    sync.Mutex // guards conns
	conns map[net.Conn]struct{}
}

// errStopping ends the requests that go on past the grace of Shutdown.
var errStopping = errors.New("the proxy is stopping")

// New returns a Server, or says which part is missing.
func New(o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Server{
		options: o, log: o.Logger, ids: o.IDs, via: egress.NewVia(o.Pseudonym),
		tunnels: newConnQueue(), conns: make(map[net.Conn]struct{}), handlers: newInflight(),
		connLimit: o.Limits.connections("limits", o.Logger), tunnelLimit: o.Limits.tunnels(o.Logger),
		requests: o.Limits.requests(o.Logger), memory: o.Limits.memory(o.Logger), caRejections: newCARejections(o.Logger), costly: limit.NewSlots(runtime.GOMAXPROCS(0) - 1),
	}
	s.byUser = clientsByUser(o.Users)
	s.life, s.end = context.WithCancelCause(context.Background())
	s.goproxy = s.newGoproxy()
	s.tls = s.tlsConfig()
	s.front, s.innerHTTP = s.newHTTPServer(s.frontDoor), s.newHTTPServer(s.inner)
	s.innerHTTP.TLSConfig = s.tls // tells net/http to speak HTTP/2 where a client chose it
	s.innerHTTP.ConnContext = innerContext
	http1.Install(s.front)
	http1.Install(s.innerHTTP)
	return s, nil
}

func (o *Options) complete() error {
	if o.Snapshots == nil || o.Policy == nil || o.Limiter == nil || o.Authority == nil || o.Recorder == nil || o.Guard == nil || o.Transport == nil {
		return errors.New("proxy: New needs Snapshots, Policy, Limiter, Authority, Recorder, Guard and Transport")
	}
	if o.AuthRequired && o.Users == nil {
		return errors.New("proxy: AuthRequired without Users would refuse every request")
	}
	if o.MaxWait == 0 {
		o.MaxWait = 150 * time.Second
	}
	o.MaxWait = max(0, o.MaxWait)
	if o.HeaderTimeout == 0 {
		o.HeaderTimeout = 10 * time.Second
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 2 * time.Minute
	}
	if o.Pseudonym == "" {
		o.Pseudonym = egress.NewPseudonym()
	}
	if o.IDs == nil {
		o.IDs = new(audit.Sequence)
	}
	if o.Onboarding == nil {
		o.Onboarding = http.NotFoundHandler()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// newGoproxy sets goproxy up so that it only routes: requests to their exchange, CONNECTs to openTunnel.
func (s *Server) newGoproxy() *goproxy.ProxyHttpServer {
	p := goproxy.NewProxyHttpServer()
	p.Logger = goproxyLog{s.log}
	p.KeepAcceptEncoding = true // bodies pass byte for byte
	p.Tr = nil                  // its default verifies nothing and takes a proxy from the environment
	p.ConnectDial = nil
	p.OnRequest().HandleConnectFunc(s.handleConnect)
	p.OnRequest().DoFunc(func(r *http.Request, ctx *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		ctx.RoundTripper = exchangeOf(r)
		return r, nil
	})
	return p
}

// newHTTP2Config bounds the requests of one HTTP/2 connection and the bytes that are buffered for it. By default net/http allows
// 250 requests, 1 MiB for a frame, and 1 MiB for bodies that nobody reads.
func newHTTP2Config() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams: maxStreams, MaxReadFrameSize: 16 << 10,
		MaxReceiveBufferPerStream: streamWindow, MaxReceiveBufferPerConnection: connectionWindow,
	}
}

func (s *Server) newHTTPServer(h http.HandlerFunc) *http.Server {
	return &http.Server{
		Handler:                      h,
		BaseContext:                  func(net.Listener) context.Context { return s.life },
		ReadHeaderTimeout:            s.options.HeaderTimeout,
		IdleTimeout:                  s.options.IdleTimeout,
		MaxHeaderBytes:               http1.MaxHeaderBytes,
		HTTP2:                        newHTTP2Config(),
		ErrorLog:                     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		DisableGeneralOptionsHandler: true,
	}
}

// Serve takes connections from l until Shutdown, and then returns nil.
func (s *Server) Serve(l net.Listener) error {
	s.options.Guard.Protect(l.Addr())
	inner := make(chan struct{})
	go func() {
		defer close(inner)
		_ = s.innerHTTP.Serve(s.tunnels) // it ends when it is closed: its listener cannot fail
	}()
	err := s.front.Serve(http1.NewListener(limitListener(l, s.connLimit), s.http1Options()))
	if !errors.Is(err, http.ErrServerClosed) {
		s.innerHTTP.Close()
	}
	<-inner
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("proxy: serving %s: %w", l.Addr(), err)
}

// Shutdown takes no new connections and lets the requests under way end, WebSockets too. When ctx ends, what is left is
// told so where it still can be, and cut off; Shutdown then returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.drain(ctx)
	return errors.Join(err, s.Close())
}

// drain waits until every request is answered, or until ctx ends.
func (s *Server) drain(ctx context.Context) error {
	s.front.SetKeepAlivesEnabled(false)
	s.innerHTTP.SetKeepAlivesEnabled(false)
	ended := make(chan error, 3) // all at once: none may use up the grace of another
	go func() { ended <- s.front.Shutdown(ctx) }()
	go func() { ended <- s.innerHTTP.Shutdown(ctx) }()
	go func() { ended <- s.waitHandlers(ctx) }()
	return errors.Join(<-ended, <-ended, <-ended)
}

// lastWords is how long requests may take to end once they are told to, before their connections are closed.
const lastWords = time.Second

// Close ends everything and returns when every request has ended, so that its record is complete. No request begins after
// that, so the parts that the Server uses may be closed.
func (s *Server) Close() error {
	s.end(errStopping)
	told, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	_ = s.drain(told) // what has not ended then is cut off
	err := errors.Join(s.front.Close(), s.innerHTTP.Close())
	s.closeTracked()
	s.handlers.close()
	return err
}

// waitHandlers waits until no request is under way, WebSockets included, which net/http does not wait for.
func (s *Server) waitHandlers(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.handlers.wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Active returns how many requests are under way.
func (s *Server) Active() int64 { return s.active.Load() }

// Unrecorded returns how many requests were refused because their decision could not be recorded.
func (s *Server) Unrecorded() int64 { return s.unrecorded.Load() }

// Tunnels returns how many connections are out of net/http's hands: tunnels and WebSockets.
func (s *Server) Tunnels() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.conns))
}

// Connections returns how many connections of clients are open.
func (s *Server) Connections() int64 { return s.connLimit.InUse() }

// Refused returns how many connections and tunnels were answered that the proxy is at its limit.
func (s *Server) Refused() int64 { return s.connLimit.Refused() + s.tunnelLimit.Refused() }

// Distrusted returns how many TLS handshakes ended because the client did not trust our CA.
func (s *Server) Distrusted() int64 { return s.caRejections.count.Load() }

// track remembers a connection that net/http has let go, so that Shutdown finds it.
func (s *Server) track(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
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

// frontDoor parts what clients send to the proxy itself: tunnels, requests for origins, and visits to the proxy.
func (s *Server) frontDoor(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect:
		s.connect(w, r)
	case isVisit(r):
		s.receiveVisit(w, r, nil)
	default:
		s.serve(w, r, nil)
	}
}

// receiveVisit answers a request for the proxy itself. A path that a router would clean, such as "//a.example/x", is refused:
// it was meant for somebody else, and the router would redirect to another path.
func (s *Server) receiveVisit(w http.ResponseWriter, r *http.Request, t *tunnel) {
	if !isClean(r.URL.EscapedPath()) {
		s.refuseVisit(w, r, t)
		return
	}
	limitDrain(w, r)
	if t != nil {
		r.URL.Scheme, r.URL.Host = "http", r.Host // absolute, as in every request through the proxy
	}
	s.options.Onboarding.ServeHTTP(w, r)
}

func (s *Server) refuseVisit(w http.ResponseWriter, r *http.Request, t *tunnel) {
	s.handlers.begin()
	defer s.handlers.end()
	ex := s.newExchange(w, r, t)
	ex.identify(r)
	err := errors.New("the target is a path without a host, and no page of the proxy has a path with empty or dot segments")
	ex.answer(r, targetRefusal(err))
}

// isClean reports whether http.ServeMux takes an escaped path as it is. An empty path is that of "/".
func isClean(p string) bool {
	clean := path.Clean("/" + p)
	return p == "" || p == clean || p == clean+"/" && clean != "/"
}

// isVisit reports whether r is for the proxy itself: a path alone, or a page of onboarding.
func isVisit(r *http.Request) bool {
	if !r.URL.IsAbs() {
		return strings.HasPrefix(r.URL.Path, "/")
	}
	o, err := origin.FromURL(r.URL)
	return err == nil && o == onboarding
}

// goproxyLog lets goproxy speak to the debug log. Its messages hold data of strangers in the place of formats, so they
// are printed as they come.
type goproxyLog struct{ log *slog.Logger }

func (l goproxyLog) Printf(format string, v ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("goproxy", "message", fmt.Sprintf(format, v...))
	}
}
