package ratelimit

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestConcurrentMoves has clients come and leave at one lane while an operator stops, slows and lifts it and the
// options change, with real goroutines: at most one request is in flight, and none starts in a lane that is stopped.
func TestConcurrentMoves(t *testing.T) {
	l := newLimiter(t, Options{})
	var inFlight, started atomic.Int64
	visit := func(client string) {
		ctx, cancel := context.WithTimeout(context.Background(), rand.N(5*time.Millisecond))
		defer cancel()
		r := Request{Key: host, Client: client, Delay: rand.N(200*time.Microsecond) + 1, MaxWait: time.Hour}
		g, err := l.Acquire(ctx, r)
		if err != nil {
			return
		}
		started.Add(1)
		if n := inFlight.Add(1); n > 1 {
			t.Errorf("%d requests with a Delay are in flight", n)
		}
		time.Sleep(rand.N(50 * time.Microsecond))
		inFlight.Add(-1)
		if rand.N(4) == 0 {
			g.Cancel()
		} else {
			g.Release(Outcome{Status: 200})
		}
	}
	end := time.Now().Add(300 * time.Millisecond)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for time.Now().Before(end) {
				visit(string(rune('a' + i%5)))
			}
		})
	}
	all.Go(func() {
		for time.Now().Before(end) {
			if err := l.Reload(Options{MaxQueue: 1 + rand.N(100)}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Millisecond)
		}
	})
	stops := 0
	for time.Now().Before(end) {
		for _, err := range []error{l.SetFloor(host, rand.N(time.Millisecond)), l.Stop(host, time.Time{})} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for v, _ := l.Peek(host); v.InFlight > 0; v, _ = l.Peek(host) {
			time.Sleep(10 * time.Microsecond)
		}
		before := started.Load()
		time.Sleep(2 * time.Millisecond)
		if after := started.Load(); after != before {
			t.Errorf("%d requests have started in a lane that is stopped", after-before)
		}
		if err := l.Lift(host); err != nil {
			t.Fatal(err)
		}
		stops++
		time.Sleep(2 * time.Millisecond)
	}
	all.Wait()
	if stops == 0 || started.Load() == 0 {
		t.Errorf("%d stops and %d starts, want some of each", stops, started.Load())
	}
	if got := l.Stats(); got.Waiting != 0 {
		t.Errorf("Stats() = %+v after all clients have left, want Waiting 0", got)
	}
	if v, _ := l.Peek(host); v.InFlight != 0 || v.Waiting != 0 {
		t.Errorf("Peek() = %+v after all clients have left", v)
	}
}

// TestTrim has requests wait: a sweep frees what the lane needed for that, but not while a request is in flight.
func TestTrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Delay: time.Hour, MaxWait: 2 * time.Hour}
		send(t, l, r, 0)
		g := acquire(t, l, r)
		ln := l.find(host)
		if sweepAll(l); ln.out == nil {
			t.Error("the sweep has freed the outbox of a lane with a request in flight")
		}
		g.Release(Outcome{})
		if sweepAll(l); ln.out != nil {
			t.Error("the outbox of a lane without requests was not freed")
		}
		if got := send(t, l, r, 0); !in(got, time.Hour) {
			t.Errorf("after that, the next request waited %v, want 1h", got)
		}
	})
}
