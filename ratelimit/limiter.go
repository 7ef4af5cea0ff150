// Package ratelimit paces requests to hosts. All requests to one host share a lane, whatever their number of clients.
//
//	l, err := ratelimit.New(ratelimit.Options{})
//	...
//	r := ratelimit.Request{Key: "a.example", Client: "news", Delay: 10 * time.Second, MaxWait: time.Minute}
//	g, err := l.Acquire(ctx, r)
//	if err != nil {
//		return err // *WaitError: try again later
//	}
//	resp, err := send(ctx, req) // and read the body to its end
//	g.Release(ratelimit.Outcome{Status: resp.StatusCode})
//
// A Grant is the right to send one request. While a Delay applies, a lane has one request in flight at a time, and the
// next one starts no sooner than Delay after the end of the last one, of any client. Without a Delay, a lane has up to
// Options.MaxConcurrent requests in flight. Token buckets (golang.org/x/time/rate) measure the waits.
//
// Requests that must wait stand in one queue for each client, first come first served. The clients take turns so that
// each holds the lane for about the same time, and no client can crowd out another. If a client blocks its own request,
// other clients may go on: see ClientTime. Only the request that has the next turn waits for the clock, so a request
// that is cancelled wastes no slot.
//
// A request that would wait longer than its MaxWait is rejected at once with the time after which to try again. That is
// the client's own next place in the queue, so clients do not all come back at once. While a Delay applies, the lane
// reserves the place for the client.
//
// The first request for a key makes its lane. The Limiter drops a lane if it is idle for longer than its longest Delay,
// with no requests in flight. A lane has no goroutine, and a timer only while requests wait. The Limiter has one timer
// as long as there are lanes.
//
// After a response with status 429 or 503, a host gets no requests for a while: for the time that it asks for, or for a
// minute to an hour. Stop and SetFloor let an operator stop or slow down a key, with effect on requests that wait
// already.
//
// Several processes pace requests like one if Options.Coordinator is set. Long pauses outlive the process if
// Options.Pauses is set. With HandOver and TakeOver, a process passes all lanes to the one that replaces it, with the
// requests that wait and those in flight.
//
// The package sends no requests, and reads no robots.txt: the caller finds out the Delay and reports the responses. It
// does not limit bytes, connections or the requests of one client to all hosts.
package ratelimit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Limiter holds the lanes. Most callers want Acquire, which waits until the request may be sent. Reckon never waits:
// it returns how long Acquire would wait, for requests that are sent in any case. Stop, SetFloor and Lift are for
// operators, Peek, Paused and Stats for monitoring. Reload changes the Options.
//
// A Limiter is safe for concurrent use. The caller must call Close at the end.
type Limiter struct {
	options atomic.Pointer[rules]
	pauses  Pauses // may be nil

	coordinator  Coordinator // may be nil
	misses       misses
	inflightPool sync.Pool // of *inflight

	successor   atomic.Pointer[successor]   // the process that has the lanes; nil: this one
	predecessor atomic.Pointer[predecessor] // the process that had the lanes; nil: there was none

	throttleEvents backlog // calls of Coordinator.CountThrottle
	stores         backlog // calls of Pauses.Keep

	// storing guards unstored.
	storing  sync.Mutex
	unstored map[string]Pause // by key; each has one call in stores

	// mu guards the fields below, but not the lanes. A goroutine that holds mu must not wait for the lock of a lane.
	mu      sync.RWMutex
	lanes   map[string]*lane
	ring    ring
	most    int         // the most lanes since the last shrink
	sweeper *time.Timer // calls sweepAll; nil without lanes
	closed  bool

	calls      atomic.Uint64 // of lane; see sweepEvery
	waiting    atomic.Int64
	granted    atomic.Uint64
	cancelled  atomic.Uint64
	rejected   atomic.Uint64
	abandoned  atomic.Uint64
	reckoned   atomic.Uint64
	pushedBack atomic.Uint64
	paused     atomic.Uint64
	unkept     atomic.Uint64
	reserved   atomic.Uint64
	expired    atomic.Uint64
}

