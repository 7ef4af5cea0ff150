package ratelimit

import (
	"context"
	"sync"
	"time"
)

// A lane is the pace of one key: a small state machine. Its moves are a request's enter, leave, hear, release, cancel and
// reckon, an operator's intervene, the other instances' ask, and the timer's tick. After each move, pump grants what may
// start and sets the timer for what may not yet. All moves are made with mu held and at a moment read while it was held, so
// the moments never go back.
type lane struct {
	limiter *Limiter
	key     string
	index   int32 // in the limiter's ring, guarded by limiter.mu

	// mu guards everything below.
	mu      sync.Mutex
	dropped bool   // no longer the limiter's lane of this key
	queue   *queue // nil while nobody waits
	flights flights

	overlaps map[string]*overlap // by client; nil: none
	debts    *debts              // nil: nobody has waited of late

	restraint *restraint // nil: none
	share     *share     // nil: there are no other instances

	pacer       pacer         // its delayFrom is the last start or, unless SpacingStart is set, the last end
	gapFrom     time.Time     // from when a gap counts: delayFrom, or the last request that was only reckoned
	moves       uint64        // counts the changes of delayFrom and gapFrom, so that cancel undoes the last one only
	reports     *reports      // nil: there was no request that was only reckoned
	longest     time.Duration // the longest Delay so far, at least remembered and DefaultDelay
	avgDuration time.Duration // moving average of how long requests take
}

func newLane(l *Limiter, key string) *lane {
	ln := &lane{limiter: l, key: key, longest: max(remembered, l.rules().DefaultDelay)}
	ln.pacer.countFrom(time.Time{})
	if l.coordinator != nil {
		ln.share = &share{}
	}
	return ln
}

// enter grants r if it may start now, makes it wait if the wait is bearable, and turns it away otherwise: exactly one of
// the results is not nil.
func (ln *lane) enter(ctx context.Context, r Request, now time.Time) (*flight, *waiter, error) {
	delay := ln.restraint.delay(r.delay())
	ln.longest = max(ln.longest, delay)
	ln.settle(now)
	if err := ln.restraint.stop(now); err != nil && ln.share == nil {
		return nil, nil, err
	}
	if ln.blocked(delay) {
		ln.reclaim(now, func(client string) bool { return client != r.Client })
	}
	held := ln.heldBack(r.Client, now)
	if ln.share == nil && !held && ln.vacant(now) && ln.until(now, delay) <= 0 {
		return ln.start(now, now, r.Client, r.delay(), r.ClientTime), nil, nil
	}
	w, err := ln.line(ctx, r, now)
	if err != nil {
		return nil, nil, err
	}
	w.ctx, w.delay, w.maxWait, w.arrived = ctx, r.delay(), max(r.MaxWait, w.maxWait), now
	w.ready, w.own = make(chan answer, 1), r.ClientTime
	ln.limiter.waiting.Add(1)
	ln.pump(now)
	ln.crowds(now)
	return nil, w, nil
}

// line gives r a place in the queue, if it bears the wait there.
func (ln *lane) line(ctx context.Context, r Request, now time.Time) (*waiter, error) {
	if !r.Once {
		if w, err := ln.comeBack(r, now); w != nil || err != nil {
			return w, err
		}
	}
	delay := ln.restraint.delay(r.delay())
	wait := ln.predict(now, r.Client, ln.queue.len(r.Client), delay)
	if ln.full(r.Client) {
		return nil, ln.tooLong(r.Client, r.MaxWait, wait, true, now)
	}
	if wait <= r.MaxWait && (r.MaxWait > 0 || ln.mayAsk(now, delay)) {
		w := &waiter{ctx: ctx, client: r.Client, due: now.Add(wait)}
		ln.push(w)
		return w, nil
	}
	if r.Once {
		return nil, ln.tooLong(r.Client, r.MaxWait, wait, false, now)
	}
	if w := ln.takeOver(r, now); w != nil {
		return w, nil
	}
	ln.keepPlace(r, wait, now)
	return nil, ln.tooLong(r.Client, r.MaxWait, wait, false, now)
}

