// Package admin is the operator's own listener: health, metrics, the CA's certificate and what the proxy has done.
//
//	metrics := admin.NewMetrics()
//	h, err := admin.New(admin.Options{Token: token, Metrics: metrics, CA: onboarding.CA(ca), Ready: ready})
//	go http.Serve(listener, h)
//	metrics.Observe(record) // for each request that has ended
//
// Health checks, metrics, the certificate and the script for browsers need no token, and none of them names a host, a URL
// or a client. All else is under /api/ and needs the token that LoadToken makes at the first start. Every request, with a
// token or without, must name this listener as its operator does: by an address, as localhost, or by one of Options.Hosts.
// So a page of somebody else cannot reach it through a browser whose resolver it misleads (DNS rebinding).
//
// The package renders and counts; it changes nothing. It sets no limits of time and size either: those are the
// http.Server's that it is given to.
package admin

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// Options configure a Handler. A Token is needed.
type Options struct {
	Token   string       // that requests below /api/ carry; see LoadToken
	Version string       // of the program; if empty, "unknown"
	Hosts   []string     // names by which the listener may be addressed, besides localhost; if none, by that and by addresses alone
	CA      http.Handler // of /ca.pem; if nil, there is none
	PAC     http.Handler // of /proxy.pac; if nil, there is none
	Ready   func() error // says why no traffic should be sent here; if nil, there is never a cause
	Metrics *Metrics     // what has been counted; if nil, nothing is but what Gauges report
	Gauges  []Gauge      // numbers of other packages
	Files   Files        // the robots.txt files that are kept; if nil, nothing below /api/cache is served
	History History      // and what they were; needed with Files
}

// Handler answers on the operator's listener. It is safe for concurrent use.
type Handler struct {
	options     Options
	token       [sha256.Size]byte
	hosts       map[string]bool // canonical
	started     time.Time
	crossOrigin *http.CrossOriginProtection
	mux         *http.ServeMux
}

// New returns a Handler whose uptime begins now. It registers the version and o.Gauges with o.Metrics, which therefore
// serves one Handler only.
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
	if (o.Files == nil) != (o.History == nil) {
		return nil, errors.New("admin: Files and History are needed together")
	}
	hosts, err := canonicalHosts(o.Hosts)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	if err := o.Metrics.register(o.Version, o.Gauges); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	h := &Handler{
		options:     o,
		token:       sha256.Sum256([]byte(o.Token)),
		hosts:       hosts,
		started:     time.Now(),
		crossOrigin: http.NewCrossOriginProtection(),
	}
	h.mux = h.routes()
	return h, nil
}

// routes is the table of what is served. A pattern with GET serves HEAD too, and answers other methods with 405.
func (h *Handler) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", index)
	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /readyz", h.readyz)
	mux.Handle("GET /metrics", h.options.Metrics.handler())
	mux.Handle("GET /api/status", h.Protected(http.HandlerFunc(h.status)))
	if h.options.Files != nil {
		h.fileRoutes(mux)
	}
	if h.options.CA != nil {
		mux.Handle("GET /ca.pem", h.options.CA)
	}
	if h.options.PAC != nil {
		mux.Handle("GET /proxy.pac", h.options.PAC)
	}
	return mux
}

// ServeHTTP answers r, if it names this listener.
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

// isClean reports whether http.ServeMux takes an escaped path as it is. It redirects every other one.
func isClean(p string) bool {
	clean := path.Clean("/" + p)
	return p == "" || p == clean || p == clean+"/" && clean != "/"
}

// healthz says that the process answers, which is all that a restart could mend.
func healthz(w http.ResponseWriter, _ *http.Request) {
	io.WriteString(w, "ok\n")
}

// readyz says whether traffic should be sent here, which it should not while the proxy drains.
func (h *Handler) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := h.options.Ready(); err != nil {
		http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	io.WriteString(w, "ok\n")
}

// canonicalHosts reads the names that are added to localhost.
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

// knows reports whether a Host field names this listener. Any address will do: a browser only sends the one that it
// connected to.
func (h *Handler) knows(field string) bool {
	host, _, err := origin.SplitAuthority(field)
	if err != nil {
		return false
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return h.hosts[host]
}

func misdirected(w http.ResponseWriter, field string) {
	found := fmt.Sprintf("%.100q is none of them", field)
	if field == "" {
		found = "the request names none"
	}
	http.Error(w, "This listener answers to its addresses, to localhost and to the names that its operator has listed; "+found+".\n"+
		"Under any name a page of another site could reach it (DNS rebinding). Use an address, or add the name to admin.hosts.", http.StatusMisdirectedRequest)
}

// setSecurityHeaders makes browsers take answers for what they are, keep none, and run and load nothing from elsewhere.
func setSecurityHeaders(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
}
