package proxy

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/fields"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// Pace says which hosts share a pace. With the zero value, none do.
type Pace struct {
	// Key returns whose lane a canonical host's requests share. If nil, each host has its own.
	Key func(host string) string
}

func (p Pace) key(host string) string {
	host = origin.Key(host)
	if p.Key == nil {
		return host
	}
	return p.Key(host)
}

// turn is the way of a request to its place in the lane of its host, from its admission to the header of the answer.
type turn struct {
	lane         string               // that is paced
	asked        ratelimit.Request    // of the lane
	grant        ratelimit.Grant      // guarded by entry.mu once the request is sent
	clientTime   ratelimit.ClientTime // the time for which the client has blocked the request
	preference   string               // the part of the client's Prefer that was applied; empty: none
	reckoned     bool                 // the pace is only reported on
	subresource  bool                 // asked for a place without a Delay: see Client.Pages
	wrote        atomic.Bool          // the header was written to the origin
	unrepeated   *Refusal             // why the request was not sent a second time; nil: it was, or once only
	waitedBefore audit.Millis         // before sendings other than the last
}

// pace waits for the host's next place, or reckons in mode report how long that would have been.
func (ex *exchange) pace(req *http.Request) *Refusal {
	if ex.judged.Mode == policy.Off {
		return nil
	}
	if err := ex.readSmallBody(req); err != nil {
		if errors.Is(context.Cause(ex.ctx), errTooLong) {
			return ex.gone(err)
		}
		return &Refusal{Reason: policy.ReasonBadRequest, Detail: "The body of the request broke off.", Err: err}
	}
	ex.asked = ex.paced(req)
	if ex.judged.Mode == policy.Report {
		if ref := ex.stopped(); ref != nil {
			return ref // since the look-up began
		}
		ex.reckon()
		return nil
	}
	ex.deadline.pause()
	defer ex.deadline.restart()
	grant, ref := ex.awaitPlace(req.Context())
	if ref != nil {
		return ref
	}
	ex.hold(grant)
	return nil
}

// awaitPlace waits for the host's next place, and judges the request again when it has one. If the Delay has grown meanwhile,
// awaitPlace gives it back and asks for another within the rest of the request's wait.
func (ex *exchange) awaitPlace(ctx context.Context) (ratelimit.Grant, *Refusal) {
	for {
		grant, err := ex.acquire(ctx)
		if err != nil {
			return ratelimit.Grant{}, paceRefusal(ex, ex.asked, err)
		}
		ref := ex.judgeAgain()
		if ref == nil && ex.delay() <= ex.asked.Delay {
			return grant, nil
		}
		grant.Cancel()
		ex.waited(grant.Waited())
		if ref != nil {
			return ratelimit.Grant{}, ref
		}
		ex.asked.Delay = ex.delay()
	}
}

// acquire waits for the host's next place. It records the wait for a place that was refused too, except for the moment that
// an immediate refusal takes.
func (ex *exchange) acquire(ctx context.Context) (ratelimit.Grant, error) {
	began := time.Now()
	grant, err := ex.server.timeouts.acquire(ctx, ex.server.options.Limiter, ex.asked, ex.program(), ex.preference != "")
	if err != nil {
		ex.rec.Waited += audit.Millis(time.Since(began).Truncate(time.Millisecond))
	}
	return grant, err
}

// delay returns the Delay with which the request asks for a place.
func (ex *exchange) delay() time.Duration {
	if ex.subresource {
		return 0
	}
	return ex.judged.Delay
}

// isSubresource reports whether a browser sends the request for a part of a page, and not for a document, by Sec-Fetch-Dest
// (W3C Fetch Metadata section 2.1). Any client can forge the field.
func isSubresource(h http.Header) bool {
	switch h.Get("Sec-Fetch-Dest") {
	case "", "document", "iframe", "frame", "object", "embed":
		return false
	}
	return true
}

// waited notes a wait and takes it off what the request may wait still.
func (ex *exchange) waited(d time.Duration) {
	ex.rec.Waited += audit.Millis(d)
	ex.asked.MaxWait = max(0, ex.asked.MaxWait-d)
}

// stopped refuses what goes to a host that the operator has stopped. Acquire says that by itself; this is for requests
// before it, and for those that are not paced.
func (ex *exchange) stopped() *Refusal {
	if err := ex.server.options.Limiter.Stopped(ex.lane); err != nil {
		return paceRefusal(ex, ex.asked, err)
	}
	return nil
}

// paced returns what req asks of the pace.
func (ex *exchange) paced(req *http.Request) ratelimit.Request {
	ex.subresource = ex.client.Pages && isSubresource(req.Header)
	return ratelimit.Request{
		Key: ex.lane, Client: ex.share, Delay: ex.delay(), MaxWait: ex.maxWait(req.Header), ClientTime: &ex.clientTime,
	}
}

// subresource is the deviation of a request that was sent without the Delay of its host: see Client.Pages.
const subresource = "subresource"

// reckon notes the wait that there would have been, and changes nothing.
func (ex *exchange) reckon() {
	ex.reckoned = true
	wait, gap, ok := ex.server.options.Limiter.Reckon(ex.asked)
	ex.rec.Waited = audit.Millis(wait)
	noteGap(&ex.rec, gap, gap >= 0)
	if wait > 0 || gap >= 0 && audit.Millis(gap) < ex.rec.DelayRequired {
		noteDeviation(&ex.rec, reported)
	}
	if (!ok || wait > ex.asked.MaxWait) && ex.rec.Decision == policy.Allow {
		ex.rec.Decision, ex.rec.Reason = policy.WouldThrottle, policy.ReasonReport
	}
}

// hold takes over a place in the pace, and records how it was kept.
func (ex *exchange) hold(g ratelimit.Grant) {
	ex.grant = g
	noteGrant(&ex.rec, g)
	if ex.delay() < ex.judged.Delay {
		noteDeviation(&ex.rec, subresource)
	}
}

// hear tells the pace what the origin answered, before its body is read. Requests in mode report are told of as well: a
// host that pushes back does so for everybody.
func (ex *exchange) hear(resp *http.Response, now time.Time) {
	o := outcome(resp, now)
	sent := resp.Request.Header
	o.Credentials = len(sent["Authorization"]) > 0 || len(sent["Cookie"]) > 0 // the limits may be those of one account
	ex.grant.Hear(o)
	if ex.reckoned {
		ex.server.options.Limiter.Hear(ex.lane, ex.share, o)
	}
}

// outcome reads from an origin's response how the pace of its host must change.
func outcome(resp *http.Response, now time.Time) ratelimit.Outcome {
	return ratelimit.Outcome{Status: resp.StatusCode, RetryAfter: fields.RetryAfter(resp.Header, now), Spent: fields.QuotaReset(resp.Header)}
}
