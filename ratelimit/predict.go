package ratelimit

import (
	"math"
	"time"
)

// endless is the longest wait.
const endless time.Duration = math.MaxInt64

// predictHere predicts the wait of the request at a position among those of client, without other instances: the wait
// of the first request that is served before it, a step for each other one, and a step for itself. Reservations and
// requests of clients that are held back count only if they can start before it.
func (s *state) predictHere(now time.Time, client string, position int, delay time.Duration) time.Duration {
	took, held := s.expectedDuration(now), s.heldFor(client, now)
	if s.queue == nil {
		return max(held, s.headWait(now, delay, took))
	}
	own := s.rules.step(delay, took)
	wait, first := s.headWait(now, delay, took), true
	for w := range s.queue.ahead(client, position, took) {
		switch {
		case w.reserved(), s.heldBack(w.client, now):
		case first:
			wait, first = plus(s.headWait(now, s.hold.delay(w.delay), took), own), false
		default:
			wait = plus(wait, s.rules.step(s.hold.delay(w.delay), took))
		}
	}
	wait = max(wait, held)
	for w := range s.queue.ahead(client, position, took) {
		switch held := s.heldFor(w.client, now); {
		case w.reserved():
			if s.delayedBy(w, now.Add(wait)) {
				wait = plus(max(wait, w.due.Sub(now)), own)
			}
		case held > 0 && held <= wait:
			wait = plus(wait, own)
		}
	}
	return wait
}

// expectedDuration returns how long a request is expected to take: the average, or the age of the oldest request in
// flight if that is more.
func (s *state) expectedDuration(now time.Time) time.Duration {
	if s.inflights.n == 0 {
		return s.avgDuration
	}
	return max(s.avgDuration, now.Sub(s.inflights.oldest.start))
}

// average returns the moving average after another request has taken the time took. Each request has a weight of one
// eighth, but the first stands for all before it.
func average(avg, took time.Duration) time.Duration {
	if avg == 0 {
		return took
	}
	return avg + (took-avg)/8
}

// headWait predicts the wait of the next request, if it has this Delay and a request takes the time took.
func (s *state) headWait(now time.Time, delay, took time.Duration) time.Duration {
	wait := s.pacer.wait(delay, &s.rules.Options, now)
	if s.busy(delay) {
		switch {
		case delay == 0:
			wait = max(wait, rest(s.inflights.oldest, now, took))
		case s.rules.SpacingStart:
			wait = max(wait, rest(s.inflights.newest, now, took))
		default:
			wait = plus(rest(s.inflights.newest, now, took), delay)
		}
	}
	return max(wait, s.hold.pauseLeft(now))
}

// rest returns how much longer f goes on, if it takes the time took.
func rest(f *inflight, now time.Time, took time.Duration) time.Duration {
	return max(0, f.start.Add(took).Sub(now))
}

// step returns the time between the start of a request that takes the time took, and the start of the next, which has
// this Delay.
func (r *rules) step(delay, took time.Duration) time.Duration {
	switch {
	case delay == 0 && r.MaxConcurrent < 0:
		return r.DefaultDelay
	case delay == 0:
		return max(r.DefaultDelay, took/time.Duration(r.MaxConcurrent))
	case r.SpacingStart:
		return max(delay, took)
	default:
		return plus(delay, took)
	}
}

// plus returns a+b, or endless if that overflows. Neither may be negative.
func plus(a, b time.Duration) time.Duration {
	if a > endless-b {
		return endless
	}
	return a + b
}
