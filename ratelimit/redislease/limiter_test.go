package redislease

import (
	"fmt"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// Redis counts answers that may concern one client as a lane does.
func TestAccountsOverRedis(t *testing.T) {
	_, in := newMini(t, 2)
	complain := func(client string, told time.Duration) ratelimit.ThrottleResult {
		t.Helper()
		verdict, err := in[0].CountThrottle(ratelimit.ThrottleEvent{Key: host, Client: client, Sent: time.Now(), Personal: true, RetryAfter: told})
		if err != nil {
			t.Fatal(err)
		}
		return verdict
	}
	for range 5 {
		if verdict := complain("a", 20*time.Second); verdict.Paused != 0 {
			t.Fatalf("one client pauses the host: %+v", verdict)
		}
	}
	if verdict := complain("b", 20*time.Second); verdict.Paused < 19*time.Second || verdict.Paused > 20*time.Second || verdict.PauseSource != ratelimit.RetryAfter {
		t.Errorf("a second client: %+v, want a pause of 20s", verdict)
	}
	if answer := denied(t, in[1], ratelimit.LeaseRequest{Key: host, Limit: 8}, 19*time.Second, 20*time.Second); answer.Paused < 19*time.Second {
		t.Errorf("the other instance hears of a pause of %v", answer.Paused)
	}
}

// Close sends the pending pauses.
func TestPauseIsToldAtTheEnd(t *testing.T) {
	server, in := newMini(t, 1)
	for i := range 50 {
		last, err := New(Options{URL: "redis://" + server.Addr()})
		if err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprint(i, ".example")
		last.Pause(key, time.Hour, ratelimit.RetryAfter)
		if err := last.Close(); err != nil {
			t.Fatal(err)
		}
		if answer := lease(t, in[0], ratelimit.LeaseRequest{Key: key, Limit: 8}); answer.Paused < 59*time.Minute {
			t.Fatalf("the pause of %s was lost: %+v", key, answer)
		}
	}
}

// After a second, another instance gets the lease of a blocked request.
func TestBlockedRequestOverRedis(t *testing.T) {
	_, in := newMini(t, 2)
	first, second := newLimiter(t, ratelimit.Options{Coordinator: in[0]}), newLimiter(t, ratelimit.Options{Coordinator: in[1]})
	r := ratelimit.Request{Key: host, Client: "a", Delay: time.Second, MaxWait: time.Minute}
	held := new(ratelimit.ClientTime)
	r.ClientTime = held
	g := acquire(t, first, r)
	held.Begin()
	begin := time.Now()
	r.Client, r.ClientTime = "b", nil
	acquire(t, second, r).Release(ratelimit.Outcome{Status: 200})
	if got := time.Since(begin); got < 1900*time.Millisecond || got > leaseLasts || !held.Overlapped() {
		t.Errorf("a client of another instance waited %v, overlap %v; want about two seconds and an overlap", got, held.Overlapped())
	}
	held.End(0)
	g.Release(ratelimit.Outcome{Status: 200})
}

// Parts of a page start beside each other in several instances, and before documents that wait. A document of another
// instance counts its Delay from the end of the last part.
func TestPartsOverRedis(t *testing.T) {
	_, in := newMini(t, 2)
	first, second := newLimiter(t, ratelimit.Options{Coordinator: in[0]}), newLimiter(t, ratelimit.Options{Coordinator: in[1]})
	document := ratelimit.Request{Key: host, Client: "a", Delay: time.Second, MaxWait: time.Minute}
	acquire(t, first, document).Release(ratelimit.Outcome{Status: 200})
	started := make(chan time.Time)
	for _, l := range []*ratelimit.Limiter{first, second} {
		go func() {
			g := acquire(t, l, document)
			started <- time.Now()
			g.Release(ratelimit.Outcome{Status: 200})
		}()
	}
	time.Sleep(200 * time.Millisecond)
	part := ratelimit.Request{Key: host, Client: "a", MaxWait: time.Minute, Part: true}
	parts := []ratelimit.Grant{acquire(t, first, part), acquire(t, second, part)}
	for i, g := range parts {
		if g.Waited() > 500*time.Millisecond {
			t.Errorf("part %d waited %v, want no Delay", i, g.Waited())
		}
	}
	time.Sleep(500 * time.Millisecond)
	end := time.Now()
	for _, g := range parts {
		g.Release(ratelimit.Outcome{Status: 200})
	}
	for range parts {
		if got := (<-started).Sub(end); got < document.Delay {
			t.Errorf("a document started %v after the last part, want %v", got, document.Delay)
		}
	}
}
