package dashboard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/internal/style"
	"github.com/robotsproxy/robotsproxy/onboarding"
	"github.com/robotsproxy/robotsproxy/policy"
)

// view is one request for a page, and its response.
type view struct {
	*Handler
	*http.Request
	w      http.ResponseWriter
	now    time.Time
	period period
}

// ctx returns the context of the questions of this page.
func (v *view) ctx() context.Context { return v.Context() }

// fault is an error with an HTTP status for the page that reports it.
type fault struct {
	status int
	text   string
}

func (f *fault) Error() string { return f.text }

// errAnswered reports that the response was written already.
var errAnswered = errors.New("dashboard: answered")

// notKept is the error of pages that need records.
func (h *Handler) notKept() error {
	return &fault{http.StatusNotFound, "No records are kept in a database (audit.store is " + h.options.Store + "), so there is " +
		"nothing to show here. Set audit.store to sqlite or postgres, and start robotsproxy again."}
}

// reading returns the handler of a page.
func (h *Handler) reading(show func(*view) error) http.Handler {
	return h.readable(h.page(questionTime, show))
}

// page calls show, and reports its error. The context ends after a time.
func (h *Handler) page(limit time.Duration, show func(*view) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		v := &view{Handler: h, Request: r.WithContext(ctx), w: w, now: time.Now()}
		var err error
		if v.period, err = readPeriod(r.URL.Query(), v.now); err == nil {
			err = show(v)
		}
		if err != nil && !errors.Is(err, errAnswered) {
			v.fail(err)
		}
	})
}

// fail shows err as a page.
func (v *view) fail(err error) {
	var known *fault
	switch {
	case errors.As(err, &known):
	case errors.Is(err, context.DeadlineExceeded) && v.Method == http.MethodPost:
		known = &fault{http.StatusServiceUnavailable, fmt.Sprintf("The change has not ended within %v. The page Settings shows what is in force.", changeTime)}
	case errors.Is(err, context.DeadlineExceeded):
		known = &fault{http.StatusServiceUnavailable, fmt.Sprintf("The answer would take longer than %v. A shorter time, or one host, takes less.", questionTime)}
	default:
		known = &fault{http.StatusInternalServerError, err.Error()}
	}
	v.show(v.w, v.Request, known.status, http.StatusText(known.status), "fault.html", known.text)
}

// render shows the page of a template.
func (v *view) render(title, name string, data any) error {
	v.show(v.w, v.Request, http.StatusOK, title, name, data)
	return nil
}

// frame is the data of the layout.
type frame struct {
	Title   string
	Current string // path of the entry in the rail
	Version string
	Mode    string
	Bypass  bool   // of all hosts
	Search  string // text of the search field
	Period  period
	Periods []period // empty on a page without a period
	URL     *url.URL
	Signed  bool
	Banners []banner
	Notice  *notice // of the change before
	Data    any
}

// banner is a state that needs the attention of operators.
type banner struct {
	Text  string
	Until time.Time // end of the state, for a countdown; may be zero
	Lift  string    // host or pattern of the intervention that ends it; may be empty
	Link  string    // page about it; may be empty
}

