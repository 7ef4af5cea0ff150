package ratelimit

import (
	"context"
	"time"
)

// A state is the state machine of one lane. It has no lock, clock, goroutine, timer or channel: the lane provides them.
// Each move is a method that takes the present moment, which never goes back. A move returns its result to its caller,
// and appends its effects on others to the outbox. Apart from its arguments, it uses only ctx.Err and the ClientTime of
// requests, the misses that all lanes share, and random numbers.
//
// The moves are:
//
//   - enter, claim, release, cancel and reckon, of a request
//   - throttled, of a response of the host
//   - dispatch, of the timer
//   - intervene, of an operator
//   - leased, counted, wake and reclaimForOthers, of other instances
//
// A move after which a request may start ends with dispatch, which grants the requests that may start and sets the
// timer for the next one.
type state struct {
	rules *rules
	out   *outbox // nil: there were no effects yet

	queue     *queue // nil: no request waits
	inflights inflights

	overlaps overlaps
	debts    *debts // nil: no request has waited of late

	hold         *hold         // nil: there is no pause, stop or floor
	coordination *coordination // nil: there is no Coordinator

	pacer       pacer         // counts a Delay from the last start or, unless SpacingStart is set, from the last end
	gapFrom     time.Time     // from when a gap counts: pacer.delayFrom, or a later call of reckon
	moves       uint64        // counts the changes of pacer.delayFrom and gapFrom: cancel undoes only the last one
	reportSlot  *time.Time    // of the last call of reckon; nil: there was none
	longest     time.Duration // the longest Delay so far, but at least remembered
	avgDuration time.Duration // moving average of how long requests take
}

// init initializes s for a lane that was never used.
func (s *state) init(r *rules, shared bool) {
	s.rules, s.longest = r, remembered
	s.pacer.countFrom(time.Time{})
	if shared {
		s.coordination = &coordination{}
	}
}

// emit appends e to the effects of the move.
func (s *state) emit(e effect) {
	if s.out == nil {
		s.out = &outbox{}
	}
	s.out.effects = append(s.out.effects, e)
}

// enter starts r as f if it may start now. Otherwise it returns a waiter or, if the wait is too long, an error.
func (s *state) enter(ctx context.Context, r Request, f *inflight, now time.Time) (*waiter, error) {
	f.client, f.clientTime = r.Client, r.ClientTime
	delay := s.hold.delay(r.delay())
	s.longest = max(s.longest, delay)
	s.expireOverdue(now)
	if err := s.hold.stop(now); err != nil && s.coordination == nil { // another instance may have lifted it: see leased
		return nil, err
	}
	if s.busy(delay) {
		s.reclaim(now, func(client string) bool { return client != r.Client })
	}
	if s.coordination == nil && !s.heldBack(r.Client, now) && s.vacant(now, r.Part) && s.untilStart(delay, now) <= 0 {
		s.start(f, r.delay(), now, now)
		if r.Part {
			s.notePart(now)
		}
		return nil, nil
	}
	w, err := s.join(r, now)
	if err != nil {
		return nil, err
	}
	w.ctx, w.delay, w.maxWait, w.arrived, w.inflight = ctx, r.delay(), max(r.MaxWait, w.maxWait), now, f
	s.dispatch(now)
	s.askEarly(now)
	return w, nil
}

// join adds r to the queue, or claims the reservation of its client. The error says that r would wait for too long, or
// that the queue is full. The caller makes the waiter a request by setting its other fields.
func (s *state) join(r Request, now time.Time) (*waiter, error) {
	if !r.Once && !r.Part {
		if w, err := s.claimReservation(r, now); w != nil || err != nil {
			return w, err
		}
	}
	delay := s.hold.delay(r.delay())
	wait := s.predict(now, r.Client, len(s.queue.of(r.Client)), delay)
	if r.Part && s.queue != nil && s.letsPartsPass(now) {
		wait = s.predictPart(now, r.Client, delay)
	}
	full := s.queue.full(r.Client, s.rules)
	if !full && wait <= r.MaxWait && (r.MaxWait > 0 || s.mayAsk(now, delay, r.Part)) {
		w := &waiter{client: r.Client, due: now.Add(wait), part: r.Part}
		s.push(w)
		return w, nil
	}
	if !full && !r.Once {
		s.reserve(r, wait, now)
	}
	err := s.hold.waitError(r.Client, wait, r.MaxWait, now)
	err.Full = full
	return nil, err
}

