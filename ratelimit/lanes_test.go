package ratelimit

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// sweepAll sweeps every lane once.
func sweepAll(l *Limiter) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(time.Now(), len(l.ring.lanes))
	return len(l.lanes)
}

// TestIdleLanes checks when a lane becomes idle: a sweep a moment earlier does not drop it.
func TestIdleLanes(t *testing.T) {
	for _, test := range []struct {
		name    string
		options Options
		use     func(t *testing.T, l *Limiter)
		kept    time.Duration
	}{
		{"no delay", Options{}, func(t *testing.T, l *Limiter) {
			send(t, l, Request{Key: host}, 0)
		}, time.Minute},
		{"a short delay", Options{}, func(t *testing.T, l *Limiter) {
			send(t, l, Request{Key: host, Delay: time.Second}, 0)
		}, time.Minute},
		{"a long delay", Options{}, func(t *testing.T, l *Limiter) {
			send(t, l, Request{Key: host, Delay: time.Hour}, time.Second)
		}, time.Hour},
		{"a long delay of a rejected request", Options{}, func(t *testing.T, l *Limiter) {
			send(t, l, Request{Key: host}, 0)
			turnedAway(t, l, Request{Key: host, Delay: time.Hour})
		}, time.Hour + longestGrace}, // a place is kept
		{"in flight", Options{ReleaseAfter: time.Hour}, func(t *testing.T, l *Limiter) {
			acquire(t, l, Request{Key: host})
		}, time.Hour + time.Minute},
		{"a bucket to fill", Options{DefaultDelay: time.Minute, DefaultBurst: 10}, func(t *testing.T, l *Limiter) {
			for range 10 {
				send(t, l, Request{Key: host}, 0)
			}
		}, 10 * time.Minute},
		{"reckoned", Options{}, func(t *testing.T, l *Limiter) {
			for range 10 {
				l.Reckon(Request{Key: host, Delay: time.Minute, MaxWait: time.Hour})
			}
		}, 10 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, test.options)
				test.use(t, l)
				time.Sleep(test.kept - time.Microsecond)
				if got := sweepAll(l); got != 1 {
					t.Errorf("the lane was dropped before %v had passed", test.kept)
				}
				time.Sleep(2 * time.Microsecond)
				if got := sweepAll(l); got != 0 {
					t.Errorf("the lane was not dropped after %v", test.kept)
				}
			})
		})
	}
}

// TestLaneUnderWay has a request take longer than an idle lane lasts.
func TestLaneUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{ReleaseAfter: time.Hour})
		g := acquire(t, l, Request{Key: host, Delay: time.Second})
		time.Sleep(30 * time.Minute)
		if got := sweepAll(l); got != 1 {
			t.Errorf("a lane with a request in flight was dropped")
		}
		g.Release(Outcome{})
	})
}

// TestLaneDroppedWhenFound drops a lane between the moments in which another goroutine finds and locks it. If the
// goroutine finds it too late, the test checks nothing, but does not fail.
func TestLaneDroppedWhenFound(t *testing.T) {
	l := newLimiter(t, Options{})
	old, err := l.lane(host)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *lane)
	go func() {
		ln, _ := l.lane(host)
		ln.mu.Unlock()
		got <- ln
	}()
	time.Sleep(5 * time.Millisecond)
	l.mu.Lock()
	old.dropped = true
	delete(l.lanes, host)
	l.ring.remove(old)
	l.mu.Unlock()
	old.mu.Unlock()
	ln := <-got
	if ln == old || ln != l.lanes[host] {
		t.Errorf("lane(%q) is not the lane in the Limiter", host)
	}
}

func TestMaxLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{MaxLanes: 3})
		for _, key := range []string{"a", "b", "c"} {
			send(t, l, Request{Key: key, Delay: time.Second}, 0)
		}
		if _, err := l.Acquire(t.Context(), Request{Key: "d"}); !errors.Is(err, ErrTooManyLanes) {
			t.Errorf("Acquire of a fourth lane: %v, want %v", err, ErrTooManyLanes)
		}
		if _, _, ok := l.Reckon(Request{Key: "d"}); ok {
			t.Errorf("Reckon of a fourth lane = true, want false")
		}
		send(t, l, Request{Key: "a", Delay: 2 * time.Minute, MaxWait: time.Hour}, 0)
		time.Sleep(time.Minute)
		send(t, l, Request{Key: "d"}, 0)
		if we := turnedAway(t, l, Request{Key: "a", Delay: 2 * time.Minute}); !in(we.Wait, time.Minute) {
			t.Errorf("the wait at the lane with a debt is %v, want 1m", we.Wait)
		}
	})
}

