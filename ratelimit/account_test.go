package ratelimit

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A host pushes back in answer to requests with credentials. The client is paused for the time that the response
// names, and the host is paused for all if a second client gets the same.
func TestAccountIsPausedAlone(t *testing.T) {
	told := Outcome{Status: 429, RetryAfter: 20 * time.Second, Credentials: true}
	spent := Outcome{Status: 200, Spent: 20 * time.Second, Credentials: true}
	untold := Outcome{Status: 429, Credentials: true}
	type said struct {
		after   time.Duration
		client  string
		outcome Outcome
	}
	for _, test := range []struct {
		name   string
		said   []said
		client time.Duration // for which client a is held back; less than 0: along the curve from a minute
		host   time.Duration // for which everybody is
	}{
		{"429 with a time", []said{{0, "a", told}}, 20 * time.Second, 0},
		{"a quota that is used up", []said{{0, "a", spent}}, 20 * time.Second, 0},
		{"again and again", []said{{0, "a", told}, {5 * time.Second, "a", told}}, 20 * time.Second, 0},
		{"a shorter time later", []said{{0, "a", told}, {5 * time.Second, "a", Outcome{Status: 429, RetryAfter: time.Second, Credentials: true}}}, 15 * time.Second, 0},
		{"a second client", []said{{0, "a", told}, {5 * time.Second, "b", told}}, 20 * time.Second, 20 * time.Second},
		{"a second client, a quota", []said{{0, "a", spent}, {5 * time.Second, "b", spent}}, 20 * time.Second, 20 * time.Second},
		{"a second client within a minute", []said{{0, "a", told}, {minute, "b", told}}, 20 * time.Second, 20 * time.Second},
		{"a second client in a long pause", []said{{0, "a", Outcome{Status: 429, RetryAfter: time.Hour, Credentials: true}}, {10 * minute, "b", told}}, 50 * minute, 20 * time.Second},
		{"a second client, much later", []said{{0, "a", told}, {minute + time.Second, "b", told}}, 0, 0},
		{"a second client without a time", []said{{0, "a", told}, {time.Second, "b", Outcome{Status: 429}}}, -1, minute},
		{"a second client without credentials", []said{{0, "a", told}, {5 * time.Second, "b", Outcome{Status: 429, RetryAfter: 5 * time.Second}}}, 15 * time.Second, 5 * time.Second},
		{"503 is the host's", []said{{0, "a", Outcome{Status: 503, RetryAfter: 20 * time.Second, Credentials: true}}}, 20 * time.Second, 20 * time.Second},
		{"503 that tells of a quota is the host's", []said{{0, "a", Outcome{Status: 503, Spent: 20 * time.Second, Credentials: true}}}, 20 * time.Second, 20 * time.Second},
		{"one 429 without a time", []said{{0, "a", untold}}, 0, 0},
		{"three without a time", []said{{0, "a", untold}, {0, "a", untold}, {0, "a", untold}}, -1, 0},
		{"without a time, of two clients", []said{{0, "a", untold}, {0, "b", untold}}, -1, minute},
		{"three without credentials", []said{{0, "a", Outcome{Status: 429}}, {0, "a", Outcome{Status: 429}}, {0, "a", Outcome{Status: 429}}}, -1, minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, Options{})
				for _, s := range test.said {
					time.Sleep(s.after)
					l.Hear(host, s.client, s.outcome)
				}
				matches := func(got, want time.Duration) bool {
					if want < 0 {
						return onCurve(got, minute)
					}
					return got == want || want == minute && onCurve(got, minute)
				}
				if got := pausedFor(l); !matches(got, test.host) {
					t.Errorf("the host is paused for %v, want %v", got, test.host)
				}
				for client, want := range map[string]time.Duration{"a": test.client, "c": test.host} {
					g, err := l.Acquire(t.Context(), Request{Key: host, Client: client})
					if want == 0 {
						if err != nil {
							t.Errorf("client %s: %v, want a Grant at once", client, err)
						}
						g.Release(Outcome{Status: 200})
						continue
					}
					var wait *WaitError
					if !errors.As(err, &wait) || !matches(wait.Wait, want) || wait.Source == "" || wait.OneClient != (test.host < want || want < 0 && test.host == 0) {
						t.Errorf("client %s: %+v, %v, want a wait of %v", client, wait, err, want)
					}
				}
			})
		})
	}
}

