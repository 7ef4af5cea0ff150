package audit

import (
	"cmp"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

// Deviations of requests that were sent sooner than the site asks, beside "max_crawl_delay".
const (
	DeviationReported    = "reported"    // in report mode the request did not wait, or one in report mode overtook it
	DeviationOverlap     = "overlap"     // the request returned its place before its end, because its client blocked it
	DeviationSubresource = "subresource" // the request is for a part of a page, and was sent without the Delay of its host
)

// SetDecision writes into r the decision and the file that it rests on. A nil snap means that no file was read. Only
// Allow may have no reason: another decision without one is an internal fault.
func (r *Record) SetDecision(d policy.Decision, snap *robots.Snapshot) {
	r.Mode, r.Decision, r.Reason, r.Exemption = d.Mode.String(), d.Outcome, d.Reason, d.Exemption
	if r.Reason == policy.ReasonNone && r.Decision != policy.Allow {
		r.Reason = policy.ReasonInternal
	}
	r.Intervention = d.Intervention
	r.ProductToken = d.Agent
	r.RuleLine, r.Rule = d.Verdict.Line, cmp.Or(d.Verdict.Rule, d.HostRule)
	r.GroupLine, r.GroupAgents = d.Verdict.Group.Line, d.Verdict.Group.Agents
	r.DelayRequired, r.DelaySource = Millis(d.Delay), d.DelaySource
	r.Deviation = ""
	if d.Clamped {
		r.Deviation = "max_crawl_delay"
	}
	r.Usage = d.Usage
	if strings.Contains(r.Usage, "license=") { // it is the only preference with a URL
		r.Usage = QueryMask.Text(r.Usage)
	}
	r.Evidence.Robots = snap
	if snap != nil {
		r.RobotsSHA256, r.RobotsStatus = snap.SHA256, snap.Status
		r.RobotsState, r.RobotsFetchedAt = snap.State(), snap.Fetched
		r.Dialect = d.Dialect.String()
	}
}

// SetResponseDecision writes into r the decision about the response, which follows that about the request: see
// policy.Policy.DecideResponse.
func (r *Record) SetResponseDecision(d policy.Decision) {
	r.Decision, r.Reason, r.Exemption = d.Outcome, d.Reason, d.Exemption
	r.RuleLine, r.Rule, r.GroupLine, r.GroupAgents = 0, d.Verdict.Rule, 0, ""
}

// ByHeader reports whether the header of the response has decided about r.
func (r *Record) ByHeader() bool {
	return r.RuleLine == 0 && strings.HasPrefix(r.Rule, policy.HeaderRule)
}

// SetGrant writes into r how long the request waited for g, and the gap and the Delay that g kept.
func (r *Record) SetGrant(g ratelimit.Grant) {
	r.PacingMode, r.Spacing = string(g.Mode()), ""
	if g.SpacedFromStart() {
		r.Spacing = "start"
	}
	r.Waited += Millis(g.Waited())
	if gap, known := g.Gap(); known {
		r.SetGap(gap)
	}
	if g.Overtaken() {
		r.AddDeviation(DeviationReported)
	}
	if required, source := g.Required(); source != "" {
		r.DelayRequired, r.DelaySource = Millis(required), string(source)
	}
}

// SetGap writes the gap to the previous request. A record omits zero, so the gap is at least a nanosecond.
func (r *Record) SetGap(gap time.Duration) { r.Gap = Millis(max(gap, 1)) }

// SetLane writes the lane that paces the request.
func (r *Record) SetLane(key string) {
	r.Lane = key
	if key == r.Host {
		r.Lane = ""
	}
}

// SetEnd writes the end of the request, and the result of Grant.Release: when its place was given back.
func (r *Record) SetEnd(released, ended time.Time) {
	r.EndedAt = ended
	if !released.IsZero() && released.Before(ended) {
		r.ReleasedAt = released
	}
}

// SetPolicy writes into r the policy that has decided.
func (r *Record) SetPolicy(p *policy.Policy) {
	r.PolicySHA256, r.RulesVersion, r.Evidence.Policy = p.SHA256(), rules.Version, p
}

// AddDeviation adds one of the deviations to r.
func (r *Record) AddDeviation(how string) { r.Deviation = strings.TrimPrefix(r.Deviation+","+how, ",") }

// AddUsage adds the preferences of another source, as in "header: search=y", to those of robots.txt.
func (r *Record) AddUsage(preferences string) {
	if preferences != "" {
		r.Usage = strings.TrimPrefix(r.Usage+"; "+preferences, "; ")
	}
}
