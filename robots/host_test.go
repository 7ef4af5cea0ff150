package robots_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// visits records when an injected Fetch of one second begins and ends.
type visits struct {
	mu   sync.Mutex
	seen []visit
}

type visit struct {
	origin     origin.Origin
	begin, end time.Time
}

func (v *visits) fetch(ctx context.Context, r fetch.Request) (*robots.Answer, error) {
	begin := time.Now()
	snap, err := slowly(ctx, r)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen = append(v.seen, visit{r.Origin, begin, time.Now()})
	return snap, err
}

// gaps returns the times from the end of one visit to the start of the next.
func (v *visits) gaps() (gaps []time.Duration) {
	for i := 1; i < len(v.seen); i++ {
		gaps = append(gaps, v.seen[i].begin.Sub(v.seen[i-1].end))
	}
	return gaps
}

// every returns a Spacing of d.
func every(d time.Duration) func(origin.Origin, *robots.Snapshot) time.Duration {
	return func(origin.Origin, *robots.Snapshot) time.Duration { return d }
}

func TestPortsOfOneHostAreSpaced(t *testing.T) {
	for _, d := range []time.Duration{time.Second, 5 * time.Second} {
		t.Run(d.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var v visits
				c := newCache(t, robots.CacheOptions{Fetch: v.fetch, Spacing: every(d)})
				var all sync.WaitGroup
				for _, o := range []string{"http://a.example", "https://a.example", "http://a.example:8080", "http://a.example:8081"} {
					all.Go(func() { lookUp(t, c, mustOrigin(t, o)) })
				}
				all.Wait()
				if got, want := fmt.Sprint(v.gaps()), fmt.Sprint([]time.Duration{d, d, d}); got != want {
					t.Errorf("gaps between fetches for four origins of one host: %v, want %v", got, want)
				}
			})
		})
	}
}

// TestSpellingsOfOneHostAreSpaced holds that an address and its NAT64 form are one host.
func TestSpellingsOfOneHostAreSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v visits
		c := newCache(t, robots.CacheOptions{Fetch: v.fetch, Spacing: every(time.Second)})
		for _, o := range []string{"http://192.0.2.1", "http://[64:ff9b::c000:201]", "http://[::ffff:192.0.2.1]"} {
			lookUp(t, c, mustOrigin(t, o))
		}
		if got, want := fmt.Sprint(v.gaps()), "[1s]"; got != want {
			t.Errorf("gaps between the fetches: %v, want %v", got, want)
		}
	})
}

// TestSpacingOutlivesTheFetch asks for the second origin when nobody fetches from the host any more.
func TestSpacingOutlivesTheFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v visits
		c := newCache(t, robots.CacheOptions{Fetch: v.fetch, Spacing: every(10 * time.Second)})
		lookUp(t, c, mustOrigin(t, "http://a.example"))
		time.Sleep(4 * time.Second)
		lookUp(t, c, mustOrigin(t, "https://a.example"))
		time.Sleep(time.Minute)
		begin := time.Now()
		lookUp(t, c, mustOrigin(t, "http://a.example:8080"))
		if got := v.gaps(); got[0] != 10*time.Second || time.Since(begin) != time.Second {
			t.Errorf("gaps %v, the last after %v; want 10s, and no wait when that is over", got, time.Since(begin))
		}
	})
}

// TestOnlyOtherOriginsOfOneHostAreSpaced leaves alone those that ask one origin again, and other hosts.
func TestOnlyOtherOriginsOfOneHostAreSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v visits
		c := newCache(t, robots.CacheOptions{Fetch: v.fetch, Spacing: every(time.Minute)})
		a := mustOrigin(t, "http://a.example")
		begin := time.Now()
		lookUp(t, c, a)
		if _, err := c.Refresh(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		lookUp(t, c, mustOrigin(t, "http://b.example"))
		if got := time.Since(begin); got != 3*time.Second {
			t.Errorf("three fetches of a second took %v, want no wait between them", got)
		}
	})
}

