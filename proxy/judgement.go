package proxy

import (
	"net/http"
	"time"

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
func (ex *exchange) judge(req *http.Request) *Refusal {
	j := &ex.judged
	j.policy, j.at = ex.server.options.Policy, ex.rec.Time
	j.request = policy.Request{Client: ex.client.Client, Origin: ex.origin, Target: ex.target, UserAgent: req.UserAgent(), Tunnel: ex.unread}
	if j.policy.Mode(ex.origin.Host(), ex.client.Client) != policy.Off {
		var err error
		if j.snap, err = ex.server.options.Snapshots.Snapshot(req.Context(), ex.origin, robots.Asker{Client: ex.share, Name: ex.client.Name, Token: ex.client.ProductToken}); err != nil {
			return lookUpRefusal(req, ex, err)
		}
	}
	return ex.decide()
}

// judgeAgain decides once more about a request that may have waited, unless its judgement still holds. It judges by the
// Snapshot in memory and fetches none, since a place in the lane is held meanwhile.
func (ex *exchange) judgeAgain() *Refusal {
	j, now := &ex.judged, time.Now()
	snap := ex.server.options.Snapshots.Kept(ex.origin)
	if snap == nil {
		snap = j.snap
	}
	if snap == j.snap && ex.server.options.Policy == j.policy && now.Sub(j.at) < lasting {
		return nil
	}
	j.policy, j.snap, j.at = ex.server.options.Policy, snap, now
	return ex.decide()
}

// decide decides by what ex.judged rests on, and notes the decision in the record. A costly decision waits for its turn.
func (ex *exchange) decide() *Refusal {
	j := &ex.judged
	if j.costly() {
		leave, err := ex.server.slots.take(ex.ctx, ex.share)
		if err != nil {
			return ex.gone(errGoneWaiting)
		}
		defer leave()
	}
	j.Decision = j.policy.Decide(j.request, j.snap, j.at)
	noteDecision(&ex.rec, j.Decision, j.snap)
	if j.Action == policy.Refuse {
		return decisionRefusal(ex, j.Decision, j.snap)
	}
	return nil
}