// show writes a page. A request of htmx for a part of the page receives the template named "part" of its file alone.
func (h *Handler) show(w http.ResponseWriter, r *http.Request, status int, title, name string, data any) {
	now := time.Now()
	f := frame{
		Title: title, Current: "/" + strings.SplitN(r.URL.Path, "/", 3)[1], Version: h.options.Version, URL: r.URL,
		Signed: h.signedIn(r, now), Data: data,
	}
	root := "layout"
	if r.Header.Get("Hx-Request") != "" && r.Header.Get("Hx-Boosted") == "" && hasPart(name) {
		root = "part"
	}
	if f.Signed || isLocal(r) {
		state := h.options.State()
		f.Mode, f.Banners, f.Bypass = state.Mode, h.banners(state, now), h.isBypassed(now)
	}
	if f.Signed && root == "layout" {
		f.Notice = h.shownNotice(w, r)
	}
	f.Period, _ = readPeriod(r.URL.Query(), now) // faulty only on the page that says so
	if slices.Contains([]string{"/", "/decisions", "/hosts", "/clients"}, f.Current) && name != "decision.html" {
		f.Periods = periods(r.URL.Query(), now)
	}
	if f.Current == "/decisions" {
		f.Search = searchText(r.URL.Query())
	}
	var b bytes.Buffer
	if err := pages[name].ExecuteTemplate(&b, root, f); err != nil {
		http.Error(w, "dashboard: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Vary", "HX-Request")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client may have left
}

// isBypassed reports whether an intervention bypasses the rules of all hosts.
func (h *Handler) isBypassed(now time.Time) bool {
	return h.options.Interventions != nil && slices.ContainsFunc(h.options.Interventions.Interventions(), func(i policy.Intervention) bool {
		return i.Kind == policy.Bypass && i.Host == "*" && !i.Expired(now)
	})
}

// banners returns the states that are unusual.
func (h *Handler) banners(state admin.State, now time.Time) (all []banner) {
	switch state.Mode {
	case policy.Report.String():
		all = append(all, banner{Text: "Mode report: nothing is refused or delayed. Requests that enforce would refuse are marked.", Link: "/settings"})
	case policy.Off.String():
		all = append(all, banner{Text: "Mode off: robots.txt is not judged, and no Crawl-delay is kept.", Link: "/settings"})
	}
	if n := state.Records.Lost; n > 0 {
		all = append(all, banner{Text: fmt.Sprintf("The audit has a gap: %s requests since the start were not recorded.", number(n))})
	}
	if n := state.Fetches; n > 0 {
		all = append(all, banner{Text: fmt.Sprintf("%s fetches of robots.txt wait to begin; the requests for their hosts wait too.", number(n))})
	}
	if h.options.Interventions == nil {
		return all
	}
	for _, i := range h.options.Interventions.Interventions() {
		if len(all) == maxBanners {
			return append(all, banner{Text: "More interventions are in force.", Link: "/settings"})
		}
		if i.Expired(now) || i.Kind == policy.Slow {
			continue
		}
		what := map[policy.InterventionKind]string{policy.Stop: "is stopped", policy.Bypass: "is bypassed: its robots.txt refuses nothing"}[i.Kind]
		all = append(all, banner{Text: fmt.Sprintf("%s %s. %s (%s).", hostName(i.Host), what, i.Reason, i.By), Until: i.Until, Lift: i.Host})
	}
	return all
}

// maxBanners bounds the height of the banners.
const maxBanners = 4

// hostName returns a host or pattern for the beginning of a sentence.
func hostName(pattern string) string {
	if pattern == "*" {
		return "Every host"
	}
	return pattern
}

//go:embed templates
var templateFiles embed.FS

// pages are the templates of the pages by the name of their file. Each has the layout, the common parts and its own
// file, which defines "main".
var pages = func() map[string]*template.Template {
	common := template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/common/*.html"))
	all := make(map[string]*template.Template)
	names, _ := fs.Glob(templateFiles, "templates/*.html")
	for _, name := range names {
		all[path.Base(name)] = template.Must(template.Must(common.Clone()).ParseFS(templateFiles, name))
	}
	return all
}()

// hasPart reports whether the file of a page defines the part that changes while the page is open.
func hasPart(name string) bool { return pages[name].Lookup("part") != nil }

//go:embed static
var staticFiles embed.FS

// statics are the files under /static/ by name, and version is a hash of all, for their URLs.
var statics, version = func() (map[string][]byte, string) {
	all := map[string][]byte{"style.css": []byte(style.Sheet), "copy.js": onboarding.CopyScript}
	names, _ := fs.Glob(staticFiles, "static/*")
	for _, name := range names {
		all[path.Base(name)], _ = staticFiles.ReadFile(name)
	}
	sum := sha256.New()
	names = append(names, "static/style.css", "static/copy.js")
	for _, name := range names {
		sum.Write(all[path.Base(name)])
	}
	return all, hex.EncodeToString(sum.Sum(nil)[:6])
}()

// serveStatic serves a stylesheet or script. Its URL changes with its content.
func serveStatic(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	b, ok := statics[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(b)
}
