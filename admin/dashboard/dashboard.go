// Package dashboard serves the pages by which operators watch and steer the proxy: what is blocked, for which crawler,
// and by which line of a robots.txt.
//
//	live := new(dashboard.Live)
//	d, err := dashboard.New(dashboard.Options{Token: token, Records: records, Live: live})
//	h, err := admin.New(admin.Options{Token: token, Dashboard: d.Register})
//	live.Observe(record) // for each request that has ended
//
// The pages are HTML that needs no script to be read. A script adds what changes while a page is open. Every view has a
// URL, with its filters.
//
// On the loopback interface everyone may read. From elsewhere, and for every change, a browser must have signed in with
// the token of the admin listener, or the request must have it in Authorization. The package changes nothing itself: it
// calls the functions of Options.
package dashboard

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/audit"
)

// Options configure a Handler. Token is required.
type Options struct {
	Token   string
	Version string             // of the program
	Records audit.Reader       // if nil, the pages about requests say that no records are kept
	Live    *Live              // if nil, no page receives requests while it is open
	State   func() admin.State // of the proxy; if nil, the zero State
	Store   string             // audit.store, for the text of a page without records

	Interventions admin.Interventions    // if nil, hosts can not be stopped, slowed or bypassed
	Exemptions    admin.Exemptions       // if nil, exemptions can not be added
	Files         admin.Files            // the robots.txt files in force; if nil, no page shows them
	History       admin.History          // required with Files
	Lane          func(host string) Lane // of a canonical host, now; if nil, no queue is shown
	Judge         Judge                  // if nil, no URL can be checked
	Settings      func() Settings        // if nil, the zero Settings

	// Proxy returns the scheme and the address of the proxy, as the browser that sent r can reach it. If nil, no page
	// shows how to set up clients.
	Proxy func(r *http.Request) (scheme, address string)
}

// Handler serves the pages. It is safe for concurrent use.
type Handler struct {
	options     Options
	token       [sha256.Size]byte
	crossOrigin *http.CrossOriginProtection
	sessions    sessions
	overviews   overviewCache
	notices     notices
}

// New returns a Handler.
func New(o Options) (*Handler, error) {
	if o.Token == "" {
		return nil, errors.New("dashboard: no token")
	}
	if o.State == nil {
		o.State = func() admin.State { return admin.State{} }
	}
	if o.Live == nil {
		o.Live = new(Live)
	}
	return &Handler{options: o, token: sha256.Sum256([]byte(o.Token)), crossOrigin: http.NewCrossOriginProtection()}, nil
}

// Register adds the pages to mux.
func (h *Handler) Register(mux *http.ServeMux) {
	read := func(pattern string, show func(*view) error) { mux.Handle("GET "+pattern, h.reading(show)) }
	read("/{$}", h.overview)
	read("/decisions", h.decisions)
	read("/decisions/{id}", h.decision)
	read("/hosts", h.hosts)
	read("/hosts/{host}", h.host)
	read("/check", h.check)
	read("/clients", h.clients)
	read("/settings", h.settings)
	change := func(pattern string, show func(*view) error) {
		mux.Handle(pattern, h.changing(h.page(changeTime, show)))
	}
	change("GET /interventions/new", h.newIntervention)
	change("POST /interventions/new", h.intervene)
	change("GET /interventions/lift", h.liftForm)
	change("POST /interventions/lift", h.lift)
	change("GET /exemptions/new", h.newExemption)
	change("POST /exemptions/new", h.exempt)
	change("GET /exemptions/remove", h.removeForm)
	change("POST /exemptions/remove", h.removeExemption)
	change("POST /robots/refresh", h.refresh)
	change("GET /robots/purge", h.purgeForm)
	change("POST /robots/purge", h.purge)
	change("POST /undo", h.undo)
	mux.Handle("GET /live", h.readable(http.HandlerFunc(h.live)))
	mux.HandleFunc("GET /signin", h.signInForm)
	mux.Handle("POST /signin", h.crossOrigin.Handler(http.HandlerFunc(h.signIn)))
	mux.Handle("POST /signout", h.crossOrigin.Handler(http.HandlerFunc(h.signOut)))
	mux.Handle("GET /static/{file}", http.HandlerFunc(serveStatic))
}

const (
	questionTime = 10 * time.Second // bounds the time for the questions of one page about records
	changeTime   = time.Minute      // bounds the time of a change: a fetch, or the confirmations of other instances
)
