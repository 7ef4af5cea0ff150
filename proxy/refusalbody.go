package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/fields"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// problem is the problem details object of RFC 9457 section 3.1, and extension members after status and detail.
type problem struct {
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Detail     string `json:"detail"`
	Reason     string `json:"reason"`
	Decision   string `json:"decision"`
	Rule       string `json:"rule,omitempty"`
	RetryAfter int    `json:"retry_after,omitempty"`
	RequestID  string `json:"request_id,omitempty"`

	URL       string      `json:"url,omitempty"`
	Crawler   string      `json:"crawler,omitempty"` // the name that was judged
	UserAgent string      `json:"user_agent,omitempty"`
	Line      int         `json:"rule_line,omitempty"`
	Group     *group      `json:"group,omitempty"`
	Lines     []shownLine `json:"lines,omitempty"` // of robots.txt, around the one that decided

	RobotsURL       string     `json:"robots_url,omitempty"`
	RobotsFetchedAt *time.Time `json:"robots_fetched_at,omitempty"`
	RobotsSHA256    string     `json:"robots_sha256,omitempty"`

	Contact string   `json:"contact,omitempty"` // of the operator
	Next    []string `json:"next"`              // what the client can do, a sentence each
}

// group is the group of robots.txt that applied.
type group struct {
	Line   int    `json:"line"`
	Agents string `json:"agents"`
}

// body returns the text in the media type that the client prefers: HTML for browsers, problem+json for programs that
// accept JSON, and else plain text.
func (r *refusal) body(accept []string, id string) (contentType string, body []byte) {
	weight := func(kind string) float64 { return fields.AcceptWeight(accept, kind) }
	asHTML, asJSON, asText := weight("text/html"), weight("json"), weight("text/plain")
	var b bytes.Buffer
	switch {
	case asHTML > 0 && asHTML >= max(asJSON, asText):
		if err := page.Execute(&b, r.page(id)); err == nil {
			return "text/html; charset=utf-8", b.Bytes()
		}
	case asJSON > 0 && asJSON >= asText:
		if err := json.NewEncoder(safetext.JSONWriter(&b)).Encode(r.problem(r.facts(), id)); err == nil {
			return "application/problem+json", b.Bytes()
		}
	}
	return "text/plain; charset=utf-8", r.text(id)
}

// text returns the plain text.
func (r *refusal) text(id string) []byte {
	f := r.facts()
	var b bytes.Buffer
	line := func(name, value string) {
		if value != "" {
			b.WriteString(name)
			b.WriteString(safetext.Text(value))
			b.WriteByte('\n')
		}
	}
	fmt.Fprintf(&b, "%d %s\n\n%s\n\n", r.Status, classes[r.Reason].title, safetext.Text(r.Detail))
	line("reason:  ", string(r.Reason))
	line("rule:    ", r.Rule)
	if g := f.verdict.Group; byFile(r.Reason) && g.Line > 0 {
		line("group:   ", fmt.Sprintf("%s (line %d)", elide(g.Agents, maxShownLine), g.Line))
	}
	line("url:     ", f.URL)
	line("crawler: ", f.Crawler)
	switch fetched := f.fetched(); {
	case fetched.IsZero():
		line("robots:  ", f.fileURL())
	default:
		line("robots:  ", f.fileURL()+" (fetched "+about(time.Since(fetched))+" ago)")
	}
	if retry := r.retryAfter(); retry > 0 {
		fmt.Fprintf(&b, "retry:   in %d s\n", retry)
	}
	line("contact: ", f.Contact)
	line("request: ", id)
	b.WriteString("\nThis answer was made by robotsproxy, not by the origin.\n")
	return b.Bytes()
}

// facts returns the facts about the request, or empty ones.
func (r *refusal) facts() *facts {
	if r.Facts == nil {
		return &facts{}
	}
	return r.Facts()
}

// problem returns the problem details.
func (r *refusal) problem(f *facts, id string) *problem {
	p := &problem{
		Title: classes[r.Reason].title, Status: r.Status, Detail: safetext.UTF8(r.Detail), Reason: string(r.Reason),
		Decision: string(r.Outcome), Rule: safetext.UTF8(r.Rule), RetryAfter: r.retryAfter(), RequestID: id,
		URL: safetext.UTF8(f.URL), Crawler: safetext.UTF8(f.Crawler), UserAgent: safetext.UTF8(f.UserAgent),
		Contact: f.Contact,
	}
	for _, s := range r.next(f, id) {
		p.Next = append(p.Next, safetext.UTF8(s.String()))
	}
	if byFile(r.Reason) {
		p.Lines, p.Line = f.lines(), f.verdict.Line
		if g := f.verdict.Group; g.Line > 0 {
			p.Group = &group{g.Line, safetext.UTF8(elide(g.Agents, maxShownLine))}
		}
	}
	p.RobotsURL = f.fileURL()
	if fetched := f.fetched().UTC(); !fetched.IsZero() {
		p.RobotsFetchedAt, p.RobotsSHA256 = &fetched, f.robots.SHA256
	}
	return p
}
