package robots_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

type fetchFunc = func(context.Context, fetch.Request) (*robots.Answer, error)

// finds has the file everywhere, for a day.
func finds(_ context.Context, r fetch.Request) (*robots.Answer, error) {
	return found(r.Origin, file, 24*time.Hour), nil
}

// fails has no origin reachable, and knows nothing of the failures before.
func fails() fetchFunc {
	return func(_ context.Context, r fetch.Request) (*robots.Answer, error) {
		return failed(r.Origin, time.Minute), nil
	}
}

func newCache(tb testing.TB, o robots.CacheOptions) *robots.Cache {
	tb.Helper()
	c, err := robots.NewCache(o)
	if err != nil {
		tb.Fatalf("NewCache: %v", err)
	}
	tb.Cleanup(c.Close)
	return c
}

func lookUp(tb testing.TB, c *robots.Cache, o origin.Origin) *robots.Snapshot {
	tb.Helper()
	snap, err := c.Snapshot(context.Background(), o, robots.Asker{})
	if err != nil {
		tb.Fatalf("Snapshot(%s): %v", o, err)
	}
	if snap.Origin != o {
		tb.Fatalf("Snapshot(%s) is that of %s", o, snap.Origin)
	}
	return snap
}

func TestManyAskAtOnce(t *testing.T) {
	o := mustOrigin(t, "http://a.example")
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, robots.CacheOptions{Fetch: func(ctx context.Context, r fetch.Request) (*robots.Answer, error) {
			time.Sleep(time.Second)
			return found(r.Origin, file, time.Hour), nil
		}})
		for round := range 3 { // the first copy, and two that take the place of an expired one
			var askers sync.WaitGroup
			for range 1000 {
				askers.Go(func() {
					if snap := lookUp(t, c, o); allowed(snap, "/private") {
						t.Error("somebody slipped through")
					}
				})
			}
			askers.Wait()
			if got := c.Stats().Fetches; got != uint64(round+1) {
				t.Errorf("round %d: %d fetches, want one a round", round, got)
			}
			time.Sleep(time.Hour)
		}
	})
}

// TestManyAskForReal is the same on the real clock, for the race detector.
func TestManyAskForReal(t *testing.T) {
	o := mustOrigin(t, "http://a.example")
	c := newCache(t, robots.CacheOptions{Fetch: finds})
	var askers sync.WaitGroup
	for range 1000 {
		askers.Go(func() { lookUp(t, c, o) })
	}
	askers.Wait()
	if got, want := c.Stats(), (robots.Stats{Hits: 0, Fetches: 1}); got.Fetches != want.Fetches {
		t.Errorf("Stats() = %+v, want one fetch", got)
	}
}

func TestWaiterLeaves(t *testing.T) {
	o := mustOrigin(t, "http://a.example")
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, robots.CacheOptions{Fetch: func(ctx context.Context, r fetch.Request) (*robots.Answer, error) {
			select {
			case <-time.After(time.Minute):
				return found(r.Origin, file, time.Hour), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		snap, err := c.Snapshot(ctx, o, robots.Asker{})
		if snap != nil || !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("Snapshot = %v, %v after %v, want %v after 1s", snap, err, time.Since(begin), context.DeadlineExceeded)
		}
		lookUp(t, c, o) // whoever stays gets the result of the same fetch
		if got := time.Since(begin); got != time.Minute {
			t.Errorf("the one who stayed waited until %v, want 1m0s", got)
		}
		if got := c.Stats().Fetches; got != 1 {
			t.Errorf("%d fetches, want 1", got)
		}
	})
}

func TestFetchPanics(t *testing.T) {
	o := mustOrigin(t, "http://a.example")
	var calls atomic.Int32
	c := newCache(t, robots.CacheOptions{MaxFetches: 1, Fetch: func(_ context.Context, r fetch.Request) (*robots.Answer, error) {
		if calls.Add(1) == 1 {
			panic("a fault of ours")
		}
		return found(r.Origin, file, time.Hour), nil
	}})
	if snap, err := c.Snapshot(t.Context(), o, robots.Asker{}); snap != nil || err == nil || !strings.Contains(err.Error(), "a fault of ours") {
		t.Errorf("Snapshot = %v, %v, want the panic as an error", snap, err)
	}
	lookUp(t, c, o) // which needs the place that the panic has given back
}

func TestErrorIsNotKept(t *testing.T) {
	o := mustOrigin(t, "http://a.example")
	fault := errors.New("prohibited")
	var calls atomic.Int32
	c := newCache(t, robots.CacheOptions{Fetch: func(context.Context, fetch.Request) (*robots.Answer, error) {
		calls.Add(1)
		return nil, fault
	}})
	for range 3 {
		if snap, err := c.Snapshot(t.Context(), o, robots.Asker{}); snap != nil || !errors.Is(err, fault) {
			t.Errorf("Snapshot = %v, %v, want %v", snap, err, fault)
		}
	}
	if got := calls.Load(); got != 3 {
		t.Errorf("%d fetches, want 3", got)
	}
}

