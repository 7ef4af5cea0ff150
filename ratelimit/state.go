package ratelimit

import (
	"context"
	"time"
)

// A state is the state of one lane: a state machine that has no clock, goroutine, timer or lock. Each move is a method that
// takes the moment at which it happens. Moments never go back. A move returns its result for the caller; all that it
// changes for others is appended to the outbox.
//
// The moves are enter, claim, hear, release, cancel and reckon of a request, tick of the timer, intervene of an operator, and
// leased, woken and reclaimAll for other instances. Each ends with dispatch, which grants what may start.
type state struct {
	rules *rules
	out   *outbox // nil: there was no effect so far

	queue     *queue // nil: no request waits
	inflights inflights

	overlaps map[string]*overlap // by client; nil: none
	debts    *debts              // nil: no request has waited of late

	hold   *hold         // nil: none
	others *coordination // nil: there is no Coordinator

	pacer       pacer         // its delayFrom is the last start or, unless SpacingStart is set, the last end
	gapFrom     time.Time     // from when a gap counts: delayFrom, or the last request that was only reckoned
	moves       uint64        // counts the changes of delayFrom and gapFrom, so that cancel undoes the last one only
	reports     *reports      // nil: there was no request that was only reckoned
	longest     time.Duration // the longest Delay so far, at least remembered and DefaultDelay
	avgDuration time.Duration // moving average of how long requests take
}

// init makes s the state of a lane that was never used.
func (s *state) init(r *rules, shared bool) {
	s.rules, s.longest = r, max(remembered, r.DefaultDelay)
	s.pacer.countFrom(time.Time{})
	if shared {
		s.others = &coordination{}
	}
}

// emit appends e to the effects of the move.
func (s *state) emit(e effect) {
	if s.out == nil {
		s.out = &outbox{}
	}
	s.out.effects = append(s.out.effects, e)
}

// enter starts r as f if r may start now, makes it wait if its wait is short enough, and rejects it otherwise. At most one of the
// results is not nil; if both are, r has started.
func (s *state) enter(ctx context.Context, r Request, f *inflight, now time.Time) (*waiter, error) {
	delay := s.hold.delay(r.delay())
	s.longest = max(s.longest, delay)
	s.expireOverdue(now)
	if err := s.hold.stop(now); err != nil && s.others == nil {
		return nil, err
	}
	if s.blocked(delay) {
		s.reclaim(now, func(client string) bool { return client != r.Client })
	}
	held := s.heldBack(r.Client, now)
	if s.others == nil && !held && s.vacant(now) && s.until(now, delay) <= 0 {
		s.start(f, now, now, r.Client, r.delay(), r.ClientTime)
		return nil, nil
	}
	w, err := s.line(ctx, r, now)
	if err != nil {
		return nil, err
	}
	w.ctx, w.delay, w.maxWait, w.arrived, w.own, w.inflight = ctx, r.delay(), max(r.MaxWait, w.maxWait), now, r.ClientTime, f
	s.dispatch(now)
	s.askEarly(now)
	return w, nil
}

// line gives r a place in the queue, if it bears the wait there.
func (s *state) line(ctx context.Context, r Request, now time.Time) (*waiter, error) {
	if !r.Once {
		if w, err := s.claimReservation(r, now); w != nil || err != nil {
			return w, err
		}
	}
	delay := s.hold.delay(r.delay())
	wait := s.predict(now, r.Client, s.queue.len(r.Client), delay)
	if s.full(r.Client) {
		return nil, s.tooLong(r.Client, r.MaxWait, wait, true, now)
	}
	if wait <= r.MaxWait && (r.MaxWait > 0 || s.mayAsk(now, delay)) {
		w := &waiter{ctx: ctx, client: r.Client, due: now.Add(wait)}
		s.push(w)
		return w, nil
	}
	if r.Once {
		return nil, s.tooLong(r.Client, r.MaxWait, wait, false, now)
	}
	s.reserve(r, wait, now)
	return nil, s.tooLong(r.Client, r.MaxWait, wait, false, now)
}

