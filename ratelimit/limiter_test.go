package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// send acquires r, which must succeed, holds the lane for took, and releases it. It returns how long it waited.
func send(t *testing.T, l *Limiter, r Request, took time.Duration) time.Duration {
	t.Helper()
	g := acquire(t, l, r)
	time.Sleep(took)
	g.Release(Outcome{Status: 200})
	return g.Waited()
}

func acquire(t *testing.T, l *Limiter, r Request) Grant {
	t.Helper()
	g, err := l.Acquire(t.Context(), r)
	if err != nil {
		t.Fatalf("Acquire(%+v): %v", r, err)
	}
	return g
}

// turnedAway calls Acquire for r, which must return a *WaitError at once.
func turnedAway(t *testing.T, l *Limiter, r Request) *WaitError {
	t.Helper()
	before := time.Now()
	g, err := l.Acquire(t.Context(), r)
	var we *WaitError
	if !errors.As(err, &we) || !g.IsZero() {
		t.Fatalf("Acquire(%+v) = %v, %v, want a *WaitError", r, g, err)
	}
	if took := time.Since(before); took != 0 {
		t.Fatalf("Acquire(%+v) took %v to return %v, want 0", r, took, err)
	}
	return we
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// in reports whether got is want, or a nanosecond more, by which a bucket may be late.
func in(got, want time.Duration) bool { return got >= want && got <= want+time.Nanosecond }

func TestNew(t *testing.T) {
	for _, test := range []struct {
		options Options
		err     string
	}{
		{Options{}, ""},
		{Options{MaxConcurrent: -1}, ""},
		{Options{DefaultDelay: time.Second, DefaultBurst: 5}, ""},
		{Options{MaxQueue: -1}, "MaxQueue is -1"},
		{Options{MaxQueuePerClient: -1}, "MaxQueuePerClient is -1"},
		{Options{DefaultDelay: -1}, "DefaultDelay is -1ns"},
		{Options{DefaultDelay: 1, DefaultBurst: -1}, "DefaultBurst is -1"},
		{Options{DefaultBurst: 5}, "without a DefaultDelay"},
		{Options{ReleaseAfter: -1}, "ReleaseAfter is -1ns"},
		{Options{MaxLanes: -1}, "MaxLanes is -1"},
	} {
		_, err := New(test.options)
		if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("New(%+v): error %v, want %q", test.options, err, test.err)
		}
	}
}

func TestSpacing(t *testing.T) {
	for _, test := range []struct {
		name  string
		start bool
		delay time.Duration
		took  time.Duration
		want  time.Duration // wait of the second request, asked for at the end of the first
	}{
		{"from the end", false, seconds(10), seconds(3), seconds(10)},
		{"from the end, long", false, seconds(1), seconds(29), seconds(1)},
		{"from the start", true, seconds(10), seconds(3), seconds(7)},
		{"from the start, over before the end", true, seconds(10), seconds(12), 0},
		{"a third of a second", false, time.Second / 3, 0, time.Second / 3},
		{"a day", false, 24 * time.Hour, seconds(1), 24 * time.Hour},
		{"negative", false, -time.Second, seconds(1), 0},
		{"more than a year", false, math.MaxInt64, 0, longestDelay},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, Options{SpacingStart: test.start})
				r := Request{Key: host, Delay: test.delay, MaxWait: math.MaxInt64}
				send(t, l, r, test.took)
				if got := send(t, l, r, 0); got < test.want || got > test.want+10 {
					t.Errorf("delay %v: the second request waited %v, want %v", test.delay, got, test.want)
				}
			})
		})
	}
}

func TestOneAtATime(t *testing.T) {
	for _, start := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, Options{SpacingStart: start})
			r := Request{Key: host, Delay: time.Second, MaxWait: time.Hour}
			g := acquire(t, l, r)
			time.AfterFunc(5*time.Second, func() { g.Release(Outcome{}) })
			want := 5 * time.Second
			if !start {
				want += time.Second
			}
			if got := send(t, l, r, 0); !in(got, want) {
				t.Errorf("SpacingStart %v: the second request waited %v, want %v", start, got, want)
			}
		})
	}
}

