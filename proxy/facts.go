package proxy

import (
	"bytes"
	"cmp"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

// facts are what the body of a refusal says about the request, and about the robots.txt that decided.
type facts struct {
	URL       string // without userinfo, and with masked values, as in the record; empty if it is not known
	Host      string
	Crawler   string // the product token that was judged; "*" if there is none
	UserAgent string // of which it was taken
	Contact   string // of the operator
	verdict   rules.Verdict
	robots    *robots.Snapshot // nil if no file was read
	origin    origin.Origin
}

// factsOf returns the facts of ex.
func factsOf(ex *exchange) *facts {
	f := &facts{Contact: ex.settings.Contact, origin: ex.origin}
	if ex.origin.IsZero() {
		return f
	}
	r := &ex.rec
	f.Host, f.URL = ex.origin.Host(), ex.origin.String()+r.Path
	if r.Query != "" {
		f.URL += "?" + r.Query
	}
	f.URL = elide(f.URL, maxShownURL)
	if f.robots = ex.judged.snap; f.robots != nil {
		f.verdict = ex.judged.Verdict
		agent := cmp.Or(r.SentUserAgent, r.UserAgent)
		f.UserAgent = elide(agent, maxShownLine)
		f.Crawler = elide(cmp.Or(ex.judged.request.Client.ProductToken, rules.ProductToken(agent), "*"), maxShownLine)
	}
	return f
}

const (
	maxShownURL  = 2 << 10 // bytes
	maxShownLine = 300     // bytes of a line of robots.txt, or of a User-Agent
	shownAround  = 3       // lines of robots.txt before and after the one that decided
)

// elide returns s with at most n bytes. Its middle gives way.
func elide(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return safetext.UTF8(s[:n*2/3]) + "…" + safetext.UTF8(s[len(s)-n/3:])
}

// shownLine is a line of robots.txt.
type shownLine struct {
	Line    int    `json:"line"`
	Text    string `json:"text"`
	Decides bool   `json:"decides,omitempty"`
}

// lines returns the line of robots.txt that decided with those around it, and the first line of its group. It returns
// nil if no line decided.
func (f *facts) lines() (all []shownLine) {
	hit, group := f.verdict.Line, f.verdict.Group.Line
	if f.robots == nil || hit == 0 {
		return nil
	}
	n := 0
	rest := bytes.TrimPrefix(f.robots.Body, []byte("\ufeff"))
	for len(rest) > 0 && n < hit+shownAround {
		n++
		end := bytes.IndexAny(rest, "\r\n") // all forms of EOL (RFC 9309 section 2.2)
		text := rest
		switch {
		case end < 0:
			rest = nil
		case rest[end] == '\r' && end+1 < len(rest) && rest[end+1] == '\n':
			text, rest = rest[:end], rest[end+2:]
		default:
			text, rest = rest[:end], rest[end+1:]
		}
		if n == group || n >= hit-shownAround {
			shown := string(text[:min(len(text), maxShownLine+1)])
			if len(shown) > maxShownLine {
				shown = safetext.UTF8(shown[:maxShownLine]) + "…"
			}
			all = append(all, shownLine{n, safetext.Text(shown), n == hit})
		}
	}
	return all
}

// fileURL returns the URL of the robots.txt, which the proxy answers with the file that it enforces. It is empty if no
// file was read.
func (f *facts) fileURL() string {
	if f.robots == nil {
		return ""
	}
	return f.origin.String() + "/robots.txt"
}

// age returns how old the file is, as in "2h41m". It is empty for a file of the operator.
func (f *facts) age(now time.Time) string {
	if f.robots == nil || f.robots.Fetched.IsZero() {
		return ""
	}
	age := max(0, now.Sub(f.robots.Fetched)).Truncate(time.Second)
	if age < time.Minute {
		return age.String()
	}
	return strings.TrimSuffix(age.Truncate(time.Minute).String(), "0s")
}

// byFile reports whether the content of a robots.txt is the reason of a refusal.
func byFile(reason policy.Reason) bool {
	return reason == policy.ReasonRobots || reason == policy.ReasonUsage || reason == policy.ReasonTooComplex
}
