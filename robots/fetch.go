package robots

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/rules"
)

// FetcherOptions say how a robots.txt is fetched and what its answers count for.
type FetcherOptions struct {
	Transport http.RoundTripper // required: it dials through whatever guard there is, and decodes nothing
	UserAgent string            // who asks; required

	Timeout      time.Duration // for a whole fetch, redirects and body included; if zero, 10 s
	MaxSize      int           // octets of a file that count; if zero, 500 KiB (RFC 9309 section 2.5)
	MaxRedirects int           // if zero, 5 (section 2.3.1.2)
	TTL          time.Duration // of a file that says nothing itself; if zero, 24 h, which is also the most (section 2.4)
	MinTTL       time.Duration // of a file that says less; if zero, 5 min
	ErrorTTL     time.Duration // of a failure; if zero, 1 min

	// Admit is asked before each request of a fetch, redirects included: it judges those to pages, and records all. It
	// returns the Visit of that request; a *RefusedError if that may not be made; a *LaterError if it may not be made now,
	// or another error if nobody knows. If nil, each is made.
	Admit func(context.Context, Hop) (Visit, error)

	Prohibited          func(error) bool // tells a refusal of the guard from a failure; if nil, there is no guard
	OnTheWay            func(error) bool // tells a failure of what stands before every origin, as an upstream proxy does, from the origin's own; if nil, nothing does
	UnauthorizedRefuses bool             // 401 and 403 disallow every path; if false, they allow all as other 4xx do
	HTMLRefuses         bool             // a web page in the place of the file disallows every path
}

// longest is how long a file may be used without asking again (RFC 9309 section 2.4).
const longest = 24 * time.Hour

// Fetcher gets robots.txt files from their origins. It keeps nothing.
type Fetcher struct{ options FetcherOptions }