// TestDelayChanges sends a request with one Delay, and 5 s after its end a second one with another.
func TestDelayChanges(t *testing.T) {
	for _, test := range []struct {
		from, to, want time.Duration
	}{
		{seconds(10), seconds(10), seconds(5)},
		{seconds(10), seconds(60), seconds(55)},
		{seconds(60), seconds(10), seconds(5)},
		{seconds(60), seconds(2), 0},
		{seconds(60), 0, 0},
		{0, seconds(10), seconds(5)},
	} {
		t.Run(fmt.Sprint(test.from, " to ", test.to), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, Options{})
				send(t, l, Request{Key: host, Delay: test.from}, time.Second)
				time.Sleep(5 * time.Second)
				got := send(t, l, Request{Key: host, Delay: test.to, MaxWait: time.Hour}, 0)
				if !in(got, test.want) || test.want == 0 && got != 0 {
					t.Errorf("the second request waited %v, want %v", got, test.want)
				}
			})
		})
	}
}

// TestDelayChangesWhileWaiting has requests with three Delays wait: each keeps its own.
func TestDelayChangesWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{limiter: newLimiter(t, Options{})}
		var all sync.WaitGroup
		for i, delay := range []time.Duration{seconds(1), seconds(20), seconds(3), 0, seconds(7)} {
			r := Request{Key: host, Client: fmt.Sprint(i), Delay: delay, MaxWait: time.Hour}
			all.Go(func() { s.visit(t.Context(), r, time.Second) })
			synctest.Wait()
		}
		all.Wait()
		s.check(t)
		var starts []time.Duration
		for _, v := range s.visits {
			starts = append(starts, v.start.Sub(s.visits[0].start).Round(time.Microsecond))
		}
		// The fourth has no delay: it does not wait for the end of the third, but for its turn.
		want := []time.Duration{0, seconds(21), seconds(25), seconds(25), seconds(33)}
		if diff := cmp.Diff(want, starts); diff != "" {
			t.Errorf("starts (-want +got):\n%s", diff)
		}
	})
}

func TestReleaseAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Delay: 10 * time.Second, MaxWait: time.Hour}
		long := acquire(t, l, r)
		g := acquire(t, l, r)
		if got, want := g.Waited(), 40*time.Second; !in(got, want) {
			t.Errorf("the request after a long one waited %v, want %v", got, want)
		}
		long.Release(Outcome{})
		long.Cancel()
		g.Release(Outcome{})
		if got := send(t, l, r, 0); !in(got, 10*time.Second) {
			t.Errorf("after the end of a response that had released its lane, the next request waited %v, want 10s", got)
		}
		checkAtRest(t, l, 3)
	})
}

// TestReleaseAfterUnseen has ReleaseAfter pass while no request waits.
func TestReleaseAfterUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{ReleaseAfter: time.Minute})
		r := Request{Key: host, Delay: 10 * time.Second, MaxWait: time.Hour}
		acquire(t, l, r)
		time.Sleep(65 * time.Second)
		g := acquire(t, l, r)
		if got, want := g.Waited(), 5*time.Second; !in(got, want) {
			t.Errorf("65 s after the start of a request without end, the next waited %v, want %v", got, want)
		}
		if gap, ok := g.Gap(); !ok || !in(gap, 10*time.Second) {
			t.Errorf("Gap() = %v, %v, want 10s, true", gap, ok)
		}
	})
}

// TestReleaseOfWhatHasEnded releases a request of 5 s with different values of Outcome.Ended.
func TestReleaseOfWhatHasEnded(t *testing.T) {
	for _, test := range []struct {
		name  string
		ended time.Duration // since its start
		want  time.Duration // that the next one waits
	}{
		{"before", 3 * time.Second, 8 * time.Second},
		{"now", 5 * time.Second, 10 * time.Second},
		{"later than now", 6 * time.Second, 10 * time.Second},
		{"before its start", -time.Second, 5 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, Options{})
				r := Request{Key: host, Delay: 10 * time.Second, MaxWait: time.Hour}
				begin := time.Now()
				g := acquire(t, l, r)
				time.Sleep(5 * time.Second)
				g.Release(Outcome{Status: 200, Ended: begin.Add(test.ended)})
				if got := send(t, l, r, 0); !in(got, test.want) {
					t.Errorf("after Release at 5s of a request that ended at %v, the next waited %v, want %v", test.ended, got, test.want)
				}
			})
		})
	}
}

func TestReleaseTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Delay: 10 * time.Second, MaxWait: time.Hour}
		first := acquire(t, l, r)
		first.Release(Outcome{Status: 503})
		second := acquire(t, l, r)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { first.Release(Outcome{Status: 503}) })
			all.Go(first.Cancel)
		}
		all.Wait()
		we := turnedAway(t, l, Request{Key: host, Delay: 10 * time.Second})
		if we.Wait < 10*time.Second {
			t.Errorf("a late second Release ended another request: the wait is %v, want at least 10s", we.Wait)
		}
		second.Release(Outcome{Status: 429})
		if got := l.Stats().PushedBack; got != 2 {
			t.Errorf("Stats().PushedBack = %d after a 503 and a 429, want 2", got)
		}
		checkAtRest(t, l, 2)
	})
}

func TestZeroGrant(t *testing.T) {
	var g Grant
	g.Release(Outcome{})
	g.Cancel()
	if gap, ok := g.Gap(); g.Waited() != 0 || gap != 0 || ok {
		t.Errorf("the zero Grant waited %v and has the gap %v, %v, want 0, 0, false", g.Waited(), gap, ok)
	}
}

func TestGap(t *testing.T) {
	for _, test := range []struct {
		start bool
		want  []time.Duration
	}{
		{false, []time.Duration{0, seconds(10), seconds(4), seconds(1)}},
		{true, []time.Duration{0, seconds(10), seconds(7), seconds(1)}},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, Options{SpacingStart: test.start})
			var got []time.Duration
			gap := func(g Grant) Grant {
				d, ok := g.Gap()
				if ok != (len(got) > 0) {
					t.Errorf("request %d: Gap() = %v, %v", len(got), d, ok)
				}
				got = append(got, d.Round(time.Microsecond))
				return g
			}
			r := Request{Key: host, Delay: 10 * time.Second, MaxWait: time.Hour}
			gap(acquire(t, l, r)).Release(Outcome{})
			g := gap(acquire(t, l, r))
			time.Sleep(3 * time.Second)
			g.Release(Outcome{})
			time.Sleep(4 * time.Second)
			r.Delay = 0
			gap(acquire(t, l, r))
			time.Sleep(time.Second)
			gap(acquire(t, l, r)) // the one before is still under way
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("SpacingStart %v: gaps (-want +got):\n%s", test.start, diff)
			}
		})
	}
}

func TestContextEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if g, err := l.Acquire(ctx, Request{Key: host}); !g.IsZero() || err != context.Canceled {
			t.Errorf("Acquire(ended) = %v, %v, want none, %v", g, err, context.Canceled)
		}
		if diff := cmp.Diff(Stats{Abandoned: 1}, l.Stats()); diff != "" {
			t.Errorf("Stats() (-want +got):\n%s", diff)
		}
	})
}

// TestLeftWhenGranted cancels a request at the moment of its Grant. In either order, the request is not sent, and the
// next one may start at once.
func TestLeftWhenGranted(t *testing.T) {
	for _, test := range []struct {
		name      string
		leaves    func(ln *lane, leave func(), free time.Time)
		cancelled uint64
	}{
		{"granted, then left", func(ln *lane, leave func(), free time.Time) { ln.dispatch(free); leave() }, 1},
		{"left, then its turn", func(ln *lane, leave func(), free time.Time) { leave(); ln.dispatch(free) }, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range 50 { // the waiting client may see either event first
				synctest.Test(t, func(t *testing.T) {
					l := newLimiter(t, Options{})
					r := Request{Key: host, Delay: time.Second, MaxWait: time.Hour}
					send(t, l, r, 0)
					end := time.Now()
					time.Sleep(time.Second / 2)

					ctx, leave := context.WithCancel(t.Context())
					ln, err := l.lane(host)
					if err != nil {
						t.Fatal(err)
					}
					w, err := ln.enter(ctx, r, l.newInflight(), time.Now())
					if err != nil {
						t.Fatalf("enter: %v", err)
					}
					w.ready = make(chan struct{}, 1)
					test.leaves(ln, leave, end.Add(time.Second))
					ln.unlock()
					if g, err := l.wait(ctx, ln, w); !g.IsZero() || err != context.Canceled {
						t.Errorf("wait of a cancelled request = %v, %v, want the zero Grant, %v", g, err, context.Canceled)
					}
					if got := l.Stats(); got.Cancelled != test.cancelled || got.Abandoned != 1 {
						t.Errorf("Stats() = %+v, want %d cancelled and 1 abandoned", got, test.cancelled)
					}
					if got := send(t, l, r, 0); !in(got, time.Second/2) {
						t.Errorf("the next request waited %v, want 500ms", got)
					}
					checkAtRest(t, l, 2)
				})
			}
		})
	}
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Delay: 10 * time.Second, MaxWait: time.Hour}
		send(t, l, r, time.Second)
		g := acquire(t, l, r)
		waiting := make(chan Grant)
		go func() { waiting <- acquire(t, l, r) }()
		time.Sleep(time.Second)
		g.Cancel()
		next := <-waiting
		if got := next.Waited(); got != time.Second {
			t.Errorf("the request after a cancelled one waited %v, want 1s", got)
		}
		if gap, ok := next.Gap(); !ok || !in(gap, 11*time.Second) {
			t.Errorf("Gap() = %v, %v, want 11s, true, counted from the request that was sent", gap, ok)
		}
		next.Release(Outcome{})
		checkAtRest(t, l, 2)
	})
}

