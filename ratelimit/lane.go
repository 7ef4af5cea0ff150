package ratelimit

import (
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A lane is the pace of one key: a small state machine with the moves enter, leave, release, cancel, reckon and tick.
// After each move, pump grants what may start and sets the timer for what may not yet. All moves are made with mu held
// and at a moment read while it was held, so the moments never go back.
type lane struct {
	limiter *Limiter
	key     string
	place   int // in the limiter's ring, guarded by limiter.mu

	// mu guards everything below.
	mu      sync.Mutex
	dropped bool   // no longer the limiter's lane of this key
	spaced  bool   // the bucket is set for a Delay, not for DefaultDelay
	queue   *queue // nil while nobody waits
	flights flights

	restraint *restraint // nil: none

	bucket  rate.Limiter
	mark    time.Time     // from when a Delay counts: the last start, and with spacing from the end, the last end
	seen    time.Time     // from when a gap counts: mark, or the last request that was only reckoned
	moves   uint64        // of mark and seen, so that a grant taken back knows whether they are still its own
	virtual time.Time     // the last slot of the ledger of requests that are only reckoned
	longest time.Duration // the longest Delay seen, DefaultDelay and remembered among them
	usual   time.Duration // moving average of how long requests take
}

func newLane(l *Limiter, key string) *lane {
	ln := &lane{limiter: l, key: key, longest: max(remembered, l.rules().DefaultDelay)}
	ln.bucket.SetLimitAt(time.Time{}, l.rules().defaultLimit())
	ln.bucket.SetBurstAt(time.Time{}, l.rules().DefaultBurst) // empty at the beginning of time, so full now
	return ln
}

// enter grants r if it may start now, makes it wait if the wait is bearable, and turns it away otherwise: exactly one of
// the results is not nil.
func (ln *lane) enter(ctx context.Context, r Request, now time.Time) (*Grant, *waiter, error) {
	delay := ln.restraint.delay(r.delay())
	ln.longest = max(ln.longest, delay)
	ln.settle(now)
	if err := ln.restraint.stop(now); err != nil {
		return nil, nil, err
	}
	if ln.queue == nil && ln.until(now, delay) <= 0 && ln.limiter.passes(r.Addr, now) {
		return ln.grant(now, now, r.Client, r.delay()), nil, nil
	}
	if r.Ride && ln.restraint.rest(now) <= 0 && !ln.blocked(0) {
		g := ln.grant(now, now, r.Client, r.delay())
		g.rode = true
		return g, nil, nil
	}
	w, err := ln.line(ctx, r, now)
	if err != nil {
		return nil, nil, err
	}
	w.ctx, w.delay, w.maxWait, w.arrived, w.ready = ctx, r.delay(), r.MaxWait, now, make(chan answer, 1)
	w.addr = r.Addr
	ln.limiter.waiting.Add(1)
	ln.pump(now)
	return nil, w, nil
}

// line gives r a place in the queue, if it bears the wait there.
func (ln *lane) line(ctx context.Context, r Request, now time.Time) (*waiter, error) {
	limit := ln.bears(r, now)
	if w, err := ln.comeBack(r, limit, now); w != nil || err != nil {
		return w, err
	}
	wait := ln.predict(now, r.Client, ln.queue.len(r.Client), ln.restraint.delay(r.delay()))
	wait = max(wait, ln.limiter.nextSlot(r.Addr, now))
	if ln.full(r.Client) {
		return nil, ln.tooLong(limit, wait, true, now)
	}
	if wait <= limit && limit > 0 {
		w := &waiter{ctx: ctx, client: r.Client, due: now.Add(wait)}
		ln.push(w)
		return w, nil
	}
	if w := ln.takeOver(r, limit, now); w != nil {
		return w, nil
	}
	ln.keepPlace(r, wait, now)
	return nil, ln.tooLong(limit, wait, false, now)
}

// bears returns the longest wait that r is held for: its MaxWait, or less where its client is known to leave sooner.
func (ln *lane) bears(r Request, now time.Time) time.Duration {
	if r.Patient {
		return r.MaxWait
	}
	return min(r.MaxWait, ln.limiter.patiences.limit(r.Client, now))
}

// push adds w to the queue, and makes it if there is none.
func (ln *lane) push(w *waiter) {
	if ln.queue == nil {
		ln.queue = &queue{}
	}
	ln.queue.push(w)
}

// tooLong returns the error of a request that is turned away, since it bears no longer wait than limit.
func (ln *lane) tooLong(limit, wait time.Duration, full bool, now time.Time) error {
	err := &WaitError{Wait: wait, Full: full}
	if rest := ln.restraint.rest(now); rest > 0 && rest > limit {
		err.Source = ln.restraint.source
	}
	return err
}

// full reports whether there is no place to wait for another request of client.
func (ln *lane) full(client string) bool {
	o := ln.limiter.rules()
	return ln.queue != nil && (ln.queue.n >= o.MaxQueue || ln.queue.len(client) >= o.MaxQueuePerClient)
}

// leave takes out a request whose client has left. If it was granted at that very moment, the grant goes back.
func (ln *lane) leave(w *waiter, now time.Time) {
	select {
	case a := <-w.ready:
		if a.grant != nil {
			ln.cancel(a.grant, now)
		}
	default:
		ln.remove(w, now)
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
		w := ln.next(now)
		switch {
		case w.kept() && !now.Before(w.lapses()):
			ln.lapse(w, now)
			continue
		case !w.kept() && w.ctx.Err() != nil:
			ln.remove(w, now) // it has left, and has not come to say so yet
			continue
		}
		if wait := ln.holds(w, now); wait > 0 {
			ln.wake(wait)
			return
		}
		ln.queue.pop(w)
		ln.left(w)
		g := ln.grant(now, w.arrived, w.client, w.delay)
		if w.gated && g.source == "" {
			g.source = Address
		}
		w.ready <- answer{grant: g}
	}
}

// holds returns how long w, whose turn it is, is held up: by its Delay and by what is under way; if it is a kept place,
// until it lapses; and by the gate of its address. What else a head must have before it starts belongs here.
func (ln *lane) holds(w *waiter, now time.Time) time.Duration {
	if wait := ln.until(now, ln.restraint.delay(w.delay)); wait > 0 {
		w.giveBack(now)
		return wait
	}
	if w.kept() {
		return w.lapses().Sub(now)
	}
	return ln.pass(w, now)
}

// remove takes w out of the queue, if it is still there.
func (ln *lane) remove(w *waiter, now time.Time) {
	w.giveBack(now)
	if ln.queue != nil && ln.queue.remove(w) {
		ln.left(w)
	}
}

// left is called when w has left the queue, and drops that when it was the last.
func (ln *lane) left(w *waiter) {
	if !w.kept() {
		ln.limiter.waiting.Add(-1)
	}
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

// grant lets a request start now, whose own Delay is delay.
func (ln *lane) grant(now, arrived time.Time, client string, delay time.Duration) *Grant {
	g := &Grant{
		lane: ln, client: client, start: now, waited: now.Sub(arrived),
		hasGap: !ln.seen.IsZero(), mark: ln.mark, seen: ln.seen,
	}
	if g.hasGap {
		g.gap = now.Sub(ln.seen)
	}
	g.delay, g.source = ln.required(delay)
	ln.bucket.AllowN(now, 1)
	ln.mark, ln.seen = now, now
	ln.moves++
	g.moves = ln.moves
	ln.flights.add(g)
	ln.limiter.granted.Add(1)
	return g
}

// required returns the least gap to the request before of one that starts now, and what asks for more than its own delay.
func (ln *lane) required(delay time.Duration) (time.Duration, Source) {
	rs := ln.restraint
	if rs == nil {
		return delay, ""
	}
	var source Source
	if rs.floor > delay {
		delay, source = rs.floor, Floor
	}
	if pause := rs.until.Sub(ln.seen); pause > delay && !ln.seen.IsZero() {
		delay, source = pause, rs.source
	}
	return delay, source
}

// hear takes in the host's answer to the request of g, and returns the pause that this begins, if it does.
func (ln *lane) hear(g *Grant, o Outcome, now time.Time) Pause {
	if g.heard {
		return Pause{}
	}
	g.heard = true
	return ln.answered(o, g.client, g.start, now)
}

// answered takes in what the host answered to a request that client sent, and returns the pause that this begins.
func (ln *lane) answered(o Outcome, client string, sent, now time.Time) Pause {
	if o.pushesBack() {
		ln.limiter.pushedBack.Add(1)
	}
	if !o.pushesBack() && o.told() == 0 || !ln.restrain().hear(o, client, sent, now) {
		return Pause{}
	}
	ln.limiter.paused.Add(1)
	ln.review(now)
	ln.pump(now)
	rs := ln.restraint
	return Pause{Key: ln.key, Until: rs.until, Source: rs.source, Streak: rs.streak}
}

// release ends the request of g, and returns the pause that its answer begins.
func (ln *lane) release(g *Grant, o Outcome, now time.Time) Pause {
	pause := ln.hear(g, o, now)
	ln.settle(now)
	if !g.done {
		ln.end(g, now)
	}
	ln.pump(now)
	return pause
}

// settle ends the requests that have gone on for longer than ReleaseAfter, each at its own moment. Nothing happens in a
// lane before it has settled, so it is enough to do this when somebody looks.
func (ln *lane) settle(now time.Time) {
	for g := ln.flights.oldest; g != nil; g = ln.flights.oldest {
		end := g.start.Add(ln.limiter.rules().ReleaseAfter)
		if end.After(now) {
			return
		}
		ln.end(g, end)
	}
}

// end takes g out of the requests under way.
func (ln *lane) end(g *Grant, at time.Time) {
	g.done = true
	ln.flights.remove(g)
	ln.learn(at.Sub(g.start))
	if ln.limiter.rules().SpacingStart {
		return
	}
	ln.mark, ln.seen = later(ln.mark, at), later(ln.seen, at)
	ln.moves++
}

// cancel takes g back as if it had not been granted. A mark that was moved since stays, as something was sent.
func (ln *lane) cancel(g *Grant, now time.Time) {
	ln.settle(now)
	if g.done {
		return
	}
	g.done = true
	ln.flights.remove(g)
	ln.limiter.cancelled.Add(1)
	if ln.moves == g.moves {
		ln.mark, ln.seen = g.mark, g.seen
		ln.moves--
	}
	if g.delay == 0 && !ln.spaced {
		ln.bucket.AllowN(now, -1) // a Reservation cannot be cancelled once its time has come
	}
}

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

// idle reports whether the lane is as good as a new one.
func (ln *lane) idle(now time.Time) bool {
	ln.settle(now)
	return ln.queue == nil && ln.flights.n == 0 && ln.restraint.over(now) &&
		now.Sub(later(ln.seen, ln.virtual)) >= max(ln.longest, ln.limiter.rules().DefaultDelay) &&
		ln.bucket.TokensAt(now) >= float64(ln.bucket.Burst())
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
