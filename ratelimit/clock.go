package ratelimit

import "time"

// until returns how long a request with this delay must wait, if it is the next: 0 or less if it may start now. While it
// is held up by requests under way, that is when one of them gives the lane back at the latest.
func (ln *lane) until(now time.Time, delay time.Duration) time.Duration {
	rest := ln.restraint.rest(now)
	if ln.blocked(delay) {
		return max(rest, ln.soonestEnd(now))
	}
	return max(rest, ln.pacer.wait(delay, ln.limiter.rules(), now))
}

// blocked reports whether a request with this delay must wait for one under way to end.
func (ln *lane) blocked(delay time.Duration) bool {
	if delay > 0 {
		return ln.flights.n > 0
	}
	limit := ln.limiter.rules().MaxConcurrent
	return limit > 0 && ln.flights.n >= limit
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
