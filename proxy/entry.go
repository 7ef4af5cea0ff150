package proxy

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots"
)

// entry is the audit record of an exchange. It is begun once the decision is made, and ended exactly once.
type entry struct {
	recorder Recorder
	query    audit.QueryMode

	mu    sync.Mutex // guards the end: a WebSocket can time out while its handler returns
	rec   audit.Record
	begun bool
	ended bool
}

// begin passes the record to the Recorder. The proxy sends and answers nothing before it returns nil.
func (e *entry) begin(ctx context.Context) error {
	if e.begun {
		return nil
	}
	if err := e.recorder.Begin(ctx, &e.rec); err != nil {
		return err
	}
	e.begun = true
	return nil
}

// endLocked completes the record. The caller checks that it has not ended.
func (e *entry) endLocked(now time.Time, cause error) {
	e.ended = true
	if cause != nil && e.rec.Error == "" {
		e.rec.Error = cause.Error()
	}
	e.rec.EndedAt = now
	if e.begun {
		e.recorder.End(&e.rec)
	}
}

func (e *entry) isOver() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
}

// noteRefusal records that ref is the answer.
func (e *entry) noteRefusal(ref *Refusal) {
	e.rec.Decision, e.rec.Reason = ref.Outcome, ref.Reason
	e.rec.Status, e.rec.RetryAfter = ref.Status, ref.retryAfter()
	if ref.Err != nil {
		e.rec.Error = e.query.Text(ref.Err.Error())
	}
}

// noteDecision writes into rec the decision and the file that it rests on. A nil snap means that no file was read.
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

// noteGrant writes into rec how long the request waited for g, and the gap and the Delay that g kept.
func noteGrant(rec *audit.Record, g ratelimit.Grant) {
	rec.PacingMode = string(g.Mode())
	rec.Waited += audit.Millis(g.Waited())
	gap, known := g.Gap()
	noteGap(rec, gap, known)
	if g.Overtaken() {
		noteDeviation(rec, reported)
	}
	if required, source := g.Required(); source != "" {
		rec.DelayRequired, rec.DelaySource = audit.Millis(required), string(source)
	}
}

// noteGap writes the gap to the previous request, if it is known. A record omits zero, so the gap is at least a nanosecond.
func noteGap(rec *audit.Record, gap time.Duration, known bool) {
	if known {
		rec.Gap = audit.Millis(max(gap, 1))
	}
}

// The deviations of requests that were sent sooner than the site asks, beside "max_crawl_delay".
const (
	reported    = "reported"    // in report mode the request did not wait, or one in report mode overtook it
	overlap     = "overlap"     // the request returned its place before its end, because its client blocked it
	subresource = "subresource" // the request asked without the Delay of its host: see Client.Pages
)

// noteDeviation adds how to the ways in which the request kept less distance than the site asks.
func noteDeviation(rec *audit.Record, how string) {
	rec.Deviation = strings.TrimPrefix(rec.Deviation+","+how, ",")
}
