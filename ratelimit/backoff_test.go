package ratelimit

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const minute = time.Minute

// answer sends a request of client that gets the response o at once.
func answerWith(t *testing.T, l *Limiter, client string, o Outcome) {
	t.Helper()
	g := acquire(t, l, Request{Key: host, Client: client, MaxWait: time.Hour})
	g.Release(o)
}

// pausedFor returns how long the host is still paused.
func pausedFor(l *Limiter) time.Duration {
	until := l.Paused(host)
	if until.IsZero() {
		return 0
	}
	return time.Until(until)
}

// onCurve reports whether a pause is want, or longer by up to a tenth.
func onCurve(got, want time.Duration) bool { return got >= want && got <= want+want/10 }

func TestPauses(t *testing.T) {
	busy, gone := Outcome{Status: 429}, Outcome{Status: 503}
	type said struct {
		after   time.Duration
		client  string
		outcome Outcome
	}
	for _, test := range []struct {
		name   string
		said   []said
		want   time.Duration
		source Source // Backoff: want, or longer by up to a tenth
	}{
		{"one 429", []said{{0, "a", busy}}, 0, ""},
		{"two of one client", []said{{0, "a", busy}, {0, "a", gone}}, 0, ""},
		{"three of one client", []said{{0, "a", busy}, {0, "a", gone}, {minute, "a", busy}}, minute, Backoff},
		{"three, not within a minute", []said{{0, "a", busy}, {0, "a", gone}, {minute + 1, "a", busy}}, 0, ""},
		{"of two clients", []said{{0, "a", busy}, {30 * time.Second, "b", gone}}, minute, Backoff},
		{"of two clients, not within a minute", []said{{0, "a", busy}, {minute + 1, "b", gone}}, 0, ""},
		{"Retry-After", []said{{0, "a", Outcome{Status: 429, RetryAfter: 7 * time.Second}}}, 7 * time.Second, RetryAfter},
		{"Retry-After with 503", []said{{0, "a", Outcome{Status: 503, RetryAfter: time.Hour}}}, time.Hour, RetryAfter},
		{"Retry-After of a week", []said{{0, "a", Outcome{Status: 503, RetryAfter: 7 * 24 * time.Hour}}}, 24 * time.Hour, RetryAfter},
		{"Retry-After of nothing falls back to the curve", []said{{0, "a", Outcome{Status: 503}}, {0, "b", Outcome{Status: 503, RetryAfter: -1}}}, minute, Backoff},
		{"Retry-After with 301", []said{{0, "a", Outcome{Status: 301, RetryAfter: time.Hour}}}, 0, ""},
		{"500 is no sign", []said{{0, "a", Outcome{Status: 500}}, {0, "b", Outcome{Status: 500}}, {0, "c", Outcome{Status: 502}}}, 0, ""},
		{"a spent quota, told with 200", []said{{0, "a", Outcome{Status: 200, Spent: 20 * time.Second}}}, 20 * time.Second, RetryAfter},
		{"a spent quota of a year", []said{{0, "a", Outcome{Status: 200, Spent: 365 * 24 * time.Hour}}}, time.Hour, RetryAfter},
		{"a spent quota and Retry-After", []said{{0, "a", Outcome{Status: 429, Spent: 20 * time.Second, RetryAfter: 30 * time.Second}}}, 30 * time.Second, RetryAfter},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, Options{})
				for _, s := range test.said {
					time.Sleep(s.after)
					answerWith(t, l, s.client, s.outcome)
				}
				got := pausedFor(l)
				if got != test.want && (test.source != Backoff || !onCurve(got, test.want)) {
					t.Fatalf("paused for %v, want %v", got, test.want)
				}
				if test.want == 0 {
					return
				}
				g := acquire(t, l, Request{Key: host, Client: "c", MaxWait: 48 * time.Hour})
				if _, source := g.Required(); g.Waited() != got || source != test.source {
					t.Errorf("the next request waited %v for %q, want %v for %q", g.Waited(), source, got, test.source)
				}
			})
		})
	}
}

