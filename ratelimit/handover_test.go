package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// handOver passes the lanes of from to a new Limiter, and returns it.
func handOver(t *testing.T, from *Limiter, o Options) *Limiter {
	t.Helper()
	to := newLimiter(t, o)
	here, there := net.Pipe()
	taken := make(chan error, 1)
	go func() { taken <- to.TakeOver(there) }()
	if err := from.HandOver(here); err != nil {
		t.Fatalf("HandOver: %v", err)
	}
	if err := <-taken; err != nil {
		t.Fatalf("TakeOver: %v", err)
	}
	return to
}

// joined returns a site with the visits of sites, whose limiters were one.
func joined(sites ...*site) *site {
	all := &site{limiter: sites[0].limiter}
	for _, s := range sites {
		all.visits = append(all.visits, s.visits...)
	}
	return all
}

// Requests are in flight, wait and come while the lanes move twice. Each is sent, at the pace of one Limiter.
func TestHandOver(t *testing.T) {
	for _, o := range []Options{{}, {SpacingStart: true}, {DefaultDelay: 20 * time.Millisecond, DefaultBurst: 3}} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { handOverTwice(t, o) })
		})
	}
}

func handOverTwice(t *testing.T, o Options) {
	const undelayed = "undelayed.example"
	limiters := []*Limiter{newLimiter(t, o), nil, nil}
	sites := map[string][]*site{}
	rng := rand.New(rand.NewPCG(1, 2))
	var all sync.WaitGroup
	come := func(l *Limiter) {
		for key, delay := range map[string]time.Duration{host: 100 * time.Millisecond, undelayed: 0} {
			s := &site{limiter: l}
			sites[key] = append(sites[key], s)
			for i := range 50 {
				r := Request{Key: key, Client: fmt.Sprint(i % 7), Delay: delay, MaxWait: time.Hour}
				took, pause := time.Duration(rng.IntN(50))*time.Millisecond, time.Duration(rng.IntN(3000))*time.Millisecond
				all.Go(func() {
					time.Sleep(pause)
					if err := s.visit(t.Context(), r, took); err != nil {
						t.Errorf("Acquire(%+v): %v", r, err)
					}
				})
			}
		}
	}
	come(limiters[0])
	for i := range 2 {
		time.Sleep(time.Second)
		limiters[i+1] = handOver(t, limiters[i], o)
		come(limiters[i+1])
	}
	all.Wait()
	synctest.Wait() // the messages
	for key, parts := range sites {
		together := joined(parts...)
		if len(together.visits) != 150 {
			t.Errorf("%d requests for %s were sent, want 150", len(together.visits), key)
		}
		together.check(t)
	}
	for i, l := range limiters {
		if v, _ := l.Peek(host); v.InFlight != 0 || v.Waiting != 0 {
			t.Errorf("the lane that Limiter %d sees: %+v, want no requests", i, v)
		}
		if p := l.predecessor.Load(); p != nil {
			<-p.ended
		}
		l.Close()
	}
}

// A request that waits keeps its turn, ahead of one that comes to the other process later.
func TestHandOverKeepsTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newLimiter(t, Options{})
		defer old.Close()
		r := Request{Key: host, Client: "a", Delay: time.Second, MaxWait: time.Hour}
		first, err := old.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		var order []int
		var mu sync.Mutex
		var all sync.WaitGroup
		send := func(l *Limiter, i int) {
			all.Go(func() {
				g, err := l.Acquire(t.Context(), r)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				g.Release(Outcome{})
			})
			synctest.Wait()
		}
		send(old, 0)
		send(old, 1)
		next := handOver(t, old, Options{})
		defer next.Close()
		send(next, 2)
		send(old, 3)
		first.Release(Outcome{})
		all.Wait()
		if fmt.Sprint(order) != "[0 1 2 3]" {
			t.Errorf("the requests were sent in the order %v", order)
		}
	})
}

