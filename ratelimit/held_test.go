package ratelimit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// blocked acquires r, and has its client block it from the start on.
func blocked(t *testing.T, l *Limiter, r Request) (Grant, *ClientTime) {
	t.Helper()
	r.ClientTime = new(ClientTime)
	g := acquire(t, l, r)
	r.ClientTime.Begin()
	return g, r.ClientTime
}

// A client blocks its request: another client waits for one second and its Delay, and the overlap is recorded. If no
// other client waits, the blocked request holds the lane to its end.
func TestBlockedRequestGivesTheLaneBack(t *testing.T) {
	for _, delay := range []time.Duration{0, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, Options{MaxConcurrent: 1})
			r := Request{Key: host, Client: "a", Delay: delay, MaxWait: time.Hour}
			other := r
			other.Client = "b"
			g, held := blocked(t, l, r)
			if got, want := send(t, l, other, time.Second), time.Second+delay; got != want {
				t.Errorf("with the delay %v the other client waited %v, want %v", delay, got, want)
			}
			if !held.Overlapped() {
				t.Errorf("with the delay %v the overlap is not known", delay)
			}
			time.Sleep(5 * time.Second)
			held.End(0)
			g.Release(Outcome{Status: 200})
			if got, want := send(t, l, other, 0), max(0, delay-5*time.Second); got != want {
				t.Errorf("with the delay %v the other client waited %v after the end of the blocked request, want %v", delay, got, want)
			}

			time.Sleep(minute)
			g, held = blocked(t, l, r)
			time.Sleep(5 * time.Second)
			held.End(0)
			g.Release(Outcome{Status: 200})
			if got := send(t, l, other, 0); got != delay || held.Overlapped() {
				t.Errorf("with the delay %v and no other client: the next waited %v, overlap %v; want the delay and no overlap", delay, got, held.Overlapped())
			}
		})
	}
}

// The Delay counts from the end of the blocked second, also if the next request comes later.
func TestDelayCountsFromTheBlockedSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Hour}
		other := r
		other.Client = "b"
		blocked(t, l, r)
		time.Sleep(4 * time.Second)
		if got := send(t, l, other, 0); got != 7*time.Second {
			t.Errorf("a request three seconds after the blocked second waited %v, want 7s", got)
		}
	})
}

// Waits for the client add up, except for those shorter than the least.
func TestBlockedNowAndThen(t *testing.T) {
	for _, test := range []struct {
		least, want time.Duration
	}{
		{0, 10 * time.Second},
		{100 * time.Millisecond, 10 * time.Second},
		{101 * time.Millisecond, 20 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, Options{MaxConcurrent: 1})
			r := Request{Key: host, Client: "a", MaxWait: time.Hour, ClientTime: new(ClientTime)}
			other := r
			other.Client, other.ClientTime = "b", nil
			g := acquire(t, l, r)
			go func() {
				for range 20 {
					time.Sleep(900 * time.Millisecond)
					r.ClientTime.Begin()
					time.Sleep(100 * time.Millisecond)
					r.ClientTime.End(test.least)
				}
				g.Release(Outcome{Status: 200})
			}()
			if got := send(t, l, other, 0); got < test.want || got > test.want+100*time.Millisecond {
				t.Errorf("at least %v: the other client waited %v, want %v", test.least, got, test.want)
			}
			time.Sleep(minute)
		})
	}
}

