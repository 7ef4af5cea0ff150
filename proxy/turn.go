package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/internal/fields"
	"github.com/robotsproxy/robotsproxy/internal/limit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// Pace says which hosts share a lane. With the zero value, each host has a lane.
type Pace struct {
	// Key returns the name of the lane of a canonical host. If nil, it is origin.Key, and each host has a lane.
	Key func(host string) string

	// Addr returns the address of an origin. If it is set, all hosts at one address share a lane, and requests are sent to
	// that address. What the operator stops is still named by Key. If nil, the dial resolves the name.
	Addr func(ctx context.Context, o origin.Origin) (netip.Addr, error)
}

// turn is the state of a request from its admission to the header of its answer: its shares of the limits, what it asks
// of the lane of its host, and the place that it gets. In report mode it takes no place.
type turn struct {
	requests *limit.Share[string] // one of the client's requests
	memory   *limit.Share[string] // bytes of the client's memory
	stopKey  string               // see Pace.Key
	addr     netip.Addr           // to which the request is sent; zero: the dial resolves the name
	asked    ratelimit.Request    // what it asks of the lane
	grant    ratelimit.Grant      // the place
	blocked  ratelimit.ClientTime // the time for which the client has blocked the request

	preference   string       // the part of the client's Prefer that was applied; empty without one
	reported     bool         // the lane is asked in report mode only
	subresource  bool         // the request asks without a Delay: see Client.Pages
	wrote        atomic.Bool  // the header was written to the origin
	unrepeated   *refusal     // why a second sending was not allowed
	waitedBefore audit.Millis // for sendings other than the last
}

// pace waits for the next place in the lane. In report mode it records instead whether mode Enforce would have waited.
func (ex *exchange) pace(req *http.Request) *refusal {
	if ex.judged.Mode == policy.Off {
		return nil
	}
	if isSmallBody(req) {
		if ref := ex.readSmallBody(req); ref != nil {
			return ref
		}
	}
	lane, err := ex.findLane()
	if err != nil {
		return upstreamRefusal(ex, err)
	}
	ex.rec.SetLane(lane)
	ex.ask(req, lane)
	return ex.takePlace()
}

// findLane returns the name of the lane. If requests are paced by address, it resolves the origin.
func (ex *exchange) findLane() (string, error) {
	resolve := ex.settings.Pace.Addr
	if resolve == nil {
		return ex.stopKey, nil
	}
	addr, err := resolve(ex.ctx, ex.origin)
	ex.addr = addr
	return origin.AddrKey(addr), err
}

// pin returns req so that it is sent to the address by which it is paced, if it is paced by address.
func (ex *exchange) pin(req *http.Request) *http.Request {
	if !ex.addr.IsValid() {
		return req
	}
	return req.WithContext(egress.Pin(req.Context(), ex.addr))
}

// ask sets what the request asks of its lane.
func (ex *exchange) ask(req *http.Request, lane string) {
	ex.subresource = ex.client.Pages && isSubresource(req.Header)
	wait, preferred := ex.maxWait(req.Header)
	if preferred {
		ex.preference = "wait=" + strconv.Itoa(int(wait/time.Second))
	}
	ex.asked = ratelimit.Request{
		Key: lane, Client: ex.share, Delay: ex.delay(), MaxWait: wait, ClientTime: &ex.blocked,
		Part: ex.delay() < ex.judged.Delay,
	}
}

// maxWait returns how long the request may wait: as long as its client or the server is configured for, unless it
// prefers less, or more up to the cap (Prefer: wait, RFC 7240 section 4.3).
func (ex *exchange) maxWait(h http.Header) (wait time.Duration, preferred bool) {
	configured := ex.settings.MaxWait
	if ex.client.MaxWait != nil {
		configured = *ex.client.MaxWait
	}
	wait, preferred = fields.PreferredWait(h)
	if !preferred {
		return configured, false
	}
	return min(wait, max(configured, ex.settings.MaxWaitCap)), true
}

// delay returns the Delay with which the request asks for a place.
func (ex *exchange) delay() time.Duration {
	if ex.subresource && !ex.judged.Slow {
		return 0
	}
	return ex.judged.Delay
}

// isSubresource reports whether a browser sends the request for a part of a page, and not for a document, by
// Sec-Fetch-Dest (W3C Fetch Metadata section 2.1). Any client can forge the field.
func isSubresource(h http.Header) bool {
	switch h.Get("Sec-Fetch-Dest") {
	case "", "document", "iframe", "frame", "fencedframe", "object", "embed":
		return false
	}
	return true
}

