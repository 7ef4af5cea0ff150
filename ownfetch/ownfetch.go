// Package ownfetch judges, paces and records the requests that the proxy sends for robots.txt files.
//
//	fetches := ownfetch.New(ownfetch.Options{Rules: cache, Policy: p, Client: self, Limiter: l, Recorder: w, IDs: ids})
//	fetcher := fetch.New(fetch.Options{Admit: fetches.Admit, ...})
//
// Every such request has a record. A redirect to a page of another host is judged and paced too, as a client's request
// to that host is, in every mode: otherwise a host could make the proxy read any page, by redirecting its robots.txt
// there.
//
// The package sends nothing; robots does.
package ownfetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/fields"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
	"github.com/robotsproxy/robotsproxy/sign"
)

// Rules finds the robots.txt that judges a redirect. ToJudge is that of robots.Cache; Kept returns the file in memory,
// or nil, and never fetches one.
type Rules interface {
	ToJudge(ctx context.Context, o origin.Origin, asker robots.Asker) (*robots.Snapshot, error)
	Kept(o origin.Origin) *robots.Snapshot
}

// Recorder keeps records. Begin returns audit.ErrUnavailable if the request must not be sent since it could not be
// recorded. Each record that was begun is ended once.
type Recorder interface {
	Begin(ctx context.Context, r *audit.Record) error
	End(r *audit.Record)
}

// Options are the parts of Fetches. Fields without "if nil" or "if zero" are required.
type Options struct {
	Rules   Rules
	Policy  *policy.Policy
	Client  policy.Client // the proxy as a client; its name must be empty
	Limiter *ratelimit.Limiter

	// Key and Addr are those of the proxy's Pace: Key returns the name of the lane of a canonical host. If Addr is set,
	// the lane is that of the address which it returns, and Key names what the operator stops. Both may be nil.
	Key  func(host string) string
	Addr func(ctx context.Context, o origin.Origin) (netip.Addr, error)

	Signer   *sign.Signer    // if nil, nothing is signed
	Recorder Recorder        // if nil, nothing is recorded
	IDs      *audit.Sequence // of the records; required with Recorder
	Query    audit.QueryMode // for the queries in records; if zero, credentials are masked
}

// Fetches judges, paces and records requests for robots.txt files. Its methods may be called by many goroutines at
// once.
type Fetches struct {
	options  atomic.Pointer[Options]
	sendings sendings
}

// New returns Fetches with these parts.
func New(o Options) *Fetches {
	f := &Fetches{}
	f.Reload(o)
	return f
}

// Reload replaces the Options for fetches that begin from now on. A redirect that waits for its place is judged by the
// new Policy when it has one.
func (f *Fetches) Reload(o Options) {
	if o.Key == nil {
		o.Key = origin.Key
	}
	f.options.Store(&o)
}

// retryLater is the time after which a fetch that the proxy could not make now is tried again.
const retryLater = 5 * time.Second

// retryDenied is that time for a host that no client may visit.
const retryDenied = time.Minute

// Admit is fetch.Options.Admit. It returns an error if the request must not be sent.
func (f *Fetches) Admit(ctx context.Context, hop fetch.Hop) (fetch.Visit, error) {
	o := f.options.Load()
	v := &visit{fetches: f, options: o, hop: hop, rec: o.record(hop)}
	if err := v.stopped(); err != nil {
		return nil, v.recordError(ctx, err)
	}
	if err := v.checkHost(); err != nil {
		return nil, v.recordError(ctx, err)
	}
	if !hop.Page {
		return v, nil
	}
	v.stopKey = o.Key(hop.To.Host())
	if err := v.judge(ctx); err != nil {
		return nil, v.recordError(ctx, err)
	}
	return v, nil
}

