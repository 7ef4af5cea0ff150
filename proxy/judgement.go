package proxy

import (
	"net/http"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// judgement is a decision about a request, and what it rests on.
type judgement struct {
	policy.Decision
	request policy.Request
	policy  *policy.Policy
	snap    *robots.Snapshot // nil if the mode is Off
	at      time.Time
}

// lasting is how long a judgement holds while its Policy and its Snapshot stay the same. Exemptions and request rates begin
// and end with time.
const lasting = time.Second

// judge looks up the origin's robots.txt, if the mode wants it, and decides. It returns the Refusal, if that is the decision.
func (p pipeline) judge(req *http.Request, ex *exchange) *Refusal {
	j := &ex.judged
	j.policy, j.at = p.options.Policy, ex.rec.Time
	j.request = policy.Request{Client: ex.client.Client, Origin: ex.origin, Target: ex.target, UserAgent: req.UserAgent(), Tunnel: ex.unread}
	if j.policy.Mode(ex.origin.Host(), ex.client.Client) != policy.Off {
		var err error
		if j.snap, err = p.options.Snapshots.Snapshot(req.Context(), ex.origin, robots.Asker{Client: ex.share, Name: ex.client.Name, Token: ex.client.ProductToken}); err != nil {
			return lookUpRefusal(req, ex, err)
		}
	}
	return ex.decide()
}

// judgeAgain decides once more about a request that may have waited, unless its judgement still holds. It judges by the
// Snapshot in memory and fetches none, since a place in the lane is held meanwhile.
func (p pipeline) judgeAgain(ex *exchange) *Refusal {
	j, now := &ex.judged, time.Now()
	snap := p.options.Snapshots.Kept(ex.origin)
	if snap == nil {
		snap = j.snap
	}
	if snap == j.snap && p.options.Policy == j.policy && now.Sub(j.at) < lasting {
		return nil
	}
	j.policy, j.snap, j.at = p.options.Policy, snap, now
	return ex.decide()
}

// decide decides by what ex.judged rests on, and notes the decision in the record. A costly decision waits for its turn.
func (ex *exchange) decide() *Refusal {
	j := &ex.judged
	if j.costly() {
		leave, err := ex.server.turns.take(ex.ctx, ex.share)
		if err != nil {
			return ex.gone(errGoneWaiting)
		}
		defer leave()
	}
	j.Decision = j.policy.Decide(j.request, j.snap, j.at)
	ex.noteDecision(j)
	if j.Action == policy.Refuse {
		return decisionRefusal(ex, j.Decision, j.snap)
	}
	return nil
}

// noteDecision writes into the record what was decided and by which file.
func (ex *exchange) noteDecision(j *judgement) { noteDecision(&ex.rec, j.Decision, j.snap) }

// noteDecision writes into rec what was decided, by which file; nil: by none.
func noteDecision(rec *audit.Record, d policy.Decision, snap *robots.Snapshot) {
	rec.Mode, rec.Decision, rec.Reason, rec.Exemption = d.Mode.String(), d.Outcome, d.Reason, d.Exemption
	rec.ProductToken = d.Agent
	rec.RuleLine, rec.Rule = d.Verdict.Line, d.Verdict.Rule
	rec.GroupLine, rec.GroupAgents = d.Verdict.Group.Line, d.Verdict.Group.Agents
	rec.DelayRequired, rec.DelaySource = audit.Millis(d.Delay), d.DelaySource
	rec.Deviation = ""
	if d.Clamped {
		rec.Deviation = "max_crawl_delay"
	}
	if snap != nil {
		rec.RobotsSHA256, rec.RobotsStatus = snap.SHA256, snap.Status
		rec.RobotsState, rec.RobotsFetchedAt = snap.State(), snap.Fetched
		rec.Dialect = d.Dialect.String()
	}
}
