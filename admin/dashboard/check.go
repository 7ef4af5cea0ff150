package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

// Judge judges requests as the running proxy does.
type Judge interface {
	// Policy returns the policy in force.
	Policy() *policy.Policy
	// Snapshot returns the robots.txt in force. It fetches the file if none is kept.
	Snapshot(ctx context.Context, o origin.Origin) (*robots.Snapshot, error)
	// Wait returns how long a request to a canonical host would wait now, if its Delay is as given.
	Wait(host string, delay time.Duration) time.Duration
}

// checkPage is the data of check.html.
type checkPage struct {
	URL, Agent string
	Fault      string // of the URL
	*verdict          // nil before a question
}

// verdict is the answer about one URL and one crawler.
type verdict struct {
	Pill     pill
	Sentence string
	Host     string
	Origin   string
	Decision policy.Decision
	Snapshot *robots.Snapshot
	Lines    []line
	Matches  []rules.Match // the rules that compete, the one that decides first
	Others   []rules.Match // of other crawlers
	Dialects []reading
	Wait     time.Duration
}

// reading is the verdict of one dialect.
type reading struct {
	Dialect string
	Allowed bool
	Rule    string
	Why     string
	InForce bool
}

// check judges a URL for a crawler, as the proxy would judge it now.
func (h *Handler) check(v *view) error {
	q := v.URL.Query()
	p := checkPage{URL: strings.TrimSpace(q.Get("url")), Agent: strings.TrimSpace(q.Get("agent"))}
	status := http.StatusOK
	// A page of another site must not make the proxy fetch: it gets the form, filled in.
	if p.URL != "" && !isForeign(v.Request) {
		var err error
		if p.verdict, err = h.judge(v, p.URL, p.Agent); err != nil {
			p.Fault, status = err.Error(), http.StatusBadRequest
		}
	}
	h.show(v.w, v.Request, status, "Check", "check.html", p)
	return nil
}

// judge answers a question. All its errors are about the URL, or about its robots.txt.
func (h *Handler) judge(v *view, raw, agent string) (*verdict, error) {
	if h.options.Judge == nil {
		return nil, fmt.Errorf("this listener belongs to no proxy")
	}
	if !strings.Contains(raw, "://") {
		raw = "https://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("this is not a URL: %w", err)
	}
	u.RawPath = origin.RawPath(u)
	o, err := origin.FromURL(u)
	if err != nil {
		return nil, err
	}
	snap, err := h.options.Judge.Snapshot(v.ctx(), o)
	if err != nil {
		return nil, fmt.Errorf("the robots.txt of %s can not be read: %w", o, err)
	}
	r := policy.Request{Origin: o, Target: u.RequestURI(), UserAgent: agent}
	if agent == "" {
		r.Client.ProductToken = "*"
	}
	a := &verdict{Host: o.Host(), Origin: o.String(), Snapshot: snap}
	a.Decision = h.options.Judge.Policy().Decide(r, snap, v.now)
	name := agent
	if name == "" {
		name = "*"
	}
	e := snap.RulesFor(a.Decision.Dialect).Agent(name).Explain(r.Target)
	a.Matches, a.Others = e.Matches, e.OtherAgents
	hit := a.Decision.Verdict
	if hit.Line == 0 && len(e.Matches) > 0 {
		hit = e.Verdict
	}
	if snap.Availability == robots.Found && len(snap.Body) > 0 {
		a.Lines = fileLines(snap.Body, hit.Line, hit.Group.Line, hit.Allowed, surroundings(snap.Body))
	}
	a.Dialects = readings(snap, name, r.Target, a.Decision.Dialect)
	if a.Decision.Action == policy.Forward {
		a.Wait = h.options.Judge.Wait(a.Host, a.Decision.Delay)
	}
	a.say(agent, u)
	return a, nil
}

// say sets the pill and the sentence of a.
func (a *verdict) say(agent string, u *url.URL) {
	who := "A crawler that the file does not name"
	if agent != "" {
		who = agent
	}
	d := a.Decision
	may := "may fetch"
	switch {
	case d.Outcome == policy.WouldDeny:
		a.Pill, may = pill{"blocked", "Would be blocked"}, "is only reported for"
	case d.Action == policy.Forward && d.Outcome == policy.Exempt:
		a.Pill = pill{"on", "Exempt"}
	case d.Action == policy.Forward:
		a.Pill = pill{"on", "Allowed"}
	case d.Reason == policy.ReasonRobotsUnreachable:
		a.Pill, may = pill{"error", "Unknown"}, "can not fetch"
	default:
		a.Pill, may = pill{"blocked", "Blocked"}, "may not fetch"
	}
	a.Sentence = fmt.Sprintf("%s %s %s on %s", who, may, u.RequestURI(), a.Host)
	switch {
	case d.Reason == policy.ReasonExemption:
		a.Sentence += ": the exemption " + d.Exemption + " decides."
	case d.Verdict.Line > 0:
		a.Sentence += fmt.Sprintf(": line %d of its robots.txt decides.", d.Verdict.Line)
	case d.Reason == policy.ReasonRobotsUnreachable:
		a.Sentence += ": its robots.txt is unreachable. " + a.Snapshot.UnreachableText()
	case d.HostRule != "":
		a.Sentence += ": the list of hosts decides (" + d.HostRule + ")."
	case d.Intervention != "" && d.Action != policy.Forward:
		a.Sentence += ": an intervention decides (" + d.Intervention + ")."
	case d.Reason != "":
		a.Sentence += ": " + string(d.Reason) + "."
	case a.Snapshot.Availability != robots.Found:
		a.Sentence += ": its robots.txt is " + a.Snapshot.State() + ", which disallows nothing."
	default:
		a.Sentence += ": no rule matches."
	}
}

// readings returns the verdict of each dialect.
func readings(snap *robots.Snapshot, agent, target string, inForce rules.Dialect) (all []reading) {
	if snap.Availability != robots.Found {
		return nil
	}
	for _, d := range rules.Dialects() {
		e := snap.RulesFor(d).Agent(agent).Explain(target)
		r := reading{Dialect: d.String(), Allowed: e.Verdict.Allowed, Why: e.Why.String(), InForce: d == inForce}
		if e.Verdict.Line > 0 {
			r.Rule = fmt.Sprintf("line %d  %s", e.Verdict.Line, e.Verdict.Rule)
		}
		all = append(all, r)
	}
	return all
}

// Answered reports whether p has an answer.
func (p checkPage) Answered() bool { return p.verdict != nil }
