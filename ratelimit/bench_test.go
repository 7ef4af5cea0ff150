package ratelimit

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"
)

func BenchmarkAcquireRelease(b *testing.B) {
	for _, bench := range []struct {
		name  string
		keys  int
		delay time.Duration
	}{
		{"one lane", 1, 0},
		{"one lane with a delay", 1, 1}, // a nanosecond, which has passed before the next round
		{"10,000 lanes", 10_000, 0},
	} {
		b.Run(bench.name, func(b *testing.B) {
			l := newLimiter(b, Options{})
			keys := make([]string, bench.keys)
			for i := range keys {
				keys[i] = fmt.Sprintf("host-%d.example", i)
			}
			ctx, n := context.Background(), 0
			b.ReportAllocs()
			for b.Loop() {
				g, err := l.Acquire(ctx, Request{Key: keys[n%len(keys)], Client: "a", Delay: bench.delay, MaxWait: time.Second})
				if err != nil {
					b.Fatal(err)
				}
				g.Release(Outcome{Status: 200})
				n++
			}
		})
	}
}

// TestAcquireAllocatesNothing starts a thousand requests without a wait.
func TestAcquireAllocatesNothing(t *testing.T) {
	l := newLimiter(t, Options{})
	for _, delay := range []time.Duration{0, 1} {
		got := testing.AllocsPerRun(1000, func() {
			g, err := l.Acquire(t.Context(), Request{Key: "a.example", Client: "a", Delay: delay, MaxWait: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			g.Release(Outcome{Status: 200})
		})
		if got != 0 && !raceEnabled { // under the race detector a sync.Pool drops what it is given now and then
			t.Errorf("Acquire and Release with the Delay %v allocate %v times, want never", delay, got)
		}
	}
}

func BenchmarkAcquireReleaseParallel(b *testing.B) {
	l := newLimiter(b, Options{MaxConcurrent: -1})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			g, err := l.Acquire(context.Background(), Request{Key: "a.example"})
			if err != nil {
				b.Fatal(err)
			}
			g.Release(Outcome{Status: 200})
		}
	})
}

func BenchmarkReckon(b *testing.B) {
	l := newLimiter(b, Options{})
	b.ReportAllocs()
	for b.Loop() {
		l.Reckon(Request{Key: "a.example", Delay: time.Second, MaxWait: time.Minute})
	}
}

// BenchmarkTurnAway is the worst case of the prediction: a full queue, with one request of each client.
func BenchmarkTurnAway(b *testing.B) {
	l := newLimiter(b, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	const places = 1001
	for i := range places {
		go func() {
			l.Acquire(ctx, Request{Key: "a.example", Client: strconv.Itoa(i), Delay: time.Hour, MaxWait: 1 << 62})
			done <- struct{}{}
		}()
	}
	defer func() {
		cancel()
		for range places - 1 {
			<-done
		}
	}()
	<-done // the one that did not wait
	for l.Stats().Waiting < places-1 {
		runtime.Gosched()
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Acquire(ctx, Request{Key: "a.example", Client: "late", Delay: time.Hour, MaxWait: 1}); err == nil {
			b.Fatal("a full queue let a request in")
		}
	}
}

// bytesPerLane returns the memory of each of n idle lanes, including the key and the entry in the map.
func bytesPerLane(tb testing.TB, n int) float64 {
	l := newLimiter(tb, Options{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range n {
		g, err := l.Acquire(context.Background(), Request{Key: fmt.Sprintf("www.host-%d.example.com", i), Delay: time.Hour})
		if err != nil {
			tb.Fatal(err)
		}
		g.Release(Outcome{Status: 200})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if got := l.Stats().Lanes; got != n {
		tb.Fatalf("Stats().Lanes = %d, want %d", got, n)
	}
	return float64(after.HeapAlloc-before.HeapAlloc) / float64(n)
}

func BenchmarkIdleLane(b *testing.B) {
	const n = 200_000
	for b.Loop() {
		b.ReportMetric(bytesPerLane(b, n), "B/lane")
	}
}

func TestMemoryOfAnIdleLane(t *testing.T) {
	if got := bytesPerLane(t, 20_000); got > 400 {
		t.Errorf("an idle lane costs %.0f bytes, want at most 400", got)
	}
}