// TestLanesAreSwept uses a new key each second for two hours: the lanes of old ones are dropped.
func TestLanesAreSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, most := newLimiter(t, Options{}), 0
		for i := range 7200 {
			send(t, l, Request{Key: fmt.Sprint(i), Delay: time.Second}, 0)
			time.Sleep(time.Second)
			most = max(most, l.Stats().Lanes)
		}
		// Sixty lanes are not idle; the sweep visits each lane every 64 seconds.
		if most > 3*sweepEvery {
			t.Errorf("there were up to %d lanes, want at most %d", most, 3*sweepEvery)
		}
		if got := sweepAll(l); got > 60 {
			t.Errorf("%d lanes, want at most 60", got)
		}
	})
}

// TestLanesAreSweptByTime makes many lanes, and then no calls: the memory of those that are idle is freed. The timer
// stops after the last lane, and begins again with the next one.
func TestLanesAreSweptByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lanes = 20_000
		l := newLimiter(t, Options{})
		send(t, l, Request{Key: "slow", Delay: time.Hour}, 0)
		for round := range 2 {
			before := liveHeap()
			for i := range lanes {
				send(t, l, Request{Key: fmt.Sprint(i)}, 0)
			}
			full := liveHeap() - before
			time.Sleep(remembered + sweepPause + time.Second)
			if got := l.Stats().Lanes; got != 1 {
				t.Errorf("round %d: %d lanes are left, want the one with an hour's Delay", round, got)
			}
			if left := liveHeap() - before; left > full/10 {
				t.Errorf("round %d: %d bytes of %d are not freed", round, left, full)
			}
		}
		time.Sleep(time.Hour)
		if got := l.Stats().Lanes; got != 0 || l.sweeper != nil {
			t.Errorf("%d lanes are left, and the timer is %v; want 0, nil", got, l.sweeper)
		}
		send(t, l, Request{Key: host}, 0)
		time.Sleep(remembered + sweepPause + time.Second)
		if got := l.Stats().Lanes; got != 0 {
			t.Errorf("%d lanes are left after the timer had stopped, want 0", got)
		}
	})
}

// TestNoSweepAfterClose closes a Limiter that has lanes.
func TestNoSweepAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		send(t, l, Request{Key: "a"}, 0)
		l.Close()
		send(t, l, Request{Key: "b"}, 0)
		time.Sleep(time.Hour)
		if got := l.Stats().Lanes; got != 2 {
			t.Errorf("%d lanes are left, want 2: the timer goes on", got)
		}
	})
}

// liveHeap returns the bytes of the objects on the heap that are in use.
func liveHeap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the first one may have begun before the last allocation
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestSweepWhileInUse drops and makes lanes in many goroutines, on the real clock, for the race detector. Each lane
// has one request in flight at a time; two would show that a lane in use was dropped.
func TestSweepWhileInUse(t *testing.T) {
	l := newLimiter(t, Options{ReleaseAfter: 24 * time.Hour}) // which does not seem long ago
	var busy [4]sync.Mutex
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 200 {
				k := (i + j) % len(busy)
				g, err := l.Acquire(t.Context(), Request{Key: fmt.Sprint(k), Client: fmt.Sprint(i), Delay: 1, MaxWait: time.Hour})
				if err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				if !busy[k].TryLock() {
					t.Errorf("two requests of lane %d are in flight", k)
				} else {
					runtime.Gosched()
					busy[k].Unlock()
				}
				g.Release(Outcome{})
				l.mu.Lock()
				l.sweep(time.Now().Add(2*time.Minute), len(busy)) // as if all were long ago
				l.mu.Unlock()
			}
		})
	}
	all.Wait()
	checkAtRest(t, l, 8*200)
}
