// Package ratelimit paces requests: one lane per host, however many clients ask for it.
//
//	l, err := ratelimit.New(ratelimit.Options{})
//	...
//	g, err := l.Acquire(ctx, ratelimit.Request{Key: "a.example", Client: "news", Delay: 10 * time.Second, MaxWait: time.Minute})
//	if err != nil {
//		return err // *WaitError: come back later
//	}
//	resp, err := send(ctx, req) // and read it to its end
//	g.Release(ratelimit.Outcome{Status: resp.StatusCode})
//
// The right to send one request is a Grant. While a Delay applies, a lane has one request under way at a time, and the
// next one starts no sooner than Delay after the end of the one before, whoever sent that. Without a Delay, a lane has
// up to Options.MaxConcurrent requests under way. Requests that must wait stand in one queue per client, first come
// first served, and the queues take turns by the time for which their clients hold the lane, so no client can crowd out
// another. A request that its own client blocks gives its place to other clients: see ClientTime. Only the
// request whose turn it is waits on the clock: one that leaves before costs nobody a slot. The waits come from token
// buckets (golang.org/x/time/rate).
//
// A request that would wait longer than its MaxWait is rejected at once with the time at which to come back. That time is
// the client's own next place in the queue, so clients do not all come back at once. While a Delay applies, the lane
// keeps the place for the client.
//
// A lane is made by the first request for its key. It is dropped when nothing of it is worth remembering: nothing waits,
// nothing is under way, and the last request is longer ago than the longest Delay seen. There is no goroutine per lane,
// and a timer only while somebody waits.
//
// A host that answers 429 or 503 is left alone for a while, by all clients: for as long as it asks, or along a curve
// from a minute to an hour. An operator can stop a key or slow it down while requests wait, with effect at once.
//
// Several processes pace as one if they have a Coordinator, such as Redis. Over a restart it keeps the long pauses, if Options.Pauses is there.
package ratelimit

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Limiter holds the lanes. Its two main methods are Acquire and Reckon; most callers want Acquire. Acquire waits
// until the request may be sent. Reckon never waits: it says how long Acquire would have, for requests that are sent
// whatever the answer. Stop, SetFloor and Lift are an operator's word, Peek and Paused are for who looks on, and Reload
// changes the rules under the lanes.
//
// A Limiter is safe for concurrent use. Close it at the end.
type Limiter struct {
	options atomic.Pointer[rules]
	pauses  Pauses // nil: none are kept

	coordinator  Coordinator // nil: there are no other instances
	misses       misses
	inflightPool sync.Pool // of *inflight that are not under way

	throttleEvents backlog // calls of Coordinator.CountThrottle
	stores         backlog // calls of Pauses.Keep

	// storing guards unstored.
	storing  sync.Mutex
	unstored map[string]Pause // by key; each has one call in stores

	// mu guards lanes and ring, and nothing inside a lane. A lane's own lock is never waited for while mu is held.
	mu    sync.RWMutex
	lanes map[string]*lane
	ring  ring

	calls      atomic.Uint64 // of Acquire and Reckon: every so many, a sweep
	waiting    atomic.Int64
	granted    atomic.Uint64
	cancelled  atomic.Uint64
	throttled  atomic.Uint64
	abandoned  atomic.Uint64
	reckoned   atomic.Uint64
	pushedBack atomic.Uint64
	paused     atomic.Uint64
	unkept     atomic.Uint64
	reserved   atomic.Uint64
	expired    atomic.Uint64
}

// New returns a Limiter whose only lanes are those of the pauses that were kept.
func New(o Options) (*Limiter, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	l := &Limiter{pauses: o.Pauses, coordinator: o.Coordinator, lanes: make(map[string]*lane)}
	l.setOptions(o)
	if err := l.restore(o.Pauses); err != nil {
		return nil, err
	}
	if l.coordinator != nil {
		l.coordinator.Watch(l.wake)
	}
	return l, nil
}