// TestCancelOutOfOrder starts two requests at the same moment, and cancels the first: the second counts.
func TestCancelOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{SpacingStart: true})
		two := func() (Grant, Grant) { return acquire(t, l, Request{Key: host}), acquire(t, l, Request{Key: host}) }

		first, second := two()
		second.Cancel()
		first.Cancel()
		if gap, ok := acquire(t, l, Request{Key: host}).Gap(); ok {
			t.Errorf("Gap() = %v, %v after two cancelled requests, want no gap", gap, ok)
		}
		time.Sleep(time.Hour)
		first, second = two()
		first.Cancel()
		second.Release(Outcome{})
		if we := turnedAway(t, l, Request{Key: host, Delay: time.Minute}); !in(we.Wait, time.Minute) {
			t.Errorf("the wait after the request that was sent is %v, want 1m", we.Wait)
		}
	})
}

func TestMaxConcurrent(t *testing.T) {
	for _, test := range []struct{ option, want int }{{0, 8}, {1, 1}, {3, 3}, {-1, 100}} {
		synctest.Test(t, func(t *testing.T) {
			s := &site{limiter: newLimiter(t, Options{MaxConcurrent: test.option})}
			var all sync.WaitGroup
			begin := time.Now()
			for i := range 100 {
				r := Request{Key: host, Client: fmt.Sprint(i % 7), MaxWait: time.Hour}
				all.Go(func() { s.visit(t.Context(), r, time.Second) })
			}
			all.Wait()
			s.check(t)
			want := time.Duration((100+test.want-1)/test.want) * time.Second
			if got := time.Since(begin); got != want || len(s.visits) != 100 {
				t.Errorf("MaxConcurrent %d: %d requests of a second each took %v, want 100 in %v", test.option, len(s.visits), got, want)
			}
		})
	}
}

func TestDefaultBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{DefaultDelay: 2 * time.Second, DefaultBurst: 3})
		r := Request{Key: host, MaxWait: time.Hour}
		var got []time.Duration
		for range 5 {
			g := acquire(t, l, r) // never released: the starts are what is spaced
			got = append(got, g.Waited().Round(time.Microsecond))
			if g.Overtaken() {
				t.Error("a request of a burst is Overtaken")
			}
		}
		want := []time.Duration{0, 0, 0, seconds(2), seconds(2)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("waits (-want +got):\n%s", diff)
		}
		time.Sleep(2 * time.Second)
		acquire(t, l, r).Cancel()
		if we := send(t, l, r, 0); we != 0 {
			t.Errorf("after a request that was cancelled, the next waited %v, want 0s", we)
		}
		// A Delay that comes and goes makes no tokens.
		send(t, l, Request{Key: host, Delay: 1, MaxWait: time.Hour}, 0)
		time.Sleep(2 * time.Second)
		send(t, l, r, 0)
		if got := send(t, l, r, 0); !in(got, 2*time.Second) {
			t.Errorf("after a change of delay, the second request waited %v, want 2s", got)
		}
	})
}

// TestDefaultDelayBesideADelay sends a request with a Delay between others: it counts for DefaultDelay too.
func TestDefaultDelayBesideADelay(t *testing.T) {
	spaced, other := Request{Key: host, Delay: 1, MaxWait: time.Hour}, Request{Key: host, MaxWait: time.Hour}
	for _, takenBack := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, Options{})
			send(t, l, other, 0)
			if err := l.Reload(Options{DefaultDelay: minute}); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			if takenBack {
				send(t, l, other, 0)
				acquire(t, l, spaced).Cancel()
			} else {
				send(t, l, spaced, 0)
			}
			send(t, l, other, 0)
			if got := time.Since(begin).Round(time.Microsecond); got != minute {
				t.Errorf("taken back %t: the next request without a Delay started after %v, want a minute", takenBack, got)
			}
		})
	}
}

