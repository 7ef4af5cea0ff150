package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestNearReservations sends requests without MaxWait from threads of one client, under a Delay of a second: each gets
// its own time to come back, and is served then.
func TestNearReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: time.Second}
		send(t, l, r, 0)
		for i := range 4 {
			if we := turnedAway(t, l, r); !in(we.Wait, time.Duration(i+1)*time.Second) {
				t.Errorf("thread %d: Wait %v, want %d s", i, we.Wait, i+1)
			}
		}
		for range 4 {
			time.Sleep(time.Second)
			send(t, l, r, 0)
		}
	})
}

// TestLateReservation delays a reservation by another request. When the client comes back in time, its request waits
// for a second at most, although it has no MaxWait.
func TestLateReservation(t *testing.T) {
	for _, test := range []struct {
		name string
		late time.Duration
		held bool
	}{
		{"by a moment", punctual, true},
		{"by more", punctual + 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, Options{})
				r := Request{Key: host, Client: "a", Delay: 10 * time.Second}
				send(t, l, r, 0)
				turnedAway(t, l, r)
				time.Sleep(test.late)
				l.Reckon(Request{Key: host, Client: "b", Delay: r.Delay}) // the Delay counts from it
				time.Sleep(r.Delay - test.late)
				if !test.held {
					turnedAway(t, l, r)
					return
				}
				if got := send(t, l, r, 0); got != test.late {
					t.Errorf("held for %v, want %v", got, test.late)
				}
			})
		})
	}
}

// TestDelayedReservations has a request take so long that the first of two reservations of a client moves to the
// moment of the second: each thread of the client still claims one.
func TestDelayedReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second}
		send(t, l, r, 0)
		long := acquire(t, l, Request{Key: host, Client: "b"})
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				var we *WaitError
				g, err := l.Acquire(t.Context(), r)
				for ; errors.As(err, &we); g, err = l.Acquire(t.Context(), r) {
					time.Sleep(time.Until(retryAt(time.Now(), we.Wait)))
				}
				g.Release(Outcome{})
			})
		}
		time.Sleep(21 * time.Second)
		long.Release(Outcome{})
		all.Wait()
		if got := l.Stats(); got.Reserved != 2 || got.Expired != 0 {
			t.Errorf("%d reservations were made for two threads, and %d expired", got.Reserved, got.Expired)
		}
	})
}

// TestClientsThatNeverReturn rejects requests of twenty clients that do not come back. A request that waits after their
// reservations waits for as long as predicted and for one grace. After that, these clients get no reservations.
func TestClientsThatNeverReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		const away, delay = 20, 20 * time.Second
		r := Request{Key: host, Client: "stays", Delay: delay, MaxWait: time.Hour}
		send(t, l, r, 0)
		leave := func() {
			for i := range away {
				turnedAway(t, l, Request{Key: host, Client: fmt.Sprint(i), Delay: delay})
			}
		}
		leave()
		if st := l.Stats(); st.Reserved != away || st.Waiting != 0 {
			t.Errorf("Stats() = %+v, want %d reservations, and no request waiting", st, away)
		}
		// Each reservation is a predicted slot; the grace of the last one is not predicted.
		foreseen := (away + 1) * delay
		if got := send(t, l, r, 0); got > foreseen+longestGrace {
			t.Errorf("after %d reservations the request waited %v, want %v and a grace at most", away, got, foreseen)
		}
		if got := l.Stats().Expired; got != away {
			t.Errorf("Stats().Expired = %d, want %d", got, away)
		}
		leave()
		if got := send(t, l, r, 0); !in(got, delay) {
			t.Errorf("after clients that have missed reservations the request waited %v, want %v", got, delay)
		}
		if got := l.Stats().Reserved; got != away {
			t.Errorf("Stats().Reserved = %d, want %d as before", got, away)
		}
	})
}

// TestClientsThatReturnLate has a client claim each reservation at the end of its grace, for an hour: it costs the
// others a grace every ten minutes.
func TestClientsThatReturnLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		const delay = 10 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			for ctx.Err() == nil {
				g, err := l.Acquire(ctx, Request{Key: host, Client: "late", Delay: delay})
				g.Release(Outcome{})
				if we, ok := errors.AsType[*WaitError](err); ok {
					time.Sleep((we.Wait + time.Second - 1).Truncate(time.Second) + delay - time.Millisecond)
				}
			}
		})
		served := 0
		for range 4 {
			all.Go(func() {
				for ctx.Err() == nil {
					if g, err := l.Acquire(ctx, Request{Key: host, Client: "waits", Delay: delay, MaxWait: time.Hour}); err == nil {
						served++
						g.Release(Outcome{})
					}
				}
			})
		}
		all.Wait()
		if want := 340; served < want {
			t.Errorf("the waiting clients were served %d times in an hour, want %d of 360 at least", served, want)
		}
	})
}

