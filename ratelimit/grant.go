package ratelimit

import (
	"sync/atomic"
	"time"
)

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

// Hear reports the response of the host before the request has ended, so that a 429 or 503 pauses the lane at once and
// not after the body was read. The lane then ignores the response in the Outcome of Release.
func (g Grant) Hear(o Outcome) {
	if g.IsZero() {
		return
	}
	g.lane.lock()
	defer g.lane.unlock()
	if g.valid() {
		g.lane.hear(g.inflight, o, time.Now())
	}
}

// Release ends the request. The Delay of the next request counts from this moment, or from o.Ended if that is earlier.
func (g Grant) Release(o Outcome) {
	if g.IsZero() {
		return
	}
	g.giveBack(func(now time.Time) {
		g.lane.hear(g.inflight, o, now)
		g.lane.release(g.inflight, o.end(g.start, now), now)
	})
}

// Cancel gives the Grant back as if Acquire had never returned it: no Delay counts from this request. Call it only if
// nothing was sent. After Options.ReleaseAfter the lane has already counted the request, and Cancel changes nothing.
func (g Grant) Cancel() {
	if g.IsZero() {
		return
	}
	g.giveBack(func(now time.Time) { g.lane.cancel(g.inflight, now) })
}

// giveBack calls move with the lane locked, unless g was given back before.
func (g Grant) giveBack(move func(now time.Time)) {
	g.lane.lock()
	valid := g.valid()
	if valid {
		move(time.Now())
	}
	g.lane.unlock()
	if valid {
		g.lane.limiter.recycle(g.inflight)
	}
}

// valid reports whether g was not given back. Afterwards another request reuses the inflight, under another number, so
// that a second Release does not end that request. The lane must be locked.
func (g Grant) valid() bool { return g.inflight.number.Load() == g.number }

// An inflight is a request between its start and the Release or Cancel of its Grant. The lock of its lane guards all
// fields but number.
type inflight struct {
	number atomic.Uint64 // changes when the Grant is given back
	terms
	client     string
	clientTime *ClientTime   // nil: its client cannot block it
	lease      *lease        // nil: the lane has no Coordinator
	spacing    time.Duration // its Delay or the floor, whichever is longer

	done               bool      // the lane no longer counts it: it has ended, was cancelled, or went on for ReleaseAfter
	overlaps           bool      // it has made room for other clients and still goes on: see overlap
	heard              bool      // the lane knows the response of the host
	delayFrom, gapFrom time.Time // of the lane before the start, for cancel
	moves              uint64    // of the lane after the start
	older, newer       *inflight // in the list of the lane
}

// grant returns the Grant of f, which has started.
func (f *inflight) grant(ln *lane) Grant {
	return Grant{lane: ln, inflight: f, number: f.number.Load(), terms: f.terms}
}

// newInflight returns an unused inflight.
func (l *Limiter) newInflight() *inflight {
	if f, ok := l.inflightPool.Get().(*inflight); ok {
		return f
	}
	return new(inflight)
}

// recycle keeps f for newInflight. No lane and no valid Grant may refer to it.
func (l *Limiter) recycle(f *inflight) {
	f.client, f.clientTime, f.lease = "", nil, nil // what they point to may be large
	l.inflightPool.Put(f)
}

// inflights is a linked list of the requests in flight in one lane, oldest first. Most lanes have none, so a list
// through the requests themselves takes less memory than a slice.
type inflights struct {
	oldest, newest *inflight
	n              int
}

func (fs *inflights) add(f *inflight) {
	f.older, f.newer = fs.newest, nil
	if f.older != nil {
		f.older.newer = f
	} else {
		fs.oldest = f
	}
	fs.newest = f
	fs.n++
}

func (fs *inflights) remove(f *inflight) {
	if f.older != nil {
		f.older.newer = f.newer
	} else {
		fs.oldest = f.newer
	}
	if f.newer != nil {
		f.newer.older = f.older
	} else {
		fs.newest = f.older
	}
	f.older, f.newer = nil, nil
	fs.n--
}
