// Package fetch requests robots.txt files as RFC 9309 section 2.3 says.
//
//	f, err := fetch.New(fetch.Options{Transport: transport, UserAgent: "robotsproxy/1.0"})
//	answer, err := f.Fetch(ctx, fetch.Request{Origin: o})
//	fmt.Println(answer.Availability, answer.Status, len(answer.Body))
//
// An origin that does not answer, or not with a file, is an Answer and not an error. Fetch follows redirects, validates
// a copy by its ETag or Last-Modified, and limits size and time.
//
// A Fetcher stores nothing and does not parse the file: see package robots. It has no rules about which redirects may
// be followed: see Options.Admit. It limits no concurrency: see Queue.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// Options of a Fetcher.
type Options struct {
	// Transport sends the requests. It must not decode bodies. Required.
	Transport http.RoundTripper
	// UserAgent is the User-Agent field of the requests. Required.
	UserAgent string

	// Timeout limits a fetch with its redirects and body, without waits for Request.Queue. If zero, 10 s.
	Timeout time.Duration
	// MaxSize is the number of bytes of a file that count. If zero, 500 KiB (RFC 9309 section 2.5).
	MaxSize int
	// MaxRedirects limits the redirects of a fetch. If zero, 5 (section 2.3.1.2).
	MaxRedirects int
	// TTL is the lifetime of a file without Cache-Control or Expires. If zero, MaxTTL, which is also the maximum.
	TTL time.Duration
	// MinTTL is the least lifetime of a file. If zero, 5 min.
	MinTTL time.Duration
	// ErrorTTL is the lifetime of a failure, unless the origin refused the connection: that counts for a second. If zero,
	// 1 min.
	ErrorTTL time.Duration

	// Admit is called before each request, redirects included. It returns the Visit of that request; a *RefusedError if
	// the redirect may not be followed; a *LaterError if the request may not be sent now; or another error if that is
	// not known. If nil, all requests are sent.
	Admit func(context.Context, Hop) (Visit, error)

	// Prohibited reports whether err says that an address may not be dialled. If nil, no error does.
	Prohibited func(err error) bool
	// UpstreamFailed reports whether err is a failure of the upstream proxy and not of the origin. If nil, no error is.
	UpstreamFailed func(err error) bool
	// Exhausted reports whether err says that this machine has no descriptor, memory or port for a connection. If nil, no
	// error does.
	Exhausted func(err error) bool

	// UnauthorizedRefuses says that 401 and 403 disallow every path. If false, they allow all as other 4xx do.
	UnauthorizedRefuses bool
	// HTMLRefuses says that a web page in place of the file disallows every path.
	HTMLRefuses bool
}

// MaxTTL is the longest time for which a file may be used without asking again (RFC 9309 section 2.4).
const MaxTTL = 24 * time.Hour

// Fetcher fetches robots.txt files. Its methods may be called concurrently.
type Fetcher struct{ options Options }

