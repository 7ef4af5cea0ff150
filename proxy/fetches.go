package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots"
)

// FetchedRules finds the robots.txt by which a redirect is judged. ToJudge is that of robots.Cache; Kept returns the file in
// memory, or nil, and never fetches one.
type FetchedRules interface {
	ToJudge(ctx context.Context, o origin.Origin, asker robots.Asker) (*robots.Snapshot, error)
	Kept(o origin.Origin) *robots.Snapshot
}

// FetchesOptions are the parts that Fetches works with. Those without "if nil" are required.
type FetchesOptions struct {
	Rules    FetchedRules
	Policy   *policy.Policy
	Client   policy.Client // as whom we are judged; its name must be empty
	Limiter  *ratelimit.Limiter
	Pace     Pace
	Recorder Recorder        // if nil, nothing is recorded
	IDs      *audit.Sequence // of the records; required with Recorder
	Query    audit.QueryMode // what records keep of queries; if zero, credentials are masked
}

// Fetches judges, paces and records the requests that we make ourselves for robots.txt files. One that a redirect leads to a
// page of another host is judged as a client's request to that host is, in every mode, and takes a place in its lane; or
// a host could have any page read by redirecting its robots.txt there. Its methods may be called by many goroutines at
// once.
type Fetches struct{ options FetchesOptions }

// NewFetches returns Fetches with these parts.
func NewFetches(o FetchesOptions) *Fetches { return &Fetches{o} }

// Admit is robots.FetcherOptions.Admit.
func (f *Fetches) Admit(ctx context.Context, hop robots.Hop) (robots.Visit, error) {
	v := &fetchVisit{fetches: f, hop: hop, rec: f.record(hop)}
	if !hop.Page {
		return v, nil
	}
	v.lane = f.options.Pace.key(hop.To.Host())
	if err := v.judge(ctx); err != nil {
		return nil, v.refused(ctx, err)
	}
	return v, nil
}

// record returns the record of a request that is allowed.
func (f *Fetches) record(hop robots.Hop) *audit.Record {
	path, query, _ := strings.Cut(hop.Target, "?")
	return &audit.Record{
		Time: time.Now(), Client: hop.Asker.Name, UserAgent: cut(hop.UserAgent, 1024), Via: audit.Robots,
		Method: http.MethodGet, Scheme: hop.To.Scheme(), Host: hop.To.Host(), Port: hop.To.Port(),
		Path: cut(f.options.Query.Path(path), 8192), Query: cut(f.options.Query.Apply(query), 8192), Decision: policy.Allow,
	}
}

// fetchVisit is one request of a fetch.
type fetchVisit struct {
	fetches *Fetches
	hop     robots.Hop
	rec     *audit.Record
	begun   bool // the record is

	lane     string // empty: it is not paced
	decision policy.Decision
	snap     *robots.Snapshot // by which it was judged
	grant    ratelimit.Grant
}

// judge decides about a redirect to a page: by what is known without asking that host, and then by its robots.txt.
func (v *fetchVisit) judge(ctx context.Context) error {
	o := &v.fetches.options
	if err := o.Limiter.Stopped(v.lane); err != nil {
		return v.unpaced(ctx, err)
	}
	if until := o.Limiter.Paused(v.lane); until.After(v.hop.Until) {
		v.decide(policy.Decision{Outcome: policy.Throttle, Reason: policy.ReasonBackoff})
		return v.why(until, "%s has pushed back, and is left alone for another %v", v.hop.To.Host(), time.Until(until).Round(time.Second))
	}
	if d, denied := o.Policy.Denied(v.request(), time.Now()); denied {
		v.decide(d)
		return v.refusal()
	}
	snap, err := o.Rules.ToJudge(ctx, v.hop.To, v.hop.Asker)
	if err != nil {
		return v.unjudged(ctx, err)
	}
	v.snap = snap
	return v.judgeBy()
}

func (v *fetchVisit) request() policy.Request {
	return policy.Request{Client: v.fetches.options.Client, Origin: v.hop.To, Target: v.hop.Target}
}

// judgeBy decides by v.snap.
func (v *fetchVisit) judgeBy() error {
	v.decide(v.fetches.options.Policy.Judge(v.request(), v.snap, time.Now()))
	if v.decision.Action == policy.Refuse {
		return v.refusal()
	}
	return nil
}

func (v *fetchVisit) decide(d policy.Decision) {
	v.decision = d
	noteDecision(v.rec, d, v.snap)
}

// unjudged words why there is nothing to judge by.
func (v *fetchVisit) unjudged(ctx context.Context, err error) error {
	v.decide(policy.Decision{Outcome: policy.Error, Reason: policy.ReasonRobotsUnreachable})
	if ctx.Err() != nil || errors.Is(err, robots.ErrBusy) {
		return &robots.LaterError{At: time.Now().Add(retryOverload), Err: fmt.Errorf("the robots.txt of %s, which it redirects to, was not had in time: %w", v.hop.To, err)}
	}
	return err
}

// ownFileHint says what an operator can do.
const ownFileHint = "; an operator who knows better sets robots_file in hosts"

// why returns the error of a redirect that is refused.
func (v *fetchVisit) why(until time.Time, format string, args ...any) error {
	return &robots.RefusedError{Why: fmt.Sprintf(format, args...) + ownFileHint, Until: until}
}