// For its own client, a blocked request holds the lane until its end or for ReleaseAfter, and without a Delay one place
// of MaxConcurrent. Other clients have their turns meanwhile.
func TestBlockedRequestHoldsBackItsOwnClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: time.Second, MaxWait: time.Hour}
		other := r
		other.Client = "b"
		begin := time.Now()
		blocked(t, l, r)
		var all sync.WaitGroup
		all.Go(func() {
			send(t, l, r, 0)
			if got, want := time.Since(begin), 30*time.Second; got < want || got > want+2*time.Second {
				t.Errorf("the next request of the client started after %v, want %v or a turn of the other later", got, want)
			}
		})
		synctest.Wait()
		for i := range 28 {
			if got, want := send(t, l, other, 0), time.Second; i > 0 && got != want {
				t.Errorf("request %d of the other client waited %v, want %v", i, got, want)
			}
		}
		all.Wait()
	})
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{MaxConcurrent: 2})
		r := Request{Key: host, Client: "a", MaxWait: time.Hour}
		other := r
		other.Client = "b"
		g, _ := blocked(t, l, r)
		blocked(t, l, r)
		if got := send(t, l, other, 0); got != time.Second {
			t.Errorf("the other client waited %v, want 1s", got)
		}
		if got := send(t, l, other, 0); got != 0 {
			t.Errorf("the other client waited %v later, want 0s", got)
		}
		time.AfterFunc(5*time.Second, func() { g.Release(Outcome{Status: 200}) })
		if got := send(t, l, r, 0); got != 5*time.Second {
			t.Errorf("the client waited %v for a place of its own, want 5s", got)
		}
	})
}

// After the end of its blocked request, a client keeps its Delay, but not the length of a pause before that request.
func TestDelayAfterABlockedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: 5 * time.Second, MaxWait: time.Hour}
		other := r
		other.Client = "b"
		acquire(t, l, r).Release(Outcome{Status: 503, RetryAfter: minute})
		g, held := blocked(t, l, r)
		send(t, l, other, 0)
		time.Sleep(4 * time.Second)
		held.End(0)
		g.Release(Outcome{Status: 200})
		if got := send(t, l, r, 0); !held.Overlapped() || got != r.Delay {
			t.Errorf("overlap %v; the next request of the client waited %v, want %v from the end of the blocked one", held.Overlapped(), got, r.Delay)
		}
		time.Sleep(minute)
		if got := sweepAll(l); got != 0 {
			t.Errorf("%d lanes are kept, want none", got)
		}
	})
}

// A flood of blocked requests costs the other clients one second and one Delay for each ReleaseAfter.
func TestBlockedFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = time.Second
		l := newLimiter(t, Options{})
		ctx, stop := context.WithCancel(t.Context())
		var flood sync.WaitGroup
		for range 20 {
			flood.Go(func() {
				r := Request{Key: host, Client: "a", Delay: delay, MaxWait: time.Hour, ClientTime: new(ClientTime)}
				g, err := l.Acquire(ctx, r)
				if err != nil {
					return
				}
				r.ClientTime.Begin()
				<-ctx.Done()
				r.ClientTime.End(0)
				g.Release(Outcome{})
			})
		}
		synctest.Wait()
		late := 0
		const n = 100
		for i := range n {
			if got := send(t, l, Request{Key: host, Client: "b", Delay: delay, MaxWait: time.Hour}, 20*time.Millisecond); got > delay {
				t.Logf("request %d waited %v", i, got)
				late++
			}
		}
		if late > n/20 {
			t.Errorf("%d of %d requests waited for longer than the delay, want one in half a minute", late, n)
		}
		stop()
		flood.Wait()
	})
}

// turns has each client ask again as soon as it is served. It returns how often each was served, and the order.
func turns(t *testing.T, l *Limiter, delay, lasts time.Duration, took map[string]time.Duration) (served map[string]int, order []string) {
	t.Helper()
	served = make(map[string]int)
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	for client, took := range took {
		all.Go(func() {
			for {
				g, err := l.Acquire(ctx, Request{Key: host, Client: client, Delay: delay, MaxWait: time.Hour})
				if err != nil {
					return
				}
				mu.Lock()
				served[client]++
				order = append(order, client)
				mu.Unlock()
				time.Sleep(took)
				g.Release(Outcome{Status: 200})
			}
		})
	}
	all.Wait()
	return served, order
}

