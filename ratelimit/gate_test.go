package ratelimit

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	shared = netip.MustParseAddr("192.0.2.7")
	cdn    = netip.MustParseAddr("198.51.100.9")
)

// TestGate has ten hosts at one address ask at once, and again: their requests start a second apart, whatever the host.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{AddrDelay: time.Second, AddrExempt: []netip.Prefix{netip.PrefixFrom(cdn, 24)}})
		var mu sync.Mutex
		var starts []time.Time
		var all sync.WaitGroup
		begin := time.Now()
		for i := range 10 {
			for range 2 {
				all.Go(func() {
					g := acquire(t, l, Request{Key: fmt.Sprint(i), Client: "a", Delay: time.Second / 2, MaxWait: time.Hour, Addr: shared})
					mu.Lock()
					starts = append(starts, time.Now())
					mu.Unlock()
					if delay, source := g.Required(); g.Waited() > 0 && g.Waited() < 10*time.Second && (delay != time.Second || source != Address) {
						t.Errorf("a request that waited %v was held up by %v of %q, want a second of %q", g.Waited(), delay, source, Address)
					}
					time.Sleep(10 * time.Second) // longer than the gate's delay: a gate is not held
					g.Release(Outcome{})
				})
			}
		}
		all.Go(func() {
			time.Sleep(500 * time.Millisecond)
			send(t, l, Request{Key: "elsewhere", Client: "a"}, 0)
			send(t, l, Request{Key: "cdn1", Client: "a", Addr: cdn}, 0)
			send(t, l, Request{Key: "cdn2", Client: "a", Addr: cdn}, 0)
			if got := time.Since(begin); got != 500*time.Millisecond {
				t.Errorf("requests without a gate were served after %v, want at once", got)
			}
		})
		all.Wait()
		slices.SortFunc(starts, time.Time.Compare)
		for i := 1; i < len(starts); i++ {
			if gap := starts[i].Sub(starts[i-1]); gap < time.Second {
				t.Errorf("request %d started %v after the one before at this address, want a second", i, gap)
			}
		}
		if got := starts[9].Sub(begin); !in(got, 9*time.Second) {
			t.Errorf("ten requests of ten hosts took %v to start, want 9s", got)
		}
	})
}

// TestGateSlotsAreGivenBack has the head of a lane leave, and another's host paused, while they wait for their slots.
func TestGateSlotsAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{AddrDelay: time.Minute})
		r := Request{Client: "a", MaxWait: time.Hour, Addr: shared}
		ask := func(ctx context.Context, key string) (Grant, error) {
			r := r
			r.Key = key
			return l.Acquire(ctx, r)
		}
		if _, err := ask(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, key := range []string{"leaves", "paused"} {
			all.Go(func() { ask(ctx, key) })
			synctest.Wait()
		}
		if err := l.Stop("paused", time.Time{}); err != nil {
			t.Fatal(err)
		}
		cancel()
		all.Wait()
		g, err := ask(t.Context(), "last")
		if err != nil || !in(g.Waited(), time.Minute) {
			t.Errorf("behind two that did not take their slots the request waited %v (%v), want a minute", g.Waited(), err)
		}
		r.Key, r.MaxWait = "impatient", time.Second
		if we := turnedAway(t, l, r); we.Wait > time.Minute+1 || we.Wait < time.Minute-1 {
			t.Errorf("told to come back after %v, want a minute", we.Wait)
		}
	})
}

// TestGateSlotsThatWereMissed has a request wait for its slot, a kept place come before it in its lane, and another host's
// request come meanwhile: their starts are spaced all the same.
func TestGateSlotsThatWereMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{AddrDelay: 3 * time.Second})
		begin := time.Now()
		r := Request{Key: host, Client: "a", Delay: time.Second, Addr: shared}
		send(t, l, r, 0)
		r.Client = "away"
		turnedAway(t, l, r) // whose place is kept until the fourth second
		starts := []time.Duration{0}
		var mu sync.Mutex
		var all sync.WaitGroup
		ask := func(at time.Duration, key string) {
			all.Go(func() {
				time.Sleep(at)
				send(t, l, Request{Key: key, Client: "b", Delay: time.Second, MaxWait: time.Hour, Addr: shared}, 0)
				mu.Lock()
				defer mu.Unlock()
				starts = append(starts, time.Since(begin))
			})
		}
		ask(100*time.Millisecond, host)
		ask(3100*time.Millisecond, "b.example")
		all.Wait()
		for i := 1; i < len(starts); i++ {
			if gap := starts[i] - starts[i-1]; gap < 3*time.Second {
				t.Errorf("the starts at this address are %v, want 3s between any two", starts)
			}
		}
	})
}

func TestGatesAreSwept(t *testing.T) {
	l := newLimiter(t, Options{AddrDelay: time.Second})
	now := time.Now()
	addr := netip.MustParseAddr("10.0.0.0")
	for i := range 100_000 {
		now, addr = now.Add(10*time.Millisecond), addr.Next()
		if !l.passes(addr, now) || l.passes(addr, now) {
			t.Fatalf("gate %d does not let exactly one through", i)
		}
		if len(l.gates.of) > fewGates {
			t.Fatalf("%d gates are kept where a hundred are in use, want at most %d", len(l.gates.of), fewGates)
		}
	}
}