// push adds w to the queue, and makes it if there is none.
func (ln *lane) push(w *waiter) {
	if ln.queue == nil {
		if ln.debts == nil {
			ln.debts = &debts{}
		}
		ln.queue = &queue{debts: ln.debts}
	}
	ln.queue.push(w)
}

// tooLong returns the error of a request of client that is turned away, since it bears no longer wait than limit.
func (ln *lane) tooLong(client string, limit, wait time.Duration, full bool, now time.Time) error {
	err := ln.restraint.waitError(client, wait, limit, now)
	err.Full = full
	return err
}

// full reports whether there is no place to wait for another request of client.
func (ln *lane) full(client string) bool {
	o := ln.limiter.rules()
	own := ln.queue.len(client)
	return own >= o.MaxQueuePerClient || own > 0 && ln.queue.n >= o.MaxQueue // who has none there is not crowded out
}

// leave takes out a request whose client has left. If it was granted at that very moment, the grant goes back.
func (ln *lane) leave(w *waiter, now time.Time) {
	select {
	case a := <-w.ready:
		if !a.grant.IsZero() {
			ln.cancel(a.grant.valid(), now)
		}
	default:
		ln.remove(w)
	}
	ln.pump(now)
}

// tick is what the timer runs.
func (ln *lane) tick() {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.pump(time.Now())
}

// pump grants the requests that may start now, in the order of their turns, and sets the timer for the next one.
func (ln *lane) pump(now time.Time) {
	ln.settle(now)
	for ln.queue != nil {
		ln.reclaim(now, ln.queue.others)
		w := ln.next(now)
		switch {
		case w.kept() && !now.Before(ln.lapses(w)):
			ln.lapse(w, now)
			continue
		case !w.kept() && w.ctx.Err() != nil:
			ln.remove(w) // it has left, and has not come to say so yet
			continue
		}
		if wait := ln.holds(w, now); wait > 0 {
			ln.wake(ln.soonest(wait, now))
			return
		}
		ln.passOver(w, now)
		ln.queue.pop(w)
		ln.left(w)
		w.ready <- answer{grant: ln.start(now, w.arrived, w.client, w.delay, w.own).grant(ln)}
	}
}

// holds returns how long w, which has the next turn, is held up: by what concerns its client alone, and then no other client
// waits; by its Delay and the requests under way; if it is a kept place, until it lapses; and by the other instances.
// Further conditions for a start belong here.
func (ln *lane) holds(w *waiter, now time.Time) time.Duration {
	if wait := ln.heldFor(w.client, now); wait > 0 {
		return wait
	}
	if wait := ln.until(now, ln.restraint.delay(w.delay)); wait > 0 {
		return wait
	}
	if w.kept() {
		return ln.lapses(w).Sub(now)
	}
	if ln.share == nil {
		return 0
	}
	return ln.agreed(ln.restraint.delay(w.delay), now)
}

// remove takes w out of the queue, if it is still there.
func (ln *lane) remove(w *waiter) {
	if ln.queue != nil && ln.queue.remove(w) {
		ln.left(w)
	}
}

// left is called when w has left the queue, and drops that when it was the last.
func (ln *lane) left(w *waiter) {
	if !w.kept() {
		ln.limiter.waiting.Add(-1)
	}
	ln.leaveLine()
	if ln.queue.n > 0 {
		return
	}
	if ln.queue.timer != nil {
		ln.queue.timer.Stop()
	}
	ln.queue = nil
}

// wake has tick run after d.
func (ln *lane) wake(d time.Duration) {
	if ln.queue.timer == nil {
		ln.queue.timer = time.AfterFunc(d, ln.tick)
		return
	}
	ln.queue.timer.Reset(d)
}

