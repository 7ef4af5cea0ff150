package dashboard

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/internal/clientenv"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
)

// decisionPage is the data of decision.html.
type decisionPage struct {
	*audit.Record
	Sentence string
	Lines    []line // of the robots.txt; nil if it is not kept
	Part     bool   // Lines are a part of it
	NoFile   string // why there are no Lines
	Age      time.Duration
	Curl     string
}

// decision shows one request: what was decided, by which line, and everything that is recorded.
func (h *Handler) decision(v *view) error {
	if h.options.Records == nil {
		return h.notKept()
	}
	r, err := findRecord(v.ctx(), h.options.Records, v.PathValue("id"))
	if err != nil {
		return err
	}
	p := decisionPage{
		Record: r, Sentence: (&auditview.Explanation{Record: r, Now: v.now}).Sentence(), Curl: curl(r, h.options.State().Listen),
	}
	if !r.RobotsFetchedAt.IsZero() {
		p.Age = max(0, r.Time.Sub(r.RobotsFetchedAt)).Truncate(time.Second)
	}
	if err := p.readFile(v); err != nil {
		return err
	}
	return v.render("Decision", "decision.html", p)
}

// findRecord returns the record with an ID, or with the beginning of one.
func findRecord(ctx context.Context, records audit.Reader, text string) (*audit.Record, error) {
	r, err := auditview.Find(ctx, records, text)
	switch {
	case errors.Is(err, audit.ErrNoRecord):
		return nil, &fault{http.StatusNotFound, err.Error()}
	case errors.As(err, new(*auditview.InvalidIDError)), errors.As(err, new(*auditview.AmbiguousError)):
		return nil, &fault{http.StatusBadRequest, err.Error()}
	}
	return r, err
}

// readFile sets the lines of the robots.txt on which the record rests.
func (p *decisionPage) readFile(v *view) error {
	switch {
	case p.RobotsState == "" && p.Via == audit.Robots:
		p.NoFile = "This is the proxy's own request for the robots.txt."
		return nil
	case p.RobotsState == "":
		p.NoFile = "The robots.txt was not read for this request."
		return nil
	}
	file, err := v.options.Records.File(v.ctx(), p.Record)
	switch {
	case errors.Is(err, audit.ErrNoFile):
		p.NoFile = "The text of this robots.txt is not kept."
		return nil
	case errors.Is(err, audit.ErrChanged):
		p.NoFile = "The text that is kept of this robots.txt was changed, so it is not shown."
		return nil
	case err != nil:
		return err
	}
	around := surroundings(file.Body)
	p.Part = around >= 0
	allow := strings.HasPrefix(strings.ToLower(p.Rule), "allow")
	if len(file.Body) > 0 {
		p.Lines = fileLines(file.Body, p.RuleLine, p.GroupLine, allow, around)
	}
	if len(p.Lines) == 0 {
		p.NoFile = "The robots.txt has no text: it is " + p.RobotsState + "."
	}
	return nil
}

// URL returns the URL of the request.
func (p decisionPage) URL() string { return auditview.URL(p.Record) }

// Words returns the rule without its line, as the filter of a list has it.
func (p decisionPage) Words() string { return audit.RuleText(p.RuleLine, p.Rule) }

// Effect returns the effect of an exemption that decides otherwise.
func (p decisionPage) Effect() string {
	if p.Decision == policy.Deny || p.Decision == policy.WouldDeny {
		return "allow"
	}
	return "deny"
}

// Pattern returns the path of an exemption for such requests: that of the rule, or that of the request.
func (p decisionPage) Pattern() string {
	field, value, _ := strings.Cut(p.Rule, ":")
	if strings.EqualFold(field, "disallow") || strings.EqualFold(field, "allow") {
		return strings.TrimSpace(value)
	}
	return p.Path
}

// Origin returns the origin of the request as a URL, or "" for a request whose robots.txt is that of another origin.
func (p decisionPage) Origin() string {
	o, err := origin.New(p.Scheme, p.Host, p.Port)
	if err != nil {
		return ""
	}
	return o.String()
}

// curl returns a command that sends r again, through the proxy at listen. Every word of it that a request has chosen is
// quoted.
func curl(r *audit.Record, listen string) string {
	if r.Host == "" || r.Path == "" {
		return ""
	}
	quote := func(s string) string { return clientenv.Quote(safetext.Text(s)) }
	words := []string{"curl", "-i", "--globoff", "--path-as-is"}
	if listen != "" {
		words = append(words, "--proxy", quote(listen))
	}
	switch r.Method {
	case http.MethodGet, "":
	case http.MethodHead:
		words = append(words, "--head")
	default:
		words = append(words, "--request", quote(r.Method))
	}
	if r.UserAgent != "" {
		words = append(words, "--user-agent", quote(r.UserAgent))
	}
	if r.Via == audit.Intercepted {
		words = append(words, "--cacert", "ca.pem")
	}
	return strings.Join(append(words, quote(auditview.URL(r))), " ")
}