// TestCurve has a host answer every request with 503: it is paused for 1, 2, 4 ... minutes, up to an hour, and for one
// again after half an hour without a response.
func TestCurve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		trouble := func(want time.Duration) {
			t.Helper()
			answerWith(t, l, "a", Outcome{Status: 503})
			answerWith(t, l, "b", Outcome{Status: 503})
			if got := pausedFor(l); !onCurve(got, want) {
				t.Errorf("paused for %v, want %v and up to a tenth more", got, want)
			}
			time.Sleep(pausedFor(l))
		}
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60} {
			trouble(want * minute)
		}
		time.Sleep(forgetAfter - time.Second)
		trouble(60 * minute)
		time.Sleep(forgetAfter)
		trouble(minute)
	})
}

// TestOneStormOnePause has eight requests in flight get 429 at once: the pause begins with the third, and the others
// do not make it longer, since they were sent before it.
func TestOneStormOnePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		var grants []Grant
		for i := range 8 {
			grants = append(grants, acquire(t, l, Request{Key: host, Client: string(rune('a' + i))}))
		}
		for _, g := range grants {
			time.Sleep(time.Second)
			g.Hear(Outcome{Status: 429})
			g.Release(Outcome{Status: 429})
		}
		if got := pausedFor(l) + 6*time.Second; !onCurve(got, minute) {
			t.Errorf("the pause was %v, want %v and up to a tenth more", got, minute)
		}
		if got := l.Stats(); got.Paused != 1 || got.PushedBack != 8 {
			t.Errorf("Stats() = %+v, want 1 pause for 8 answers", got)
		}
	})
}

// TestPauseTurnsAway begins a pause while requests wait: those that may not wait as long are rejected at once, the
// others wait for the end of the pause.
func TestPauseTurnsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Hour}
		g := acquire(t, l, r)
		begin := time.Now()
		told := make(map[time.Duration]time.Duration) // MaxWait to when it was answered
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, maxWait := range []time.Duration{60 * time.Second, 110 * time.Second, 200 * time.Second} {
			all.Go(func() {
				r := r
				r.MaxWait = maxWait
				g, err := l.Acquire(t.Context(), r)
				mu.Lock()
				told[maxWait] = time.Since(begin)
				mu.Unlock()
				var we *WaitError
				if err != nil && (!errors.As(err, &we) || we.Source != RetryAfter || we.Wait != 100*time.Second || !strings.Contains(err.Error(), "paused")) {
					t.Errorf("Acquire with MaxWait %v: %+v, want a *WaitError that names the pause", maxWait, err)
				}
				g.Release(Outcome{Status: 200})
			})
			synctest.Wait()
		}
		time.Sleep(5 * time.Second)
		g.Hear(Outcome{Status: 503, RetryAfter: 100 * time.Second})
		all.Go(func() {
			time.Sleep(time.Second)
			r := r
			r.MaxWait = 98 * time.Second
			if we := turnedAway(t, l, r); we.Source != RetryAfter || we.Wait < 99*time.Second {
				t.Errorf("Acquire while the host is paused: %+v, want Source %q and a Wait of 99s at least", we, RetryAfter)
			}
		})
		all.Wait()
		want := map[time.Duration]time.Duration{60 * time.Second: 5 * time.Second, 110 * time.Second: 105 * time.Second, 200 * time.Second: 115 * time.Second}
		if !maps.EqualFunc(told, want, func(a, b time.Duration) bool { return in(a, b) }) {
			t.Errorf("rejected after %v, want %v", told, want)
		}
	})
}