// Clients hold the lane for about the same time in the end, but each gets one turn after 32 of another client at least.
func TestTurnsAreFairByHeldTime(t *testing.T) {
	for _, test := range []struct {
		name   string
		took   map[string]time.Duration
		ratios map[string][2]float64 // of a client's turns to those of client a
	}{
		{"equal", map[string]time.Duration{"a": 20 * time.Millisecond, "b": 20 * time.Millisecond, "c": 20 * time.Millisecond}, map[string][2]float64{"b": {0.97, 1.03}, "c": {0.97, 1.03}}},
		{"about equal", map[string]time.Duration{"a": 20 * time.Millisecond, "b": 25 * time.Millisecond}, map[string][2]float64{"b": {0.97, 1.03}}},
		{"twice", map[string]time.Duration{"a": time.Second, "b": 2 * time.Second}, map[string][2]float64{"b": {0.45, 0.55}}},
		{"nine times", map[string]time.Duration{"a": 100 * time.Millisecond, "b": 900 * time.Millisecond}, map[string][2]float64{"b": {0.1, 0.13}}},
		{"two quick ones", map[string]time.Duration{"a": 100 * time.Millisecond, "b": 900 * time.Millisecond, "c": 100 * time.Millisecond}, map[string][2]float64{"b": {0.1, 0.14}, "c": {0.97, 1.03}}},
		{"a thousand times", map[string]time.Duration{"a": 10 * time.Millisecond, "b": 10 * time.Second}, map[string][2]float64{"b": {1. / 34, 1. / 30}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, Options{})
				served, _ := turns(t, l, 10*time.Millisecond, time.Hour, test.took)
				for client, want := range test.ratios {
					if got := float64(served[client]) / float64(served["a"]); got < want[0] || got > want[1] {
						t.Errorf("%s had %d turns and a %d: %.3f of those, want %.3f to %.3f", client, served[client], served["a"], got, want[0], want[1])
					}
				}
			})
		})
	}
}

// A new client takes turns with the others, and gains nothing from its absence.
func TestNewcomerTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 30*minute)
		defer cancel()
		var all sync.WaitGroup
		var mu sync.Mutex
		var order []string
		work := func(client string) {
			all.Go(func() {
				for {
					g, err := l.Acquire(ctx, Request{Key: host, Client: client, Delay: time.Second, MaxWait: time.Hour})
					if err != nil {
						return
					}
					mu.Lock()
					order = append(order, client)
					mu.Unlock()
					time.Sleep(500 * time.Millisecond)
					g.Release(Outcome{Status: 200})
				}
			})
		}
		work("a")
		work("b")
		time.Sleep(10 * minute)
		mu.Lock()
		since := len(order)
		mu.Unlock()
		work("new")
		all.Wait()
		counts := make(map[string]int)
		for _, client := range order[since : since+30] {
			counts[client]++
		}
		for _, client := range []string{"a", "b", "new"} {
			if counts[client] < 9 || counts[client] > 11 {
				t.Errorf("of 30 turns after the newcomer came %s had %d, want a third: %v", client, counts[client], counts)
			}
		}
	})
}

// A client that once held the lane for a long time has its next turn after 32 of the other client, and normal turns
// after that.
func TestOldDebtEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{ReleaseAfter: time.Hour})
		r := Request{Key: host, Client: "a", Delay: time.Second, MaxWait: 10 * time.Hour}
		g := acquire(t, l, r)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var served atomic.Int64
		all.Go(func() {
			for {
				g, err := l.Acquire(ctx, Request{Key: host, Client: "b", Delay: time.Second, MaxWait: 10 * time.Hour})
				if err != nil {
					return
				}
				served.Add(1)
				g.Release(Outcome{Status: 200})
			}
		})
		time.Sleep(30 * minute)
		g.Release(Outcome{Status: 200})
		for i, want := range []int64{32, 1, 1} {
			before := served.Load()
			send(t, l, r, 0)
			if got := served.Load() - before; got < want-1 || got > want+1 {
				t.Errorf("turn %d of the client that held the lane for half an hour came after %d of the other, want %d", i, got, want)
			}
		}
		cancel()
		all.Wait()
	})
}

