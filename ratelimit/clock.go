package ratelimit

import (
	"math"
	"time"
)

// until returns how long a request with this delay must wait, if it is the next: 0 or less if it may start now. While it
// is held up by requests under way, that is when one of them gives the lane back at the latest.
func (ln *lane) until(now time.Time, delay time.Duration) time.Duration {
	rest := ln.restraint.rest(now)
	if ln.blocked(delay) {
		return max(rest, ln.soonestEnd(now))
	}
	return max(rest, ln.refill(now, delay))
}

// untilRide returns how long a request that rides must wait: for the host's pause, and for one under way to end.
func (ln *lane) untilRide(now time.Time) time.Duration {
	rest := ln.restraint.rest(now)
	if ln.blocked(0) {
		return max(rest, ln.soonestEnd(now))
	}
	return rest
}

// blocked reports whether a request with this delay must wait for one under way to end.
func (ln *lane) blocked(delay time.Duration) bool {
	if delay > 0 {
		return ln.flights.n > 0
	}
	limit := ln.limiter.rules().MaxConcurrent
	return limit > 0 && ln.flights.n >= limit
}

// refill returns how long it is until a request with this delay may start after the one before: the rest of its Delay, or
// without one the time until the bucket holds a token.
//
// The bucket counts in floating point; rounded up, the answer is never too soon, and too late by a nanosecond at most.
func (ln *lane) refill(now time.Time, delay time.Duration) time.Duration {
	if delay > 0 {
		return max(0, delay-now.Sub(ln.mark))
	}
	if ln.limiter.rules().DefaultDelay == 0 {
		return 0
	}
	ln.set(now)
	missing := 1 - ln.bucket.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(math.Ceil(missing / float64(ln.bucket.Limit()) * float64(time.Second)))
}

// set sets the bucket for DefaultDelay, which may have changed. It goes on with what it has, so a change makes no tokens.
func (ln *lane) set(now time.Time) {
	if o := ln.limiter.rules(); ln.bucket.Limit() != o.defaultLimit() || ln.bucket.Burst() != o.DefaultBurst {
		ln.bucket.SetLimitAt(now, o.defaultLimit())
		ln.bucket.SetBurstAt(now, o.DefaultBurst)
	}
}

// draw takes out of the bucket what a start costs: a token, or all of them where a Delay applies, so that a Delay that goes
// leaves no burst behind.
func (ln *lane) draw(now time.Time, spaced bool) {
	o := ln.limiter.rules()
	if o.DefaultDelay == 0 {
		return // the bucket says nothing
	}
	ln.set(now)
	if !spaced {
		ln.bucket.AllowN(now, 1)
		return
	}
	ln.bucket.SetBurstAt(now, 0) // which empties it
	ln.bucket.SetBurstAt(now, o.DefaultBurst)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
