package proxy

import (
	"bytes"
	_ "embed" // the page
	"encoding/json"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/fields"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/internal/style"
	"github.com/robotsproxy/robotsproxy/policy"
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
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d %s\n\n%s\n\nreason:  %s\n", r.Status, classes[r.Reason].title, safetext.Text(r.Detail), r.Reason)
	if r.Rule != "" {
		fmt.Fprintf(&b, "rule:    %s\n", safetext.Text(r.Rule))
	}
	if retry := r.retryAfter(); retry > 0 {
		fmt.Fprintf(&b, "retry:   in %d s\n", retry)
	}
	if id != "" {
		fmt.Fprintf(&b, "request: %s\n", id)
	}
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
		URL: safetext.UTF8(f.URL), Crawler: safetext.UTF8(f.Crawler), UserAgent: safetext.UTF8(f.UserAgent), Contact: f.Contact, Next: r.next(f, id),
	}
	if byFile(r.Reason) {
		p.Lines, p.Line = f.lines(), f.verdict.Line
		if g := f.verdict.Group; g.Line > 0 {
			p.Group = &group{g.Line, safetext.UTF8(elide(g.Agents, maxShownLine))}
		}
	}
	if p.RobotsURL = f.fileURL(); p.RobotsURL != "" && !f.robots.Fetched.IsZero() {
		fetched := f.robots.Fetched.UTC()
		p.RobotsFetchedAt, p.RobotsSHA256 = &fetched, f.robots.SHA256
	}
	return p
}

// refusalPage is the data of refusal.html.
type refusalPage struct {
	*problem
	CSS         template.CSS
	Host        string
	Class, Word string // of the pill
	Lead        string
	Age         string // of the robots.txt
}

// page returns the data of the page.
func (r *refusal) page(id string) refusalPage {
	f := r.facts()
	p := refusalPage{problem: r.problem(f, id), CSS: style.CSS, Class: "blocked", Word: "Not fetched"}
	switch r.Outcome {
	case policy.Throttle:
		p.Class, p.Word = "delayed", "Not now"
	case policy.Error, policy.Allow:
		p.Class, p.Word = "error", "Failed"
	}
	if f.Host == "" {
		return p
	}
	p.Host, p.Age = f.Host, f.age(time.Now())
	if r.Reason == policy.ReasonRobots {
		path := strings.TrimPrefix(p.URL, f.origin.String())
		who := "the crawler " + f.Crawler
		if f.Crawler == "*" {
			who = "crawlers without a name"
		}
		p.Lead = fmt.Sprintf("The robots.txt of %s disallows %s for %s, so this proxy did not ask for it.", f.Host, path, who)
	}
	return p
}

// next returns what the client can do.
func (r *refusal) next(f *facts, id string) (steps []string) {
	switch r.Reason {
	case policy.ReasonRobots, policy.ReasonUsage, policy.ReasonTooComplex:
		steps = append(steps, "If the page should be open, ask the site: its robots.txt says who may read it.")
		if f.URL != "" {
			steps = append(steps, "To see how the decision was made, run: robotsproxy check --explain "+shellWord(f.URL)+" -A "+shellWord(f.UserAgent))
		}
		steps = append(steps, "An exception is the operator's to make"+r.askOperator(f, id))
	case policy.ReasonRobotsUnreachable:
		steps = append(steps, "Try again later: until the robots.txt can be read, nothing of this site is fetched (RFC 9309 section 2.3.1.4).")
	case policy.ReasonPace, policy.ReasonBackoff, policy.ReasonOverload:
		steps = append(steps, "Send fewer requests at once, and repeat this one after the time in Retry-After.")
	case policy.ReasonUpstream:
		steps = append(steps, "Try again later: the proxy permits the request, and the site did not answer it.")
	case policy.ReasonBadRequest, policy.ReasonMisdirected, policy.ReasonLoop:
		steps = append(steps, "Correct the request, or the configuration of the program that sent it.")
	}
	if len(steps) < 3 {
		steps = append(steps, "Questions about this proxy are for its operator"+r.askOperator(f, id))
	}
	return steps
}

// askOperator returns how to reach the operator, after a sentence.
func (r *refusal) askOperator(f *facts, id string) string {
	var parts []string
	if f.Contact != "" {
		parts = append(parts, f.Contact)
	}
	if id != "" {
		parts = append(parts, "request "+id)
	}
	if len(parts) == 0 {
		return "."
	}
	return ": " + strings.Join(parts, ", ") + "."
}

// shellWord quotes s for a shell.
func shellWord(s string) string {
	if s == "" {
		return "'*'"
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

//go:embed refusal.html
var pageHTML string

var page = template.Must(template.New("refusal").Funcs(template.FuncMap{"safe": safetext.Text}).Parse(pageHTML))
