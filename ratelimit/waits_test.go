package ratelimit

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		if got := slices.Collect(l.Waits()); got != nil {
			t.Errorf("Waits without a lane yields %v", got)
		}
		begin := time.Now()
		g := acquire(t, l, Request{Key: host, Client: "a", Delay: minute})
		acquire(t, l, Request{Key: "idle.example", Client: "a", Delay: minute}).Release(Outcome{})
		for range 2 {
			go l.Acquire(t.Context(), Request{Key: host, Client: "a", Delay: minute, MaxWait: 2 * time.Hour})
			synctest.Wait()
		}
		turnedAway(t, l, Request{Key: "idle.example", Client: "c", Delay: minute})
		got := slices.Collect(l.Waits())
		if len(got) != 1 || got[0].Start.Before(begin.Add(minute)) || got[0].Start.After(begin.Add(2*minute)) {
			t.Fatalf("Waits yields %+v", got)
		}
		got[0].Start = time.Time{}
		if want := (Wait{Key: host, Requests: 2, Delay: minute}); !cmp.Equal(got[0], want) {
			t.Errorf("Waits yields another wait: %s", cmp.Diff(want, got[0]))
		}
		g.Hear(Outcome{Status: 429, RetryAfter: time.Hour})
		for w := range l.Waits() {
			if !w.Paused || !w.Start.Equal(begin.Add(time.Hour)) {
				t.Errorf("a paused host has the wait %+v", w)
			}
			break
		}
		g.Release(Outcome{})
	})
}
