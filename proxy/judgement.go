package proxy

import (
	"net/http"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// judgement is a decision about a request, with everything that it depends on.
type judgement struct {
	policy.Decision
	request policy.Request
	snap    *robots.Snapshot // nil if the Policy needs no file: see NeedsRobots
	at      time.Time
}

// lasting is how long a judgement holds while its Snapshot stays the same. Exemptions and request rates
// may begin or end at any time.
const lasting = time.Second

// judge looks up the origin's robots.txt, if the decision needs it, and decides. For a client that may not visit the host,
// nothing is fetched.
func (ex *exchange) judge(req *http.Request) *refusal {
	j := &ex.judged
	j.at = ex.rec.Time
	j.request = policy.Request{
		Client: ex.client.Client, Origin: ex.origin, Target: ex.target, UserAgent: req.UserAgent(), Tunnel: ex.isRawTunnel(),
	}
	if ex.settings.Policy.NeedsRobots(j.request) {
		wait, _ := ex.maxWait(req.Header)
		asker := robots.Asker{Client: ex.share, Name: ex.client.Name, Token: ex.client.ProductToken, MaxWait: max(1, wait)}
		snap, err := ex.settings.Snapshots.Snapshot(ex.ctx, ex.origin, asker)
		if err != nil {
			if ref := ex.stopped(); ref != nil {
				return ref // the stop ended the look-up
			}
			return lookUpRefusal(ex, err)
		}
		j.snap = snap
	}
	return ex.decide()
}

// judgeAgain decides once more about a request that may have waited, by the settings in force now, unless its judgement
// still holds. It uses the Snapshot in memory: a fetch would hold up the lane.
func (ex *exchange) judgeAgain() *refusal {
	j, now := &ex.judged, time.Now()
	before := ex.settings
	if !ex.adopt(ex.server.settings.Load()) {
		return ex.unknownClient()
	}
	snap := ex.settings.Snapshots.Kept(ex.origin)
	if snap == nil {
		snap = j.snap
	}
	if snap == j.snap && ex.settings == before && now.Sub(j.at) < lasting {
		return nil
	}
	j.snap, j.at = snap, now
	return ex.decide()
}

// decide decides by the other fields of ex.judged, and records the decision. A costly decision waits for a slot, so
// that the decisions of one client do not slow down those of another.
func (ex *exchange) decide() *refusal {
	j := &ex.judged
	if j.costly() {
		release, err := ex.server.costly.Take(ex.ctx, ex.share)
		if err != nil {
			return ex.gone(errGoneWaiting)
		}
		defer release()
	}
	j.Decision = ex.settings.Policy.Decide(j.request, j.snap, j.at)
	ex.rec.SetDecision(j.Decision, j.snap)
	ex.rec.SetPolicy(ex.settings.Policy)
	if j.Action == policy.Refuse {
		return decisionRefusal(ex)
	}
	return nil
}

// judgeResponse records the preferences in the header of resp. It refuses content whose use they do not permit for the
// purpose of the client.
func (ex *exchange) judgeResponse(resp *http.Response) *refusal {
	preferences := ex.noteUsage(resp.Header)
	if len(preferences) == 0 || ex.rec.Decision != policy.Allow || !policy.CarriesContent(resp.Request.Method, resp.StatusCode) {
		return nil
	}
	d, changed := ex.settings.Policy.DecideResponse(ex.judged.Decision, ex.judged.request, preferences, time.Now())
	if !changed {
		return nil
	}
	ex.judged.Decision = d
	ex.rec.SetResponseDecision(d)
	if d.Action == policy.Forward {
		return nil
	}
	return decisionRefusal(ex)
}

// servesRobots reports whether the proxy answers a request for /robots.txt with the file that it was judged by. A
// crawler then sees the rules that are enforced, and the origin gets one request less.
func (ex *exchange) servesRobots(req *http.Request) bool {
	snap := ex.judged.snap
	return ex.settings.ServeRobots && ex.judged.Mode == policy.Enforce &&
		snap != nil && snap.Availability != robots.Unreachable &&
		(req.Method == http.MethodGet || req.Method == http.MethodHead)
}

// costly reports whether a decision may take longer than about a tenth of a millisecond: it compares each rule with the
// target, and each user-agent line with the User-Agent.
func (j *judgement) costly() bool {
	if j.snap == nil {
		return false
	}
	const perRule, limit = 64, 8 << 20 // bytes, and their product
	return j.snap.Rules.Size()*(perRule+len(j.request.Target)+len(j.request.UserAgent)) > limit
}