// TestPausedLaneIsKept checks that a lane is not dropped while its pause counts.
func TestPausedLaneIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		answerWith(t, l, "a", Outcome{Status: 503})
		answerWith(t, l, "b", Outcome{Status: 503})
		time.Sleep(pausedFor(l) + forgetAfter - 1)
		if sweepAll(l) != 1 {
			t.Error("the lane was dropped while its pause counted")
		}
		time.Sleep(time.Nanosecond)
		if sweepAll(l) != 0 {
			t.Error("the lane was not dropped when its pause did not count any more")
		}
	})
}

// TestReckonInAPause checks that Reckon returns the wait for a pause, and that responses after Reckon count.
func TestReckonInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		l.Hear(host, "a", Outcome{Status: 429, RetryAfter: minute})
		if wait, _, ok := l.Reckon(Request{Key: host, MaxWait: time.Second}); wait != minute || ok {
			t.Errorf("Reckon in a pause of a minute = %v, %v, want it and false", wait, ok)
		}
		l.Hear("b.example", "a", Outcome{Status: 200})
		if got := l.Stats().Lanes; got != 1 {
			t.Errorf("a response with status 200 made a lane: %d lanes, want 1", got)
		}
	})
}

// fakePauses stores pauses in memory.
type fakePauses struct {
	mu   sync.Mutex
	kept map[string]Pause
	err  error
}

func (f *fakePauses) Keep(p Pause) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	f.kept[p.Key] = p
	return nil
}

func (f *fakePauses) Kept() ([]Pause, error) { return slices.Collect(maps.Values(f.kept)), f.err }

// TestPausesOutliveARestart makes a second Limiter with the Pauses of the first: a pause of more than a minute
// continues with its streak, a shorter one does not.
func TestPausesOutliveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &fakePauses{kept: make(map[string]Pause)}
		l := newLimiter(t, Options{Pauses: kept})
		l.Hear("short.example", "a", Outcome{Status: 503, RetryAfter: minute})
		for _, client := range []string{"a", "b"} {
			l.Hear(host, client, Outcome{Status: 503})
		}
		want := l.Paused(host)

		l.Close()
		l = newLimiter(t, Options{Pauses: kept})
		if got := l.Paused(host); !got.Equal(want) || want.IsZero() {
			t.Errorf("after a restart the pause ends %v, want %v", got, want)
		}
		if got := l.Paused("short.example"); !got.IsZero() {
			t.Errorf("a pause of a minute was stored until %v", got)
		}
		time.Sleep(2 * minute)
		l.Hear(host, "a", Outcome{Status: 503})
		l.Hear(host, "b", Outcome{Status: 503})
		if got := pausedFor(l); !onCurve(got, 2*minute) {
			t.Errorf("the second pause is %v, want %v and up to a tenth more", got, 2*minute)
		}
		time.Sleep(time.Hour)
		l.Close()
		if got := newLimiter(t, Options{Pauses: kept}).Stats().Lanes; got != 0 {
			t.Errorf("%d lanes were made of pauses that do not count any more, want 0", got)
		}
	})
}