// record returns the record of a request that is allowed.
func (o *Options) record(hop fetch.Hop) *audit.Record {
	path, query, _ := strings.Cut(hop.Target, "?")
	return &audit.Record{
		Time: time.Now(), Client: hop.Asker.Name, UserAgent: cut(hop.UserAgent, 1024), Via: audit.Robots,
		Method: http.MethodGet, Scheme: hop.To.Scheme(), Host: hop.To.Host(), Port: hop.To.Port(),
		Path: cut(o.Query.Path(path), 8192), Query: cut(o.Query.Apply(query), 8192), Decision: policy.Allow,
	}
}

// cut shortens s to n bytes.
func cut(s string, n int) string { return s[:min(len(s), n)] }

// visit is one request of a fetch.
type visit struct {
	fetches *Fetches
	options *Options // read at the beginning, and after a wait
	hop     fetch.Hop
	rec     *audit.Record
	begun   bool // rec is

	stopKey  string // see Options.Key
	lane     string // empty if the request is not paced
	decision policy.Decision
	snap     *robots.Snapshot // that decided
	grant    ratelimit.Grant
	signed   sign.Signed // zero: not
}

// judge decides on a redirect to a page. It fetches the robots.txt of that host only if nothing else refuses the
// redirect.
func (v *visit) judge(ctx context.Context) error {
	o := v.options
	if d, denied := o.Policy.Denied(v.request(), time.Now()); denied {
		v.decide(d)
		return v.refusal()
	}
	if err := v.findLane(ctx); err != nil {
		return err
	}
	if until := o.Limiter.Paused(v.lane); until.After(v.hop.Until) {
		v.decide(policy.Decision{Outcome: policy.Throttle, Reason: policy.ReasonBackoff})
		return v.refuse(until, "%s has pushed back, and is left alone for another %v",
			v.hop.To.Host(), time.Until(until).Round(time.Second))
	}
	snap, err := o.Rules.ToJudge(ctx, v.hop.To, v.hop.Asker)
	if err != nil {
		return v.unjudged(ctx, err)
	}
	v.snap = snap
	return v.judgeBy()
}

// checkHost refuses a request to a host that no client may visit, in every mode. A request for the host's own robots.txt
// is tried again later: for that file it says nothing, and the list may change.
func (v *visit) checkHost() error {
	rule, denied := v.options.Policy.DeniedToAll(v.hop.To.Host())
	if !denied {
		return nil
	}
	v.decide(policy.Decision{Outcome: policy.Deny, Reason: policy.ReasonHost, HostRule: rule})
	if v.hop.To == v.hop.For && v.hop.Target == "/robots.txt" {
		return &fetch.LaterError{
			At: time.Now().Add(retryDenied), Err: fmt.Errorf("no client may visit %s: %s", v.hop.To.Host(), rule),
		}
	}
	return &fetch.RefusedError{Why: "no client may visit that host: " + rule}
}

// findLane sets the lane. The dial resolves the name again, as that of a robots.txt does.
func (v *visit) findLane(ctx context.Context) error {
	v.lane = v.stopKey
	resolve := v.options.Addr
	if resolve == nil {
		return nil
	}
	addr, err := resolve(ctx, v.hop.To)
	if err != nil {
		v.decide(policy.Decision{Outcome: policy.Error, Reason: policy.ReasonUpstream})
		return err
	}
	v.lane = origin.AddrKey(addr)
	return nil
}

func (v *visit) request() policy.Request {
	return policy.Request{Client: v.options.Client, Origin: v.hop.To, Target: v.hop.Target}
}

// judgeBy decides by v.snap.
func (v *visit) judgeBy() error {
	v.decide(v.options.Policy.Judge(v.request(), v.snap, time.Now()))
	if v.decision.Action == policy.Refuse {
		return v.refusal()
	}
	return nil
}

func (v *visit) decide(d policy.Decision) {
	v.decision = d
	v.rec.SetDecision(d, v.snap)
	v.rec.SetPolicy(v.options.Policy)
}