// What holds a lane back moves with it: a pause, a pause of one client, a floor, a stop, a reservation.
func TestHandOverOfHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newLimiter(t, Options{})
		defer old.Close()
		for key, o := range map[string]Outcome{
			"paused.example":    {Status: 503, RetryAfter: time.Minute},
			"ofclient.example":  {Status: 429, RetryAfter: time.Minute, Credentials: true},
			"throttled.example": {Status: 503},
		} {
			g, err := old.Acquire(t.Context(), Request{Key: key, Client: "a"})
			if err != nil {
				t.Fatal(err)
			}
			g.Release(o)
		}
		old.Hear("throttled.example", "a", Outcome{Status: 503})
		slow := Request{Key: "reserved.example", Client: "a", Delay: 10 * time.Second}
		g, err := old.Acquire(t.Context(), slow)
		if err != nil {
			t.Fatal(err)
		}
		g.Release(Outcome{})
		if _, err := old.Acquire(t.Context(), slow); err == nil {
			t.Fatal("a second request did not have to wait")
		}
		if err := errors.Join(old.SetFloor("floor.example", time.Second), old.Stop("stopped.example", time.Time{})); err != nil {
			t.Fatal(err)
		}
		next := handOver(t, old, Options{})
		defer next.Close()
		for _, l := range []*Limiter{old, next} {
			if until := l.Paused("paused.example"); time.Until(until) != time.Minute {
				t.Errorf("the pause has %v left, want a minute", time.Until(until))
			}
			if err := l.Stopped("stopped.example"); err == nil {
				t.Error("the stop is lost")
			}
			if _, err := l.Acquire(t.Context(), Request{Key: "stopped.example"}); !errors.As(err, new(*StoppedError)) {
				t.Errorf("Acquire of a stopped key: %v", err)
			}
			if v, _ := l.Peek("floor.example"); v.Floor != time.Second {
				t.Errorf("the floor is %v, want a second", v.Floor)
			}
			var wait *WaitError
			if _, err := l.Acquire(t.Context(), Request{Key: "ofclient.example", Client: "a"}); !errors.As(err, &wait) || !wait.OneClient {
				t.Errorf("Acquire of the paused client: %v", err)
			}
		}
		if g, err := next.Acquire(t.Context(), Request{Key: "ofclient.example", Client: "b"}); err != nil {
			t.Errorf("Acquire of a client that is not paused: %v", err)
		} else {
			g.Release(Outcome{})
		}
		if next.Hear("throttled.example", "a", Outcome{Status: 503}); next.Paused("throttled.example").IsZero() {
			t.Error("the third 503 began no pause: the first two were forgotten")
		}
		time.Sleep(10 * time.Second)
		if _, err := next.Acquire(t.Context(), Request{Key: slow.Key, Client: "b", Delay: slow.Delay}); err == nil {
			t.Error("another client got the reserved place")
		}
		if g, err := next.Acquire(t.Context(), slow); err != nil {
			t.Errorf("the client did not get the place that was reserved for it: %v", err)
		} else {
			g.Release(Outcome{})
		}
	})
}

// Requests outside of the pace are reckoned by the other process too.
func TestReckonAfterHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newLimiter(t, Options{})
		defer old.Close()
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Hour}
		old.Reckon(r)
		next := handOver(t, old, Options{})
		defer next.Close()
		if wait, gap, ok := old.Reckon(r); wait != 10*time.Second || gap != 0 || !ok {
			t.Errorf("Reckon = %v, %v, %v; want 10s, 0s, true", wait, gap, ok)
		}
		old.Hear(host, "a", Outcome{Status: 503, RetryAfter: time.Hour})
		synctest.Wait()
		if next.Paused(host).IsZero() {
			t.Error("the pause is lost")
		}
	})
}