// Reload has other rules hold from now on, for the lanes that there are as well: none loses what it knows. Pauses are kept
// where they were, and lanes are shared with whom they were.
func (l *Limiter) Reload(o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	l.setOptions(o)
	l.mu.RLock()
	lanes := slices.Clone(l.ring.lanes)
	l.mu.RUnlock()
	for _, ln := range lanes {
		ln.tick() // who waits may start sooner now
	}
	return nil
}

// Close waits until all pauses are handed to Options.Pauses and all throttle events to Options.Coordinator. Call it after the last Grant
// is released.
func (l *Limiter) Close() {
	l.throttleEvents.wait() // first, since one may cause a pause
	l.stores.wait()
}

// rules are what holds for all lanes.
type rules struct {
	Options // complete
	misses  *misses
}

func (l *Limiter) rules() *rules { return l.options.Load() }

func (l *Limiter) setOptions(o Options) {
	l.options.Store(&rules{*o.withDefaults(), &l.misses})
}

// wake is what the Coordinator calls for a key for which it is worth asking again.
func (l *Limiter) wake(key string) {
	if ln := l.present(key); ln != nil {
		ln.lock()
		defer ln.unlock()
		ln.wake(time.Now())
	}
}

// A Request asks for one place in a lane.
type Request struct {
	// Key names the lane: the host that the request goes to.
	Key string

	// Client is who asks. Clients of one key take turns.
	Client string

	// Delay is the spacing that applies to this request, such as the host's Crawl-delay. It may differ from one request
	// to the next: what counts is the Delay of the request whose turn it is, reckoned from the request before. If zero,
	// DefaultDelay and MaxConcurrent hold. More than a year is taken as a year.
	Delay time.Duration

	// MaxWait is the longest wait that is worth beginning: if more is foreseen, Acquire returns a *WaitError at once. If
	// zero, the request does not wait, except for a second at most if it claims a reservation. A request that has begun to
	// wait goes on even if those before it take longer than foreseen; the context's deadline bounds that.
	MaxWait time.Duration

	// ClientTime measures how long the request waits for its own client. After a second in all, the request gives its place to
	// requests of other clients: see ClientTime. If nil, it never does.
	ClientTime *ClientTime

	// Once says that the request is not made again if it is turned away: it gets no reservation, and does not claim one of
	// another request of Client.
	Once bool
}

// longestDelay is longer than anybody waits, and far from where durations overflow.
const longestDelay = 365 * 24 * time.Hour

// delay returns r.Delay within its bounds.
func (r Request) delay() time.Duration { return min(max(r.Delay, 0), longestDelay) }

// Acquire waits until r may be sent. The caller then sends it and calls Release when it has ended, or Cancel if it was
// not sent after all; and since time passes between the grant and the sending, it looks at ctx once more before it sends.
//
// The error is ctx.Err() if ctx ends first, even if the way is free; a *WaitError, at once, if the wait foreseen is
// longer than r.MaxWait or the queue is full, and later if the host is paused meanwhile for longer than r.MaxWait; a
// *StoppedError, at once or later, if an operator has stopped the key; ErrTooManyLanes; or what Options.Coordinator says, such as
// an *UnavailableError.
//
// The wait is foreseen from the requests that come before r in the order of turns, each with its own Delay, and from how
// long requests of this lane have taken of late (a moving average, or the age of the oldest one under way if that is
// more). It is at least the time to the next start plus one Delay for each request between. Clients that join the lane
// later take turns too, which nobody can foresee.
func (l *Limiter) Acquire(ctx context.Context, r Request) (Grant, error) {
	if err := ctx.Err(); err != nil {
		l.abandoned.Add(1)
		return Grant{}, err
	}
	ln, err := l.lane(r.Key)
	if err != nil {
		l.throttled.Add(1)
		return Grant{}, err
	}
	f := l.newInflight()
	w, err := ln.enter(ctx, r, f, time.Now())
	switch {
	case err != nil:
		ln.unlock()
		l.recycle(f)
		l.throttled.Add(1)
		return Grant{}, err
	case w == nil:
		g := f.grant(ln)
		ln.unlock()
		l.granted.Add(1)
		return g, nil
	}
	w.ready = make(chan struct{}, 1)
	ln.unlock()
	return l.wait(ctx, ln, w)
}