// TestReservationsUnderAFloor makes a reservation at a host without a Delay, but with a floor: its grace is that of the
// floor.
func TestReservationsUnderAFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		if err := l.SetFloor(host, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		r := Request{Key: host, Client: "a"}
		send(t, l, r, 0)
		turnedAway(t, l, r)
		waited := make(chan time.Duration)
		go func() { waited <- send(t, l, Request{Key: host, Client: "b", MaxWait: time.Hour}, 0) }()
		time.Sleep(19 * time.Second)
		send(t, l, r, 0)
		if got := <-waited; !in(got, 29*time.Second) {
			t.Errorf("after the reservation the request waited %v, want the other's 19s and 10s", got)
		}
	})
}

// TestClaim has a client come back to its reservation at different times, and another request wait after it.
func TestClaim(t *testing.T) {
	const delay = 20 * time.Second
	for _, test := range []struct {
		name   string
		after  time.Duration // when it comes back; its moment is after 20 s
		back   time.Duration // when it is served, 0 if it is turned away
		behind time.Duration // when the other is served
	}{
		{"in time", delay, delay, 2 * delay},
		{"within the grace", delay + longestGrace - 1, delay + longestGrace - 1, 2*delay + longestGrace - 1},
		{"too late", delay + longestGrace + 1, 0, delay + longestGrace},
		{"a little early", delay - early, 0, delay - early + time.Second + longestGrace}, // its wait is predicted as a second, longer than its MaxWait
		{"much too early", delay / 2, 0, delay + longestGrace},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, Options{})
				r := Request{Key: host, Client: "a", Delay: delay}
				send(t, l, r, 0)
				begin := time.Now()
				if we := turnedAway(t, l, r); !in(we.Wait, delay) {
					t.Errorf("Wait %v, want %v", we.Wait, delay)
				}
				var all sync.WaitGroup
				all.Go(func() {
					send(t, l, Request{Key: host, Client: "b", Delay: delay, MaxWait: time.Hour}, 0)
					if got := time.Since(begin); !in(got, test.behind) {
						t.Errorf("the request after it was served after %v, want %v", got, test.behind)
					}
				})
				time.Sleep(test.after)
				g, err := l.Acquire(t.Context(), r)
				if (err == nil) != (test.back > 0) {
					t.Errorf("Acquire after %v: %v, want it served after %v (0: not)", time.Since(begin), err, test.back)
				}
				g.Release(Outcome{Status: 200})
				all.Wait()
			})
		})
	}
}

// TestReservationsMakeRoom cancels the requests before a reservation: other requests may go first if they do not delay
// it.
func TestReservationsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Hour}
		send(t, l, r, 0)
		begin := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		for range 4 {
			go l.Acquire(ctx, r)
		}
		synctest.Wait()
		b := r
		b.Client, b.MaxWait = "b", 0
		for range 3 {
			turnedAway(t, l, b) // after 20, 40 and 50 s
		}
		cancel()
		synctest.Wait()
		for i, want := range []time.Duration{10 * time.Second, 30 * time.Second, 60 * time.Second} {
			if i > 0 {
				time.Sleep(time.Until(begin.Add(want - 10*time.Second)))
				b.MaxWait = time.Second
				send(t, l, b, 0) // b is back for its place
			}
			if i == 2 {
				break
			}
			c := r
			c.Client = "c"
			send(t, l, c, 0)
			if got := time.Since(begin).Round(time.Second); got != want {
				t.Errorf("request %d of c was served after %v, want %v", i, got, want)
			}
		}
	})
}

// TestFarReservationsDelayNoRequest has a reservation that is far off after other requests were cancelled: a request
// without MaxWait is served before it.
func TestFarReservationsDelayNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Hour}
		send(t, l, r, 0)
		ctx, cancel := context.WithCancel(t.Context())
		for range 4 {
			go l.Acquire(ctx, r)
		}
		synctest.Wait()
		b, c := r, r
		b.Client, b.MaxWait = "b", 0
		c.Client, c.MaxWait = "c", 0
		turnedAway(t, l, b) // after 20 s
		turnedAway(t, l, b) // after 40 s
		cancel()
		time.Sleep(10 * time.Second)
		send(t, l, c, 0)
		time.Sleep(9 * time.Second)
		if we := turnedAway(t, l, c); we.Wait < 11*time.Second {
			t.Errorf("just before a reservation: Wait %v, want the reservation to go first", we.Wait)
		}
		time.Sleep(time.Second)
		send(t, l, b, 0)
	})
}

// TestReservationsAfterAPause has a client come back to its reservation during a pause: it gets the end of the pause,
// and is served then.
func TestReservationsAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second}
		g := acquire(t, l, r)
		g.Release(Outcome{})
		turnedAway(t, l, r)
		l.Hear(host, "b", Outcome{Status: 503, RetryAfter: minute})
		time.Sleep(10 * time.Second)
		we := turnedAway(t, l, r)
		if we.Source != RetryAfter || !in(we.Wait, 50*time.Second) {
			t.Errorf("in the pause: %+v, want a wait for the other 50s", we)
		}
		time.Sleep(50 * time.Second)
		send(t, l, r, 0)
	})
}

func TestMissedReservationsAreBounded(t *testing.T) {
	var m misses
	for i := range 2*mostMissed + 1 {
		m.add(fmt.Sprint(i), time.Now())
		if len(m.last) > mostMissed {
			t.Fatalf("misses of %d clients are remembered, want at most %d", len(m.last), mostMissed)
		}
	}
}
