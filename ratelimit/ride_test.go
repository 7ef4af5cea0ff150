package ratelimit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestRidesBeyondTheLimit has more requests ride than may be under way: each goes as soon as another has ended, before those
// that wait for a turn, whose Delay counts from the last of them. Who leaves costs the others nothing.
func TestRidesBeyondTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{MaxConcurrent: 3, MaxQueuePerClient: 6})
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Hour}
		send(t, l, r, time.Second)
		ride := r
		ride.Ride = true

		var mu sync.Mutex
		var waits []time.Duration
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				wait := send(t, l, ride, time.Second)
				mu.Lock()
				defer mu.Unlock()
				waits = append(waits, wait)
			})
		}
		synctest.Wait()
		ctx, leave := context.WithTimeout(t.Context(), time.Second/2)
		defer leave()
		other := ride
		other.Client = "b"
		if _, err := l.Acquire(ctx, other); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who leaves while it waits to ride: %v", err)
		}
		next := send(t, l, r, 0)
		all.Wait()
		slices.Sort(waits)
		want := []time.Duration{0, 0, 0, time.Second, time.Second, time.Second, 2 * time.Second, 2 * time.Second}
		if !slices.Equal(waits, want) {
			t.Errorf("those that ride waited %v, want %v", waits, want)
		}
		if want := 3*time.Second + r.Delay - time.Second/2; !in(next, want) {
			t.Errorf("the next one waited %v, want %v: a Delay from the end of the last ride", next, want)
		}
	})
}

// TestRideThatBearsNoWait has a request that bears no wait come to ride while too many are under way, for longer than they
// take otherwise, so that their end is foreseen for now.
func TestRideThatBearsNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{MaxConcurrent: 1})
		ride := Request{Key: host, Client: "a", Delay: time.Second, Ride: true}
		defer acquire(t, l, ride).Release(Outcome{})
		time.Sleep(time.Second)
		turnedAway(t, l, ride)
	})
}

// TestReckonBesideRides has a request that is only reckoned sent while others wait to ride, who then leave: the next one
// keeps its Delay from it.
func TestReckonBesideRides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{MaxConcurrent: 1, SpacingStart: true})
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: minute}
		under := acquire(t, l, r)
		ride := r
		ride.Client, ride.Ride = "b", true
		ctx, leave := context.WithCancel(t.Context())
		for range 2 {
			go l.Acquire(ctx, ride)
		}
		time.Sleep(9 * time.Second)
		if v, _ := l.Peek(host); v.Waiting != 2 || v.Clients != 1 {
			t.Errorf("Peek while two of one client wait to ride: %+v", v)
		}
		l.Reckon(Request{Key: host, Client: "c", Delay: r.Delay})
		leave()
		synctest.Wait()
		under.Release(Outcome{})
		if got := send(t, l, r, 0); !in(got, r.Delay) {
			t.Errorf("waited %v after a request that was only reckoned, want %v", got, r.Delay)
		}
	})
}

// TestRidesThatWaitAreTurnedAway has requests that wait to ride hear of a stop and of a pause, and more of them come than
// may wait or bear the wait.
func TestRidesThatWaitAreTurnedAway(t *testing.T) {
	for _, test := range []struct {
		name   string
		happen func(*Limiter, Grant)
		served bool
	}{
		{"a stop", func(l *Limiter, _ Grant) { _ = l.Stop(host, time.Time{}) }, false},
		{"a long pause", func(_ *Limiter, g Grant) { g.Hear(Outcome{Status: 429, RetryAfter: time.Hour}) }, false},
		{"a pause", func(_ *Limiter, g Grant) { g.Hear(Outcome{Status: 429, RetryAfter: 10 * time.Second}) }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, Options{MaxConcurrent: 1, MaxQueuePerClient: 1})
				ride := Request{Key: host, Client: "a", Delay: time.Second, MaxWait: minute, Ride: true}
				under := acquire(t, l, ride)
				answers := make(chan error)
				go func() {
					g, err := l.Acquire(t.Context(), ride)
					if err == nil && (g.Waited() < 10*time.Second || !g.Rode()) {
						t.Errorf("waited %v, rode %v; want a ride after the pause", g.Waited(), g.Rode())
					}
					g.Release(Outcome{})
					answers <- err
				}()
				synctest.Wait()
				if we := turnedAway(t, l, ride); !we.Full {
					t.Errorf("one more: %+v, want that the line is full", we)
				}
				time.Sleep(time.Second)
				test.happen(l, under)
				under.Release(Outcome{})
				if err := <-answers; (err == nil) != test.served {
					t.Errorf("who waited to ride: %v, want it served: %v", err, test.served)
				}
				if v, _ := l.Peek(host); v.Waiting != 0 || l.Stats().Waiting != 0 {
					t.Errorf("%d wait after all", v.Waiting)
				}
			})
		})
	}
}