// TestSpacingByTheFile asks for the spacing with what each fetch brought: the last one counts.
func TestSpacingByTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v visits
		c := newCache(t, robots.CacheOptions{Fetch: v.fetch, Spacing: func(o origin.Origin, s *robots.Snapshot) time.Duration {
			if s == nil || s.Origin != o {
				t.Errorf("Spacing(%s, %v), want with its Snapshot", o, s)
			}
			return time.Duration(o.Port()) * time.Second
		}})
		for _, port := range []int{7, 3, 5} {
			lookUp(t, c, mustOrigin(t, fmt.Sprintf("http://a.example:%d", port)))
		}
		if got, want := fmt.Sprint(v.gaps()), "[7s 3s]"; got != want {
			t.Errorf("gaps %s, want %s", got, want)
		}
	})
}

// TestSpacingThatIsTooLong has whoever would wait for longer than it may come back later, and the host is not asked.
func TestSpacingThatIsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v visits
		c := newCache(t, robots.CacheOptions{Fetch: v.fetch, Spacing: every(time.Hour), MaxWait: time.Minute})
		lookUp(t, c, mustOrigin(t, "http://a.example"))
		free := time.Now().Add(time.Hour)
		begin := time.Now()
		_, err := c.Snapshot(t.Context(), mustOrigin(t, "https://a.example"), robots.Asker{})
		var later *fetch.LaterError
		if !errors.As(err, &later) || !later.At.Equal(free) || time.Since(begin) != 0 {
			t.Errorf("Snapshot = %v after %v, want at once to come back at %v", err, time.Since(begin), free)
		}
		if len(v.seen) != 1 {
			t.Errorf("%d fetches, want 1", len(v.seen))
		}
		time.Sleep(time.Hour - time.Minute)
		lookUp(t, c, mustOrigin(t, "https://a.example"))
		if got := v.gaps(); got[0] != time.Hour {
			t.Errorf("gap %v, want an hour", got[0])
		}
	})
}

// TestSpacedWaitHoldsNoPlace has origins of one host wait while the only place is free for another host.
func TestSpacedWaitHoldsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v visits
		c := newCache(t, robots.CacheOptions{Fetch: v.fetch, Spacing: every(30 * time.Second), MaxFetches: 1})
		lookUp(t, c, mustOrigin(t, "http://a.example"))
		var all sync.WaitGroup
		all.Go(func() { lookUp(t, c, mustOrigin(t, "https://a.example")) })
		synctest.Wait()
		if got := c.Stats(); got.Fetching != 0 {
			t.Errorf("%+v, want no fetch", got)
		}
		begin := time.Now()
		lookUp(t, c, mustOrigin(t, "http://b.example"))
		if got := time.Since(begin); got != time.Second {
			t.Errorf("a look-up of another host took %v, want 1s", got)
		}
		all.Wait()
	})
}

// TestNothingSentIsNotSpaced has a paused host's older copy serve: nothing was sent that the next fetch would have to
// keep away from.
func TestNothingSentIsNotSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v visits
		pause := &paused{}
		c := newCache(t, robots.CacheOptions{Fetch: v.fetch, Paused: pause.of, Spacing: every(10 * time.Second)})
		a := mustOrigin(t, "http://a.example")
		lookUp(t, c, a)
		time.Sleep(2 * time.Hour)
		pause.until = time.Now().Add(time.Hour)
		if got := lookUp(t, c, a).State(); got != "stale" {
			t.Fatalf("in the pause: %s, want stale", got)
		}
		begin := time.Now()
		lookUp(t, c, mustOrigin(t, "https://a.example"))
		if got := time.Since(begin); got != time.Second {
			t.Errorf("the first fetch of another port took %v, want 1s", got)
		}
	})
}