// push adds w to the queue.
func (s *state) push(w *waiter) {
	if s.queue == nil {
		if s.debts == nil {
			s.debts = &debts{}
		}
		s.queue = &queue{debts: s.debts}
	}
	s.queue.push(w)
}

// dispatch grants the requests that may start now, in the order of their turns, and sets the timer for the next one.
func (s *state) dispatch(now time.Time) {
	s.expireOverdue(now)
	for s.queue != nil {
		s.reclaim(now, s.queue.othersWait)
		w := s.next(now)
		switch {
		case w.reserved() && !now.Before(s.expiry(w)):
			s.expire(w, now)
			continue
		case !w.reserved() && w.ctx.Err() != nil:
			s.remove(w) // the client has left; claim follows
			continue
		}
		if wait := s.blockedFor(w, now); wait > 0 {
			s.emit(effect{kind: setTimer, after: s.soonest(wait, now)})
			return
		}
		s.grant(w, now)
	}
}

// blockedFor returns how long w, which has the next turn, must still wait, 0 or less if it may start: because of its
// client, if all clients are held back; because of its Delay or the requests in flight; because it is a reservation; or
// because of other instances.
func (s *state) blockedFor(w *waiter, now time.Time) time.Duration {
	if wait := s.heldFor(w.client, now); wait > 0 {
		return wait
	}
	delay := s.hold.delay(w.delay)
	if wait := s.untilStart(delay, now); wait > 0 {
		return wait
	}
	if w.reserved() {
		return s.expiry(w).Sub(now)
	}
	if s.coordination == nil {
		return 0
	}
	return s.untilLease(delay, now)
}

// untilStart returns how long the next request, which has this Delay, must wait, 0 or less if it may start now. If it
// waits for a request in flight, the result is the time until the next check.
func (s *state) untilStart(delay time.Duration, now time.Time) time.Duration {
	rest := s.hold.pauseLeft(now)
	if s.busy(delay) {
		return max(rest, s.soonestEnd(now))
	}
	return max(rest, s.pacer.wait(delay, &s.rules.Options, now))
}

// busy reports whether a request with this Delay must wait for a request in flight to end.
func (s *state) busy(delay time.Duration) bool {
	if delay > 0 {
		return s.inflights.n > 0
	}
	limit := s.rules.MaxConcurrent
	return limit > 0 && s.inflights.n >= limit
}

// grant starts w, and wakes it.
func (s *state) grant(w *waiter, now time.Time) {
	if !w.part {
		s.passOver(w, now)
	}
	s.queue.pop(w)
	s.removed()
	if w.part {
		s.notePart(now)
	}
	s.start(w.inflight, w.delay, w.arrived, now)
	w.granted = true
	s.emit(effect{kind: wakeGranted, waiter: w})
}

// claim ends the wait of w after it was woken or its client has left. It reports whether the request of w may be sent.
// Otherwise the error says why the request was rejected; it is nil if the client has left.
//
// A request that has started is cancelled if its client has left, or if an operator has stopped the lane since.
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

// remove removes w from the queue, if it is still there.
func (s *state) remove(w *waiter) {
	if s.queue != nil && s.queue.remove(w) {
		s.removed()
	}
}

// removed must be called after a request or reservation was removed from the queue. It drops an empty queue.
func (s *state) removed() {
	s.leaveLine()
	if s.queue.n == 0 {
		s.queue = nil
		s.emit(effect{kind: stopTimer})
	}
}

// start starts f, a request with this Delay that has arrived at the moment arrived.
func (s *state) start(f *inflight, delay time.Duration, arrived, now time.Time) {
	if s.debts != nil {
		s.debts.serve(f.client)
		s.forgive(now)
	}
	l := s.coordination.take()
	if l != nil && l.Gap >= 0 {
		s.gapFrom = later(s.gapFrom, now.Add(-l.Gap))
	}
	f.lease, f.spacing, f.done, f.heard, f.overlaps = l, s.hold.delay(delay), false, false, false
	f.released = time.Time{}
	f.delayFrom, f.gapFrom = s.pacer.delayFrom, s.gapFrom
	f.terms = s.terms(now, arrived, delay, f)
	s.pacer.start(f.spacing > 0, &s.rules.Options, now)
	s.countFrom(now, now)
	f.moves = s.moves
	s.inflights.add(f)
	if s.coordination != nil {
		s.watchAgain(now)
	}
}