// refusal words the decision.
func (v *fetchVisit) refusal() error {
	d, file := v.decision, v.hop.To.String()+"/robots.txt"
	switch d.Reason {
	case policy.ReasonRobots:
		return v.why(time.Time{}, "line %d of %s disallows that for %s: %.500s", d.Verdict.Line, file, d.Agent, d.Verdict.Rule)
	case policy.ReasonRobotsUnreachable:
		return v.why(time.Time{}, "%s, which says whether that is allowed, could not be fetched: %s", file, unreachableText(v.snap))
	case policy.ReasonPace:
		return v.why(time.Time{}, "%s asks for %v between requests, which is more than max_crawl_delay allows", v.hop.To.Host(), d.Delay)
	case policy.ReasonExemption:
		return v.why(time.Time{}, "the operator of the proxy refuses that: %s", d.Exemption)
	default:
		return v.why(time.Time{}, "that is refused (%s)", d.Reason)
	}
}

// refused records a redirect that is not followed, for err, and returns err.
func (v *fetchVisit) refused(ctx context.Context, err error) error {
	if v.begin(ctx) == nil {
		v.rec.Error = v.fetches.options.Query.Text(err.Error())
		v.end()
	}
	return err
}

// begin begins the record.
func (v *fetchVisit) begin(ctx context.Context) error {
	o := &v.fetches.options
	if o.Recorder == nil {
		return nil
	}
	v.rec.ID = o.IDs.Next(v.rec.Time)
	if err := o.Recorder.Begin(ctx, v.rec); err != nil {
		return &robots.LaterError{Err: unrecordedError{err}}
	}
	v.begun = true
	return nil
}

// end ends the record.
func (v *fetchVisit) end() {
	v.rec.EndedAt = time.Now()
	if v.begun {
		v.begun = false
		v.fetches.options.Recorder.End(v.rec)
	}
}

// Begin waits for a place in the lane, if there is one, and begins the record.
func (v *fetchVisit) Begin(ctx context.Context) error {
	if v.lane != "" {
		if err := v.pace(ctx); err != nil {
			return v.refused(ctx, err)
		}
	}
	if err := v.begin(ctx); err != nil {
		v.grant.Cancel()
		return err
	}
	v.rec.SentAt = time.Now()
	return nil
}

// pace waits for a place in the lane, and judges again when it has one: by the file in memory, since none may be fetched
// while a place is held. If the Delay has grown, it gives the place back and asks for another.
func (v *fetchVisit) pace(ctx context.Context) error {
	for {
		delay := v.decision.Delay
		grant, err := v.fetches.options.Limiter.Acquire(ctx, v.asked(delay))
		if err != nil {
			return v.unpaced(ctx, err)
		}
		if err = v.judgeAgain(ctx); err == nil && v.decision.Delay <= delay {
			v.grant = grant
			noteGrant(v.rec, grant)
			return nil
		}
		grant.Cancel()
		if err != nil {
			return err
		}
	}
}

// asked is what is asked of the pace.
func (v *fetchVisit) asked(delay time.Duration) ratelimit.Request {
	return ratelimit.Request{
		Key: v.lane, Client: v.hop.Asker.Client, Delay: delay,
		MaxWait: max(0, time.Until(v.hop.Until)), Once: true,
	}
}

func (v *fetchVisit) judgeAgain(ctx context.Context) error {
	if err := v.fetches.options.Limiter.Stopped(v.lane); err != nil {
		return v.unpaced(ctx, err)
	}
	if kept := v.fetches.options.Rules.Kept(v.hop.To); kept != nil {
		v.snap = kept
	}
	return v.judgeBy()
}

// unpaced words why the lane has no place: an operator's stop refuses the redirect, and all else is over some time.
func (v *fetchVisit) unpaced(ctx context.Context, err error) error {
	var (
		wait        *ratelimit.WaitError
		stopped     *ratelimit.StoppedError
		unavailable *ratelimit.UnavailableError
	)
	host, now := v.hop.To.Host(), time.Now()
	at := now.Add(retryOverload)
	v.decide(policy.Decision{Outcome: policy.Throttle, Reason: policy.ReasonPace})
	switch {
	case errors.As(err, &stopped):
		v.decide(policy.Decision{Outcome: policy.Deny, Reason: policy.ReasonStopped})
		return v.why(stopped.Until, "the operator of the proxy has stopped %s", host)
	case errors.As(err, &wait):
		at = now.Add(wait.Wait)
		err = fmt.Errorf("it redirects to %s, whose next free place is in %v", host, wait.Wait.Round(time.Millisecond))
	case errors.As(err, &unavailable):
		at = now.Add(unavailable.RetryAfter)
		err = fmt.Errorf("it redirects to %s, whose pace is shared with other instances and not known now", host)
	case ctx.Err() != nil:
		err = fmt.Errorf("it redirects to %s, which has had no free place in time", host)
	}
	return &robots.LaterError{At: at, Err: err}
}

// End gives back the place in the lane and completes the record.
func (v *fetchVisit) End(o robots.Outcome) {
	if o.Response != nil {
		v.grant.Hear(outcome(o.Response, time.Now()))
		v.rec.Status, v.rec.FirstByte = o.Response.StatusCode, audit.Millis(o.Header.Sub(v.rec.SentAt))
	}
	if o.Addr == nil {
		v.grant.Cancel() // nothing was sent
	}
	v.grant.Release(ratelimit.Outcome{})
	v.rec.Bytes = o.Bytes
	if o.Addr != nil {
		v.rec.UpstreamAddr = addrString(o.Addr)
	}
	if o.Err != nil {
		v.rec.Error = v.fetches.options.Query.Text(o.Err.Error())
	}
	v.end()
	v.renew()
}

// renew prepares v for the case that net/http sends the request again.
func (v *fetchVisit) renew() {
	v.rec, v.grant = v.fetches.record(v.hop), ratelimit.Grant{}
	if v.lane != "" {
		v.decide(v.decision)
	}
}

// unrecordedError says that a request of our own was not made since it could not be recorded.
type unrecordedError struct{ error }

func (e unrecordedError) Unwrap() error { return e.error }