// push adds w to the queue, and makes it if there is none.
func (s *state) push(w *waiter) {
	if s.queue == nil {
		if s.debts == nil {
			s.debts = &debts{}
		}
		s.queue = &queue{debts: s.debts}
	}
	s.queue.push(w)
}

// tooLong returns the error of a request of client that is turned away, since it bears no longer wait than limit.
func (s *state) tooLong(client string, limit, wait time.Duration, full bool, now time.Time) error {
	err := s.hold.waitError(client, wait, limit, now)
	err.Full = full
	return err
}

// full reports whether there is no place to wait for another request of client.
func (s *state) full(client string) bool {
	o := s.rules
	own := s.queue.len(client)
	return own >= o.MaxQueuePerClient || own > 0 && s.queue.n >= o.MaxQueue // who has none there is not crowded out
}

// claim ends the wait of w, and reports whether its request has started. If it has not, the error says why w was turned away. A
// request that has started is cancelled if its client has left, or if the lane was stopped since.
func (s *state) claim(w *waiter, left bool, now time.Time) (bool, error) {
	stopped := s.hold.stop(now)
	switch {
	case !w.granted:
		s.remove(w)
		s.dispatch(now)
		return false, w.err
	case left, stopped != nil:
		s.cancel(w.inflight, now)
		return false, stopped
	}
	return true, nil
}

// grant starts w, whose turn it is.
func (s *state) grant(w *waiter, now time.Time) {
	s.passOver(w, now)
	s.queue.pop(w)
	s.left()
	s.start(w.inflight, now, w.arrived, w.client, w.delay, w.own)
	w.granted = true
	s.emit(effect{kind: wakeGranted, waiter: w})
}

// refuse ends the wait of w, which has left the queue, with an error.
func (s *state) refuse(w *waiter, err error) {
	w.err = err
	s.emit(effect{kind: wakeRefused, waiter: w})
}

// dispatch grants the requests that may start now, in the order of their turns, and sets the timer for the next one.
func (s *state) dispatch(now time.Time) {
	s.expireOverdue(now)
	for s.queue != nil {
		s.reclaim(now, s.queue.others)
		w := s.next(now)
		switch {
		case w.reserved() && !now.Before(s.expiry(w)):
			s.expire(w, now)
			continue
		case !w.reserved() && w.ctx.Err() != nil:
			s.remove(w) // it has left, and has not come to say so yet
			continue
		}
		if wait := s.blockedFor(w, now); wait > 0 {
			s.emit(effect{kind: setTimer, after: s.soonest(wait, now)})
			return
		}
		s.grant(w, now)
	}
}

// blockedFor returns how long w, whose turn it is, must still wait: for what concerns its client alone, if no other request can
// start; for its Delay and for requests under way; for a reservation, until it expires; and for the other instances.
func (s *state) blockedFor(w *waiter, now time.Time) time.Duration {
	if wait := s.heldFor(w.client, now); wait > 0 {
		return wait
	}
	delay := s.hold.delay(w.delay)
	if wait := s.until(now, delay); wait > 0 {
		return wait
	}
	if w.reserved() {
		return s.expiry(w).Sub(now)
	}
	if s.others == nil {
		return 0
	}
	return s.untilLease(delay, now)
}

// remove takes w out of the queue, if it is still there.
func (s *state) remove(w *waiter) {
	if s.queue != nil && s.queue.remove(w) {
		s.left()
	}
}

// left drops the queue if its last request has left it.
func (s *state) left() {
	s.leaveLine()
	if s.queue.n > 0 {
		return
	}
	s.emit(effect{kind: stopTimer})
	s.queue = nil
}

