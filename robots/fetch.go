package robots

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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

	Prohibited          func(error) bool // tells a refusal of the guard from a failure; if nil, there is no guard
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
	return &Fetcher{o}, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Fetch gets o's robots.txt. What goes wrong on the way is a Snapshot that says so; an error is returned only when ctx
// has ended, or when the guard refuses o itself, which says nothing about the file.
func (f *Fetcher) Fetch(ctx context.Context, o origin.Origin) (*Snapshot, error) {
	limited, cancel := context.WithTimeout(ctx, f.options.Timeout)
	defer cancel()
	snap := &Snapshot{Origin: o, Rules: &rules.Ruleset{}}
	err := f.follow(limited, snap)
	if err == nil {
		return snap, nil
	}
	prohibited := f.options.Prohibited(err)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("robots: fetching for %s: %w", o, ctx.Err())
	case prohibited && len(snap.Redirects) == 0:
		return nil, fmt.Errorf("robots: fetching for %s: %w", o, err)
	case prohibited:
		f.fail(snap, "destination_ip_prohibited", err)
	default:
		f.fail(snap, ErrorType(err), err)
	}
	snap.Status = 0 // a redirect, or the head of a file that broke off, is not the last answer
	return snap, nil
}

// follow asks for the file and for what it is redirected to, also at other authorities; the rules count for the origin
// that was asked first (RFC 9309 section 2.3.1.2).
func (f *Fetcher) follow(ctx context.Context, snap *Snapshot) error {
	visited := []string{snap.Origin.String() + "/robots.txt"}
	for {
		resp, err := f.get(ctx, visited[len(visited)-1])
		if err != nil {
			return err
		}
		next := location(resp)
		if next == "" {
			err = f.read(snap, resp)
			resp.Body.Close()
			return err
		}
		resp.Body.Close()
		if len(snap.Redirects) >= f.options.MaxRedirects || slices.Contains(visited, next) {
			snap.Status = resp.StatusCode
			f.set(snap, Unavailable, resp.Header) // too many, or a loop: section 2.3.1.2 lets it count as unavailable
			return nil
		}
		visited = append(visited, next)
		snap.Redirects = visited[1:]
	}
}

func (f *Fetcher) get(ctx context.Context, at string) (*http.Response, error) {
	var progress progress
	req, err := http.NewRequestWithContext(progress.watch(ctx), http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	req.Header = http.Header{
		"User-Agent":      {f.options.UserAgent},
		"Accept":          {"text/plain, */*;q=0.5"},
		"Accept-Encoding": {"gzip"},
	}
	resp, err := f.options.Transport.RoundTrip(req)
	if err != nil {
		return nil, progress.explain(err)
	}
	return resp, nil
}

// location returns the URL where resp sends us. It is empty where there is none: no redirect, or one to nothing that HTTP
// can fetch.
func location(resp *http.Response) string {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return ""
	}
	next, err := resp.Location()
	if err != nil {
		return ""
	}
	o, err := origin.FromURL(next)
	if err != nil {
		return ""
	}
	clean := url.URL{Scheme: o.Scheme(), Host: o.Authority(), Path: next.Path, RawPath: next.RawPath, RawQuery: next.RawQuery}
	return clean.String() // without userinfo and fragment
}

// read makes of the last answer what RFC 9309 section 2.3.1 makes of it. Its error is for a file that broke off.
func (f *Fetcher) read(snap *Snapshot, resp *http.Response) error {
	snap.Status, snap.ContentType = resp.StatusCode, resp.Header.Get("Content-Type")
	if f.refuses(resp.StatusCode) {
		f.refuse(snap, resp)
		return nil
	}
	found := resp.StatusCode < 300
	data, err := f.readBody(resp)
	if err != nil && found {
		return err
	}
	if err == nil {
		f.keep(snap, data)
	}
	if !found { // 4xx, and redirects that lead nowhere, which Google's crawler counts as 404 too
		f.set(snap, Unavailable, resp.Header)
		return nil
	}
	f.set(snap, Found, resp.Header)
	f.parse(snap, data)
	return nil
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

// readBody reads one octet beyond the limit, after decoding: a compressed file may not be larger than a plain one.
func (f *Fetcher) readBody(resp *http.Response) ([]byte, error) {
	body, err := decoded(resp, int64(f.options.MaxSize))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(body, int64(f.options.MaxSize)+1))
	if err != nil {
		return nil, fmt.Errorf("reading the body, after %d octets: %w", len(data), err)
	}
	return data, nil
}

// keep puts the octets that count into snap, with their hash.
func (f *Fetcher) keep(snap *Snapshot, data []byte) {
	snap.Truncated = len(data) > f.options.MaxSize
	snap.Body = slices.Clip(data[:min(len(data), f.options.MaxSize)])
	sum := sha256.Sum256(snap.Body)
	snap.SHA256 = hex.EncodeToString(sum[:])
}

// errCoding is for a body in a coding that was not asked for and is not understood.
var errCoding = errors.New("the body has a content coding that was not asked for")

func decoded(resp *http.Response, limit int64) (io.Reader, error) {
	switch coding := strings.ToLower(strings.Join(resp.Header.Values("Content-Encoding"), ", ")); coding {
	case "", "identity":
		return resp.Body, nil
	case "gzip", "x-gzip":
		// What is longer than its own content could be holds none: empty gzip members without end, for example.
		const overhead = 64 << 10
		return gunzip(io.LimitReader(resp.Body, limit+overhead))
	default:
		return nil, fmt.Errorf("%w: %q", errCoding, coding)
	}
}

// gunzip lets an empty body be: servers say gzip of those too.
func gunzip(body io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(body)
	if _, err := buffered.Peek(1); err == io.EOF {
		return http.NoBody, nil
	}
	return gzip.NewReader(buffered)
}

// parse compiles data, of which one octet beyond the limit tells rules that it is cut.
func (f *Fetcher) parse(snap *Snapshot, data []byte) {
	snap.Rules = rules.Parse(data, rules.Options{MaxSize: f.options.MaxSize, ContentType: snap.ContentType})
	snap.HTML = isHTML(data)
	if snap.HTML && f.options.HTMLRefuses {
		f.fail(snap, "destination_unavailable", errors.New("a web page stands in the place of robots.txt"))
	}
}

// isHTML tells a web page by its beginning. Its Content-Type tells nothing: many a true robots.txt is sent as text/html.
func isHTML(body []byte) bool {
	const bom = "\xef\xbb\xbf"
	head := strings.ToLower(strings.TrimLeft(strings.TrimPrefix(string(body[:min(len(body), 512)]), bom), " \t\r\n"))
	for _, begin := range []string{"<!doctype html", "<html", "<head", "<body", "<script", "<!--"} {
		if strings.HasPrefix(head, begin) {
			return true
		}
	}
	return false
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

// fail completes snap for a file that could not be had.
func (f *Fetcher) fail(snap *Snapshot, cause string, err error) {
	snap.Availability, snap.Cause, snap.Err, snap.Fetched = Unreachable, cause, err, time.Now()
	snap.Rules = &rules.Ruleset{}
	snap.Expires = snap.Fetched.Add(f.options.ErrorTTL)
}
