package ratelimit

import "time"

// A share is a lane's part in what several instances agree on. It is nil where there is only this one.
//
// A request whose turn it is here, and which may start by what is known here, asks the others. Who asks does not hold
// the lane: the answer comes as one more move, and goes to whoever is the first in the queue by then.
type share struct {
	asking    bool      // a question is under way
	asked     time.Time // when the last one was put
	lined     bool      // this instance stands in the line of those that wait
	stale     bool      // the lane was woken since, so what the answer says of the wait may be old
	again     time.Time // before then there is no use in asking
	telling   int       // orders of the operator here that the others are being told of
	told      time.Time // when they had been told of the last one
	said      int       // how many requests wait here, by the last question
	rivals    []int     // how many wait in each other instance, by the last answer
	heard     time.Time // when that was
	last      int64     // the number of the last lease
	moves     uint64    // the lane's when its delayFrom and gapFrom were last taken from an answer
	delayFrom time.Time // the lane's before that, as is gapFrom
	gapFrom   time.Time
	turn      *turn // the right to start, between an answer and the end of the move that it brings
}

// A turn is the right to start a request with no longer a delay, by the agreement of all instances.
type turn struct {
	LeaseResult
	delay time.Duration
}

func (t *turn) mode() Mode {
	if t == nil {
		return ModeLocal
	}
	return t.Mode
}

// take returns the turn for the request that starts now. Nil: there is none, and nobody to ask for one.
func (sh *share) take() *turn {
	if sh == nil {
		return nil
	}
	t := sh.turn
	sh.turn = nil
	return t
}

// endTurn gives back the lease of a request that has ended. The turn of a lane that is not shared is nil.
func (s *state) endTurn(t *turn) {
	if t == nil {
		return
	}
	s.emit(effect{kind: endLease, lease: t.Lease})
	if t.Mode == ModeSpread {
		s.share.again = time.Time{} // without Redis, no other instance tells of it
	}
}

// cancelTurn gives back the lease of a request that was not sent.
func (s *state) cancelTurn(t *turn) {
	if t != nil {
		s.emit(effect{kind: cancelLease, lease: t.Lease})
	}
}

// agreed returns how long the first in the queue, whose delay is given, waits for the other instances: 0 if there is a
// turn to take. Who asks does not know that yet; dispatch is run again when the answer is there.
func (s *state) agreed(delay time.Duration, now time.Time) time.Duration {
	sh := s.share
	if sh.turn != nil && sh.turn.delay >= delay {
		return 0
	}
	if wait := sh.again.Sub(now); wait > 0 {
		return wait
	}
	s.question(delay, now)
	return endless // the answer to it runs dispatch
}

// crowds puts a question although it is not time yet, if twice as many wait here as the others know of.
func (s *state) crowds(now time.Time) {
	if s.share == nil || s.queue.waiting() < 2*max(1, s.share.said) {
		return
	}
	if w := s.next(now); !w.reserved() && !s.heldBack(w.client, now) {
		s.question(s.restraint.delay(w.delay), now)
	}
}

// mayAsk reports whether a request that does not wait may ask the others all the same.
func (s *state) mayAsk(now time.Time, delay time.Duration) bool {
	return s.share != nil && s.vacant(now) && s.until(now, delay) <= 0
}

// question asks the other instances for a turn, unless that is being done.
func (s *state) question(delay time.Duration, now time.Time) {
	sh := s.share
	if sh.asking {
		return
	}
	sh.asking, sh.asked, sh.stale, sh.said = true, now, false, s.queue.waiting()
	o := s.rules
	a := LeaseRequest{Delay: delay, Start: o.SpacingStart, Limit: 1, UnderWay: s.inflights.n, Waiting: sh.said, Last: sh.last, Heard: sh.heard, Hold: o.ReleaseAfter}
	if delay == 0 {
		a.Delay, a.Start, a.Limit = o.DefaultDelay, true, max(0, o.MaxConcurrent)
	}
	s.emit(effect{kind: askForLease, ask: &a, after: delay})
}

// leased handles the result of a question for a request with this Delay.
func (s *state) leased(answer LeaseResult, err error, delay time.Duration, now time.Time) {
	sh := s.share
	sh.asking = false
	if err != nil {
		s.dismiss(now, func(*waiter) error { return err })
		s.dispatch(now)
		return
	}
	sh.again, sh.rivals, sh.last, sh.heard = now.Add(answer.Wait), answer.Rivals, answer.Last, now
	s.obey(answer, now)
	if answer.Lease != nil {
		s.unyield()
		sh.turn, sh.lined = &turn{answer, delay}, false
	} else {
		sh.lined = answer.Mode == ModeRedis
		s.yield(answer, delay, now)
	}
	s.foresee(answer, now)
	s.dispatch(now)
	if sh.turn != nil { // nobody was there to take it
		s.cancelTurn(sh.take())
	}
	s.leaveLine()
}