// New returns a Limiter with the pauses in o.Pauses. It returns an error if o is invalid or the pauses cannot be read.
func New(o Options) (*Limiter, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	l := &Limiter{pauses: o.Pauses, coordinator: o.Coordinator, lanes: make(map[string]*lane)}
	l.setOptions(o)
	if err := l.restore(o.Pauses); err != nil {
		l.stopSweeps()
		return nil, err
	}
	if l.coordinator != nil {
		l.coordinator.Watch(l.wake)
	}
	return l, nil
}

// Reload replaces the Options, also for existing lanes, which keep their state. It ignores Coordinator and Pauses. It
// returns an error and changes nothing if o is invalid.
func (l *Limiter) Reload(o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	l.setOptions(o)
	l.mu.RLock()
	lanes := slices.Clone(l.ring.lanes)
	l.mu.RUnlock()
	for _, ln := range lanes {
		ln.tick() // waiting requests may start sooner now
	}
	return nil
}

// Close waits until Options.Pauses has all pauses and Options.Coordinator has all throttle events. It closes the
// connections of HandOver and TakeOver. The caller must have released all Grants.
func (l *Limiter) Close() {
	l.stopSweeps()
	if s := l.successor.Load(); s != nil {
		s.close()
	}
	if p := l.predecessor.Load(); p != nil {
		p.close()
	}
	l.throttleEvents.wait() // first, since an event may cause a pause
	l.stores.wait()
}

// rules apply to all lanes.
type rules struct {
	Options // with defaults
	misses  *misses
}

func (l *Limiter) rules() *rules { return l.options.Load() }

func (l *Limiter) setOptions(o Options) {
	l.options.Store(&rules{*o.withDefaults(), &l.misses})
}

// wake makes the lane of key ask for a lease again. The Coordinator calls it.
func (l *Limiter) wake(key string) {
	if ln := l.find(key); ln != nil {
		ln.lock()
		defer ln.unlock()
		ln.wake(time.Now())
	}
}

// A Request asks for the right to send one request.
type Request struct {
	// Key names the lane, usually the host of the request.
	Key string

	// Client names the sender. Clients of one key take turns.
	Client string

	// Delay is the least time between the previous request of the lane and this one, such as the host's Crawl-delay. It
	// may differ from one request to the next. If zero or negative, DefaultDelay and MaxConcurrent apply. A Delay of
	// more than a year counts as a year.
	Delay time.Duration

	// MaxWait is the longest predicted wait: if the request would wait longer, Acquire returns a *WaitError at once. If
	// zero, the request does not wait, except for a second at most if it claims a reservation. MaxWait does not bound
	// the wait itself, which is longer if other requests take longer than predicted; the deadline of the context does.
	MaxWait time.Duration

	// ClientTime measures how long the request waits for its own client. After a second in total, other clients may go
	// on. If nil, they never do.
	ClientTime *ClientTime

	// Part says that the request is for a part of a document that Client has received, such as an image, and has no
	// Delay for that reason. It starts before the requests that have a Delay and wait, and before reservations. The first
	// of them lets parts pass for 30 seconds. Each counts its Delay from the last part.
	Part bool

	// Once says that the request is not made again if it is rejected: it gets no reservation, and does not claim that
	// of another request of Client.
	Once bool
}

// longestDelay bounds Request.Delay, so that sums of durations do not overflow.
const longestDelay = 365 * 24 * time.Hour

// delay returns r.Delay within its bounds.
func (r Request) delay() time.Duration { return min(max(r.Delay, 0), longestDelay) }