// TestRequired applies several Delays to one request: the longest is required, with its source.
func TestRequired(t *testing.T) {
	for _, test := range []struct {
		name        string
		options     Options
		floor       time.Duration
		delay, want time.Duration
		source      Source
	}{
		{"nothing", Options{}, 0, 0, 0, ""},
		{"its own", Options{DefaultDelay: minute}, 0, time.Second, time.Second, ""},
		{"the default", Options{DefaultDelay: minute}, 0, 0, minute, Default},
		{"a floor, and no default under it", Options{DefaultDelay: minute}, time.Second, 0, time.Second, Floor},
		{"a floor that is less", Options{}, time.Second, minute, minute, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, test.options)
				if err := l.SetFloor(host, test.floor); err != nil {
					t.Fatal(err)
				}
				r := Request{Key: host, Delay: test.delay, MaxWait: time.Hour}
				send(t, l, r, 0)
				time.Sleep(minute - time.Second/2)
				if delay, source := acquire(t, l, r).Required(); delay != test.want || source != test.source {
					t.Errorf("Required() = %v, %q, want %v, %q", delay, source, test.want, test.source)
				}
			})
		})
	}
}

func TestForeseenWait(t *testing.T) {
	const d = 10 * time.Second
	for _, test := range []struct {
		name    string
		start   bool
		took    []time.Duration // requests that have ended
		flying  time.Duration   // how long the one under way has been, 0 for none
		waiting []string
		client  string
		want    time.Duration
	}{
		{name: "nothing known", want: 0},
		{name: "after one", took: []time.Duration{seconds(2)}, want: d},
		{name: "one under way, nothing known", flying: 1, want: d},
		{name: "one under way, as long as usual", took: []time.Duration{seconds(2)}, flying: 1, want: seconds(2) - 1 + d},
		{name: "one under way, after two", took: []time.Duration{seconds(2), seconds(10)}, flying: seconds(1), want: seconds(2) + d},
		{name: "one under way, longer than usual", took: []time.Duration{seconds(2)}, flying: seconds(6), want: d},
		{name: "from the start", start: true, took: []time.Duration{seconds(2)}, flying: seconds(1), want: seconds(9)},
		{name: "three wait", took: []time.Duration{seconds(2)}, flying: seconds(1), waiting: []string{"a", "a", "a"}, client: "a", want: seconds(1) + d + 3*seconds(12)},
		{name: "three wait, from the start", start: true, took: []time.Duration{seconds(2)}, flying: seconds(1), waiting: []string{"a", "a", "a"}, client: "a", want: seconds(9) + 3*d},
		{name: "three wait, from the start, long", start: true, took: []time.Duration{seconds(15)}, flying: seconds(1), waiting: []string{"a", "a", "a"}, client: "a", want: 4*seconds(15) - seconds(1)},
		{name: "three wait, longer than usual", flying: seconds(6), waiting: []string{"a", "a", "a"}, client: "a", want: d + 3*seconds(16)},
		{name: "another's requests wait", took: []time.Duration{seconds(2)}, flying: seconds(1), waiting: []string{"a", "a", "a"}, client: "b", want: seconds(1) + d + seconds(12)},
		{name: "second round, with the turn to come", took: []time.Duration{seconds(2)}, flying: seconds(1), waiting: []string{"a", "a", "b", "c", "c", "c"}, client: "b", want: seconds(1) + d + 4*seconds(12)},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, Options{SpacingStart: test.start})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for _, took := range test.took {
					send(t, l, Request{Key: host, Delay: d, MaxWait: time.Hour}, took)
				}
				if test.flying > 0 {
					acquire(t, l, Request{Key: host, Delay: d, MaxWait: time.Hour})
				}
				for _, client := range test.waiting {
					go l.Acquire(ctx, Request{Key: host, Client: client, Delay: d, MaxWait: time.Hour})
					synctest.Wait()
				}
				time.Sleep(test.flying)
				r := Request{Key: host, Client: test.client, Delay: d, MaxWait: test.want - 2}
				if test.want == 0 {
					send(t, l, r, 0)
					return
				}
				if we := turnedAway(t, l, r); !in(we.Wait, test.want) || we.Full {
					t.Errorf("Acquire with MaxWait %v: %+v, want Wait %v", r.MaxWait, *we, test.want)
				}
			})
		})
	}
}