// leaveLine gives up this instance's place in the line if nobody waits here any more, or the others would wait for it.
func (s *state) leaveLine() {
	if sh := s.share; sh != nil && sh.lined && !sh.asking && s.queue.waiting() == 0 {
		sh.lined, sh.said = false, 0
		s.emit(effect{kind: leaveLine})
	}
}

// judged handles what the complaints of all instances have come to.
func (s *state) judged(v Verdict, now time.Time) {
	rs, until := s.restrain(), now.Add(v.Paused)
	if v.Paused <= 0 || until.Sub(rs.until) <= pauseGrace {
		return
	}
	rs.streak = v.Streak
	rs.pause(until, v.PausedBy, now)
	s.paused(storePause, now)
}

// obey takes in what the operator and the host have said to other instances.
func (s *state) obey(a LeaseResult, now time.Time) {
	if a.Paused > 0 && now.Add(a.Paused).Sub(s.restrain().until) > pauseGrace {
		s.restraint.pause(now.Add(a.Paused), a.PausedBy, now)
	}
	if s.share.telling > 0 || !s.share.asked.After(s.share.told) {
		return // what the operator has said here is newer
	}
	if s.restraint == nil && a.Override == (Override{}) {
		return
	}
	rs := s.restrain()
	rs.stopped, rs.stopUntil, rs.floor = a.Override.Stop, a.Override.Until, a.Override.Floor
	s.review(now)
}

// pauseGrace is how much the end of a pause may differ after it was told around.
const pauseGrace = time.Second

// yield takes in that it is not this instance's turn.
func (s *state) yield(a LeaseResult, delay time.Duration, now time.Time) {
	if s.share.stale {
		s.share.again = now
	}
	if last := now.Add(-a.Gap); a.Gap >= 0 && delay > 0 && last.After(s.pacer.delayFrom) {
		s.unyield()
		sh := s.share
		sh.delayFrom, sh.gapFrom = s.pacer.delayFrom, s.gapFrom
		s.countFrom(last, later(s.gapFrom, last))
		sh.moves = s.moves
	}
}

// unyield forgets what was last taken in of other instances: they know better by now, since what had started there may have
// been cancelled.
func (s *state) unyield() {
	if sh := s.share; s.moves == sh.moves {
		s.countFrom(sh.delayFrom, sh.gapFrom)
	}
}

// foresee turns away requests that have come since the question was put, and whose wait was foreseen without what the
// answer says of the others, if it is too long.
func (s *state) foresee(a LeaseResult, now time.Time) {
	s.dismiss(now, func(w *waiter) error {
		if w.arrived.Before(s.share.asked) {
			return nil
		}
		wait := s.predict(now, w.client, s.queue.place(w), s.restraint.delay(w.delay))
		if w.maxWait <= 0 {
			wait = max(wait, a.Wait)
		}
		if wait <= max(0, w.maxWait) {
			return nil
		}
		return s.tooLong(w.client, w.maxWait, wait, false, now)
	})
}

// predict returns how long a request of client with this delay would wait at a place in the client's file: as predictHere
// does, and a step more for each request of another instance that has its turn before.
func (s *state) predict(now time.Time, client string, place int, delay time.Duration) time.Duration {
	wait := s.predictHere(now, client, place, delay)
	if s.share == nil {
		return wait
	}
	step := s.step(delay, s.takes(now))
	turns := s.share.turns(s.queue.before(client, place, s.takes(now)), step, now)
	if turns == 0 || step == 0 {
		return wait
	}
	if step > endless/time.Duration(turns) {
		return endless
	}
	return plus(wait, step*time.Duration(turns))
}

// turns returns for how many requests of other instances one waits that has n of its own instance before it, where a
// request starts every step. The instances take turns, and those that waited when they were last heard of are served.
func (sh *share) turns(n int, step time.Duration, now time.Time) int {
	if sh == nil {
		return 0
	}
	if sh.turn == nil {
		n++
	}
	turns := 0
	for _, waiting := range sh.rivals {
		turns += min(waiting, n)
	}
	if step > 0 {
		turns -= int(now.Sub(sh.heard) / step)
	}
	return max(0, turns)
}

// woken asks again for the head of the queue, since another instance has news.
func (s *state) woken(now time.Time) {
	s.share.again, s.share.stale = time.Time{}, true
	if s.queue == nil {
		return
	}
	if w := s.next(now); !w.reserved() && !s.heldBack(w.client, now) {
		s.question(s.restraint.delay(w.delay), now)
	}
}

// sentHere has the other instances know of a request that is sent whatever they say.
func (s *state) sentHere(delay time.Duration) {
	if s.share != nil {
		s.emit(effect{kind: tellSent, after: delay})
	}
}
