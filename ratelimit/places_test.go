package ratelimit

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestPlacesThatAreNear has threads of one client ask at once that bear no wait, under a Delay no longer than what a client
// may come back too early: each is told a moment of its own, and served then.
func TestPlacesThatAreNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: time.Second}
		send(t, l, r, 0)
		for i := range 4 {
			if we := turnedAway(t, l, r); !in(we.Wait, time.Duration(i+1)*time.Second) {
				t.Errorf("thread %d is told to come back after %v, want %d s", i, we.Wait, i+1)
			}
		}
		for range 4 {
			time.Sleep(time.Second)
			send(t, l, r, 0)
		}
	})
}

// TestPlaceThatIsLate has clients that bear no wait come back when they were told, to a place that is late since a request
// took longer than foreseen: a moment is waited for, and more is not.
func TestPlaceThatIsLate(t *testing.T) {
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

// TestPlacesThatArePutOff has threads of one client that bear no wait told to come back, and a request go on for so long that
// the first place moves to the moment of the second: each thread still finds a place of its own.
func TestPlacesThatArePutOff(t *testing.T) {
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
					time.Sleep(time.Until(told(time.Now(), we.Wait)))
				}
				g.Release(Outcome{})
			})
		}
		time.Sleep(21 * time.Second)
		long.Release(Outcome{})
		all.Wait()
		if got := l.Stats(); got.Kept != 2 || got.Lapsed != 0 {
			t.Errorf("%d places were kept for two threads, and %d lapsed", got.Kept, got.Lapsed)
		}
	})
}