// TestForeseenWaitWithoutDelay has eight requests in flight that take 4 s each as usual, and sixteen that wait.
func TestForeseenWaitWithoutDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		send(t, l, Request{Key: host}, 4*time.Second)
		for range 8 {
			acquire(t, l, Request{Key: host})
		}
		time.Sleep(time.Second)
		for range 16 {
			go l.Acquire(ctx, Request{Key: host, MaxWait: time.Hour})
		}
		synctest.Wait()
		if we := turnedAway(t, l, Request{Key: host, MaxWait: 10 * time.Second}); we.Wait != 3*time.Second+8*time.Second {
			t.Errorf("the predicted wait is %v, want 11s: 3 s for a place, and sixteen steps of half a second", we.Wait)
		}
		if we := turnedAway(t, l, Request{Key: host}); we.Wait != 11*time.Second {
			t.Errorf("the predicted wait is %v, want 11s", we.Wait)
		}
	})
}

// TestForeseenWaitMixed sends a request with a Delay after requests without.
func TestForeseenWaitMixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		send(t, l, Request{Key: host}, 10*time.Second)
		acquire(t, l, Request{Key: host})
		time.Sleep(4 * time.Second)
		acquire(t, l, Request{Key: host})
		time.Sleep(time.Second)
		if we := turnedAway(t, l, Request{Key: host, Delay: time.Minute}); we.Wait != 9*time.Second+time.Minute {
			t.Errorf("the predicted wait is %v, want 1m9s: all requests in flight must end", we.Wait)
		}
	})
}

func TestForeseenWaitDefaultDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{MaxConcurrent: 1, DefaultDelay: 10 * time.Second})
		acquire(t, l, Request{Key: host})
		if we := turnedAway(t, l, Request{Key: host}); !in(we.Wait, 10*time.Second) {
			t.Errorf("the predicted wait is %v, want 10s", we.Wait)
		}
	})
}

// TestNoWait sends a request without MaxWait while MaxConcurrent requests are in flight, whose usual duration is
// unknown.
func TestNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{MaxConcurrent: 1})
		acquire(t, l, Request{Key: host})
		if we := turnedAway(t, l, Request{Key: host}); we.Full {
			t.Errorf("Acquire with MaxWait 0: %+v, want not Full", *we)
		}
	})
}

// TestNoOvertaking sends a request that could start after one that must wait.
func TestNoOvertaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		send(t, l, Request{Key: host}, 0)
		var other sync.WaitGroup
		other.Go(func() { send(t, l, Request{Key: host, Client: "a", Delay: time.Minute, MaxWait: time.Hour}, 0) })
		synctest.Wait()
		if got := send(t, l, Request{Key: host, Client: "b", MaxWait: time.Hour}, 0); !in(got, time.Minute) {
			t.Errorf("the request after one with a Delay waited %v, want 1m", got)
		}
		other.Wait()
	})
}

// TestEndlessWait predicts a wait that is longer than a time.Duration can be.
func TestEndlessWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{MaxQueuePerClient: 1000})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := Request{Key: host, Delay: math.MaxInt64, MaxWait: math.MaxInt64}
		for range 500 {
			go l.Acquire(ctx, r)
		}
		synctest.Wait()
		r.MaxWait--
		if we := turnedAway(t, l, r); we.Wait != math.MaxInt64 {
			t.Errorf("the predicted wait is %v, want %v", we.Wait, time.Duration(math.MaxInt64))
		}
	})
}

func TestQueueCaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := Request{Key: host, Client: "0", Delay: time.Second, MaxWait: time.Hour}
		acquire(t, l, r)
		fill := func(client string, n int) {
			for range n {
				r.Client = client
				go l.Acquire(ctx, r)
			}
			synctest.Wait()
		}
		full := func(client string, want time.Duration) {
			t.Helper()
			r.Client = client
			if we := turnedAway(t, l, r); !we.Full || we.Wait < want {
				t.Errorf("Acquire for client %s: %+v, want Full and a Wait of at least %v", client, *we, want)
			}
		}
		fill("0", 250)
		full("0", 250*time.Second)
		fill("1", 250)
		fill("2", 250)
		fill("3", 249)
		full("0", 999*time.Second)
		fill("3", 1)
		fill("4", 1) // who has none there is not crowded out by those who have
		full("4", 8*time.Second)
		if got := l.Stats(); got.Waiting != 1001 || got.Rejected != 3 {
			t.Errorf("Stats() = %+v, want 1001 waiting and 3 throttled", got)
		}
		cancel()
		synctest.Wait()
		checkAtRest(t, l, 1)
	})
}