// If the other process fails before it has adopted all lanes, the old one goes on.
func TestHandOverFails(t *testing.T) {
	for name, fail := range map[string]func(net.Conn){
		"it ends at once":    func(c net.Conn) { c.Close() },
		"it ends later":      func(c net.Conn) { c.Read(make([]byte, 10)); c.Close() },
		"it reads nothing":   func(net.Conn) {},
		"it does not answer": func(c net.Conn) { io.Copy(io.Discard, c) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &site{limiter: newLimiter(t, Options{})}
				r := Request{Key: host, Client: "a", Delay: time.Second, MaxWait: time.Hour}
				first, err := s.limiter.Acquire(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				var all sync.WaitGroup
				for range 10 {
					all.Go(func() {
						if err := s.visit(t.Context(), r, 100*time.Millisecond); err != nil {
							t.Error(err)
						}
					})
				}
				synctest.Wait()
				here, there := net.Pipe()
				go fail(there)
				if err := s.limiter.HandOver(here); err == nil {
					t.Error("HandOver succeeded")
				}
				there.Close()
				first.Release(Outcome{})
				time.Sleep(3500 * time.Millisecond)
				next := handOver(t, s.limiter, Options{}) // now it succeeds
				all.Wait()
				s.check(t)
				if len(s.visits) != 10 {
					t.Errorf("%d requests were sent, want 10", len(s.visits))
				}
				s.limiter.Close()
				next.Close()
			})
		})
	}
}

// If the old process ends without a word, its requests have ended, and its places go to others.
func TestPredecessorEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: time.Second, MaxWait: time.Hour}
		if _, err := old.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		var waits sync.WaitGroup
		for range 3 {
			waits.Go(func() {
				var gone *UnavailableError
				if _, err := old.Acquire(t.Context(), r); !errors.As(err, &gone) {
					t.Errorf("Acquire in the old process: %v, want an UnavailableError", err)
				}
			})
		}
		synctest.Wait()
		next := handOver(t, old, Options{})
		time.Sleep(5 * time.Second)
		ended := time.Now()
		old.Close()
		waits.Wait()
		<-next.predecessor.Load().ended
		if v, _ := next.Peek(host); v.Waiting != 0 || v.InFlight != 0 {
			t.Errorf("the lane is %+v, want no requests", v)
		}
		g, err := next.Acquire(t.Context(), r)
		if err != nil || time.Since(ended) != time.Second {
			t.Errorf("the next request started %v after the end, %v; want 1s", time.Since(ended), err)
		}
		g.Release(Outcome{})
		next.Close()
	})
}

// If the new process ends, the old one sends no more requests: it does not know the pace.
func TestSuccessorEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newLimiter(t, Options{})
		defer old.Close()
		r := Request{Key: host, Client: "a", Delay: time.Second, MaxWait: time.Hour}
		g, err := old.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		next := handOver(t, old, Options{})
		next.Close()
		if _, err := old.Acquire(t.Context(), r); !errors.As(err, new(*UnavailableError)) {
			t.Errorf("Acquire: %v, want an UnavailableError", err)
		}
		if _, _, ok := old.Reckon(r); ok {
			t.Error("Reckon knows a wait")
		}
		g.Release(Outcome{})
	})
}

// Clients leave while their requests wait, at the moment of the hand-over and after it.
func TestLeaveAfterHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newLimiter(t, Options{})
		s := &site{limiter: old}
		ctx, cancel := context.WithCancel(t.Context())
		r := Request{Key: host, Client: "a", Delay: time.Second, MaxWait: time.Hour}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				by := ctx
				if i%2 == 0 {
					by = t.Context()
				}
				if err := s.visit(by, r, 10*time.Millisecond); err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		time.Sleep(1500 * time.Millisecond)
		go cancel()
		next := handOver(t, old, Options{})
		all.Go(func() { s.visit(ctx, r, 0) })
		leave, cancelLater := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancelLater()
		all.Go(func() { s.visit(leave, r, 0) })
		all.Wait()
		synctest.Wait()
		s.check(t)
		if v, _ := next.Peek(host); v.Waiting != 0 || v.InFlight != 0 {
			t.Errorf("the lane is %+v, want no requests", v)
		}
		if n := len(s.visits); n < 10 || n > 13 {
			t.Errorf("%d requests were sent, want the 10 that stayed and those before", n)
		}
		old.Close()
		next.Close()
	})
}
