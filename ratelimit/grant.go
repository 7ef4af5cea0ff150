package ratelimit

import "time"

// A Source says what a request was held up by, beyond its own Delay. The words are those of the audit's delay_source.
type Source string

const (
	Floor      Source = "floor"         // an operator's: SetFloor
	Backoff    Source = "backoff"       // the host pushed back, and named no time
	RetryAfter Source = "retry-after"   // the host named a time
	Default    Source = "default-delay" // Options.DefaultDelay
	Address    Source = "ip"            // Options.AddrDelay
)

// A Grant is the right to send one request. It must be given back: by Release when the request has ended, or by Cancel
// if it was not sent. Whichever comes first counts; further calls do nothing. All methods are safe for concurrent use,
// and a nil Grant is a right to nothing, which may be given back as well.
//
// Grants are not reused, so that a late second Release can never give back what is another's by then.
type Grant struct {
	lane   *lane
	client string
	start  time.Time
	waited time.Duration
	gap    time.Duration
	delay  time.Duration // the longest Delay that applied
	source Source        // what held the request up beyond its own Delay
	turn   *turn         // nil: the lane is not shared

	hasGap    bool
	spaced    bool // a Delay applied, or a floor
	rode      bool // on the slot of another
	overtaken bool // the gap is shorter than the delay

	// Guarded by lane.mu.
	done         bool      // given back, by the caller or by the lane itself after ReleaseAfter
	heard        bool      // the host's answer is known to the lane
	mark, seen   time.Time // the lane's before this grant, for cancel
	moves        uint64    // the lane's at this grant
	older, newer *Grant    // under way in the same lane
}

// Waited returns how long Acquire waited.
func (g *Grant) Waited() time.Duration {
	if g == nil {
		return 0
	}
	return g.waited
}

// Gap returns the time from the previous request of the lane to the start of this one, and false if the lane knows of no
// previous request. It counts from the previous request's end; from its start if it has not ended, if it was only
// reckoned, or if Options.SpacingStart is set.
func (g *Grant) Gap() (time.Duration, bool) {
	if g == nil {
		return 0, false
	}
	return g.gap, g.hasGap
}

// Required returns the least Gap that was kept, and what asked for it: the empty Source if that was the request's own
// Delay. What Default and Address ask for is kept between starts, after a burst or at another key, so the Gap may be less.
func (g *Grant) Required() (time.Duration, Source) {
	if g == nil {
		return 0, ""
	}
	return g.delay, g.source
}

// Mode returns by what the request was paced: by this process alone unless Options.Shared is set.
func (g *Grant) Mode() Mode {
	if g == nil {
		return ModeLocal
	}
	return g.turn.mode()
}

// Rode reports whether the request started on the slot of another, which it could not have done otherwise: see
// Request.Ride. Its Gap may be less than is Required.
func (g *Grant) Rode() bool { return g != nil && g.rode }

// Overtaken reports whether the Gap is less than is Required since a request that was only reckoned was sent while this one
// waited: see Limiter.Reckon.
func (g *Grant) Overtaken() bool { return g != nil && g.overtaken && !g.rode }

// Hear tells what the host answered, as soon as that is known: a host that pushes back should not have to wait until its
// answer has ended. The Outcome of Release then counts no more.
func (g *Grant) Hear(o Outcome) {
	if g == nil {
		return
	}
	g.lane.mu.Lock()
	pause := g.lane.hear(g, o, time.Now())
	g.lane.mu.Unlock()
	g.lane.limiter.keep(pause)
}

// Release ends the request, and its Delay begins to count for the next one.
func (g *Grant) Release(o Outcome) {
	if g == nil {
		return
	}
	g.lane.mu.Lock()
	pause := g.lane.release(g, o, time.Now())
	g.lane.mu.Unlock()
	g.lane.limiter.keep(pause)
}

// Cancel returns the place as if it had never been taken: the next request need not keep a Delay from this one. It is
// for a request of which nothing was sent. After ReleaseAfter it does nothing, since the lane has counted the request.
func (g *Grant) Cancel() {
	if g == nil {
		return
	}
	g.lane.mu.Lock()
	defer g.lane.mu.Unlock()
	now := time.Now()
	g.lane.cancel(g, now)
	g.lane.pump(now)
}

// flights are the grants under way in one lane, oldest first: a list through the grants, since most lanes have none.
type flights struct {
	oldest, newest *Grant
	n              int
}

func (f *flights) add(g *Grant) {
	g.older = f.newest
	if g.older != nil {
		g.older.newer = g
	} else {
		f.oldest = g
	}
	f.newest = g
	f.n++
}

func (f *flights) remove(g *Grant) {
	if g.older != nil {
		g.older.newer = g.newer
	} else {
		f.oldest = g.newer
	}
	if g.newer != nil {
		g.newer.older = g.older
	} else {
		f.newest = g.older
	}
	g.older, g.newer = nil, nil
	f.n--
}