// TestExpiry asks every second for a day: nobody but the first waits for a fetch, since each copy is renewed in its
// last minutes.
func TestExpiry(t *testing.T) {
	o := mustOrigin(t, "http://a.example")
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Time
		c := newCache(t, robots.CacheOptions{Fetch: func(_ context.Context, r fetch.Request) (*robots.Answer, error) {
			asked = append(asked, time.Now())
			return found(r.Origin, file, time.Hour), nil
		}})
		const seconds = 24 * 60 * 60
		for range seconds {
			if snap := lookUp(t, c, o); !time.Now().Before(snap.Expires) {
				t.Fatalf("at %v: Snapshot expired at %v", time.Now(), snap.Expires)
			}
			synctest.Wait()
			time.Sleep(time.Second)
		}
		if got := c.Stats().Hits; got != seconds-1 {
			t.Errorf("%d hits, want all look-ups but the first", got)
		}
		differ := map[time.Duration]bool{}
		for i := range len(asked) - 1 {
			gap := asked[i+1].Sub(asked[i])
			differ[gap] = true
			if gap < 54*time.Minute || gap > 57*time.Minute+time.Second {
				t.Errorf("a copy that is good for an hour was renewed after %v, want 54 to 57 minutes", gap)
			}
		}
		if len(differ) < 5 {
			t.Errorf("%d times of renewal, want them spread: %v", len(differ), differ)
		}
	})
}

// TestBackOff asks every second of an origin that fails, recovers, and fails again.
func TestBackOff(t *testing.T) {
	o := mustOrigin(t, "http://a.example")
	for _, row := range []struct {
		name  string
		asked time.Duration // by each failure
		want  string        // minutes between two fetches
	}{
		{"1 min at first, 30 min at most", time.Minute, "1 2 4 8 16 30 30 30 30 30 30"},
		{"the origin asks for more", 2 * time.Hour, "120 120 120 120 120 120 120 120 120 120 120"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var failing atomic.Bool
				var last time.Time
				var gaps []string
				c := newCache(t, robots.CacheOptions{Fetch: func(_ context.Context, r fetch.Request) (*robots.Answer, error) {
					if !last.IsZero() {
						gaps = append(gaps, fmt.Sprint(time.Since(last).Minutes()))
					}
					last = time.Now()
					if failing.Load() {
						return failed(r.Origin, row.asked), nil
					}
					return found(r.Origin, file, time.Minute), nil
				}})
				for range 2 {
					failing.Store(true)
					gaps, last = nil, time.Time{}
					for len(gaps) < 11 {
						lookUp(t, c, o)
						synctest.Wait() // for a renewal that it began
						time.Sleep(time.Second)
					}
					if got := strings.Join(gaps, " "); got != row.want {
						t.Errorf("minutes between fetches: %s, want %s", got, row.want)
					}
					failing.Store(false)
					for !allowed(lookUp(t, c, o), "/open") {
						time.Sleep(time.Minute)
					}
					time.Sleep(time.Minute)
				}
			})
		})
	}
}

func TestMaxFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		c := newCache(t, robots.CacheOptions{MaxFetches: 7, Fetch: func(_ context.Context, r fetch.Request) (*robots.Answer, error) {
			defer now.Add(-1)
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			return found(r.Origin, file, time.Hour), nil
		}})
		begin := time.Now()
		var askers sync.WaitGroup
		for i := range 70 {
			o := mustOrigin(t, fmt.Sprintf("http://host-%d.example", i))
			askers.Go(func() { lookUp(t, c, o) })
		}
		askers.Wait()
		if got := most.Load(); got != 7 {
			t.Errorf("%d fetches at once, want 7", got)
		}
		if got := time.Since(begin); got != 10*time.Second {
			t.Errorf("70 fetches of a second, 7 at once, took %v, want 10s", got)
		}
	})
}

// TestHangingHosts has all places but one taken by origins that never answer.
func TestHangingHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places = 64 // the default
		c := newCache(t, robots.CacheOptions{Fetch: func(ctx context.Context, r fetch.Request) (*robots.Answer, error) {
			if strings.HasPrefix(r.Origin.Host(), "hangs") {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			time.Sleep(time.Second)
			return found(r.Origin, file, time.Hour), nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var hanging sync.WaitGroup
		for i := range places - 1 {
			o := mustOrigin(t, fmt.Sprintf("http://hangs-%d.example", i))
			hanging.Go(func() { _, _ = c.Snapshot(ctx, o, robots.Asker{}) })
		}
		synctest.Wait()
		for i := range 10 {
			begin := time.Now()
			lookUp(t, c, mustOrigin(t, fmt.Sprintf("http://answers-%d.example", i)))
			if got := time.Since(begin); got != time.Second {
				t.Errorf("a look-up took %v, want the second of its own fetch", got)
			}
		}
		cancel()
		hanging.Wait()
	})
}

// TestClose has fetches under way, and others that wait for a place.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := robots.NewCache(robots.CacheOptions{MaxFetches: 3, Fetch: func(ctx context.Context, _ fetch.Request) (*robots.Answer, error) {
			<-ctx.Done()
			time.Sleep(time.Second) // it does not end at once
			return nil, ctx.Err()
		}})
		if err != nil {
			t.Fatal(err)
		}
		var askers sync.WaitGroup
		for i := range 10 {
			o := mustOrigin(t, fmt.Sprintf("http://host-%d.example", i))
			askers.Go(func() {
				if snap, err := c.Snapshot(context.Background(), o, robots.Asker{}); snap != nil || !errors.Is(err, context.Canceled) {
					t.Errorf("Snapshot = %v, %v, want %v", snap, err, context.Canceled)
				}
			})
		}
		synctest.Wait()
		begin := time.Now()
		c.Close()
		if got := time.Since(begin); got != time.Second {
			t.Errorf("Close took %v, want the second that the fetches need", got)
		}
		askers.Wait()
	})
}

// TestCloseAfterAllLeft closes while fetches begin whose callers have gone already.
func TestCloseAfterAllLeft(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 200 {
		c, err := robots.NewCache(robots.CacheOptions{MaxBytes: 1 << 20, Fetch: finds})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Snapshot(gone, mustOrigin(t, fmt.Sprintf("http://host-%d.example", i)), robots.Asker{})
		c.Close()
	}
}