// wait waits until w is woken or ctx ends, and then claims the Grant. If both happen at once, select may see either. The
// claim decides, under the lane's lock: no request is sent for a client that has left, or after an operator's stop.
func (l *Limiter) wait(ctx context.Context, ln *lane, w *waiter) (Grant, error) {
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	select {
	case <-w.ready:
	case <-ctx.Done():
	}
	ln.lock()
	left := ctx.Err()
	ok, err := ln.claim(w, left != nil, time.Now())
	if ok {
		g := w.inflight.grant(ln)
		ln.unlock()
		l.misses.waited(w.client, g.waited)
		return g, nil
	}
	ln.unlock()
	l.recycle(w.inflight)
	if left != nil {
		l.abandoned.Add(1)
		return Grant{}, left
	}
	l.throttled.Add(1)
	return Grant{}, err
}

// Reckon says how long Acquire would have made r wait if all requests like it had been paced, and whether it would have
// let r wait at all. It is for requests that are only reported on: sent at once, whatever the answer. It never blocks.
//
// The slots of such requests are kept in a ledger of the lane's own, by the same spacing, from start to start, because
// their ends are not known here. A request that would have been turned away (ok is false) takes no slot.
//
// What is sent is sent: the call counts as a request to the host, so the next one paced by Acquire keeps its Delay from
// it. Only a request that is already waiting is not put off, or a busy client in report mode would starve the others. The
// gap is as that of a Grant, and negative where the lane knows of no previous request.
func (l *Limiter) Reckon(r Request) (wait, gap time.Duration, ok bool) {
	l.reckoned.Add(1)
	ln, err := l.lane(r.Key)
	if err != nil {
		return 0, -1, false
	}
	defer ln.unlock()
	return ln.reckon(r, time.Now())
}

// Hear tells what a host answered to a request of client that was sent without a Grant. It is for requests that are only
// reckoned: their answers are signs of the host as well.
func (l *Limiter) Hear(key, client string, o Outcome) {
	if !o.pushesBack() && o.pauseAsked() == 0 {
		return
	}
	ln, err := l.lane(key)
	if err != nil {
		return // no request for this key gets a lane either
	}
	defer ln.unlock()
	now := time.Now()
	ln.answered(o, client, now, now)
}

// Stats are the counts of a Limiter since it was made, and its present size.
type Stats struct {
	Lanes   int // kept now
	Waiting int // requests waiting now

	Granted    uint64 // requests that got a Grant
	Cancelled  uint64 // Grants given back unused, so that Granted-Cancelled were sent
	Throttled  uint64 // requests turned away: a *WaitError, a *StoppedError or ErrTooManyLanes
	Abandoned  uint64 // requests whose context ended before they were sent
	Reckoned   uint64 // calls of Reckon
	PushedBack uint64 // answers of 429 and 503
	Paused     uint64 // pauses that were begun or made longer
	Unkept     uint64 // of these, the long ones that Options.Pauses could not keep
	Reserved   uint64 // reservations for clients that were turned away
	Expired    uint64 // of these, the ones that were not claimed in time
}

// Stats returns the counts. They are read one after the other, so they may differ by requests under way.
func (l *Limiter) Stats() Stats {
	l.mu.RLock()
	lanes := len(l.lanes)
	l.mu.RUnlock()
	return Stats{
		Lanes:      lanes,
		Waiting:    int(l.waiting.Load()),
		Granted:    l.granted.Load(),
		Cancelled:  l.cancelled.Load(),
		Throttled:  l.throttled.Load(),
		Abandoned:  l.abandoned.Load(),
		Reckoned:   l.reckoned.Load(),
		PushedBack: l.pushedBack.Load(),
		Paused:     l.paused.Load(),
		Unkept:     l.unkept.Load(),
		Reserved:   l.reserved.Load(),
		Expired:    l.expired.Load(),
	}
}
