// Package admin serves the operator's listener: health checks, metrics, the CA's certificate, and the API by which
// operators see and steer the proxy.
//
//	metrics := admin.NewMetrics()
//	h, err := admin.New(admin.Options{Token: token, Metrics: metrics, CA: onboarding.CA(ca), Ready: ready})
//	go http.Serve(listener, h)
//	metrics.Observe(record) // for each request that has ended
//
// Health checks, metrics, the certificate and the PAC script need no token. They contain no host, URL or address; of the
// clients, metrics name those that the configuration lists. The API is under /api/v1/ and needs the token that LoadToken
// makes at the first start; docs/openapi.yaml describes it. The pages for people are those of admin/dashboard.
//
// Every request, with or without a token, must address this listener by an IP address, as localhost, or by one of
// Options.Hosts. Otherwise a page of another site could reach the listener through a browser by DNS rebinding.
//
// The package only reports and calls the functions of Options. It sets no limits of time or size: the http.Server that
// serves the Handler must set them.
package admin

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/origin"
)

// Options configure a Handler. Token is required.
type Options struct {
	Token   string       // for requests under /api/v1/; see LoadToken
	Version string       // of the program; if empty, "unknown"
	Hosts   []string     // names of the listener besides localhost; if empty, only localhost and IP addresses
	CA      http.Handler // serves /ca.pem; if nil, the path is not found
	PAC     http.Handler // serves /proxy.pac; if nil, the path is not found
	Keys    http.Handler // serves the directory of the keys that sign, at its well-known path; if nil, the path is not found
	Ready   func() error // returns the reason not to send traffic, or nil; if the function is nil, always ready
	Metrics *Metrics     // counters; if nil, requests are not counted
	Gauges  []Gauge      // values from other packages
	Pprof   bool         // serves the profiles of the process under /debug/pprof/ to requests with the token
	State   func() State // of the proxy, for /api/v1/status; if nil, the zero State
	Drain   func() Drain // begins a drain; if nil, /api/v1/drain is not served
	Files   Files        // the cached robots.txt files; if nil, /api/v1/cache is not served
	History History      // their past versions; required with Files

	Reload  func() ([]Change, error) // reads the configuration again; if nil, /api/v1/reload is not served
	Upgrade Upgrader                 // for /api/v1/upgrade; if nil, that is not served

	Exemptions Exemptions // if nil, /api/v1/exemptions is not served

	Interventions Interventions // if nil, /api/v1/interventions is not served

	Lanes Lanes // if nil, /api/v1/hosts is not served

	Records audit.Reader // for /api/v1/audit; if nil, its questions have no answer

	Dashboard func(*http.ServeMux) // adds the pages for people, "/" among them; if nil, "/" is a list of the paths

	questionTime time.Duration // if zero, that of the constant
}

// Handler serves the operator's listener. It is safe for concurrent use.
type Handler struct {
	options     Options
	token       [sha256.Size]byte
	hosts       atomic.Pointer[map[string]bool] // canonical
	started     time.Time
	crossOrigin *http.CrossOriginProtection
	questions   chan struct{} // has a place for each question that is being answered
	mux         *http.ServeMux
}

// New returns a Handler, with an uptime that begins now. It registers the version and o.Gauges with o.Metrics, so one
// Metrics serves only one Handler.
func New(o Options) (*Handler, error) {
	if err := checkToken(o.Token); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	if o.Version == "" {
		o.Version = "unknown"
	}
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	if o.State == nil {
		o.State = func() State { return State{} }
	}
	if o.questionTime == 0 {
		o.questionTime = questionTime
	}
	if (o.Files == nil) != (o.History == nil) {
		return nil, errors.New("admin: Files and History are needed together")
	}
	h := &Handler{
		options:     o,
		token:       sha256.Sum256([]byte(o.Token)),
		started:     time.Now(),
		crossOrigin: http.NewCrossOriginProtection(),
		questions:   make(chan struct{}, questions),
	}
	if err := h.SetHosts(o.Hosts); err != nil {
		return nil, err
	}
	if err := o.Metrics.register(o.Version, o.Gauges); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	h.mux = h.routes()
	return h, nil
}

// SetHosts replaces Options.Hosts.
func (h *Handler) SetHosts(names []string) error {
	hosts, err := canonicalHosts(names)
	if err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	h.hosts.Store(&hosts)
	return nil
}

// keysPath is the well-known path of a directory (draft-ietf-webbotauth-httpsig-protocol).
const keysPath = "/.well-known/http-message-signatures-directory"

// routes returns the mux of all pages. A pattern with GET also serves HEAD, and answers other methods with 405.
func (h *Handler) routes() *http.ServeMux {
	mux := http.NewServeMux()
	if h.options.Dashboard != nil {
		h.options.Dashboard(mux)
	} else {
		mux.HandleFunc("GET /{$}", index)
	}
	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /readyz", h.readyz)
	mux.Handle("GET /metrics", h.options.Metrics.handler())
	h.serveAPI(mux)
	if h.options.Pprof {
		h.serveProfiles(mux)
	}
	if h.options.CA != nil {
		mux.Handle("GET /ca.pem", h.options.CA)
	}
	if h.options.PAC != nil {
		mux.Handle("GET /proxy.pac", h.options.PAC)
	}
	if h.options.Keys != nil {
		mux.Handle("GET "+keysPath, h.options.Keys)
	}
	return mux
}

// ServeHTTP serves r if it addresses this listener.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setSecurityHeaders(w.Header())
	if !h.knows(r.Host) {
		misdirected(w, r.Host)
		return
	}
	if !isClean(r.URL.EscapedPath()) {
		http.Error(w, "No page of this listener has a path with empty or dot segments.", http.StatusBadRequest)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// isClean reports whether http.ServeMux serves an escaped path without a redirect to its clean form.
func isClean(p string) bool {
	clean := path.Clean("/" + p)
	return p == "" || p == clean || p == clean+"/" && clean != "/"
}

// healthz reports that the process responds. It checks nothing else, since a restart would not correct other problems.
func healthz(w http.ResponseWriter, _ *http.Request) {
	io.WriteString(w, "ok\n")
}

// readyz reports whether to send traffic to the proxy. It fails while the proxy drains.
func (h *Handler) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := h.options.Ready(); err != nil {
		http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	io.WriteString(w, "ok\n")
}

// canonicalHosts returns the canonical form of the names, and localhost.
func canonicalHosts(names []string) (map[string]bool, error) {
	hosts := map[string]bool{"localhost": true}
	for _, name := range names {
		host, err := origin.Host(name)
		if err != nil {
			return nil, fmt.Errorf("name of the listener: %w", err)
		}
		hosts[host] = true
	}
	return hosts, nil
}

// knows reports whether a Host field addresses this listener. It accepts any IP address: a browser sends only the
// address that it connected to.
func (h *Handler) knows(field string) bool {
	host, _, err := origin.SplitAuthority(field)
	if err != nil {
		return false
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return (*h.hosts.Load())[host]
}

func misdirected(w http.ResponseWriter, field string) {
	found := fmt.Sprintf("%.100q is not listed", field)
	if field == "" {
		found = "the request has no Host"
	}
	http.Error(w, "This listener answers to its addresses, to localhost and to the names that its operator has listed; "+found+".\n"+
		"Under any name a page of another site could reach it (DNS rebinding). Use an address, or add the name to admin.hosts.", http.StatusMisdirectedRequest)
}

// setSecurityHeaders prevents browsers from guessing content types, caching, and loading or running content of other
// sites.
func setSecurityHeaders(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
}
