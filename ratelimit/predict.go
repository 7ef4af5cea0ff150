package ratelimit

import (
	"math"
	"time"
)

// endless is the longest wait there is.
const endless time.Duration = math.MaxInt64

// predictHere returns how long a request of client with this delay would wait at a place in the client's file: until the
// first before it may start, and then one step for each other before it, and for itself. Reservations, and requests of
// clients that are held back, count if their moment comes before it.
func (s *state) predictHere(now time.Time, client string, place int, delay time.Duration) time.Duration {
	took, held := s.takes(now), s.heldFor(client, now)
	if s.queue == nil {
		return max(held, s.expect(now, delay, took))
	}
	wait, first := s.expect(now, delay, took), true
	for w := range s.queue.ahead(client, place, took) {
		switch {
		case w.reserved(), s.heldBack(w.client, now):
		case first:
			wait, first = plus(s.expect(now, s.hold.delay(w.delay), took), s.step(delay, took)), false
		default:
			wait = plus(wait, s.step(s.hold.delay(w.delay), took))
		}
	}
	wait = max(wait, held)
	for w := range s.queue.ahead(client, place, took) {
		switch held := s.heldFor(w.client, now); {
		case w.reserved():
			if s.delayedBy(w, now.Add(wait)) {
				wait = plus(max(wait, w.due.Sub(now)), s.step(delay, took))
			}
		case held > 0 && held <= wait:
			wait = plus(wait, s.step(delay, took))
		}
	}
	return wait
}

// takes returns how long a request of this lane is likely to take. One that is under way for longer than usual is the
// better witness.
func (s *state) takes(now time.Time) time.Duration {
	if s.inflights.n == 0 {
		return s.avgDuration
	}
	return max(s.avgDuration, now.Sub(s.inflights.oldest.start))
}

// learn adds a request to the moving average, with a weight of one eighth. The first stands for all before it.
func (s *state) learn(took time.Duration) {
	if s.avgDuration == 0 {
		s.avgDuration = took
		return
	}
	s.avgDuration += (took - s.avgDuration) / 8
}

// expect returns how long a request with this delay would wait, if it is the next and a request takes took.
func (s *state) expect(now time.Time, delay, took time.Duration) time.Duration {
	return max(s.hold.pauseLeft(now), s.expectUnpaused(now, delay, took))
}

func (s *state) expectUnpaused(now time.Time, delay, took time.Duration) time.Duration {
	if !s.blocked(delay) {
		return s.pacer.wait(delay, &s.rules.Options, now)
	}
	if delay == 0 {
		return max(rest(s.inflights.oldest, now, took), s.pacer.wait(delay, &s.rules.Options, now))
	}
	rest := rest(s.inflights.newest, now, took)
	if s.rules.SpacingStart {
		return max(rest, s.pacer.wait(delay, &s.rules.Options, now))
	}
	return plus(rest, delay)
}

// rest returns how long f will go on, if it takes took.
func rest(f *inflight, now time.Time, took time.Duration) time.Duration {
	return max(0, f.start.Add(took).Sub(now))
}

// step returns the time from the start of one request to the start of the next, which has this delay.
func (s *state) step(delay, took time.Duration) time.Duration {
	o := s.rules
	switch {
	case delay == 0 && o.MaxConcurrent < 0:
		return o.DefaultDelay
	case delay == 0:
		return max(o.DefaultDelay, took/time.Duration(o.MaxConcurrent))
	case o.SpacingStart:
		return max(delay, took)
	default:
		return plus(delay, took)
	}
}

// reckon takes a slot of the ledger for r, and says how far away it is, and how long ago the request before was. Like a
// bucket, the ledger lets the requests of a burst start before their slots.
func (s *state) reckon(r Request, now time.Time) (wait, gap time.Duration, ok bool) {
	o := s.rules
	delay, burst := s.hold.delay(r.delay()), 1
	if delay == 0 {
		delay, burst = o.DefaultDelay, o.DefaultBurst
	}
	s.longest = max(s.longest, delay)
	s.expireOverdue(now)
	if gap = -1; !s.gapFrom.IsZero() {
		gap = now.Sub(s.gapFrom)
	}
	s.sent(r.delay(), now)

	slot := later(now, s.reports.last().Add(delay))
	wait = max(0, slot.Sub(now)-time.Duration(burst-1)*delay, s.hold.pauseLeftFor(r.Client, now))
	if wait > max(0, r.MaxWait) || delay > 0 && wait/delay >= time.Duration(o.MaxQueue) {
		return wait, gap, false
	}
	if s.reports == nil {
		s.reports = &reports{}
	}
	s.reports.slot = slot
	return wait, gap, true
}

// reports are the slots of the requests of one lane that were only reckoned.
type reports struct{ slot time.Time }

// last returns the last slot, the zero time if there is none.
func (rs *reports) last() time.Time {
	if rs == nil {
		return time.Time{}
	}
	return rs.slot
}

// sent notes a request that was sent without a Grant. Those already waiting for a turn are not put off by it. The lane has
// settled.
func (s *state) sent(delay time.Duration, now time.Time) {
	s.reportSent(delay)
	s.gapFrom = now
	s.moves++
	if s.queue.waiting() == 0 {
		s.pacer.countFrom(now)
	}
}

// plus returns a+b, or the longest duration there is. Neither is negative.
func plus(a, b time.Duration) time.Duration {
	if a > endless-b {
		return endless
	}
	return a + b
}
