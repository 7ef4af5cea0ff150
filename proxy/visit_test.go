package proxy

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
)

// visiting returns the exchange of a request for a.example that is about to be paced, and how to pace it, for maxWait at
// most.
func visiting(t *testing.T, r *rig, maxWait time.Duration) (ex *exchange, pace func(policy.Decision) *Refusal) {
	req := &http.Request{Header: http.Header{}, URL: &url.URL{Scheme: "http", Host: "a.example"}}
	req = req.WithContext(t.Context())
	ex = r.server.newExchange(nil, req, nil)
	client := *local
	client.MaxWait = &maxWait
	ex.client, ex.origin, ex.lane = &client, mustOrigin(t, "http://a.example"), "a.example"
	return ex, func(d policy.Decision) *Refusal {
		ex.judged = judgement{Decision: d, policy: r.server.options.Policy, at: time.Now().Add(time.Hour)} // it holds
		return pipeline{r.server}.pace(req, ex)
	}
}

// TestVisitTimeOpens has a request wait for the visiting hours: the wait is in its record, and is no more there for the
// pace.
func TestVisitTimeOpens(t *testing.T) {
	r := newRig(t, nil)
	const wait = 50 * time.Millisecond
	ex, pace := visiting(t, r, time.Minute)
	opens := time.Now().Add(wait)
	if ref := pace(policy.Decision{Opens: opens}); ref != nil || time.Now().Before(opens) {
		t.Errorf("%v before it opens: %+v, want the request to wait, and no refusal", time.Until(opens), ref)
	}
	if got := time.Duration(ex.rec.Waited); got < wait*9/10 {
		t.Errorf("the record says that it waited %v, want %v", got, wait)
	}
	if got := ex.asked.MaxWait; got > time.Minute-wait*9/10 {
		t.Errorf("it may wait for another %v, want %v less than a minute", got, wait)
	}
	ex.end(nil)
}

// TestVisitTimeCloses has the visiting hours end while a request waits for its place: it is told of the next, and its
// place is another's.
func TestVisitTimeCloses(t *testing.T) {
	r := newRig(t, nil)
	const delay = 300 * time.Millisecond
	first, pace := visiting(t, r, time.Minute)
	if ref := pace(policy.Decision{Delay: delay, Closes: time.Now().Add(time.Hour)}); ref != nil {
		t.Fatalf("in the visiting hours: %+v", ref)
	}
	first.end(nil)
	_, pace = visiting(t, r, time.Minute)
	d := policy.Decision{Delay: delay, Closes: time.Now().Add(delay / 2), Reopens: time.Now().Add(time.Hour)}
	ref := pace(d)
	if ref == nil || ref.Reason != policy.ReasonPace || ref.RetryAfter < 59*time.Minute {
		t.Errorf("after they have ended: %+v, want pace, and an hour", ref)
	}
	if got := r.limiter.Stats(); got.Cancelled != 1 {
		t.Errorf("the pace counts %+v, want one Grant given back", got)
	}
	ex, pace := visiting(t, r, time.Minute)
	d.Mode, ex.rec.Decision = policy.Report, policy.Allow
	if ref := pace(d); ref != nil || ex.rec.Decision != policy.WouldThrottle {
		t.Errorf("in mode report: %+v and the decision %q, want would_throttle", ref, ex.rec.Decision)
	}
}

// TestVisitTimeIsNoHideout has a host stopped, and a client leave, while requests wait for the visiting hours.
func TestVisitTimeIsNoHideout(t *testing.T) {
	r := newRig(t, nil)
	d := policy.Decision{Opens: time.Now().Add(time.Hour)}
	refusals := make(chan *Refusal)
	_, pace := visiting(t, r, 2*time.Hour)
	go func() { refusals <- pace(d) }()
	r.eventually("a request that waits", func() bool { return r.server.opening.InUse() == 1 })
	if err := r.limiter.Stop("a.example", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if ref := <-refusals; ref == nil || ref.Reason != policy.ReasonStopped {
		t.Errorf("when the host is stopped: %+v, want stopped", ref)
	}
	ex, _ := visiting(t, r, 2*time.Hour)
	ex.judged.Opens, ex.asked.MaxWait = d.Opens, 2*time.Hour
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if ref := ex.awaitOpening(ctx); ref == nil || ref.Err != errGoneWaiting {
		t.Errorf("when the client leaves: %+v, want nobody's refusal", ref)
	}
}

// TestVisitTimeIsBounded has as many requests of a client wait as may: one more is told to come back, and one of another client
// waits.
func TestVisitTimeIsBounded(t *testing.T) {
	r := newRig(t, nil)
	ex, pace := visiting(t, r, 2*time.Hour)
	for range mostOpening {
		r.server.opening.Take(ex.share, 1)
	}
	if ref := pace(policy.Decision{Opens: time.Now().Add(time.Hour)}); ref == nil || ref.Reason != policy.ReasonPace || ref.RetryAfter < 59*time.Minute {
		t.Errorf("%+v, want pace, and an hour", ref)
	}
	other, pace := visiting(t, r, 2*time.Hour)
	other.share = "other"
	if ref := pace(policy.Decision{Opens: time.Now().Add(50 * time.Millisecond)}); ref != nil {
		t.Errorf("another client: %+v, want no refusal", ref)
	}
	if got := r.server.opening.InUse(); got != mostOpening {
		t.Errorf("%d wait afterwards, want %d as before", got, mostOpening)
	}
}