// terms returns the terms of f, which starts now.
func (s *state) terms(now, arrived time.Time, delay time.Duration, f *inflight) terms {
	t := terms{start: now, waited: now.Sub(arrived), mode: f.lease.mode(), hasGap: !s.gapFrom.IsZero()}
	if t.hasGap {
		t.gap = now.Sub(s.gapFrom)
	}
	t.delay, t.source = s.required(f.client, delay)
	t.fromStart = s.rules.SpacingStart
	// Instances agree on microseconds.
	t.overtaken = f.spacing > 0 && t.hasGap && t.gap < t.delay.Truncate(time.Microsecond)
	return t
}

// countFrom sets the moments from which a Delay and a gap count.
func (s *state) countFrom(delayFrom, gapFrom time.Time) {
	s.pacer.countFrom(delayFrom)
	s.gapFrom = gapFrom
	s.moves++
}

// sentLater has a Delay count from now, and not from the start of f, unless f has ended or another request has started.
func (s *state) sentLater(f *inflight, now time.Time) {
	if f.done || s.moves != f.moves {
		return
	}
	s.countFrom(now, now)
	f.moves = s.moves
}

// release ends f at the moment end, which is not after now. It returns when the lane stopped counting f.
func (s *state) release(f *inflight, end, now time.Time) time.Time {
	f.number.Add(1)
	s.expireOverdue(now)
	switch {
	case !f.done:
		s.end(f, end)
	case f.overlaps:
		s.overlaps.end(f, end, s.rules)
	}
	s.dispatch(now)
	return f.released
}

// expireOverdue ends the requests that have gone on for longer than ReleaseAfter, each at its own moment. It needs no
// timer, since every move calls it before it looks at the requests in flight.
func (s *state) expireOverdue(now time.Time) {
	for f := s.inflights.oldest; f != nil; f = s.inflights.oldest {
		end := f.start.Add(s.rules.ReleaseAfter)
		if end.After(now) {
			return
		}
		s.end(f, end)
	}
}

// end removes f from the requests in flight, and has a Delay count from the moment at.
func (s *state) end(f *inflight, at time.Time) {
	f.done, f.released = true, at
	s.endLease(f.lease)
	s.inflights.remove(f)
	took := at.Sub(f.start)
	s.avgDuration = average(s.avgDuration, took)
	if s.queue.othersWait(f.client) {
		s.debts.charge(f.client, took, s.rules.MaxQueue, at)
	}
	if !s.rules.SpacingStart {
		s.countFrom(later(s.pacer.delayFrom, at), later(s.gapFrom, at))
	}
}

// cancel takes f back as if it had never started, if it was not counted as ended before.
func (s *state) cancel(f *inflight, now time.Time) {
	f.number.Add(1)
	s.expireOverdue(now)
	if f.overlaps {
		s.overlaps.end(f, now, s.rules)
	}
	if !f.done {
		s.undoStart(f, now)
	}
	s.dispatch(now)
}

// undoStart undoes start. If another request has started or ended since, a Delay counts from that.
func (s *state) undoStart(f *inflight, now time.Time) {
	s.cancelLease(f.lease)
	s.inflights.remove(f)
	s.emit(effect{kind: countCancelled})
	if s.moves == f.moves {
		s.countFrom(f.delayFrom, f.gapFrom)
		s.moves = f.moves - 1 // so that the request before f can be cancelled too
	}
	if f.spacing == 0 {
		s.pacer.undoStart(&s.rules.Options, now)
	}
}

// idle reports whether the lane can be dropped, because a new one would behave the same.
func (s *state) idle(now time.Time) bool {
	s.expireOverdue(now)
	s.forgive(now)
	s.overlaps.dropOver(now)
	return s.queue == nil && s.inflights.n == 0 && s.overlaps == nil && s.hold.over(now) &&
		now.Sub(later(s.gapFrom, s.lastSlot())) >= max(s.longest, s.rules.DefaultDelay) &&
		s.pacer.full(now)
}

// later returns the later of two moments.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