// NewFetcher returns a Fetcher, or says what o lacks.
func NewFetcher(o FetcherOptions) (*Fetcher, error) {
	if o.Transport == nil || o.UserAgent == "" {
		return nil, errors.New("robots: a Fetcher needs a Transport and a UserAgent")
	}
	if o.TTL > longest {
		return nil, fmt.Errorf("robots: TTL %v is more than the 24 h of RFC 9309 section 2.4", o.TTL)
	}
	setDefault(&o.Timeout, 10*time.Second)
	setDefault(&o.MaxSize, 500<<10)
	setDefault(&o.MaxRedirects, 5)
	setDefault(&o.TTL, longest)
	setDefault(&o.MinTTL, min(o.TTL, 5*time.Minute))
	setDefault(&o.ErrorTTL, time.Minute)
	if o.Prohibited == nil {
		o.Prohibited = func(error) bool { return false }
	}
	if o.OnTheWay == nil {
		o.OnTheWay = func(error) bool { return false }
	}
	return &Fetcher{o}, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Asker is the client for whom a robots.txt is looked up. The zero Asker is the proxy itself.
type Asker struct {
	Client string // whose share of the fetches is used; clients of one name share it
	Name   string // by which records know the client
	Token  string // product token, which the fetch sends before our own in User-Agent (RFC 9309 section 2.2.1); may be empty
}

// Request says what is to be fetched.
type Request struct {
	Origin   origin.Origin
	Asker    Asker
	Previous *Snapshot // what is kept of Origin; asked for by condition if it is a file with validators. May be nil.
	NoPages  bool      // refuse what Admit would have to judge: a Hop to a Page
}

// Fetch gets r's file. What goes wrong on the way is a Snapshot that says so; an error is returned only when ctx has
// ended, when the guard refuses the origin itself, when a request was not admitted now (a *LaterError), or when the failure
// is not the origin's, which say nothing about the file.
func (f *Fetcher) Fetch(ctx context.Context, r Request) (*Snapshot, error) {
	a := newAttempt(ctx, f.options.Timeout)
	defer a.end()
	snap := &Snapshot{Origin: r.Origin, Rules: &rules.Ruleset{}}
	err := f.follow(a, r, snap)
	if err == nil {
		return snap, nil
	}
	if a.timedOut() {
		err = fmt.Errorf("not had within %v: %w", f.options.Timeout, err)
	}
	prohibited := f.options.Prohibited(err)
	var refused *RefusedError
	switch cause := context.Cause(ctx); {
	case cause == errUnwanted:
		f.fail(snap, "http_response_timeout", &unwantedError{r.Asker.Client})
	case cause == errSlow:
		f.fail(snap, "http_response_timeout", errSlow)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("robots: fetching for %s: %w", r.Origin, ctx.Err())
	case errors.As(err, new(*LaterError)), errors.Is(err, ErrBusy), prohibited && len(snap.Redirects) == 0:
		return nil, fmt.Errorf("robots: fetching for %s: %w", r.Origin, err)
	case f.options.OnTheWay(err):
		return nil, outage{fmt.Errorf("robots: fetching for %s: %w", r.Origin, err)}
	case errors.As(err, &refused):
		f.failRefused(snap, err, refused.Until)
		return snap, nil
	case prohibited:
		f.fail(snap, "destination_ip_prohibited", err)
	case errors.Is(err, errAstray):
		f.fail(snap, "http_request_denied", err)
	default:
		f.fail(snap, ErrorType(err), err)
	}
	snap.Status = 0 // a redirect, or the head of a file that broke off, is not the last answer
	return snap, nil
}

// follow asks for the file and for what it is redirected to, also at other authorities; the rules count for the origin
// that was asked first (RFC 9309 section 2.3.1.2).
func (f *Fetcher) follow(a *attempt, r Request, snap *Snapshot) error {
	t := &trail{}
	if err := t.add(r.Origin.String() + robotsPath); err != nil {
		return err
	}
	for {
		resp, next, err := f.step(a, r, t, snap)
		if err != nil || next == "" {
			return err
		}
		if mark := f.detour(t.urls, next); mark != 0 {
			snap.Status, snap.Fields, snap.Marks = resp.StatusCode, fieldsOf(resp.Header), snap.Marks|mark
			f.set(snap, Unavailable, resp.Header) // section 2.3.1.2 lets it count as unavailable
			return nil
		}
		if t.to.Scheme() == "https" && strings.HasPrefix(next, "http:") {
			snap.Marks |= Downgraded
		}
		if err := t.add(next); err != nil {
			return err
		}
		snap.Status, snap.Redirects = resp.StatusCode, t.urls[1:]
	}
}

// step makes the last request of t, and returns its response, whose body is closed, and the URL where that leads; if that
// is empty, the response was read into snap.
func (f *Fetcher) step(a *attempt, r Request, t *trail, snap *Snapshot) (resp *http.Response, next string, err error) {
	previous := r.asksAgain(snap)
	asker := r.Asker.Token
	if t.page {
		asker = "" // it is judged by what holds for us
	}
	h := f.header(asker, previous)
	visit, err := f.admit(a, Hop{
		For: r.Origin, Asker: r.Asker, To: t.to, Target: t.target, UserAgent: h.Get("User-Agent"), Until: a.until, Page: t.page,
	}, r.NoPages)
	if err != nil {
		return nil, "", t.refused(err)
	}
	resp, err = f.send(a, visit, t.urls[len(t.urls)-1], h)
	if err != nil {
		return nil, "", t.refused(err)
	}
	defer resp.Body.Close()
	a.paced = t.page
	defer func() { a.paced = false }()
	if next, err = location(resp); err == nil && next == "" {
		err = f.read(a, snap, resp, previous)
	}
	return resp, next, err
}

var errPageInPage = &RefusedError{Why: "the robots.txt by which another redirect is judged may not be such a redirect itself"}

// admit takes what the queue has for h, and asks whether the request may be made. A hop that must be judged holds nothing
// meanwhile: the file that it is judged by may have to be fetched from the same hosts.
func (f *Fetcher) admit(a *attempt, h Hop, noPages bool) (Visit, error) {
	switch {
	case f.options.Admit == nil:
		return unseen{}, a.moveTo(origin.Key(h.To.Host()))
	case !h.Page:
		if err := a.moveTo(origin.Key(h.To.Host())); err != nil {
			return nil, err
		}
		return f.options.Admit(a, h)
	case noPages:
		return nil, errPageInPage
	}
	a.leave()
	visit, err := f.options.Admit(a, h)
	if err != nil {
		return nil, err
	}
	return visit, a.moveTo("") // its pace is that of its own lane
}

// detour returns the mark of a redirect to next that is not followed; 0 if it is.
func (f *Fetcher) detour(visited []string, next string) Marks {
	switch {
	case slices.Contains(visited, next):
		return RedirectLoop
	case len(visited) > f.options.MaxRedirects:
		return TooManyRedirects
	default:
		return 0
	}
}

func (f *Fetcher) get(ctx context.Context, at string, h http.Header) (*http.Response, error) {
	var progress progress
	req, err := http.NewRequestWithContext(progress.watch(ctx), http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	req.Header = h
	resp, err := f.options.Transport.RoundTrip(req)
	if err != nil {
		return nil, progress.explain(err)
	}
	return resp, nil
}

// header returns the fields of a request, which has conditions if previous is not nil.
func (f *Fetcher) header(asker string, previous *Snapshot) http.Header {
	h := http.Header{
		"User-Agent":      {f.options.UserAgent},
		"Accept":          {"text/plain, */*;q=0.5"},
		"Accept-Encoding": {"gzip"},
	}
	if isToken(asker) {
		h.Set("User-Agent", asker+" "+f.options.UserAgent)
	}
	if previous != nil {
		previous.setConditions(h)
	}
	return h
}

// isToken reports whether s is a token of HTTP (RFC 9110 section 5.6.2), and therefore no way into other fields.
func isToken(s string) bool {
	for _, c := range []byte(s) {
		alphanumeric := c-'0' < 10 || c|0x20-'a' < 26
		if !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// read makes of the last answer what RFC 9309 section 2.3.1 makes of it. Its error is for a file that broke off.
func (f *Fetcher) read(a *attempt, snap *Snapshot, resp *http.Response, previous *Snapshot) error {
	snap.Status, snap.Fields = resp.StatusCode, fieldsOf(resp.Header)
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		snap.Marks |= Unauthorized
	case http.StatusNotModified:
		f.revalidate(snap, resp, previous)
		return nil
	}
	if f.refuses(resp.StatusCode) {
		f.refuse(snap, resp)
		return nil
	}
	if resp.StatusCode >= 300 { // 4xx, and redirects that do not say where to, which Google's crawler counts as 404 too
		drain(resp.Body)
		f.set(snap, Unavailable, resp.Header)
		return nil
	}
	return f.readFile(a, snap, resp)
}

// refuses reports whether an answer of this status closes the site.
func (f *Fetcher) refuses(status int) bool {
	switch status {
	case http.StatusTooManyRequests:
		// Departure: section 2.3.1.3 has 429 among the 4xx, which allow everything. A server that asks for fewer requests
		// does not mean that; Google's crawler treats it as a server error too.
		return true
	case http.StatusUnauthorized, http.StatusForbidden:
		return f.options.UnauthorizedRefuses
	}
	return status < 200 || status >= 500 // below are no answers: an upgrade that nobody asked for
}

// Expiry returns when s, which may have been fetched with other options, is to be asked for again by those of today: at
// once where its answer would count for something else.
func (f *Fetcher) Expiry(s *Snapshot) time.Time {
	refuses := f.options.UnauthorizedRefuses
	if s.Marks&WebPage != 0 {
		refuses = f.options.HTMLRefuses
	}
	failed := s.Availability == Unreachable
	switch said := s.Fetched.Add(f.lifetime(parseFields(s.Fields), s.Fetched)); {
	case !s.Stale && s.Marks&wall != 0 && refuses != failed:
		return s.Fetched
	case !s.Stale && !failed && said.Before(s.Expires):
		return said
	}
	return s.Expires
}

func (f *Fetcher) readFile(a *attempt, snap *Snapshot, resp *http.Response) error {
	if err := a.beginBody(); err != nil {
		return err
	}
	defer a.endBody()
	data, err := f.readBody(resp)
	resp.Body.Close() // the visit ends before the file waits to be compiled
	if err != nil {
		return err
	}
	snap.ContentType = short(resp.Header.Get("Content-Type"))
	snap.ETag, snap.LastModified = short(resp.Header.Get("ETag")), short(resp.Header.Get("Last-Modified"))
	snap.setBody(data, f.options.MaxSize)
	if isHTML(data) {
		snap.Marks |= WebPage
	}
	f.setFound(snap, resp.Header)
	return a.compile(snap)
}

var errWebPage = errors.New("a web page stands in the place of robots.txt")

// setFound completes snap for a file, or for what stands in its place.
func (f *Fetcher) setFound(snap *Snapshot, h http.Header) {
	f.set(snap, Found, h)
	if snap.Marks&WebPage != 0 && f.options.HTMLRefuses {
		f.fail(snap, "destination_unavailable", errWebPage)
	}
}

// set completes snap for an answer that opens the site or holds its rules.
func (f *Fetcher) set(snap *Snapshot, a Availability, h http.Header) {
	snap.Availability, snap.Fetched = a, time.Now()
	snap.Expires = snap.Fetched.Add(f.lifetime(h, snap.Fetched))
}

// refuse completes snap for an answer that closes the site until it is asked again.
func (f *Fetcher) refuse(snap *Snapshot, resp *http.Response) {
	f.fail(snap, "destination_unavailable", fmt.Errorf("the origin answered %s", resp.Status))
	if wait := retryAfter(resp.Header, snap.Fetched); wait > f.options.ErrorTTL {
		snap.Expires = snap.Fetched.Add(min(wait, longest))
	}
}

// failRefused completes snap for a redirect that may not be followed, and is not to be tried before until.
func (f *Fetcher) failRefused(snap *Snapshot, err error, until time.Time) {
	snap.Marks |= RedirectRefused
	f.fail(snap, "http_request_denied", err)
	if wait := until.Sub(snap.Fetched); wait > f.options.ErrorTTL {
		snap.Expires = snap.Fetched.Add(min(wait, longest))
	}
}

// fail completes snap for a file that could not be had.
func (f *Fetcher) fail(snap *Snapshot, cause string, err error) {
	snap.Availability, snap.Cause, snap.Err, snap.Fetched = Unreachable, cause, err, time.Now()
	snap.Rules, snap.Body, snap.SHA256, snap.Truncated = &rules.Ruleset{}, nil, "", false
	snap.Expires = snap.Fetched.Add(f.options.ErrorTTL)
}