// A client keeps its debt while it is absent.
func TestDebtOfAClientThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: time.Second, MaxWait: time.Hour}
		other := r
		other.Client = "b"
		g := acquire(t, l, r)
		var all sync.WaitGroup
		var served atomic.Int64
		all.Go(func() {
			for range 30 {
				send(t, l, other, 100*time.Millisecond)
				served.Add(1)
			}
		})
		time.Sleep(3 * time.Second)
		g.Release(Outcome{Status: 200})
		time.Sleep(1050 * time.Millisecond) // the other one is served, and the queue is empty
		send(t, l, r, 0)
		if got := served.Load(); got < 20 || got > 29 {
			t.Errorf("the client had its next turn after %d of the other, want some 27", got)
		}
		all.Wait()
	})
}

// The number of debts is bounded, and they end a minute after the last turn if the queue is empty.
func TestDebtsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{MaxQueue: 10})
		ctx, cancel := context.WithCancel(t.Context())
		var waits sync.WaitGroup
		g := acquire(t, l, Request{Key: host, Client: "first", Delay: time.Second, MaxWait: time.Hour})
		waits.Go(func() {
			_, _ = l.Acquire(ctx, Request{Key: host, Client: "waits", Delay: time.Hour, MaxWait: 10 * time.Hour})
		})
		synctest.Wait()
		g.Release(Outcome{Status: 200})
		ln := l.find(host)
		for i := range 1000 {
			ln.mu.Lock()
			ln.debts.charge(fmt.Sprint("client-", i), time.Duration(i)*time.Millisecond, 10, time.Now())
			n := len(ln.debts.until)
			ln.mu.Unlock()
			if n > 10 {
				t.Fatalf("%d debts are remembered, want 10 at most", n)
			}
		}
		cancel()
		waits.Wait()
		ln.mu.Lock()
		if ln.queue != nil || ln.debts == nil {
			t.Errorf("queue %v, debts %v; want the debts alone at first", ln.queue, ln.debts)
		}
		ln.mu.Unlock()
		time.Sleep(2 * time.Hour)
		sweepAll(l)
		ln.mu.Lock()
		defer ln.mu.Unlock()
		if ln.debts != nil {
			t.Error("debts are kept although the queue was empty for long")
		}
	})
}

// Predicted waits take the debts into account.
func TestForeseenWithDebts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = time.Second
		l := newLimiter(t, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		g := acquire(t, l, Request{Key: host, Client: "a", Delay: delay})
		for range 5 {
			all.Go(func() { _, _ = l.Acquire(ctx, Request{Key: host, Client: "b", Delay: delay, MaxWait: time.Hour}) })
		}
		synctest.Wait()
		time.Sleep(5 * time.Second)
		g.Release(Outcome{Status: 200})
		ln := l.find(host)
		ln.mu.Lock()
		ln.avgDuration = 100 * time.Millisecond
		owes, new := ln.predict(time.Now(), "a", 0, delay), ln.predict(time.Now(), "c", 0, delay)
		ln.mu.Unlock()
		if owes < 6*delay || new > 3*delay {
			t.Errorf("predicted waits: %v for the client that has held the lane for 5 s, %v for a new one; want all five requests before the one, and one before the other", owes, new)
		}
		cancel()
		all.Wait()
	})
}

// An instance gives its lease back after the blocked second although no other client waits in it.
func TestSharedBlockedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, in := newClub(t, 2, time.Millisecond)
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Hour}
		time.Sleep(time.Second)
		g, held := blocked(t, in[0], r)
		other := r
		other.Client = "b"
		if got, want := send(t, in[1], other, 0), 11*time.Second; got < want || got > want+100*time.Millisecond {
			t.Errorf("a client of another instance waited %v, want %v", got, want)
		}
		if !held.Overlapped() {
			t.Error("the overlap is not known")
		}
		held.End(0)
		g.Release(Outcome{Status: 200})
	})
}

func BenchmarkClientTime(b *testing.B) {
	var c ClientTime
	b.ReportAllocs()
	for b.Loop() {
		c.Begin()
		c.End(time.Millisecond)
	}
}
