package proof

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/fields"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

type recordSeq = iter.Seq2[*audit.Record, error]

// replayer decides about some of the records.
type replayer struct {
	reader   audit.Reader
	in       chan []audit.Record
	files    recent[fileKey, *robots.Snapshot]
	policies recent[string, *policy.Policy]
	report   ReplayReport
}

// fileKey identifies a file of a Reader.
type fileKey struct {
	scheme, host  string
	port          uint16
	sha256, state string
	status        int
}

// A replayer has up to twice this number of bytes of files in memory, parsed, and up to twice this number of policies.
const (
	maxFileBytes = 16 << 20
	maxPolicies  = 64
	fileCost     = 4 << 10 // of a small file, in bytes
)

func newReplayer(r audit.Reader) *replayer {
	w := &replayer{reader: r, in: make(chan []audit.Record, 2)}
	w.report.Missing = map[MissingCause]int64{}
	w.files.limit, w.policies.limit = maxFileBytes, maxPolicies
	return w
}

// run replays the records of all batches. After an error it returns at once, and distribute ends by the context.
func (w *replayer) run(ctx context.Context) error {
	for batch := range w.in {
		for i := range batch {
			if err := w.replay(ctx, &batch[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// replay decides about r once more.
func (w *replayer) replay(ctx context.Context, r *audit.Record) error {
	w.report.Records++
	if r.PolicySHA256 == "" {
		w.report.Unjudged++
		return nil
	}
	p, err := w.policy(ctx, r)
	if errors.Is(err, audit.ErrNoPolicy) {
		w.report.Missing[PolicyMissing]++
		return nil
	}
	var snap *robots.Snapshot
	if err == nil && r.RobotsState != "" {
		snap, err = w.file(ctx, r)
	}
	switch {
	case errors.Is(err, audit.ErrNoFile):
		w.report.Missing[FileMissing]++
		return nil
	case errors.Is(err, audit.ErrChanged):
		w.differ(r, difference{"evidence", "unchanged", err.Error()})
		return nil
	case err != nil:
		return err
	}
	if snap != nil && p.Queries() == string(audit.QueryHash) && r.Query != "" {
		w.report.Missing[QueryHashed]++
		return nil
	}
	d := again(p.Listing(r.Rule), snap, r)
	if cause := lost(p, r); d != nil && cause != "" {
		w.report.Missing[cause]++
		return nil
	}
	if d != nil {
		w.differ(r, *d)
		return nil
	}
	w.report.Replayed++
	w.report.Same++
	return nil
}

func (w *replayer) differ(r *audit.Record, d difference) {
	w.report.Replayed++
	w.report.add(ReplayDifference{
		ID: r.ID, Time: r.Time, Host: r.Host, Path: r.Path, Field: d.field, Recorded: d.recorded, Replayed: d.replayed,
		RulesVersion: r.RulesVersion,
	})
}

// policy returns the policy of r.
func (w *replayer) policy(ctx context.Context, r *audit.Record) (*policy.Policy, error) {
	if p, ok := w.policies.get(r.PolicySHA256); ok {
		return p, nil
	}
	text, err := w.reader.Policy(ctx, r.PolicySHA256)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != r.PolicySHA256 {
		return nil, fmt.Errorf("%w: the policy %s", audit.ErrChanged, r.PolicySHA256)
	}
	p, err := policy.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the policy %s: %w", r.PolicySHA256, err)
	}
	w.policies.put(r.PolicySHA256, p, 1)
	return p, nil
}

// file returns the robots.txt of r.
func (w *replayer) file(ctx context.Context, r *audit.Record) (*robots.Snapshot, error) {
	key := fileKey{r.Scheme, r.Host, r.Port, r.RobotsSHA256, r.RobotsState, r.RobotsStatus}
	if snap, ok := w.files.get(key); ok {
		return snap, nil
	}
	f, err := w.reader.File(ctx, r)
	if err != nil {
		return nil, err
	}
	snap := robots.NewSnapshot(f.Answer)
	w.files.put(key, snap, len(f.Body)+fileCost)
	return snap, nil
}

// The proxy cuts longer texts before it records them.
const (
	cutTarget = 8 << 10
	cutAgent  = 1 << 10
)

// lost returns why the result for r may differ although its record is true, or "".
func lost(p *policy.Policy, r *audit.Record) MissingCause {
	agent := cmp.Or(r.SentUserAgent, r.UserAgent)
	switch {
	case p.Queries() == string(audit.QueryDrop):
		return QueryDropped
	case strings.Contains(r.Path+r.Query+agent, "***"), strings.ContainsRune(r.Path+r.Query+agent, '\uFFFD'),
		fields.IsCut(r.Usage), strings.Contains(r.Usage, "***"), len(r.Path) >= cutTarget, len(r.Query) >= cutTarget, len(agent) >= cutAgent:
		return TextMasked
	}
	return ""
}

// difference is a field with two values.
type difference struct{ field, recorded, replayed string }

// again decides about r by p and snap, at each moment at which the proxy may have decided: exemptions, interventions
// and rates begin and end while a request waits. It returns nil if a result agrees with r.
func again(p *policy.Policy, snap *robots.Snapshot, r *audit.Record) *difference {
	o, err := newOrigin(r)
	if err != nil {
		return &difference{"host", r.Host, err.Error()}
	}
	targets := []string{target(r)}
	if r.Query == "" {
		targets = append(targets, r.Path+"?") // records have no empty query
	}
	var first *difference
	for _, t := range targets {
		for _, at := range []time.Time{r.Time, r.SentAt, r.EndedAt} {
			if at.IsZero() {
				continue
			}
			req := policy.Request{Origin: o, Target: t, UserAgent: cmp.Or(r.SentUserAgent, r.UserAgent), Tunnel: r.Via == audit.Tunnel}
			var d policy.Decision
			if r.Via == audit.Robots {
				d = ownDecision(p, req, snap, r, at)
			} else {
				req.Client, _ = p.Client(r.Client)
				d = decideResponse(p, req, p.Decide(req, snap, at), r, at)
			}
			diff := compare(r, d)
			if diff == nil {
				return nil
			}
			first = cmp.Or(first, diff)
		}
	}
	return first
}

// decideResponse decides about the response too, if r says that there was one with content.
func decideResponse(p *policy.Policy, req policy.Request, d policy.Decision, r *audit.Record, at time.Time) policy.Decision {
	content := !r.SentAt.IsZero() && policy.CarriesContent(r.Method, r.Status)
	if r.ByHeader() || content && r.Decision != policy.WouldThrottle {
		d, _ = p.DecideResponse(d, req, fields.StatedIn(r.Usage, "header"), at)
	}
	return d
}

// ownDecision decides about a request of the proxy's own, as package ownfetch does.
func ownDecision(p *policy.Policy, req policy.Request, snap *robots.Snapshot, r *audit.Record, at time.Time) policy.Decision {
	req.Client, _ = p.Client("")
	req.UserAgent = ""
	if d, stopped := p.Stopped(r.Host, at); stopped {
		return d
	}
	if rule, denied := p.DeniedToAll(r.Host); denied {
		return policy.Decision{Outcome: policy.Deny, Reason: policy.ReasonHost, HostRule: rule}
	}
	if snap != nil {
		return p.Judge(req, snap, at)
	}
	if d, denied := p.Denied(req, at); denied {
		return d
	}
	return policy.Decision{Action: policy.Forward, Outcome: policy.Allow}
}

// Stage says how far a request got, by the reason in its record.
type stage uint8

const (
	decided   stage = iota // the policy made the recorded decision
	permitted              // the policy permitted the request, which came to something else afterwards
	unrelated              // the record says nothing about the policy
)

// stages has the reasons that are not decided. See stageOf.
var stages = map[policy.Reason]stage{
	policy.ReasonEgress: permitted, policy.ReasonAuth: permitted, policy.ReasonBackoff: permitted, policy.ReasonOverload: permitted,
	policy.ReasonPacingUnavailable: permitted, policy.ReasonBadRequest: permitted, policy.ReasonMisdirected: permitted,
	policy.ReasonLoop: permitted, policy.ReasonUpstream: permitted, policy.ReasonInternal: permitted,
	policy.ReasonConnectionAuth: permitted, policy.ReasonClientLeft: permitted,
	policy.ReasonAuditUnavailable: unrelated,
}

// stageOf returns how far the request of r got. Some reasons have causes of both kinds.
func stageOf(r *audit.Record, d policy.Decision) stage {
	switch {
	case r.Reason == policy.ReasonPace && r.Decision == policy.Throttle, // a wait that is too long
		r.Reason == policy.ReasonStopped && r.Intervention == "",              // a stop of another instance
		r.Reason == policy.ReasonIdentity && d.Reason != r.Reason,             // after a reload its client is unknown
		r.Reason == policy.ReasonRobotsUnreachable && r.RobotsState == "",     // the look-up failed
		r.Decision == policy.WouldThrottle && d.Reason != policy.ReasonReport: // the wait that there would have been
		return permitted
	}
	return stages[r.Reason]
}

// compare returns the first field of r that differs from d, or nil.
func compare(r *audit.Record, d policy.Decision) *difference {
	var want audit.Record
	want.SetDecision(d, nil)
	want.Normal()
	var fields []difference
	stage := stageOf(r, d)
	if stage == unrelated {
		return nil
	}
	if stage == permitted && d.Action != policy.Forward {
		return &difference{"decision", decisionText(r), decisionText(&want)}
	}
	if stage == permitted && (r.Via == audit.Robots || r.Reason == policy.ReasonStopped) {
		return nil // the record has nothing else of the decision before
	}
	if stage == decided && r.Decision != policy.WouldThrottle {
		fields = append(fields, difference{"decision", decisionText(r), decisionText(&want)})
	}
	if r.Via != audit.Robots && r.Reason != policy.ReasonStopped {
		fields = append(fields, difference{"mode", r.Mode, want.Mode})
		if r.Dialect != "" {
			fields = append(fields, difference{"dialect", r.Dialect, d.Dialect.String()})
		}
	}
	fields = append(fields,
		difference{"rule_line", strconv.Itoa(r.RuleLine), strconv.Itoa(want.RuleLine)}, difference{"rule", r.Rule, want.Rule},
		difference{"group_line", strconv.Itoa(r.GroupLine), strconv.Itoa(want.GroupLine)},
		difference{"group_agents", r.GroupAgents, want.GroupAgents},
		difference{"product_token", r.ProductToken, want.ProductToken}, difference{"exemption", r.Exemption, want.Exemption})
	if r.Reason == policy.ReasonStopped || !strings.HasPrefix(r.Intervention, "stop ") { // a stop may end what was permitted
		fields = append(fields, difference{"intervention", r.Intervention, want.Intervention})
	}
	fields = append(fields, delayDifference(r, &want))
	for _, f := range fields {
		if f.recorded != f.replayed {
			return &f
		}
	}
	return nil
}

// delayDifference compares the Delays. That of the record may be the lane's, which is at least that of the policy.
func delayDifference(r, want *audit.Record) difference {
	text := func(r *audit.Record) string {
		return strings.TrimSpace(time.Duration(r.DelayRequired).String() + " " + r.DelaySource)
	}
	d := difference{"delay_required_ms", text(r), text(want)}
	switch r.DelaySource {
	case "", "crawl-delay", "request-rate":
		return d
	case "floor":
		if r.DelayRequired < want.DelayRequired {
			return d
		}
	}
	return difference{}
}

func decisionText(r *audit.Record) string {
	return strings.TrimSpace(string(r.Decision) + " " + string(r.Reason))
}

// recent is a cache that keeps at least what was used last, within twice its limit. The zero value needs a limit.
type recent[K comparable, V any] struct {
	limit     int
	cost      int // of now
	now, then map[K]costly[V]
}

type costly[V any] struct {
	value V
	cost  int
}

func (c *recent[K, V]) get(key K) (value V, ok bool) {
	if e, ok := c.now[key]; ok {
		return e.value, true
	}
	e, ok := c.then[key]
	if ok {
		c.put(key, e.value, e.cost)
	}
	return e.value, ok
}

func (c *recent[K, V]) put(key K, value V, cost int) {
	if c.now == nil || c.cost+cost > c.limit {
		c.now, c.then, c.cost = make(map[K]costly[V]), c.now, 0
	}
	c.now[key] = costly[V]{value, cost}
	c.cost += cost
}
