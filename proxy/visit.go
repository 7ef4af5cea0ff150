package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// mostOpening bounds the requests of one client that wait for sites to open.
const mostOpening = 1000

// hearsStop is how soon a request that waits for its site to open hears that the site was stopped.
const hearsStop = time.Second

var errClosed = errors.New("the site's visiting hours ended while the request waited; nothing was sent")

// closed reports whether the site's visiting hours are over at a moment.
func (j *judgement) closed(at time.Time) bool { return !j.Closes.IsZero() && !at.Before(j.Closes) }

// awaitOpening waits for the site's visiting hours, if they begin soon enough. What it waits is taken off what the pace may
// let the request wait.
func (ex *exchange) awaitOpening(ctx context.Context) *Refusal {
	wait := until(ex.judged.Opens)
	if wait == 0 {
		return nil
	}
	place := ex.server.opening.Take(ex.share, 1)
	if place == nil {
		return ex.closedRefusal(ex.judged.Opens, nil)
	}
	defer place.Release()
	if wait > ex.asked.MaxWait {
		return ex.closedRefusal(ex.judged.Opens, nil)
	}
	began := time.Now()
	for ; wait > 0; wait = until(ex.judged.Opens) {
		select {
		case <-time.After(min(wait, hearsStop)):
		case <-ctx.Done():
			return ex.gone(errGoneWaiting)
		}
		if ref := (pipeline{ex.server}).stopped(ex); ref != nil {
			return ref
		}
	}
	ex.waited(time.Since(began))
	return nil
}

// acquire waits for the host's next place, which is of no use if the site has closed meanwhile. A wait in vain is noted as
// well, if it was one: an answer that was given at once may have taken a moment.
func (ex *exchange) acquire(ctx context.Context) (ratelimit.Grant, error) {
	began := time.Now()
	grant, err := ex.server.options.Limiter.Acquire(ctx, ex.asked)
	if err == nil && ex.judged.closed(time.Now()) {
		grant.Cancel()
		err = errClosed
	}
	if err != nil {
		ex.rec.Waited += audit.Millis(time.Since(began).Truncate(time.Millisecond))
		return ratelimit.Grant{}, err
	}
	return grant, nil
}

// closedRefusal answers for a site that may not be visited before it opens.
func (ex *exchange) closedRefusal(opens time.Time, err error) *Refusal {
	return &Refusal{
		Reason: policy.ReasonPace, RetryAfter: max(time.Second, until(opens)), Err: err,
		Detail: ex.origin.Host() + " may be visited from " + opens.UTC().Format("15:04") + " UTC on (Visit-time).",
	}
}

// until returns how long it is to t, and 0 where t is zero or past.
func until(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(0, time.Until(t))
}
