package ratelimit

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// A pacer says how long the next request of a lane must wait, by two token buckets of x/time/rate.
//
// The first bucket is for requests with a Delay. It holds one token at most. It is empty at the moment from which a
// Delay counts, and full one Delay later. The Delay is the one of the request whose turn it is, and can differ from
// look to look, so each look sets the rate as of that moment. A bucket that filled at the rate of an earlier request
// would forget how much time has passed: full after a Delay of 1 s, it would let a request with a Delay of 60 s start.
// No token is taken or reserved: the bucket is emptied when a request starts or ends.
//
// The second bucket is for requests without a Delay, if there is a DefaultDelay. It holds DefaultBurst tokens at most,
// gains one every DefaultDelay, and each start takes one.
//
// The zero pacer lets no request with a Delay start. If no request was sent yet, a Delay counts from the zero time.
type pacer struct {
	delayFrom time.Time     // when the first bucket was emptied
	spaced    rate.Limiter  // the first bucket
	starts    *rate.Limiter // the second bucket; nil: full, or not in use
}

// countFrom makes a Delay count from the moment t, which may be earlier than the present one.
func (p *pacer) countFrom(t time.Time) {
	p.delayFrom = t
	p.spaced.SetBurstAt(t, 0) // drops the token
	p.spaced.SetBurstAt(t, 1)
}

// wait returns how long a request with this Delay must wait, 0 if it need not.
func (p *pacer) wait(delay time.Duration, o *Options, now time.Time) time.Duration {
	switch {
	case delay > 0:
		return p.waitSpaced(delay, now)
	case o.DefaultDelay > 0:
		missing := 1 - p.defaults(o, now).TokensAt(now)
		return time.Duration(max(0, math.Ceil(missing*float64(o.DefaultDelay))))
	}
	return 0
}

// waitSpaced returns the rest of a Delay: never less, and at most a microsecond more.
//
// A bucket counts its token in float64, so its reading may be wrong by up to 2^-50 of the Delay. Of a Delay below 2^49
// ns (6.5 days) that is less than half a nanosecond, which rounding removes. A longer Delay is counted in whole
// microseconds.
func (p *pacer) waitSpaced(delay time.Duration, now time.Time) time.Duration {
	unit := time.Nanosecond
	if delay >= 1<<49 {
		unit = time.Microsecond
	}
	units := (delay + unit - 1) / unit
	p.spaced.SetLimitAt(p.delayFrom, rate.Every(units*unit))
	part := now.Sub(p.delayFrom) % unit
	missing := 1 - p.spaced.TokensAt(now.Add(-part))
	return max(0, time.Duration(math.Round(missing*float64(units)))*unit-part)
}

// start takes from the second bucket what the start of a request costs: a token, or all tokens if the request has a
// Delay, so that no burst follows such a request.
func (p *pacer) start(spaced bool, o *Options, now time.Time) {
	if o.DefaultDelay == 0 {
		return
	}
	b := p.defaults(o, now)
	if spaced {
		b.SetBurstAt(now, 0)
		b.SetBurstAt(now, o.DefaultBurst)
		return
	}
	b.AllowN(now, 1)
}

// undoStart returns the token of a request without a Delay that was not sent.
func (p *pacer) undoStart(o *Options, now time.Time) {
	if o.DefaultDelay > 0 {
		p.defaults(o, now).AllowN(now, -1) // a Reservation could not be cancelled after its time has come
	}
}

// full reports whether the second bucket is full.
func (p *pacer) full(now time.Time) bool {
	return p.starts == nil || p.starts.TokensAt(now) >= float64(p.starts.Burst())
}

// tokens returns the content of the second bucket, or nil if that is not in use.
func (p *pacer) tokens(now time.Time) *float64 {
	if p.starts == nil {
		return nil
	}
	n := p.starts.TokensAt(now)
	return &n
}

// adoptTokens sets the content of the second bucket to n, rounded down, if it is in use and has more.
func (p *pacer) adoptTokens(n float64, o *Options, now time.Time) {
	if o.DefaultDelay == 0 {
		return
	}
	b := p.defaults(o, now)
	if more := int(math.Ceil(b.TokensAt(now) - n)); more > 0 {
		b.AllowN(now, more)
	}
}

// defaults returns the second bucket. If the options have changed, it keeps its tokens, so a change adds no tokens.
func (p *pacer) defaults(o *Options, now time.Time) *rate.Limiter {
	limit := rate.Every(o.DefaultDelay)
	if p.starts == nil {
		p.starts = rate.NewLimiter(limit, o.DefaultBurst)
	}
	if p.starts.Limit() != limit || p.starts.Burst() != o.DefaultBurst {
		p.starts.SetLimitAt(now, limit)
		p.starts.SetBurstAt(now, o.DefaultBurst)
	}
	return p.starts
}