func TestWaitErrorText(t *testing.T) {
	for _, test := range []struct {
		err  WaitError
		want string
	}{
		{WaitError{Wait: 12 * time.Second}, "ratelimit: the request would wait 12s"},
		{WaitError{Wait: 12 * time.Second, Full: true}, "ratelimit: the queue is full, its last place is 12s away"},
	} {
		if got := test.err.Error(); got != test.want {
			t.Errorf("%#v.Error() = %q, want %q", test.err, got, test.want)
		}
	}
}

func TestReckon(t *testing.T) {
	type answer struct {
		wait time.Duration
		ok   bool
	}
	for _, test := range []struct {
		name    string
		options Options
		request Request
		want    []answer // of calls at the same moment
	}{
		{
			"a delay",
			Options{},
			Request{Delay: seconds(10), MaxWait: seconds(25)},
			[]answer{{0, true}, {seconds(10), true}, {seconds(20), true}, {seconds(30), false}, {seconds(30), false}},
		},
		{
			"no MaxWait",
			Options{},
			Request{Delay: seconds(10)},
			[]answer{{0, true}, {seconds(10), false}},
		},
		{
			"no delay",
			Options{},
			Request{},
			[]answer{{0, true}, {0, true}, {0, true}},
		},
		{
			"a default delay",
			Options{DefaultDelay: seconds(2), DefaultBurst: 2},
			Request{MaxWait: seconds(3)},
			[]answer{{0, true}, {0, true}, {seconds(2), true}, {seconds(4), false}},
		},
		{
			"no place in the queue",
			Options{MaxQueue: 2},
			Request{Delay: seconds(10), MaxWait: time.Hour},
			[]answer{{0, true}, {seconds(10), true}, {seconds(20), false}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, test.options)
				for i, want := range test.want {
					test.request.Key = host
					if wait, _, ok := l.Reckon(test.request); wait != want.wait || ok != want.ok {
						t.Errorf("call %d: Reckon(%+v) = %v, %v, want %v, %v", i, test.request, wait, ok, want.wait, want.ok)
					}
				}
				if got := l.Stats().Reckoned; got != uint64(len(test.want)) {
					t.Errorf("Stats().Reckoned = %d, want %d", got, len(test.want))
				}
			})
		})
	}
}

// TestReckonCountsAsSent calls Reckon before and while a request of another client waits. A request keeps its Delay
// from the first call; the second shortens its gap, but does not delay it.
func TestReckonCountsAsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Delay: 10 * time.Second, MaxWait: time.Hour}
		send(t, l, r, 0)
		time.Sleep(4 * time.Second)
		if _, gap, _ := l.Reckon(r); !in(gap, 4*time.Second) {
			t.Errorf("Reckon returns the gap %v, want 4s", gap)
		}
		go func() {
			for range 100 {
				time.Sleep(3 * time.Second)
				l.Reckon(r)
			}
		}()
		for i, want := range []struct{ waited, gap time.Duration }{{seconds(10), seconds(1)}, {seconds(10), seconds(2)}, {seconds(10), 0}} {
			g := acquire(t, l, r)
			gap, _ := g.Gap()
			if !in(g.Waited(), want.waited) || gap.Round(time.Microsecond) != want.gap && want.gap != 0 {
				t.Errorf("request %d waited %v after a gap of %v, want %v and %v", i, g.Waited(), gap, want.waited, want.gap)
			}
			if !g.Overtaken() {
				t.Errorf("request %d is not Overtaken", i)
			}
			g.Release(Outcome{})
		}
		time.Sleep(5 * time.Minute)
		l.Reckon(r)
		if g := acquire(t, l, r); g.Overtaken() {
			t.Errorf("a request that came after all others is Overtaken, with the gap %v", g.gap)
		}
		if _, gap, _ := l.Reckon(Request{Key: "new.example"}); gap >= 0 {
			t.Errorf("Reckon returns the gap %v for the first request of a lane", gap)
		}
	})
}

// TestReckonBesidePlaces calls Reckon while no request waits, but there is a reservation: the next request keeps its
// Delay from the call.
func TestReckonBesidePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second}
		send(t, l, r, 0)
		turnedAway(t, l, r)
		time.Sleep(9 * time.Second)
		l.Reckon(Request{Key: host, Client: "b", Delay: 10 * time.Second})
		time.Sleep(time.Second)
		r.MaxWait = minute
		if got := send(t, l, r, 0); !in(got, 9*time.Second) {
			t.Errorf("a second after Reckon, the reservation was granted after %v, want 9s", got)
		}
	})
}

