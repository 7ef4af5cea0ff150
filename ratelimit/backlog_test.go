package ratelimit

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slowPauses is a Pauses that takes long for each pause.
type slowPauses struct {
	takes time.Duration

	mu   sync.Mutex
	kept []Pause
}

func (s *slowPauses) Keep(p Pause) error {
	time.Sleep(s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, p)
	return nil
}

func (s *slowPauses) Kept() ([]Pause, error) { return nil, nil }

// Pauses are stored in the background and in order, with one call for several pauses of a host. Close waits for all.
func TestPausesAreKeptInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowPauses{takes: time.Second}
		l := newLimiter(t, Options{Pauses: slow})
		begin := time.Now()
		for i := range 5 {
			key := fmt.Sprint(i, ".example")
			g, err := l.Acquire(t.Context(), Request{Key: key, Client: "a"})
			if err != nil {
				t.Fatal(err)
			}
			g.Hear(Outcome{Status: 503, RetryAfter: time.Hour})
			g.Release(Outcome{Status: 503})
			time.Sleep(time.Millisecond)
		}
		for hours := range 4 {
			l.Hear("3.example", "a", Outcome{Status: 503, RetryAfter: time.Duration(hours) * time.Hour})
		}
		if took := time.Since(begin); took != 5*time.Millisecond {
			t.Errorf("Hear took %v", took)
		}
		l.Close()
		keys := make([]string, len(slow.kept))
		for i, p := range slow.kept {
			keys[i] = p.Key
		}
		if want := []string{"0.example", "1.example", "2.example", "3.example", "4.example"}; !slices.Equal(keys, want) {
			t.Fatalf("the pauses of %v were stored, want %v", keys, want)
		}
		if got := slow.kept[3].Until.Sub(begin); got < 3*time.Hour {
			t.Errorf("the pause that became longer was stored as one of %v, want 3h", got)
		}
		l.Close() // which may be done again
	})
}

// Throttle events go to the Coordinator in the background and in order. Their number is bounded: further ones count in
// this instance only. Close waits for all.
func TestThrottleEventsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &slowClub{club: &club{}, takes: time.Second}
		l := newLimiter(t, Options{Coordinator: c})
		begin := time.Now()
		const more = 10
		for i := range maxThrottleEvents + more {
			l.Hear(fmt.Sprint(i, ".example"), "a", Outcome{Status: 503})
		}
		for range 3 {
			l.Hear(host, "a", Outcome{Status: 503})
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("Hear took %v", took)
		}
		if got := pausedFor(l); !onCurve(got, minute) {
			t.Errorf("throttle events beyond the bound pause the host for %v, want a minute", got)
		}
		l.Close()
		if got := len(c.counted); got < maxThrottleEvents || got > maxThrottleEvents+1 || !slices.IsSortedFunc(c.counted, func(a, b ThrottleEvent) int { return a.Sent.Compare(b.Sent) }) {
			t.Errorf("%d throttle events were counted, want the first %d in order, or one more that was in progress", got, maxThrottleEvents)
		}
	})
}

// slowClub is a Coordinator that takes long for each throttle event.
type slowClub struct {
	*club
	takes   time.Duration
	counted []ThrottleEvent
}

func (c *slowClub) CountThrottle(said ThrottleEvent) (ThrottleResult, error) {
	time.Sleep(c.takes)
	c.counted = append(c.counted, said)
	return ThrottleResult{}, nil
}