// TestManySpacedPorts has a thousand ports of one host wait: as many as may, and the others hear that at once.
func TestManySpacedPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v visits
		c := newCache(t, robots.CacheOptions{Fetch: v.fetch, Spacing: every(time.Second)})
		lookUp(t, c, mustOrigin(t, "http://a.example"))
		var all sync.WaitGroup
		var busy atomic.Int32
		for port := range 1000 {
			all.Go(func() {
				switch _, err := c.Snapshot(t.Context(), mustOrigin(t, fmt.Sprintf("http://a.example:%d", 1000+port)), robots.Asker{}); {
				case errors.Is(err, robots.ErrBusy):
					busy.Add(1)
				case err != nil:
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if busy.Load() < 960 {
			t.Errorf("%d of 1000 were told at once that the line is full, want most", busy.Load())
		}
		all.Wait()
		for i, gap := range v.gaps() {
			if gap < time.Second {
				t.Errorf("gap %d is %v, want at least 1s", i, gap)
			}
		}
	})
}

// TestSpacedPortsTakeTurns has one client ask for ports of a host without end: another one that asks for one waits for
// one turn of the first, or two if one is under way.
func TestSpacedPortsTakeTurns(t *testing.T) {
	for name, elsewhere := range map[string]int{"idle": 0, "busy at other hosts": 50} {
		t.Run(name, func(t *testing.T) { testSpacedPortsTakeTurns(t, elsewhere) })
	}
}

// testSpacedPortsTakeTurns has the innocent client hold places for that many other hosts.
func testSpacedPortsTakeTurns(t *testing.T, elsewhere int) {
	synctest.Test(t, func(t *testing.T) {
		var v visits
		c := newCache(t, robots.CacheOptions{Spacing: every(time.Second), Fetch: func(ctx context.Context, r fetch.Request) (*robots.Answer, error) {
			if r.Origin.Host() != "a.example" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return v.fetch(ctx, r)
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range elsewhere {
			all.Go(func() {
				_, _ = c.Snapshot(ctx, mustOrigin(t, fmt.Sprintf("http://silent-%d.example", i)), robots.Asker{Client: "innocent"})
			})
		}
		for worker := range 30 {
			all.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					o := mustOrigin(t, fmt.Sprintf("http://a.example:%d", 1000+1000*worker+n))
					if _, err := c.Snapshot(ctx, o, robots.Asker{Client: "hostile"}); errors.Is(err, robots.ErrBusy) {
						time.Sleep(10 * time.Millisecond)
					}
				}
			})
		}
		time.Sleep(30*time.Second + time.Millisecond)
		for i := range 20 {
			begin := time.Now()
			o := mustOrigin(t, fmt.Sprintf("https://a.example:%d", 60000+i))
			if _, err := c.Snapshot(t.Context(), o, robots.Asker{Client: "innocent"}); err != nil {
				t.Fatal(err)
			}
			most := 6 * time.Second // two turns of two seconds, and its own
			if elsewhere > 0 {
				most = 8 * time.Second // three turns
			}
			if got := time.Since(begin); got > most {
				t.Errorf("look-up %d of the other client took %v", i, got)
			}
			time.Sleep(100 * time.Millisecond)
		}
		cancel()
		all.Wait()
	})
}

// TestSpacedHostOfAbandoned has a client leave that fetches from a host, while another one waits for it and for its
// Delay.
func TestSpacedHostOfAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, robots.CacheOptions{Spacing: every(time.Second), Fetch: func(ctx context.Context, r fetch.Request) (*robots.Answer, error) {
			if r.Origin.Scheme() == "http" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return slowly(ctx, r)
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _, _ = c.Snapshot(ctx, mustOrigin(t, "http://a.example"), robots.Asker{Client: "one"}) })
		synctest.Wait()
		begin := time.Now()
		all.Go(func() { lookUp(t, c, mustOrigin(t, "https://a.example")) })
		time.Sleep(time.Second)
		cancel()
		all.Wait()
		if got := time.Since(begin); got != 3*time.Second {
			t.Errorf("the other client waited for %v, want a second until the first left, one of Delay, and its own", got)
		}
	})
}