// start lets a request start now, whose own Delay is delay, and whose client may block it if own is not nil.
func (ln *lane) start(now, arrived time.Time, client string, delay time.Duration, own *ClientTime) *flight {
	if ln.debts != nil {
		ln.debts.serve(client)
		ln.forgive(now)
	}
	t := ln.share.take()
	if t != nil && t.Gap >= 0 {
		ln.gapFrom = later(ln.gapFrom, now.Add(-t.Gap))
	}
	f := ln.limiter.takeOff()
	f.client, f.own, f.turn, f.spacing, f.done, f.heard, f.overlaps = client, own, t, ln.restraint.delay(delay), false, false, false
	f.delayFrom, f.gapFrom = ln.pacer.delayFrom, ln.gapFrom
	f.terms = ln.terms(now, arrived, delay, f)
	ln.pacer.start(f.spacing > 0, ln.limiter.rules(), now)
	ln.countFrom(now, now)
	f.moves = ln.moves
	ln.flights.add(f)
	if ln.share != nil {
		ln.watchAgain(now)
	}
	return f
}

// terms returns on what terms f starts.
func (ln *lane) terms(now, arrived time.Time, delay time.Duration, f *flight) terms {
	t := terms{start: now, waited: now.Sub(arrived), mode: f.turn.mode(), hasGap: !ln.gapFrom.IsZero()}
	if t.hasGap {
		t.gap = now.Sub(ln.gapFrom)
	}
	t.delay, t.source = ln.required(f.client, delay)
	t.overtaken = f.spacing > 0 && t.hasGap && t.gap < t.delay.Truncate(time.Microsecond) // which is what instances agree on
	return t
}

// release ends f, and returns the pause that its answer begins. What was given back before changes nothing.
func (ln *lane) release(f *flight, o Outcome, now time.Time) Pause {
	if f == nil {
		return Pause{}
	}
	pause := ln.hear(f, o, now)
	ln.settle(now)
	switch end := o.end(f.start, now); {
	case !f.done:
		ln.end(f, end)
	case f.overlaps:
		ln.overlapped(f, end)
	}
	ln.limiter.ground(f)
	ln.pump(now)
	return pause
}

// settle ends the requests that have gone on for longer than ReleaseAfter, each at its own moment. Nothing happens in a
// lane before it has settled, so it is enough to do this when somebody looks.
func (ln *lane) settle(now time.Time) {
	for f := ln.flights.oldest; f != nil; f = ln.flights.oldest {
		end := f.start.Add(ln.limiter.rules().ReleaseAfter)
		if end.After(now) {
			return
		}
		ln.end(f, end)
	}
}

// countFrom sets the moments from which a Delay and a gap count.
func (ln *lane) countFrom(delayFrom, gapFrom time.Time) {
	ln.pacer.countFrom(delayFrom)
	ln.gapFrom = gapFrom
	ln.moves++
}

// end takes f out of the requests under way.
func (ln *lane) end(f *flight, at time.Time) {
	f.done = true
	f.turn.end()
	ln.share.freed(f.turn)
	ln.flights.remove(f)
	ln.learn(at.Sub(f.start))
	if ln.queue.others(f.client) {
		ln.debts.charge(f.client, at.Sub(f.start), ln.limiter.rules().MaxQueue, at)
	}
	if ln.limiter.rules().SpacingStart {
		return
	}
	ln.countFrom(later(ln.pacer.delayFrom, at), later(ln.gapFrom, at))
}

// cancel takes f back as if it had not started. If another request has started or ended since, a Delay counts from that. What was given
// back before changes nothing.
func (ln *lane) cancel(f *flight, now time.Time) {
	if f == nil {
		return
	}
	defer ln.limiter.ground(f)
	ln.settle(now)
	if f.overlaps {
		ln.overlapped(f, now)
	}
	if f.done {
		return
	}
	f.turn.cancel()
	ln.flights.remove(f)
	ln.limiter.cancelled.Add(1)
	if ln.moves == f.moves {
		ln.countFrom(f.delayFrom, f.gapFrom)
		ln.moves = f.moves - 1
	}
	if f.spacing == 0 {
		ln.pacer.undoStart(ln.limiter.rules(), now)
	}
}

// idle reports whether the lane is as good as a new one.
func (ln *lane) idle(now time.Time) bool {
	ln.settle(now)
	ln.forgive(now)
	return ln.queue == nil && ln.flights.n == 0 && ln.overlapsEnd(now) && ln.restraint.over(now) &&
		now.Sub(later(ln.gapFrom, ln.reports.last())) >= max(ln.longest, ln.limiter.rules().DefaultDelay) &&
		ln.pacer.full(now)
}