// takePlace waits for the place that was asked for. The wait does not count towards the time limit of the request.
func (ex *exchange) takePlace() *refusal {
	switch ex.judged.Mode {
	case policy.Off:
		return nil
	case policy.Report:
		ref := ex.stopped() // since the look-up began
		if ref == nil {
			ex.report()
		}
		return ref
	}
	ex.deadline.pause()
	defer ex.deadline.restart()
	grant, ref := ex.awaitPlace()
	switch {
	case ref != nil:
		return ref
	case grant.IsZero():
		return ex.takePlace() // in another mode
	}
	ex.hold(grant)
	return nil
}

// awaitPlace waits for the next place, and judges the request again when it has one, or when an intervention ends the
// wait. If the Delay has changed meanwhile, awaitPlace cancels the Grant and asks for another within the rest of the
// request's wait. It returns the zero Grant without a refusal if the request needs no place any more.
func (ex *exchange) awaitPlace() (ratelimit.Grant, *refusal) {
	for {
		began := time.Now()
		grant, err := ex.acquire()
		if err != nil && err != errJudgeAgain {
			return ratelimit.Grant{}, paceRefusal(ex, err)
		}
		ref := ex.judgeAgain()
		if ref == nil && err == nil && ex.delay() <= ex.asked.Delay {
			return grant, nil
		}
		grant.Cancel()
		ex.rec.Waited += audit.Millis(grant.Waited())
		if ref != nil || err != nil && ex.judged.Mode != policy.Enforce {
			return ratelimit.Grant{}, ref
		}
		ex.asked.MaxWait = max(0, ex.asked.MaxWait-time.Since(began))
		ex.asked.Delay, ex.asked.Part = ex.delay(), ex.delay() < ex.judged.Delay
	}
}

// errJudgeAgain ends the wait for a place when an intervention has changed what the request must wait for.
var errJudgeAgain = errors.New("the interventions have changed")

// acquire waits for the next place. It records the wait for a place that was refused too, except for the moment that an
// immediate refusal takes.
func (ex *exchange) acquire() (ratelimit.Grant, error) {
	began := time.Now()
	ctx, cancel := context.WithCancelCause(ex.ctx)
	defer cancel(nil)
	ex.delivery.waits(ex.settings.Policy, func() { cancel(errJudgeAgain) })
	defer ex.delivery.waits(nil, nil)
	if ex.server.settings.Load() != ex.settings {
		cancel(errJudgeAgain) // EndStopped may have come before
	}
	limiter, preferred := ex.settings.Limiter, ex.preference != ""
	grant, err := ex.server.timeouts.acquire(ctx, limiter, ex.asked, ex.program(), preferred)
	if err != nil {
		ex.rec.Waited += audit.Millis(time.Since(began).Truncate(time.Millisecond))
	}
	if err != nil && context.Cause(ctx) == errJudgeAgain {
		err = errJudgeAgain
	}
	return grant, err
}

// hold keeps the Grant, and records how its place was kept.
func (ex *exchange) hold(g ratelimit.Grant) {
	ex.grant = g
	ex.rec.SetGrant(g)
	ex.noteSubresource()
}

// noteSubresource records that the request asked for less than the Delay of its host.
func (ex *exchange) noteSubresource() {
	if ex.delay() < ex.judged.Delay {
		ex.rec.AddDeviation(audit.DeviationSubresource)
	}
}

// report records the decision and the deviation from the wait that there would have been. Nothing waits, and Waited
// stays as it is: the request may have waited in another mode before.
func (ex *exchange) report() {
	ex.reported = true
	wait, gap, ok := ex.settings.Limiter.Reckon(ex.asked)
	if gap >= 0 {
		ex.rec.SetGap(gap)
	}
	ex.noteSubresource()
	if wait > 0 || !ex.asked.Part && gap >= 0 && audit.Millis(gap) < ex.rec.DelayRequired {
		ex.rec.AddDeviation(audit.DeviationReported)
	}
	if (!ok || wait > ex.asked.MaxWait) && ex.rec.Decision == policy.Allow {
		ex.rec.Decision, ex.rec.Reason = policy.WouldThrottle, policy.ReasonReport
	}
}

// hear passes the origin's answer to the lane before the body is read: a host that pushes back must be left alone at
// once. This holds in report mode too.
func (ex *exchange) hear(resp *http.Response, now time.Time) {
	o := outcome(resp, now)
	sent := resp.Request.Header
	o.Credentials = len(sent["Authorization"]) > 0 || len(sent["Cookie"]) > 0 // the limits may be those of one account
	ex.grant.Hear(o)
	if ex.reported {
		ex.settings.Limiter.Hear(ex.asked.Key, ex.share, o)
	}
}

// outcome reads from an origin's response how the pace of its host must change.
func outcome(resp *http.Response, now time.Time) ratelimit.Outcome {
	return ratelimit.Outcome{
		Status: resp.StatusCode, RetryAfter: fields.RetryAfter(resp.Header, now), Spent: fields.QuotaReset(resp.Header),
	}
}
