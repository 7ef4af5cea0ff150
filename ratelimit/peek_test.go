package ratelimit

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		if v, ok := l.Peek(host); ok {
			t.Errorf("Peek without a lane = %+v, true", v)
		}
		begin := time.Now()
		g := acquire(t, l, Request{Key: host, Client: "a", Delay: minute})
		for _, client := range []string{"a", "a", "b"} {
			go l.Acquire(t.Context(), Request{Key: host, Client: client, Delay: minute, MaxWait: 2 * time.Hour})
			synctest.Wait()
		}
		turnedAway(t, l, Request{Key: host, Client: "c", Delay: minute})
		time.Sleep(2 * time.Second)
		g.Hear(Outcome{Status: 429, RetryAfter: time.Hour})
		if err := l.SetFloor(host, 2*minute); err != nil {
			t.Fatal(err)
		}
		want := View{Waiting: 3, Clients: 3, Reserved: 1, InFlight: 1, Start: begin.Add(minute), Delay: 2 * minute, Last: begin, Floor: 2 * minute, PausedUntil: begin.Add(time.Hour + 2*time.Second), PauseSource: RetryAfter}
		if v, ok := l.Peek(host); !ok || !cmp.Equal(v, want) {
			t.Errorf("Peek while requests wait: %s", cmp.Diff(want, v))
		}
		views := maps.Collect(l.Views())
		if len(views) != 1 || !cmp.Equal(views[host], want) {
			t.Errorf("Views yields %+v, want %+v for %s", views, want, host)
		}
		for range l.Views() {
			break
		}
		g.Release(Outcome{})
		if err := l.Stop(host, time.Time{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		want = View{Last: begin.Add(2 * time.Second), Took: 2 * time.Second, Floor: 2 * minute, Stopped: true}
		if v, ok := l.Peek(host); !ok || !cmp.Equal(v, want) {
			t.Errorf("Peek when it is stopped: %s", cmp.Diff(want, v))
		}
	})
}

// TestReload replaces the Options while lanes are in use: they apply to the next request, and lanes keep their state.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{MaxConcurrent: 1})
		r := Request{Key: host, MaxWait: time.Hour}
		send(t, l, r, time.Second)
		if err := l.Reload(Options{MaxConcurrent: -1, DefaultDelay: minute, MaxQueue: 1}); err != nil {
			t.Fatal(err)
		}
		send(t, l, r, 0) // there was no pace so far, so the bucket is full
		if got := send(t, l, r, 0); !in(got, minute) {
			t.Errorf("with a DefaultDelay of a minute the request waited %v", got)
		}
		if err := l.Reload(Options{DefaultDelay: -1}); err == nil {
			t.Error("Reload accepts Options that New rejects")
		}
		if err := l.Reload(Options{SpacingStart: true}); err != nil {
			t.Fatal(err)
		}
		r.Delay = minute
		if got := send(t, l, r, 40*time.Second); !in(got, minute) {
			t.Errorf("the first request with a Delay waited %v, want a minute", got)
		}
		if got := send(t, l, r, 0); !in(got, 20*time.Second) {
			t.Errorf("spaced from the start the request waited %v, want the other 20s", got)
		}
	})
}

// TestReloadWakes makes the Options less strict while a request waits: it starts sooner.
func TestReloadWakes(t *testing.T) {
	for _, test := range []struct {
		name     string
		old, new Options
		delay    time.Duration
		holds    bool // the request before goes on
		want     time.Duration
	}{
		{"default delay", Options{DefaultDelay: time.Hour}, Options{}, 0, false, 0},
		{"release after", Options{ReleaseAfter: time.Hour}, Options{ReleaseAfter: time.Second}, minute, true, minute},
		{"max concurrent", Options{MaxConcurrent: 1, ReleaseAfter: time.Hour}, Options{ReleaseAfter: time.Hour}, 0, true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, test.old)
				r := Request{Key: host, Client: "a", Delay: test.delay, MaxWait: 2 * time.Hour}
				if g := acquire(t, l, r); !test.holds {
					g.Release(Outcome{})
				}
				waited := make(chan time.Duration)
				go func() { waited <- send(t, l, r, 0) }()
				time.Sleep(time.Second)
				if err := l.Reload(test.new); err != nil {
					t.Fatal(err)
				}
				if got := <-waited - time.Second; !in(got, test.want) {
					t.Errorf("after the change the request waited %v, want %v", got, test.want)
				}
			})
		})
	}
}