// New returns a Fetcher. It returns an error if o lacks a required option or has a TTL above MaxTTL.
func New(o Options) (*Fetcher, error) {
	if o.Transport == nil || o.UserAgent == "" {
		return nil, errors.New("robots: a Fetcher needs a Transport and a UserAgent")
	}
	if o.TTL > MaxTTL {
		return nil, fmt.Errorf("robots: TTL %v is more than the 24 h of RFC 9309 section 2.4", o.TTL)
	}
	setDefault(&o.Timeout, 10*time.Second)
	setDefault(&o.MaxSize, 500<<10)
	setDefault(&o.MaxRedirects, 5)
	setDefault(&o.TTL, MaxTTL)
	setDefault(&o.MinTTL, min(o.TTL, 5*time.Minute))
	setDefault(&o.ErrorTTL, time.Minute)
	if o.Prohibited == nil {
		o.Prohibited = func(error) bool { return false }
	}
	if o.UpstreamFailed == nil {
		o.UpstreamFailed = func(error) bool { return false }
	}
	if o.Exhausted == nil {
		o.Exhausted = func(error) bool { return false }
	}
	return &Fetcher{o}, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Asker is the client for which a robots.txt is fetched. The zero Asker is the proxy itself.
type Asker struct {
	Client string // the clients of one name share places in the queue
	Name   string // of the client in records
	Token  string // product token, sent before UserAgent in the User-Agent field (RFC 9309 section 2.2.1); may be empty

	MaxWait time.Duration // the longest wait for a place in the queue; if zero, that of the queue
}

// Request is the argument of Fetch.
type Request struct {
	Origin   origin.Origin
	Asker    Asker
	Previous *Answer // the stored answer of Origin, validated if it has validators; may be nil
	NoPages  bool    // refuse each Hop with Page set
	Queue    Queue   // limits requests and bodies; may be nil
}

// GiveUpError is the cause of a context that ends a fetch as a failure of the file, with Err. If a context ends with
// another cause, Fetch returns an error, which says nothing about the file.
type GiveUpError struct{ Err error }

func (e *GiveUpError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *GiveUpError) Unwrap() error { return e.Err }

// UpstreamError is a failure of the upstream proxy. It says nothing about the file.
type UpstreamError struct{ Err error }

func (e *UpstreamError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *UpstreamError) Unwrap() error { return e.Err }

// LaterError says that a request was not sent because its turn would have come too late, or because of an
// error that Exhausted reports. It says nothing about the file.
type LaterError struct {
	At  time.Time // when to try again; zero if not known
	Err error
}

func (e *LaterError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *LaterError) Unwrap() error { return e.Err }

// Fetch fetches the file of r. A failure of the origin is an Answer. Fetch returns an error, which says nothing about
// the file, if ctx ends (but see GiveUpError), if the address of the origin may not be dialled, if Admit or Queue has
// no turn for a request, if Exhausted reports the error of one (a *LaterError), or if the upstream proxy fails (an
// *UpstreamError).
func (f *Fetcher) Fetch(ctx context.Context, r Request) (*Answer, error) {
	at := newAttempt(ctx, r.Queue, f.options.Timeout)
	defer at.End()
	a := &Answer{Origin: r.Origin}
	err := f.follow(at, r, a)
	if err == nil {
		return a, nil
	}
	if at.IsUp() {
		err = fmt.Errorf("not had within %v: %w", f.options.Timeout, err)
	}
	if err := f.noAnswer(ctx, a, err); err != nil {
		return nil, err
	}
	f.failed(ctx, a, err)
	return a, nil
}

// exhaustedRetry is the delay before a file is fetched again after an error that Exhausted reports.
const exhaustedRetry = time.Second

// noAnswer returns an error if err says nothing about the file of a.
func (f *Fetcher) noAnswer(ctx context.Context, a *Answer, err error) error {
	switch {
	case errors.As(context.Cause(ctx), new(*GiveUpError)):
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("robots: fetching for %s: %w", a.Origin, ctx.Err())
	case errors.As(err, new(*LaterError)), errors.As(err, new(queueError)),
		f.options.Prohibited(err) && len(a.Redirects) == 0:
		return fmt.Errorf("robots: fetching for %s: %w", a.Origin, err)
	case f.options.Exhausted(err):
		return &LaterError{At: time.Now().Add(exhaustedRetry), Err: fmt.Errorf("robots: fetching for %s: %w", a.Origin, err)}
	case f.options.UpstreamFailed(err):
		return &UpstreamError{fmt.Errorf("robots: fetching for %s: %w", a.Origin, err)}
	}
	return nil
}

// failed completes a for the error err. The status of a refused redirect stays; other failures have no final response.
func (f *Fetcher) failed(ctx context.Context, a *Answer, err error) {
	var giveUp *GiveUpError
	var refused *RefusedError
	switch {
	case errors.As(context.Cause(ctx), &giveUp):
		f.fail(a, "http_response_timeout", giveUp.Err)
	case errors.As(err, &refused):
		a.Flags |= RedirectRefused
		f.failUntil(a, "http_request_denied", err, refused.Until)
		return
	case f.options.Prohibited(err):
		f.fail(a, "destination_ip_prohibited", err)
	case errors.Is(err, errBadTarget):
		f.fail(a, "http_request_denied", err)
	default:
		f.fail(a, ErrorType(err), err)
	}
	a.Status = 0
}

// follow requests the file and the targets of its redirects, other authorities included. The rules apply to the first
// origin (RFC 9309 section 2.3.1.2).
func (f *Fetcher) follow(at *attempt, r Request, a *Answer) error {
	t := &trail{}
	if err := t.add(r.Origin.String() + robotsPath); err != nil {
		return err
	}
	for {
		resp, next, err := f.step(at, r, t, a)
		if err != nil || next == "" {
			return err
		}
		if flag := f.stop(t.urls, next); flag != 0 {
			a.Status, a.Fields, a.Flags = resp.StatusCode, fieldsOf(resp.Header), a.Flags|flag
			f.set(a, Unavailable, resp.Header) // as section 2.3.1.2 permits
			return nil
		}
		if t.to.Scheme() == "https" && strings.HasPrefix(next, "http:") {
			a.Flags |= Downgraded
		}
		if err := t.add(next); err != nil {
			return err
		}
		a.Status, a.Redirects = resp.StatusCode, t.urls[1:]
	}
}

// stop returns the flag of a redirect to next that is not followed, or 0.
func (f *Fetcher) stop(visited []string, next string) Flags {
	switch {
	case slices.Contains(visited, next):
		return RedirectLoop
	case len(visited) > f.options.MaxRedirects:
		return TooManyRedirects
	default:
		return 0
	}
}

// step sends a request for the last URL of t. It returns the response, with its body closed, and the URL to which it
// redirects. If that is empty, the response was read into a.
func (f *Fetcher) step(at *attempt, r Request, t *trail, a *Answer) (resp *http.Response, next string, err error) {
	previous := r.toValidate(a)
	token := r.Asker.Token
	if t.page {
		token = "" // Admit judges a page by the rules for UserAgent
	}
	h := f.header(token, previous)
	visit, err := f.admit(at, Hop{
		For: r.Origin, Asker: r.Asker, To: t.to, Target: t.target, Page: t.page,
		UserAgent: h.Get("User-Agent"), Until: time.Now().Add(at.Left()),
	}, r.NoPages)
	if err != nil {
		return nil, "", t.explain(err)
	}
	resp, err = f.send(at, visit, t.urls[len(t.urls)-1], h)
	if err != nil {
		return nil, "", t.explain(err)
	}
	defer resp.Body.Close()
	at.paced = t.page
	defer func() { at.paced = false }()
	if next, err = location(resp); err == nil && next == "" {
		err = f.read(at, a, resp, previous)
	}
	return resp, next, err
}

var errPageInPage = &RefusedError{
	Why: "the robots.txt by which another redirect is judged may not be such a redirect itself",
}

// admit waits for the queue and calls Admit. A Page holds no place in the queue while Admit judges it: that may fetch a
// robots.txt from the same host.
func (f *Fetcher) admit(at *attempt, h Hop, noPages bool) (Visit, error) {
	switch {
	case f.options.Admit == nil:
		return noVisit{}, at.enter(origin.Key(h.To.Host()))
	case !h.Page:
		if err := at.enter(origin.Key(h.To.Host())); err != nil {
			return nil, err
		}
		return f.options.Admit(at, h)
	case noPages:
		return nil, errPageInPage
	}
	at.leave()
	visit, err := f.options.Admit(at, h)
	if err != nil {
		return nil, err
	}
	return visit, at.enter("") // Admit paces it in the lane of its host
}

// header returns the fields of a request. It has conditions if previous is not nil.
func (f *Fetcher) header(token string, previous *Answer) http.Header {
	h := http.Header{
		"User-Agent":      {f.options.UserAgent},
		"Accept":          {"text/plain, */*;q=0.5"},
		"Accept-Encoding": {"gzip"},
	}
	if isToken(token) {
		h.Set("User-Agent", token+" "+f.options.UserAgent)
	}
	if previous != nil {
		previous.setConditions(h)
	}
	return h
}

// isToken reports whether s is a token of HTTP (RFC 9110 section 5.6.2). Other strings could inject fields.
func isToken(s string) bool {
	for _, c := range []byte(s) {
		alphanumeric := c-'0' < 10 || c|0x20-'a' < 26
		if !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// read completes a for the last response, as RFC 9309 section 2.3.1 says. It returns an error if the body is
// incomplete.
func (f *Fetcher) read(at *attempt, a *Answer, resp *http.Response, previous *Answer) error {
	a.Status, a.Fields = resp.StatusCode, fieldsOf(resp.Header)
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		a.Flags |= Unauthorized
	case http.StatusNotModified:
		f.validate(a, resp, previous)
		return nil
	}
	if f.refuses(resp.StatusCode) {
		err := fmt.Errorf("the origin answered %s", resp.Status)
		now := time.Now()
		f.failUntil(a, "destination_unavailable", err, now.Add(retryAfter(resp.Header, now)))
		return nil
	}
	if resp.StatusCode >= 300 { // 4xx, and redirects without a Location, which Google's crawler counts as 404 too
		drain(resp.Body)
		f.set(a, Unavailable, resp.Header)
		return nil
	}
	return f.readFile(at, a, resp)
}

// refuses reports whether a response with this status makes the file unreachable.
func (f *Fetcher) refuses(status int) bool {
	switch status {
	case http.StatusTooManyRequests:
		// Departure: section 2.3.1.3 counts 429 among the 4xx, which allow every path. A server that asks for fewer
		// requests does not mean that. Google's crawler treats 429 as a server error too.
		return true
	case http.StatusUnauthorized, http.StatusForbidden:
		return f.options.UnauthorizedRefuses
	}
	return status < 200 || status >= 500 // 1xx is an upgrade that was not requested
}

// Expiry returns the time at which a, which may have been fetched with other Options, must be fetched again under those
// of f. That is a.Fetched if the response would count for something else.
func (f *Fetcher) Expiry(a *Answer) time.Time {
	refuses := f.options.UnauthorizedRefuses
	if a.Flags&WebPage != 0 {
		refuses = f.options.HTMLRefuses
	}
	failed := a.Availability == Unreachable
	switch expires := a.Fetched.Add(f.lifetime(parseFields(a.Fields), a.Fetched)); {
	case a.Flags&Wall != 0 && refuses != failed:
		return a.Fetched
	case !failed && expires.Before(a.Expires):
		return expires
	}
	return a.Expires
}