// start starts a request as f, with its own Delay. Its client may block it if own is not nil.
func (s *state) start(f *inflight, now, arrived time.Time, client string, delay time.Duration, own *ClientTime) {
	if s.debts != nil {
		s.debts.serve(client)
		s.forgive(now)
	}
	l := s.others.take()
	if l != nil && l.Gap >= 0 {
		s.gapFrom = later(s.gapFrom, now.Add(-l.Gap))
	}
	f.client, f.own, f.lease, f.spacing, f.done, f.heard, f.overlaps = client, own, l, s.hold.delay(delay), false, false, false
	f.delayFrom, f.gapFrom = s.pacer.delayFrom, s.gapFrom
	f.terms = s.terms(now, arrived, delay, f)
	s.pacer.start(f.spacing > 0, &s.rules.Options, now)
	s.countFrom(now, now)
	f.moves = s.moves
	s.inflights.add(f)
	if s.others != nil {
		s.watchAgain(now)
	}
}

// terms returns on what terms f starts.
func (s *state) terms(now, arrived time.Time, delay time.Duration, f *inflight) terms {
	t := terms{start: now, waited: now.Sub(arrived), mode: f.lease.mode(), hasGap: !s.gapFrom.IsZero()}
	if t.hasGap {
		t.gap = now.Sub(s.gapFrom)
	}
	t.delay, t.source = s.required(f.client, delay)
	t.overtaken = f.spacing > 0 && t.hasGap && t.gap < t.delay.Truncate(time.Microsecond) // which is what instances agree on
	return t
}

// release ends f at the moment end.
func (s *state) release(f *inflight, end, now time.Time) {
	s.expireOverdue(now)
	switch {
	case !f.done:
		s.end(f, end)
	case f.overlaps:
		s.overlapped(f, end)
	}
	f.number.Add(1)
	s.dispatch(now)
}

// expireOverdue ends the requests that have gone on for longer than ReleaseAfter, each at its own moment. Nothing happens in a
// lane before it has settled, so it is enough to do this when somebody looks.
func (s *state) expireOverdue(now time.Time) {
	for f := s.inflights.oldest; f != nil; f = s.inflights.oldest {
		end := f.start.Add(s.rules.ReleaseAfter)
		if end.After(now) {
			return
		}
		s.end(f, end)
	}
}

// countFrom sets the moments from which a Delay and a gap count.
func (s *state) countFrom(delayFrom, gapFrom time.Time) {
	s.pacer.countFrom(delayFrom)
	s.gapFrom = gapFrom
	s.moves++
}

// end takes f out of the requests under way.
func (s *state) end(f *inflight, at time.Time) {
	f.done = true
	s.endLease(f.lease)
	s.inflights.remove(f)
	s.learn(at.Sub(f.start))
	if s.queue.others(f.client) {
		s.debts.charge(f.client, at.Sub(f.start), s.rules.MaxQueue, at)
	}
	if s.rules.SpacingStart {
		return
	}
	s.countFrom(later(s.pacer.delayFrom, at), later(s.gapFrom, at))
}

// cancel takes f back as if it had not started. If another request has started or ended since, a Delay counts from that.
func (s *state) cancel(f *inflight, now time.Time) {
	f.number.Add(1)
	s.expireOverdue(now)
	if f.overlaps {
		s.overlapped(f, now)
	}
	if !f.done {
		s.undo(f, now)
	}
	s.dispatch(now)
}

// undo takes back the start of f.
func (s *state) undo(f *inflight, now time.Time) {
	s.cancelLease(f.lease)
	s.inflights.remove(f)
	s.emit(effect{kind: countCancelled})
	if s.moves == f.moves {
		s.countFrom(f.delayFrom, f.gapFrom)
		s.moves = f.moves - 1
	}
	if f.spacing == 0 {
		s.pacer.undoStart(&s.rules.Options, now)
	}
}

// idle reports whether the lane is as good as a new one.
func (s *state) idle(now time.Time) bool {
	s.expireOverdue(now)
	s.forgive(now)
	return s.queue == nil && s.inflights.n == 0 && s.overlapsEnd(now) && s.hold.over(now) &&
		now.Sub(later(s.gapFrom, s.reports.last())) >= max(s.longest, s.rules.DefaultDelay) &&
		s.pacer.full(now)
}