// Acquire waits until r may be sent. The caller then sends it and calls Release when it has ended, or calls Cancel if
// it does not send it. Since time passes after the Grant, the caller should check ctx before it sends.
//
// The error is
//   - ctx.Err() if ctx ends first, even if r could start at once;
//   - a *WaitError if the predicted wait is longer than r.MaxWait, if the queue is full, or if a pause of the host
//     begins during the wait and makes it longer than r.MaxWait;
//   - a *StoppedError if an operator has stopped the key, also during the wait;
//   - ErrTooManyLanes;
//   - the error of Options.Coordinator, such as an *UnavailableError.
//
// The prediction counts the requests that have their turn before r, each with its Delay, and the usual duration of
// requests in this lane (a moving average, or the age of the oldest request in flight if that is longer). It is at
// least the time to the next start plus one Delay for each request between. It does not count clients that come later
// and take turns too.
func (l *Limiter) Acquire(ctx context.Context, r Request) (Grant, error) {
	if err := ctx.Err(); err != nil {
		l.abandoned.Add(1)
		return Grant{}, err
	}
	ln, err := l.lane(r.Key)
	if errors.Is(err, errMoved) {
		return l.successor.Load().acquire(ctx, r)
	}
	if err != nil {
		l.rejected.Add(1)
		return Grant{}, err
	}
	f := l.newInflight()
	w, err := ln.enter(ctx, r, f, time.Now())
	switch {
	case err != nil:
		ln.unlock()
		l.recycle(f)
		l.rejected.Add(1)
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

// wait waits until w is woken or ctx ends, and then claims the Grant. If both happen at once, select may choose either.
// The claim decides, with the lane locked: it gives no Grant after the end of ctx or an operator's stop.
func (l *Limiter) wait(ctx context.Context, ln *lane, w *waiter) (Grant, error) {
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	select {
	case <-w.ready:
	case <-ctx.Done():
	}
	ln.lock()
	if w.inflight.remote != 0 {
		ln.unlock()
		return l.successor.Load().claim(ctx, ln, w)
	}
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
	l.rejected.Add(1)
	return Grant{}, err
}

// Reckon returns how long Acquire would have waited if all requests of this kind had been paced, and in ok whether
// Acquire would have waited at all. It is for requests that are sent at once in any case. It never blocks.
//
// Reckon assigns each request a slot, apart from the slots of paced requests. It spaces the slots from start to start,
// since it does not learn the ends. A request with ok == false takes no slot.
//
// The call counts as a request to the host: the next request that calls Acquire keeps its Delay from it. A request that
// waits already is not delayed, or a busy client in report mode would starve the others. The gap is that of Grant.Gap,
// or negative if the lane knows no previous request.
func (l *Limiter) Reckon(r Request) (wait, gap time.Duration, ok bool) {
	l.reckoned.Add(1)
	ln, err := l.lane(r.Key)
	if errors.Is(err, errMoved) {
		return l.successor.Load().reckon(r)
	}
	if err != nil {
		return 0, -1, false
	}
	defer ln.unlock()
	return ln.reckon(r, time.Now())
}

// Hear handles the response to a request of client that was sent without a Grant, after Reckon. It may pause the host
// for all clients.
func (l *Limiter) Hear(key, client string, o Outcome) {
	if !o.throttles() {
		return
	}
	ln, err := l.lane(key)
	if errors.Is(err, errMoved) {
		l.successor.Load().tell(message{Op: opHearUnpaced, Key: key, Client: client, Outcome: o})
	}
	if err != nil {
		return // no request for this key gets a lane either
	}
	defer ln.unlock()
	now := time.Now()
	ln.handleResponse(o, client, now, now)
}

// Stats are counts of a Limiter since New, and its present size.
type Stats struct {
	Lanes   int // at present
	Waiting int // requests that wait at present

	Granted    uint64 // requests that got a Grant
	Cancelled  uint64 // Grants that were cancelled; Granted-Cancelled requests were sent
	Rejected   uint64 // requests that were rejected with an error other than ctx.Err()
	Abandoned  uint64 // requests whose context ended before they were sent
	Reckoned   uint64 // calls of Reckon
	PushedBack uint64 // responses with status 429 and 503
	Paused     uint64 // pauses that began or became longer
	Unkept     uint64 // of these, the long ones that Options.Pauses could not store
	Reserved   uint64 // reservations for rejected requests
	Expired    uint64 // reservations that were not claimed in time
}

// Stats returns the counts. It reads them one after the other, so they may not agree with each other while requests
// come.
func (l *Limiter) Stats() Stats {
	l.mu.RLock()
	lanes := len(l.lanes)
	l.mu.RUnlock()
	return Stats{
		Lanes:      lanes,
		Waiting:    int(l.waiting.Load()),
		Granted:    l.granted.Load(),
		Cancelled:  l.cancelled.Load(),
		Rejected:   l.rejected.Load(),
		Abandoned:  l.abandoned.Load(),
		Reckoned:   l.reckoned.Load(),
		PushedBack: l.pushedBack.Load(),
		Paused:     l.paused.Load(),
		Unkept:     l.unkept.Load(),
		Reserved:   l.reserved.Load(),
		Expired:    l.expired.Load(),
	}
}
