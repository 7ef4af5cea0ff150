package ratelimit

import "time"

// A Source names the cause of a wait or a pause, other than the Delay of the request itself. The audit records it as
// delay_source.
type Source string

const (
	Floor      Source = "floor"         // an operator's least Delay: see Limiter.SetFloor
	Backoff    Source = "backoff"       // the host answered 429 or 503 and named no time
	RetryAfter Source = "retry-after"   // the host named a time
	Default    Source = "default-delay" // Options.DefaultDelay
)

// A Grant is the right to send one request. The caller must give it back: by Release after the request has ended, or by
// Cancel if nothing was sent. The first call counts. Later calls do nothing, and neither do calls on copies of the
// Grant.
//
// All methods are safe for concurrent use. The zero Grant gives no right, and its methods do nothing.
type Grant struct {
	lane     *lane
	inflight *inflight
	number   uint64 // of inflight when this Grant was made: see valid
	terms
}

// terms describe the wait for a Grant. They do not change.
type terms struct {
	start     time.Time
	waited    time.Duration
	gap       time.Duration
	delay     time.Duration // the longest Delay that applied
	source    Source        // of delay; empty: the request
	mode      Mode
	hasGap    bool
	overtaken bool // the gap is shorter than the delay
	fromStart bool // the delay counts from the start of the previous request
}

// IsZero reports whether g is the zero Grant.
func (g Grant) IsZero() bool { return g.inflight == nil }

// Waited returns how long Acquire waited.
func (g Grant) Waited() time.Duration { return g.waited }

// Gap returns the time between the previous request of the lane and the start of this one. The result is false if the
// lane remembers no previous request. The time counts from the end of the previous request, or from its start if it has
// not ended, if it was passed to Limiter.Reckon, or if Options.SpacingStart is set.
func (g Grant) Gap() (time.Duration, bool) { return g.gap, g.hasGap }

// Required returns the Gap that the lane had to keep, and its cause: the empty Source if that was the Delay of the
// request. If the cause is Default, the Gap may be less, since DefaultDelay spaces starts and allows bursts.
func (g Grant) Required() (time.Duration, Source) { return g.delay, g.source }

// Mode returns how the request was paced: ModeLocal, unless Options.Coordinator is set.
func (g Grant) Mode() Mode {
	if g.IsZero() {
		return ModeLocal
	}
	return g.mode
}

// Overtaken reports whether the Gap is less than Required because a request that was passed to Limiter.Reckon was sent
// while this one waited.
func (g Grant) Overtaken() bool { return g.overtaken }

// SpacedFromStart reports whether Required counts from the start of the previous request, as with Options.SpacingStart.
func (g Grant) SpacedFromStart() bool { return g.fromStart }

// Sent reports that the request is sent now. With Options.SpacingStart, the Delay of the next request counts from this
// moment, since the caller may have waited after Acquire, as for the disk; otherwise Sent does nothing.
func (g Grant) Sent() {
	if g.IsZero() || !g.fromStart {
		return
	}
	g.lane.lock()
	defer g.lane.unlock()
	if g.valid() && g.inflight.remote == 0 {
		g.lane.sentLater(g.inflight, time.Now())
	}
}

// Hear reports the response of the host before the request has ended, so that a 429 or 503 pauses the lane at once and
// not after the body was read. The lane then ignores the response in the Outcome of Release.
func (g Grant) Hear(o Outcome) {
	if g.IsZero() {
		return
	}
	g.lane.lock()
	id := uint64(0)
	if g.valid() {
		if id = g.inflight.remote; id == 0 {
			g.lane.hear(g.inflight, o, time.Now())
		}
	}
	g.lane.unlock()
	if id != 0 {
		g.lane.limiter.successor.Load().tell(message{Op: opHear, ID: id, Outcome: o})
	}
}

// Release ends the request. The Delay of the next request counts from this moment, or from o.Ended if that is earlier.
// Release returns the moment when the lane stopped counting the request, which is earlier after Options.ReleaseAfter, or
// if its client has blocked it. It returns the zero time if another process has the lane, and after the first call.
func (g Grant) Release(o Outcome) (released time.Time) {
	if g.IsZero() {
		return time.Time{}
	}
	g.giveBack(func(now time.Time) {
		g.lane.hear(g.inflight, o, now)
		released = g.lane.release(g.inflight, o.end(g.start, now), now)
	}, func(s *successor, id uint64) { s.release(id, o) })
	return released
}

// Cancel gives the Grant back as if Acquire had never returned it: no Delay counts from this request. Call it only if
// nothing was sent. After Options.ReleaseAfter the lane has already counted the request, and Cancel changes nothing.
func (g Grant) Cancel() {
	if g.IsZero() {
		return
	}
	g.giveBack(
		func(now time.Time) { g.lane.cancel(g.inflight, now) },
		func(s *successor, id uint64) { s.tell(message{Op: opCancel, ID: id}) },
	)
}

// giveBack calls move with the lane locked, unless g was given back before. If another process has the lane, it calls
// tell instead.
func (g Grant) giveBack(move func(now time.Time), tell func(s *successor, id uint64)) {
	g.lane.lock()
	if !g.valid() {
		g.lane.unlock()
		return
	}
	id := g.inflight.remote
	if id == 0 {
		move(time.Now())
	} else {
		g.inflight.number.Add(1)
	}
	g.lane.unlock()
	if id != 0 {
		tell(g.lane.limiter.successor.Load(), id)
	}
	g.lane.limiter.recycle(g.inflight)
}

// valid reports whether g was not given back. Afterwards another request reuses the inflight, under another number, so
// that a second Release does not end that request. The lane must be locked.
func (g Grant) valid() bool { return g.inflight.number.Load() == g.number }

// grant returns the Grant of f, which has started.
func (f *inflight) grant(ln *lane) Grant {
	return Grant{lane: ln, inflight: f, number: f.number.Load(), terms: f.terms}
}
