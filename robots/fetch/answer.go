package fetch

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// Availability is the result of an attempt to fetch a robots.txt (RFC 9309 section 2.3.1). The zero value refuses.
type Availability uint8

const (
	Unreachable Availability = iota // section 2.3.1.4: every path is disallowed
	Unavailable                     // section 2.3.1.3: every path is allowed
	Found                           // section 2.3.1.1: the rules apply
)

// Answer is the result of one fetch.
type Answer struct {
	Origin       origin.Origin
	Availability Availability
	Truncated    bool      // Body was cut at the size limit
	Flags        Flags     // details that Availability does not give
	Status       int       // of the last response; 0 if there was none or it was incomplete; 304 if it validated Body
	Redirects    []string  // the URLs after the first, in order
	Fetched      time.Time // when the response or the failure came; a 304 is a response
	Expires      time.Time // when to fetch again
	SHA256       string    // of Body, in hexadecimal; empty unless Found
	Body         []byte    // after content decoding; nil unless Found
	ContentType  string    // of the response with Body
	ETag         string    // of that response (RFC 9110 section 8.8); empty if it had none
	LastModified string    // of that response; empty if it had none
	Fields       string    // of that response that give its lifetime (RFC 9111 section 4.2), as lines of HTTP/1.1
	Cause        string    // of a failure: an error type of RFC 9209 section 2.3
	Err          error     // of a failure, for our log: it may contain addresses
}

// Flags are details of an Answer that its Availability does not give. They are stored as the words of Flags.String.
type Flags uint8

const (
	WebPage          Flags = 1 << iota // "html": a web page in place of the file, often from a bot wall
	Unauthorized                       // "unauthorized": 401 or 403
	TooManyRedirects                   // "too-many-redirects": the file counts as unavailable (section 2.3.1.2)
	RedirectLoop                       // "redirect-loop": the file counts as unavailable
	Downgraded                         // "downgraded": a redirect led from https to http
	RedirectRefused                    // "redirect-refused": a redirect led to a page that may not be fetched; see Err
)

// Wall is the set of flags of an answer that a bot wall may give.
const Wall = WebPage | Unauthorized

// flagWords are the words of the flags, in the order of their bits.
var flagWords = []string{"html", "unauthorized", "too-many-redirects", "redirect-loop", "downgraded", "redirect-refused"}

// String returns the words for f, separated by commas. It is empty if f is 0.
func (f Flags) String() string {
	var words []string
	for i, word := range flagWords {
		if f&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	return strings.Join(words, ",")
}

// ParseFlags is the inverse of Flags.String. An unknown word is an error.
func ParseFlags(s string) (f Flags, err error) {
	if s == "" {
		return 0, nil
	}
	for word := range strings.SplitSeq(s, ",") {
		flag, err := parseFlag(word)
		if err != nil {
			return 0, err
		}
		f |= flag
	}
	return f, nil
}

func parseFlag(word string) (Flags, error) {
	for i, known := range flagWords {
		if word == known {
			return 1 << i, nil
		}
	}
	return 0, fmt.Errorf("robots: unknown flag %q", word)
}

// Validated reports whether a is a 304 response: it has the Body of Request.Previous.
func (a *Answer) Validated() bool {
	return a.Status == http.StatusNotModified && a.Availability == Found
}

// ErrWebPage is the error of an answer that is unreachable because it is a web page.
var ErrWebPage = errors.New("a web page stands in the place of robots.txt")

// set completes a for a response that allows every path or has rules.
func (f *Fetcher) set(a *Answer, availability Availability, h http.Header) {
	a.Availability, a.Fetched = availability, time.Now()
	a.Expires = a.Fetched.Add(f.lifetime(h, a.Fetched))
}

// setFound completes a for a file, or for a web page in its place.
func (f *Fetcher) setFound(a *Answer, h http.Header) {
	f.set(a, Found, h)
	if a.Flags&WebPage != 0 && f.options.HTMLRefuses {
		f.fail(a, "destination_unavailable", ErrWebPage)
	}
}

// fail completes a for a file that is unreachable.
func (f *Fetcher) fail(a *Answer, cause string, err error) {
	a.Availability, a.Cause, a.Err, a.Fetched = Unreachable, cause, err, time.Now()
	a.Body, a.SHA256, a.Truncated = nil, "", false
	lifetime := f.options.ErrorTTL
	if cause == causeRefused {
		lifetime = min(lifetime, refusedTTL)
	}
	a.Expires = a.Fetched.Add(lifetime)
}

// refusedTTL is the lifetime of a failure if the origin refused the connection: its server may be about to start. A
// refusal costs little time, and a cache doubles the lifetime with each failure in a row.
const refusedTTL = time.Second

// failUntil is fail for a file that must not be fetched again before until. It extends Expires to a day at most.
func (f *Fetcher) failUntil(a *Answer, cause string, err error, until time.Time) {
	f.fail(a, cause, err)
	if wait := until.Sub(a.Fetched); wait > f.options.ErrorTTL {
		a.Expires = a.Fetched.Add(min(wait, MaxTTL))
	}
}