// unjudged returns the error for a redirect to a host without a known robots.txt.
func (v *visit) unjudged(ctx context.Context, err error) error {
	v.decide(policy.Decision{Outcome: policy.Error, Reason: policy.ReasonRobotsUnreachable})
	if ctx.Err() != nil || errors.Is(err, robots.ErrBusy) {
		err = fmt.Errorf("the robots.txt of %s, which it redirects to, was not had in time: %w", v.hop.To, err)
		return &fetch.LaterError{At: time.Now().Add(retryLater), Err: err}
	}
	return err
}

// ownFileHint is the advice to an operator.
const ownFileHint = "; an operator who knows better sets robots_file in hosts"

// refuse returns the error of a redirect that is refused until a moment, or for as long as the file is kept.
func (v *visit) refuse(until time.Time, format string, args ...any) error {
	return &fetch.RefusedError{Why: fmt.Sprintf(format, args...) + ownFileHint, Until: until}
}

// refusal returns the error for v.decision.
func (v *visit) refusal() error {
	d, file := v.decision, v.hop.To.String()+"/robots.txt"
	switch d.Reason {
	case policy.ReasonRobots:
		return v.refuse(time.Time{}, "line %d of %s disallows that for %s: %.500s",
			d.Verdict.Line, file, d.Agent, d.Verdict.Rule)
	case policy.ReasonRobotsUnreachable:
		return v.refuse(time.Time{}, "%s, which says whether that is allowed, could not be fetched: %s",
			file, v.snap.UnreachableText())
	case policy.ReasonPace:
		return v.refuse(time.Time{}, "%s asks for %v between requests, which is more than max_crawl_delay allows",
			v.hop.To.Host(), d.Delay)
	case policy.ReasonExemption:
		return v.refuse(time.Time{}, "the operator of the proxy refuses that: %s", d.Exemption)
	default:
		return v.refuse(time.Time{}, "that is refused (%s)", d.Reason)
	}
}

// recordError records that the redirect is not followed because of err, and returns err.
func (v *visit) recordError(ctx context.Context, err error) error {
	if v.begin(ctx) == nil {
		v.rec.Error = v.options.Query.Text(err.Error())
		v.end()
	}
	return err
}

// begin begins the record.
func (v *visit) begin(ctx context.Context) error {
	o := v.options
	if o.Recorder == nil {
		return nil
	}
	v.rec.ID = o.IDs.Next(v.rec.Time)
	if err := o.Recorder.Begin(ctx, v.rec); err != nil {
		return &fetch.LaterError{Err: err}
	}
	v.begun = true
	return nil
}

// end ends the record.
func (v *visit) end() {
	if v.rec.EndedAt.IsZero() {
		v.rec.EndedAt = time.Now()
	}
	if v.begun {
		v.begun = false
		v.options.Recorder.End(v.rec)
	}
}

// Begin waits for a place in the lane, if the request is paced, signs the request, and begins the record. The signature
// of a request that is repeated stays.
func (v *visit) Begin(ctx context.Context, h http.Header) error {
	wait := func(context.Context) error { return v.stopped() } // since Admit, or since the request was sent first
	if v.lane != "" {
		wait = v.pace
	}
	if err := wait(ctx); err != nil {
		return v.recordError(ctx, err)
	}
	if h != nil {
		v.signed, _ = v.options.Signer.Sign(h, v.hop.To, time.Now())
	}
	v.rec.SetSignature(v.signed.Agent, v.signed.KeyID, v.signed.Nonce, v.signed.Created)
	if err := v.begin(ctx); err != nil {
		v.grant.Cancel()
		return err
	}
	v.rec.SentAt = time.Now()
	v.grant.Sent()
	return nil
}