// TestNoDelayBesideADelay sends requests without a Delay while one with a Delay is in flight, as a browser does for
// the parts of a page: they wait only for MaxConcurrent. The next request with a Delay counts it from the end of the
// last of them.
func TestNoDelayBesideADelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{MaxConcurrent: 3})
		page := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Hour}
		part := page
		part.Delay = 0
		first := acquire(t, l, page)
		parts := []Grant{acquire(t, l, part), acquire(t, l, part)}
		for i, g := range parts {
			if g.Waited() != 0 || g.Overtaken() {
				t.Errorf("part %d: Waited() = %v, Overtaken() = %v; want 0, false", i, g.Waited(), g.Overtaken())
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Acquire(ctx, part); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a fourth request at the same time: %v, want it to wait", err)
		}
		first.Release(Outcome{})
		if got := send(t, l, part, 0); got != 0 {
			t.Errorf("a part waited %v after one of three requests had ended, want 0", got)
		}
		time.Sleep(3 * time.Second)
		for _, g := range parts {
			g.Release(Outcome{})
		}
		if g := acquire(t, l, page); !in(g.Waited(), 10*time.Second) {
			t.Errorf("the next page waited %v from the end of the last part, want 10s", g.Waited())
		}
		l.Hear(host, "a", Outcome{Status: 503, RetryAfter: minute})
		part.MaxWait = time.Second
		if we := turnedAway(t, l, part); we.Source != RetryAfter {
			t.Errorf("a part in a pause: %+v, want the pause as its source", we)
		}
	})
}

// Release returns when the lane stopped counting the request: at its end, after ReleaseAfter, or after the second for
// which its client blocked it. A second call and the zero Grant return no moment.
func TestReleaseReturnsTheEndOfThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{ReleaseAfter: 30 * time.Second, SpacingStart: true})
		r := Request{Key: host, Client: "a", Delay: time.Second, MaxWait: time.Hour}
		for _, d := range []time.Duration{10 * time.Second, 40 * time.Second} {
			g, start := acquire(t, l, r), time.Now()
			if !g.SpacedFromStart() {
				t.Error("SpacedFromStart() = false, want true")
			}
			time.Sleep(d)
			if got, want := g.Release(Outcome{}).Sub(start), min(d, 30*time.Second); got != want {
				t.Errorf("after %v, Release returned %v after the start, want %v", d, got, want)
			}
			if got := g.Release(Outcome{}); !got.IsZero() {
				t.Errorf("a second Release returned %v, want no moment", got)
			}
		}
		time.Sleep(minute)
		g, _ := blocked(t, l, r)
		start, other := time.Now(), r
		other.Client = "b"
		send(t, l, other, 0)
		if got := g.Release(Outcome{}).Sub(start); got != time.Second {
			t.Errorf("of a blocked request, Release returned %v after the start, want 1s", got)
		}
		if got := (Grant{}).Release(Outcome{}); !got.IsZero() {
			t.Errorf("of the zero Grant, Release returned %v", got)
		}
	})
}

// With SpacingStart, a Delay counts from the moment of Sent, also for requests that wait already. Without it, and after
// the end, Sent changes nothing, and Cancel undoes it.
func TestSentLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, fromStart := range []bool{true, false} {
			l := newLimiter(t, Options{SpacingStart: fromStart})
			r := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Hour}
			g := acquire(t, l, r)
			begin := time.Now()
			next := make(chan time.Duration)
			go func() {
				g, err := l.Acquire(t.Context(), r)
				if err != nil {
					t.Error(err)
				}
				next <- time.Since(begin)
				g.Cancel()
			}()
			time.Sleep(3 * time.Second)
			g.Sent()
			time.Sleep(time.Second)
			g.Release(Outcome{})
			g.Sent()
			if got, want := <-next, map[bool]time.Duration{true: 13 * time.Second, false: 14 * time.Second}[fromStart]; got != want {
				t.Errorf("from start %t: the next request started after %v, want %v", fromStart, got, want)
			}
		}

		l := newLimiter(t, Options{SpacingStart: true})
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Hour}
		g := acquire(t, l, r)
		time.Sleep(time.Second)
		g.Sent()
		g.Cancel()
		if got := send(t, l, r, 0); got != 0 {
			t.Errorf("after Cancel the next request waited %v", got)
		}
	})
}
