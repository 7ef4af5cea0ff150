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
	lane   *lane
	flight *flight
	number uint64 // of this Grant: flights are reused, and a late second Release is not to give back another's
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
func (g Grant) IsZero() bool { return g.flight == nil }

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
	g.lane.mu.Lock()
	pause := g.lane.hear(g.valid(), o, time.Now())
	g.lane.mu.Unlock()
	g.lane.limiter.keep(pause)
}

// Release ends the request, and its Delay begins to count for the next one.
func (g Grant) Release(o Outcome) {
	if g.IsZero() {
		return
	}
	g.lane.mu.Lock()
	pause := g.lane.release(g.valid(), o, time.Now())
	g.lane.mu.Unlock()
	g.lane.limiter.keep(pause)
}

// Cancel returns the place as if it had never been taken: the next request need not keep a Delay from this one. It is
// for a request of which nothing was sent. After ReleaseAfter it does nothing, since the lane has counted the request.
func (g Grant) Cancel() {
	if g.IsZero() {
		return
	}
	g.lane.mu.Lock()
	defer g.lane.mu.Unlock()
	now := time.Now()
	g.lane.cancel(g.valid(), now)
	g.lane.pump(now)
}

// valid returns the flight of g, nil if g was given back. The lane's lock is held: with it, a flight that is g's remains so.
func (g Grant) valid() *flight {
	if g.flight.number.Load() != g.number {
		return nil
	}
	return g.flight
}

// A flight is a request under way: what the lane remembers of a Grant until that is given back. All but number is guarded
// by the lock of the lane that it belongs to.
type flight struct {
	number atomic.Uint64 // of its Grant; 0: that was given back
	terms
	client  string
	own     *ClientTime   // nil: its client does not block it
	turn    *turn         // nil: the lane is not shared
	spacing time.Duration // the Delay that applied, or the floor; 0: none

	done               bool      // over for the lane: given back, or ended by the lane itself after ReleaseAfter
	overlaps           bool      // it gave its place back to other clients, and goes on
	heard              bool      // the host's answer is known to the lane
	delayFrom, gapFrom time.Time // the lane's before this flight, for cancel
	moves              uint64    // the lane's at this flight
	older, newer       *flight   // under way in the same lane
}

// grant returns the Grant of f. A nil flight has the zero Grant.
func (f *flight) grant(ln *lane) Grant {
	if f == nil {
		return Grant{}
	}
	return Grant{lane: ln, flight: f, number: f.number.Load(), terms: f.terms}
}

// takeOff returns a flight with a number of its own.
func (l *Limiter) takeOff() *flight {
	f, ok := l.hangar.Get().(*flight)
	if !ok {
		f = new(flight)
	}
	f.number.Store(l.granted.Add(1))
	return f
}

// ground takes f back, whose Grant was given back, to be used again.
func (l *Limiter) ground(f *flight) {
	f.number.Store(0)
	f.client, f.own, f.turn = "", nil, nil // what they hold on to may be large
	l.hangar.Put(f)
}

// flights are what is under way in one lane, oldest first: a list through them, since most lanes have none.
type flights struct {
	oldest, newest *flight
	n              int
}

func (fs *flights) add(f *flight) {
	f.older, f.newer = fs.newest, nil
	if f.older != nil {
		f.older.newer = f
	} else {
		fs.oldest = f
	}
	fs.newest = f
	fs.n++
}

func (fs *flights) remove(f *flight) {
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
