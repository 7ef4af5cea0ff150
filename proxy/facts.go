package proxy

import (
	"cmp"
	"fmt"
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
	Purpose   string // of the client, if a preference decided
	verdict   rules.Verdict
	dialect   rules.Dialect
	robots    *robots.Snapshot // nil if no file was read
	enforced  bool             // the proxy answers requests for the file with the rules that it enforces
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
		f.verdict, f.dialect = ex.judged.Verdict, ex.judged.Dialect
		if ex.judged.Reason == policy.ReasonUsage {
			f.Purpose = string(ex.client.Purpose)
		}
		f.enforced = ex.settings.ServeRobots && f.robots.Availability != robots.Unreachable
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

// elide returns s with about n bytes at most. Its middle gives way.
func elide(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n*2/3], "") + "…" + strings.ToValidUTF8(s[len(s)-n/3:], "")
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
	hit, group := f.verdict.Line, f.verdict.Group
	switch {
	case f.robots == nil || hit == 0:
		return nil
	case f.robots.FromPage(): // which the client may not be allowed to read: see robots.Snapshot.Response
		if 0 < group.Line && group.Line < hit {
			all = append(all, shownLine{group.Line, shown("User-agent: " + group.Agents), false})
		}
		return append(all, shownLine{hit, shown(f.verdict.Rule), true})
	}
	for n, text := range f.robots.Lines(f.dialect) {
		if n > hit+shownAround {
			break
		}
		if n == group.Line || n >= hit-shownAround {
			all = append(all, shownLine{n, shown(string(text[:min(len(text), maxShownLine+1)])), n == hit})
		}
	}
	return all
}

// shown returns the beginning of a line of robots.txt, for a page.
func shown(line string) string {
	line = strings.ReplaceAll(line, "\t", " ")
	if len(line) > maxShownLine {
		line = strings.ToValidUTF8(line[:maxShownLine], "") + "…"
	}
	return safetext.Text(line)
}

// fileURL returns the URL of the robots.txt. It is empty if no file was asked for.
func (f *facts) fileURL() string {
	if f.robots == nil {
		return ""
	}
	return f.origin.String() + "/robots.txt"
}

// fetched returns when the origin sent the file. It is zero for a file of the operator, and if there is none.
func (f *facts) fetched() time.Time {
	if f.robots == nil || f.robots.Availability == robots.Unreachable {
		return time.Time{}
	}
	return f.robots.Fetched
}

// about returns d in words, in one unit: "41 minutes".
func about(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", max(0, d)/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d minutes", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d hours", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}

// byHeader reports whether the header of the response is the reason of a refusal.
func (f *facts) byHeader() bool { return strings.HasPrefix(f.verdict.Rule, policy.HeaderRule) }

// byFile reports whether the content of a robots.txt is the reason of a refusal.
func byFile(reason policy.Reason) bool {
	return reason == policy.ReasonRobots || reason == policy.ReasonUsage || reason == policy.ReasonTooComplex
}