func TestPausesThatCannotBeKept(t *testing.T) {
	kept := &fakePauses{err: errors.New("the disk is full")}
	if _, err := New(Options{Pauses: kept}); !errors.Is(err, kept.err) {
		t.Errorf("New: error %v, want %v", err, kept.err)
	}
	kept.err = nil
	l := newLimiter(t, Options{Pauses: kept})
	kept.err = errors.New("the disk is full")
	l.Hear(host, "a", Outcome{Status: 503, RetryAfter: time.Hour})
	l.Close()
	if got := l.Stats().Unkept; got != 1 || pausedFor(l) == 0 {
		t.Errorf("Stats().Unkept = %d and the pause is %v, want 1 and a pause", got, pausedFor(l))
	}
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Hour}
		g := acquire(t, l, r)
		until := time.Now().Add(time.Hour)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				var stopped *StoppedError
				if _, err := l.Acquire(t.Context(), r); !errors.As(err, &stopped) || !stopped.Until.Equal(until) {
					t.Errorf("Acquire of a waiting request after Stop: %v, want a *StoppedError until %v", err, until)
				}
			})
		}
		synctest.Wait()
		if err := l.Stop(host, until); err != nil {
			t.Fatalf("Stop: %v", err)
		}
		all.Wait()
		if time.Since(g.start) != 0 {
			t.Errorf("the waiting requests were rejected after %v, want at once", time.Since(g.start))
		}
		var stopped *StoppedError
		if _, err := l.Acquire(t.Context(), r); !errors.As(err, &stopped) {
			t.Errorf("Acquire while the host is stopped: %v, want a *StoppedError", err)
		}
		if err := l.Stopped(host); !errors.As(err, &stopped) || !strings.Contains(err.Error(), "until") {
			t.Errorf("Stopped: %v, want a *StoppedError", err)
		}
		g.Release(Outcome{Status: 200})
		time.Sleep(time.Hour - 1)
		if sweepAll(l) != 1 {
			t.Error("a stopped lane was dropped")
		}
		time.Sleep(time.Nanosecond)
		if err := l.Stopped(host); err != nil || sweepAll(l) != 0 {
			t.Errorf("Stopped at the end: %v, want nil, and no lane", err)
		}
		if err := errors.Join(l.Stop(host, time.Time{}), l.Stopped(host)); !errors.As(err, &stopped) {
			t.Errorf("Stop without an end: %v, want a *StoppedError", err)
		}
		if err := errors.Join(l.Lift(host), l.Stopped(host)); err != nil {
			t.Errorf("Lift: %v, want nil", err)
		}
		if got := l.Stats().Rejected; got != 4 {
			t.Errorf("Stats().Rejected = %d, want 4", got)
		}
	})
}

// TestFloor sets and removes a floor while requests wait: it applies to the next one that starts.
func TestFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Hour}
		send(t, l, r, 0)
		begin := time.Now()
		var started []time.Duration
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				g, err := l.Acquire(t.Context(), r)
				if err != nil {
					t.Errorf("Acquire: %v", err)
				}
				started = append(started, time.Since(begin))
				if required, source := g.Required(); len(started) == 2 && (required != minute || source != Floor) {
					t.Errorf("Required() = %v, %q, want %v, %q", required, source, minute, Floor)
				}
				g.Release(Outcome{Status: 200})
			})
		}
		time.Sleep(15 * time.Second) // one has started
		if err := l.SetFloor(host, minute); err != nil {
			t.Fatalf("SetFloor: %v", err)
		}
		r.MaxWait = 80 * time.Second
		if we := turnedAway(t, l, r); we.Wait < 2*minute {
			t.Errorf("the predicted wait is %v, want at least 2 minutes", we.Wait)
		}
		time.Sleep(60 * time.Second) // two have started
		if err := l.SetFloor(host, 0); err != nil {
			t.Fatalf("SetFloor: %v", err)
		}
		all.Wait()
		want := []time.Duration{10 * time.Second, 70 * time.Second, 80 * time.Second}
		if !slices.EqualFunc(started, want, in) {
			t.Errorf("the requests started after %v, want %v", started, want)
		}
	})
}

func TestInterveneWithoutALane(t *testing.T) {
	l := newLimiter(t, Options{MaxLanes: 1})
	g, err := l.Acquire(context.Background(), Request{Key: "b.example"})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Stop(host, time.Time{}); !errors.Is(err, ErrTooManyLanes) {
		t.Errorf("Stop while all lanes are in use: %v, want ErrTooManyLanes", err)
	}
	g.Release(Outcome{})
	if got := (&StoppedError{}).Error(); got != "ratelimit: the key is stopped" {
		t.Errorf("StoppedError.Error() = %q", got)
	}
	if _, source := (Grant{}).Required(); source != "" {
		t.Errorf("Required() of the zero Grant returns %q", source)
	}
	Grant{}.Hear(Outcome{RetryAfter: math.MaxInt64, Status: 429})
}