// Requests of a paused client do not delay those of others, and start when the pause is over.
func TestOthersPassAPausedClient(t *testing.T) {
	for _, delay := range []time.Duration{0, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, Options{MaxConcurrent: 1})
			begin := time.Now()
			r := Request{Key: host, Client: "a", Delay: delay, MaxWait: time.Hour}
			g := acquire(t, l, r)
			var all sync.WaitGroup
			var starts []time.Duration
			for range 2 {
				all.Go(func() {
					g := acquire(t, l, r)
					starts = append(starts, time.Since(begin))
					if want, source := g.Required(); len(starts) == 1 && (source != RetryAfter || want <= delay) {
						t.Errorf("with the delay %v the first was delayed by %q for %v", delay, source, want)
					}
					g.Release(Outcome{Status: 200})
				})
			}
			synctest.Wait()
			g.Release(Outcome{Status: 429, RetryAfter: 2 * minute, Credentials: true})
			other := r
			other.Client = "b"
			for i := range 5 {
				if got := send(t, l, other, time.Second); i == 0 && got != delay || i > 0 && got > delay {
					t.Errorf("with the delay %v request %d of the other client waited %v", delay, i, got)
				}
			}
			all.Wait()
			if want := 2 * minute; starts[0] != want || starts[1] != want+delay {
				t.Errorf("with the delay %v the requests of the client started after %v, want %v and a delay more", delay, starts, want)
			}
		})
	}
}

// A request without MaxWait starts at once although a request of a paused client waits.
func TestPausedClientDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		l.Hear(host, "a", Outcome{Status: 429, RetryAfter: minute, Credentials: true})
		var all sync.WaitGroup
		all.Go(func() { send(t, l, Request{Key: host, Client: "a", Delay: time.Second, MaxWait: time.Hour}, 0) })
		synctest.Wait()
		send(t, l, Request{Key: host, Client: "b", Delay: time.Second}, 0)
		if wait := turnedAway(t, l, Request{Key: host, Client: "b", Delay: time.Second}); wait.Wait != time.Second || wait.Source != "" {
			t.Errorf("the other client is rejected with %+v, want only its Delay", wait)
		}
		all.Wait()
	})
}

// Waiting requests of a paused client with a shorter MaxWait are rejected at once. Those of other clients go on
// waiting.
func TestWaitersOfAPausedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: time.Second, MaxWait: 10 * time.Second}
		g := acquire(t, l, r)
		var all sync.WaitGroup
		all.Go(func() {
			_, err := l.Acquire(t.Context(), r)
			var wait *WaitError
			if !errors.As(err, &wait) || wait.Wait != minute || wait.Source != RetryAfter || !wait.OneClient {
				t.Errorf("a waiting request of the client: %v, want a wait of a minute", err)
			}
		})
		all.Go(func() {
			other := r
			other.Client = "b"
			if got := send(t, l, other, 0); got != 3*time.Second {
				t.Errorf("the other client waited %v, want 3s", got)
			}
		})
		synctest.Wait()
		time.Sleep(2 * time.Second)
		g.Release(Outcome{Status: 429, RetryAfter: minute, Credentials: true})
		all.Wait()
	})
}

// The state of paused clients is bounded, and ends with the lane.
func TestPausedClientsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		for i := range 1000 {
			for _, o := range []Outcome{{Status: 429, RetryAfter: time.Hour, Credentials: true}, {Status: 429, Credentials: true}} {
				l.Hear(host, fmt.Sprint("client-", i), o)
				if got := len(l.find(host).hold.recent); got >= throttleLimit {
					t.Fatalf("%d throttle events are remembered", got)
				}
			}
		}
		time.Sleep(3 * time.Hour)
		if got := sweepAll(l); got != 0 {
			t.Errorf("%d lanes after the pauses, want 0", got)
		}
	})
}

// The host is paused in all instances if a second client gets the same response in another instance.
func TestSharedAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, in := newClub(t, 2, time.Millisecond)
		told := Outcome{Status: 429, RetryAfter: 30 * time.Second, Credentials: true}
		in[0].Hear(host, "a", told)
		time.Sleep(time.Second)
		acquire(t, in[0], Request{Key: host, Client: "b", MaxWait: time.Second}).Release(Outcome{Status: 200})
		acquire(t, in[1], Request{Key: host, Client: "b", MaxWait: time.Second}).Release(told)
		time.Sleep(time.Second)
		for i, l := range in {
			var wait *WaitError
			if _, err := l.Acquire(t.Context(), Request{Key: host, Client: "c", MaxWait: time.Second}); !errors.As(err, &wait) || wait.Wait < 28*time.Second || wait.OneClient {
				t.Errorf("instance %d: %v, want a wait for the end of the pause", i, err)
			}
		}
	})
}

// The reservation of a paused client is valid at the end of the pause.
func TestPlaceOfAPausedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second}
		acquire(t, l, r).Release(Outcome{Status: 429, RetryAfter: minute, Credentials: true})
		wait := turnedAway(t, l, r)
		if wait.Wait != minute || !wait.OneClient {
			t.Fatalf("rejected with %+v, want a minute", wait)
		}
		other := r
		other.Client, other.MaxWait = "b", minute
		for range 4 {
			send(t, l, other, 0)
		}
		time.Sleep(20 * time.Second)
		if got := send(t, l, r, 0); got != 0 {
			t.Errorf("the client that came back in time waited %v", got)
		}
	})
}
