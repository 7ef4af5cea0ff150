package ratelimit

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// checkWait compares p's wait with integer arithmetic: nothing is early, and nothing more than a microsecond late.
func checkWait(tb rapid.TB, p *pacer, delay time.Duration, now time.Time) time.Duration {
	tb.Helper()
	want := max(0, delay-now.Sub(p.delayFrom))
	got := p.wait(delay, &Options{}, now)
	if got < want || got > want+time.Microsecond {
		tb.Fatalf("%v after the moment from which the Delay %v counts: wait = %v, want %v, and at most 1µs more",
			now.Sub(p.delayFrom), delay, got, want)
	}
	return got
}

// drawDelay draws a Delay of 1 ms to 365 days. Each order of magnitude is as likely as any other.
func drawDelay(t *rapid.T) time.Duration {
	shortest, longest := float64(time.Millisecond), float64(longestDelay)
	d := shortest * math.Pow(longest/shortest, rapid.Float64Range(0, 1).Draw(t, "delay"))
	return min(time.Duration(d), longestDelay)
}

// TestPacer has requests with changing Delays look at a pacer, start, end and be cancelled at any moment.
func TestPacer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, now := new(pacer), time.Now()
		p.countFrom(time.Time{})
		if got := checkWait(t, p, longestDelay, now); got != 0 {
			t.Fatalf("the first request waits %v", got)
		}
		earlier := p.delayFrom
		t.Repeat(map[string]func(*rapid.T){
			"look": func(t *rapid.T) {
				delay := drawDelay(t)
				checkWait(t, p, delay, now)
				part := time.Duration(rapid.Float64Range(0, 1.1).Draw(t, "part") * float64(delay))
				now = now.Add(part)
				checkWait(t, p, delay, now)
			},
			"wait": func(t *rapid.T) {
				delay := drawDelay(t)
				now = now.Add(checkWait(t, p, delay, now))
				if got := p.wait(delay, &Options{}, now); got != 0 {
					t.Fatalf("after its wait, a request with the Delay %v has to wait another %v", delay, got)
				}
			},
			"start": func(*rapid.T) {
				earlier = p.delayFrom
				p.countFrom(now)
			},
			"cancel": func(*rapid.T) { p.countFrom(earlier) },
		})
	})
}

// TestPacerAtTheLastNanosecond looks at a pacer around the end of Delays of all lengths, where rounding errors show.
func TestPacerAtTheLastNanosecond(t *testing.T) {
	now := time.Now()
	for range 200_000 {
		p := new(pacer)
		p.countFrom(now)
		delay := time.Duration(float64(time.Millisecond) * math.Pow(float64(longestDelay/time.Millisecond), rand.Float64()))
		end := now.Add(delay)
		for _, early := range []time.Duration{1, 0, time.Duration(rand.N(100)), rand.N(delay)} {
			got := checkWait(t, p, delay, end.Add(-early))
			if delay < 1<<49 && got != early {
				t.Fatalf("%v before the end of the Delay %v: wait = %v, want exactly that", early, delay, got)
			}
		}
	}
}

// A bucket that filled at the rate of the request before would let the second one start after a second.
func TestPacerForgetsNoTime(t *testing.T) {
	p, now := new(pacer), time.Now()
	p.countFrom(now)
	now = now.Add(time.Second)
	if got := p.wait(time.Second, &Options{}, now); got != 0 {
		t.Errorf("after 1s, a request with the Delay 1s waits %v", got)
	}
	if got := p.wait(time.Minute, &Options{}, now); got != 59*time.Second {
		t.Errorf("after 1s, a request with the Delay 1m waits %v, want 59s", got)
	}
	if got := p.wait(time.Second, &Options{}, now); got != 0 {
		t.Errorf("then a request with the Delay 1s waits %v", got)
	}
}
