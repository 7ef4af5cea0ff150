package ratelimit

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// until returns how long a request with this delay must wait, if it is the next: 0 or less if it may start now. While it
// is held up by requests under way, that is when the oldest of them gives the lane back at the latest.
func (ln *lane) until(now time.Time, delay time.Duration) time.Duration {
	rest := ln.restraint.rest(now)
	if ln.blocked(delay) {
		return max(rest, ln.flights.oldest.start.Add(ln.limiter.rules().ReleaseAfter).Sub(now))
	}
	return max(rest, ln.refill(now, delay))
}

// blocked reports whether a request with this delay must wait for one under way to end.
func (ln *lane) blocked(delay time.Duration) bool {
	if delay > 0 {
		return ln.flights.n > 0
	}
	limit := ln.limiter.rules().MaxConcurrent
	return limit > 0 && ln.flights.n >= limit
}

// refill returns how long the bucket, set for this delay, takes until it holds a token. Without any delay none is needed.
//
// The bucket counts in floating point; rounded up, the answer is never too soon, and too late by a nanosecond at most.
func (ln *lane) refill(now time.Time, delay time.Duration) time.Duration {
	if delay == 0 && ln.limiter.rules().DefaultDelay == 0 {
		return 0
	}
	ln.set(now, delay)
	missing := 1 - ln.bucket.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(math.Ceil(missing / float64(ln.bucket.Limit()) * float64(time.Second)))
}

// set sets the bucket for the delay of the request that is next, or for DefaultDelay.
//
// For a Delay that is one token, of which there was none at the mark. It is stated anew each time, because a bucket
// holds parts of a token and not moments: had 5 s of 10 s passed and were the bucket merely given the rate for a Delay of
// 60 s, it would be full after 35 s. For no Delay the bucket goes on with what it has, so a change never makes tokens.
func (ln *lane) set(now time.Time, delay time.Duration) {
	if delay > 0 {
		ln.spaced = true
		ln.bucket.SetLimitAt(ln.mark, rate.Every(delay))
		ln.bucket.SetBurstAt(ln.mark, 0) // which empties it
		ln.bucket.SetBurstAt(ln.mark, 1)
		return
	}
	o := ln.limiter.rules()
	if ln.spaced || ln.bucket.Limit() != o.defaultLimit() || ln.bucket.Burst() != o.DefaultBurst {
		ln.spaced = false
		ln.bucket.SetLimitAt(now, o.defaultLimit())
		ln.bucket.SetBurstAt(now, o.DefaultBurst)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
