package ratelimit

import (
	"sync/atomic"
	"time"
)

// A Source says what a request was held up by, beyond its own Delay. The words are those of the audit's delay_source.
type Source string

const (
	Floor      Source = "floor"         // an operator's: SetFloor
	Backoff    Source = "backoff"       // the host pushed back, and named no time
	RetryAfter Source = "retry-after"   // the host named a time
	Default    Source = "default-delay" // Options.DefaultDelay
)

// A Grant is the right to send one request. It must be given back: by Release when the request has ended, or by Cancel
// if it was not sent. Whichever comes first counts; further calls do nothing, on copies as well. All methods are safe for
// concurrent use, and the zero Grant is a right to nothing, which may be given back as well.
type Grant struct {
	lane     *lane
	inflight *inflight
	number   uint64 // of this Grant: inflights are reused, and a late second Release is not to give back another's
	terms
}

// terms are what a Grant was given on. They do not change.
type terms struct {
	start     time.Time
	waited    time.Duration
	gap       time.Duration
	delay     time.Duration // the longest Delay that applied
	source    Source        // what held the request up beyond its own Delay
	mode      Mode
	hasGap    bool
	overtaken bool // the gap is shorter than the delay
}

// IsZero reports whether g is the zero Grant.
func (g Grant) IsZero() bool { return g.inflight == nil }

// Waited returns how long Acquire waited.
func (g Grant) Waited() time.Duration { return g.waited }

// Gap returns the time from the previous request of the lane to the start of this one, and false if the lane knows of no
// previous request. It counts from the previous request's end; from its start if it has not ended, if it was only
// reckoned, or if Options.SpacingStart is set.
func (g Grant) Gap() (time.Duration, bool) { return g.gap, g.hasGap }

// Required returns the least Gap that was kept, and what asked for it: the empty Source if that was the request's own
// Delay. The delay of Default is kept between starts after a burst, so the Gap may be less.
func (g Grant) Required() (time.Duration, Source) { return g.delay, g.source }

// Mode returns by what the request was paced: by this process alone unless Options.Coordinator is set.
func (g Grant) Mode() Mode {
	if g.IsZero() {
		return ModeLocal
	}
	return g.mode
}

// Overtaken reports whether the Gap is less than is Required since a request that was only reckoned was sent while this one
// waited: see Limiter.Reckon.
func (g Grant) Overtaken() bool { return g.overtaken }

// Hear tells what the host answered, as soon as that is known: a host that pushes back should not have to wait until its
// answer has ended. The Outcome of Release then counts no more.
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

// Release ends the request, and its Delay begins to count for the next one.
func (g Grant) Release(o Outcome) {
	if g.IsZero() {
		return
	}
	g.giveBack(func(now time.Time) {
		g.lane.hear(g.inflight, o, now)
		g.lane.release(g.inflight, o.end(g.start, now), now)
	})
}

// Cancel returns the place as if it had never been taken: the next request need not keep a Delay from this one. It is
// for a request of which nothing was sent. After ReleaseAfter it does nothing, since the lane has counted the request.
func (g Grant) Cancel() {
	if g.IsZero() {
		return
	}
	g.giveBack(func(now time.Time) { g.lane.cancel(g.inflight, now) })
}

// giveBack makes a move that gives g back, unless that was done.
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

// valid reports whether g was not given back. The lane is locked, so that it remains so.
func (g Grant) valid() bool { return g.inflight.number.Load() == g.number }

// A inflight is a request under way: what the lane remembers of a Grant until that is given back. All but number is guarded
// by the lock of the lane that it belongs to.
type inflight struct {
	number atomic.Uint64 // of its Grant; changes when that is given back
	terms
	client  string
	own     *ClientTime   // nil: its client does not block it
	turn    *turn         // nil: the lane is not shared
	spacing time.Duration // the Delay that applied, or the floor; 0: none

	done               bool      // over for the lane: given back, or ended by the lane itself after ReleaseAfter
	overlaps           bool      // it gave its place back to other clients, and goes on
	heard              bool      // the host's answer is known to the lane
	delayFrom, gapFrom time.Time // the lane's before this inflight, for cancel
	moves              uint64    // the lane's at this inflight
	older, newer       *inflight // under way in the same lane
}

// grant returns the Grant of f, which has started.
func (f *inflight) grant(ln *lane) Grant {
	return Grant{lane: ln, inflight: f, number: f.number.Load(), terms: f.terms}
}

// newInflight returns an inflight to start a request with.
func (l *Limiter) newInflight() *inflight {
	if f, ok := l.inflightPool.Get().(*inflight); ok {
		return f
	}
	return new(inflight)
}

// recycle takes back an inflight that no lane and no valid Grant refers to.
func (l *Limiter) recycle(f *inflight) {
	f.client, f.own, f.turn = "", nil, nil // what they point to may be large
	l.inflightPool.Put(f)
}

// inflights are what is under way in one lane, oldest first: a list through them, since most lanes have none.
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