// pace waits for a place in the lane and then judges again, by the file in memory: a fetch would hold the place
// meanwhile. If the Delay has grown, it gives the place back and asks for another.
func (v *visit) pace(ctx context.Context) error {
	for {
		delay := v.decision.Delay
		grant, err := v.acquire(ctx, delay)
		if err != nil {
			return v.unpaced(ctx, err)
		}
		if err = v.judgeAgain(ctx); err == nil && v.decision.Delay <= delay {
			v.grant = grant
			v.rec.SetLane(v.lane)
			v.rec.SetGrant(grant)
			return nil
		}
		grant.Cancel()
		if err != nil {
			return err
		}
	}
}

// asked returns the request for a place in the lane.
func (v *visit) asked(delay time.Duration) ratelimit.Request {
	return ratelimit.Request{
		Key: v.lane, Client: v.hop.Asker.Client, Delay: delay,
		MaxWait: max(0, time.Until(v.hop.Until)), Once: true,
	}
}

func (v *visit) judgeAgain(ctx context.Context) error {
	v.options = v.fetches.options.Load()
	if err := v.stopped(); err != nil {
		return err
	}
	if err := v.checkHost(); err != nil {
		return err
	}
	if kept := v.options.Rules.Kept(v.hop.To); kept != nil {
		v.snap = kept
	}
	return v.judgeBy()
}

// unpaced returns the error for a redirect without a place in the lane: a RefusedError if the operator stopped the
// host, and otherwise a LaterError.
func (v *visit) unpaced(ctx context.Context, err error) error {
	if err := v.stopped(); err != nil {
		return err
	}
	var (
		wait        *ratelimit.WaitError
		stopped     *ratelimit.StoppedError
		unavailable *ratelimit.UnavailableError
	)
	host, now := v.hop.To.Host(), time.Now()
	at := now.Add(retryLater)
	v.decide(policy.Decision{Outcome: policy.Throttle, Reason: policy.ReasonPace})
	switch {
	case errors.As(err, &stopped):
		v.decide(policy.Decision{Outcome: policy.Deny, Reason: policy.ReasonStopped})
		return v.refuse(stopped.Until, "the operator of the proxy has stopped %s", host)
	case errors.As(err, &wait):
		at = now.Add(wait.Wait)
		err = fmt.Errorf("it redirects to %s, whose next free place is in %v", host, wait.Wait.Round(time.Millisecond))
	case errors.As(err, &unavailable):
		at = now.Add(unavailable.RetryAfter)
		err = fmt.Errorf("it redirects to %s, whose pace is shared with other instances and not known now", host)
	case ctx.Err() != nil:
		err = fmt.Errorf("it redirects to %s, which has had no free place in time", host)
	}
	return &fetch.LaterError{At: at, Err: err}
}

// End gives back the place in the lane and completes the record.
func (v *visit) End(o fetch.Outcome) {
	if o.Response != nil {
		v.grant.Hear(outcome(o.Response, time.Now()))
		v.rec.Status, v.rec.FirstByte = o.Response.StatusCode, audit.Millis(o.Header.Sub(v.rec.SentAt))
	}
	if o.Addr == nil {
		v.grant.Cancel() // nothing was sent
	}
	now := time.Now()
	v.rec.SetEnd(v.grant.Release(ratelimit.Outcome{Ended: now}), now)
	v.rec.Bytes = o.Bytes
	if o.Addr != nil {
		v.rec.UpstreamAddr = o.Addr.String()
	}
	if o.Err != nil {
		v.rec.Error = v.options.Query.Text(o.Err.Error())
	}
	v.end()
	v.renew()
}

// renew prepares v for another sending of the request by net/http.
func (v *visit) renew() {
	v.rec, v.grant = v.options.record(v.hop), ratelimit.Grant{}
	if v.lane != "" {
		v.decide(v.decision)
	}
}

// outcome reads from a response how the pace of its host must change.
func outcome(resp *http.Response, now time.Time) ratelimit.Outcome {
	h := resp.Header
	return ratelimit.Outcome{Status: resp.StatusCode, RetryAfter: fields.RetryAfter(h, now), Spent: fields.QuotaReset(h)}
}
