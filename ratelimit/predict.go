package ratelimit

import (
	"math"
	"time"
)

// endless is the longest wait there is.
const endless time.Duration = math.MaxInt64

// predictHere returns how long a request of client with this delay would wait at a place in the client's file: until the
// first before it may start, and then one step for each other before it, and for itself. Kept places, and requests of
// clients that are held back, count if their moment comes before it.
func (ln *lane) predictHere(now time.Time, client string, place int, delay time.Duration) time.Duration {
	took, held := ln.takes(now), ln.heldFor(client, now)
	if ln.queue == nil {
		return max(held, ln.expect(now, delay, took))
	}
	wait, first := ln.expect(now, delay, took), true
	for w := range ln.queue.ahead(client, place, took) {
		switch {
		case w.kept(), ln.heldBack(w.client, now):
		case first:
			wait, first = plus(ln.expect(now, ln.restraint.delay(w.delay), took), ln.step(delay, took)), false
		default:
			wait = plus(wait, ln.step(ln.restraint.delay(w.delay), took))
		}
	}
	wait = max(wait, held)
	for w := range ln.queue.ahead(client, place, took) {
		switch held := ln.heldFor(w.client, now); {
		case w.kept():
			if ln.wants(w, now.Add(wait)) {
				wait = plus(max(wait, w.due.Sub(now)), ln.step(delay, took))
			}
		case held > 0 && held <= wait:
			wait = plus(wait, ln.step(delay, took))
		}
	}
	return wait
}

// takes returns how long a request of this lane is likely to take. One that is under way for longer than usual is the
// better witness.
func (ln *lane) takes(now time.Time) time.Duration {
	if ln.flights.n == 0 {
		return ln.avgDuration
	}
	return max(ln.avgDuration, now.Sub(ln.flights.oldest.start))
}

// learn adds a request to the moving average, with a weight of one eighth. The first stands for all before it.
func (ln *lane) learn(took time.Duration) {
	if ln.avgDuration == 0 {
		ln.avgDuration = took
		return
	}
	ln.avgDuration += (took - ln.avgDuration) / 8
}

// expect returns how long a request with this delay would wait, if it is the next and a request takes took.
func (ln *lane) expect(now time.Time, delay, took time.Duration) time.Duration {
	return max(ln.restraint.rest(now), ln.expectUnpaused(now, delay, took))
}

func (ln *lane) expectUnpaused(now time.Time, delay, took time.Duration) time.Duration {
	if !ln.blocked(delay) {
		return ln.pacer.wait(delay, ln.limiter.rules(), now)
	}
	if delay == 0 {
		return max(rest(ln.flights.oldest, now, took), ln.pacer.wait(delay, ln.limiter.rules(), now))
	}
	rest := rest(ln.flights.newest, now, took)
	if ln.limiter.rules().SpacingStart {
		return max(rest, ln.pacer.wait(delay, ln.limiter.rules(), now))
	}
	return plus(rest, delay)
}

// rest returns how long f will go on, if it takes took.
func rest(f *flight, now time.Time, took time.Duration) time.Duration {
	return max(0, f.start.Add(took).Sub(now))
}

// step returns the time from the start of one request to the start of the next, which has this delay.
func (ln *lane) step(delay, took time.Duration) time.Duration {
	o := ln.limiter.rules()
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
func (ln *lane) reckon(r Request, now time.Time) (wait, gap time.Duration, ok bool) {
	o := ln.limiter.rules()
	delay, burst := ln.restraint.delay(r.delay()), 1
	if delay == 0 {
		delay, burst = o.DefaultDelay, o.DefaultBurst
	}
	ln.longest = max(ln.longest, delay)
	ln.settle(now)
	if gap = -1; !ln.gapFrom.IsZero() {
		gap = now.Sub(ln.gapFrom)
	}
	ln.sent(now)

	slot := later(now, ln.reports.last().Add(delay))
	wait = max(0, slot.Sub(now)-time.Duration(burst-1)*delay, ln.restraint.restFor(r.Client, now))
	if wait > max(0, r.MaxWait) || delay > 0 && wait/delay >= time.Duration(o.MaxQueue) {
		return wait, gap, false
	}
	if ln.reports == nil {
		ln.reports = &reports{}
	}
	ln.reports.slot = slot
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
func (ln *lane) sent(now time.Time) {
	ln.gapFrom = now
	ln.moves++
	if ln.queue.waiting() == 0 {
		ln.pacer.countFrom(now)
	}
}

// plus returns a+b, or the longest duration there is. Neither is negative.
func plus(a, b time.Duration) time.Duration {
	if a > endless-b {
		return endless
	}
	return a + b
}
