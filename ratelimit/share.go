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
	turn      *turn       // the right to start, between an answer and the end of the move that it brings
	watch     *time.Timer // runs lane.watch; nil: it has never been set
}

// A turn is the right to start a request with no longer a delay, by the agreement of all instances.
type turn struct {
	LeaseResult
	delay time.Duration
}

// The turn of a lane that is not shared is nil, and has nothing to give back.

func (t *turn) end() {
	if t != nil {
		t.Lease.End()
	}
}

func (t *turn) cancel() {
	if t != nil {
		t.Lease.Cancel()
	}
}

func (t *turn) mode() Mode {
	if t == nil {
		return ModeLocal
	}
	return t.Mode
}

// take returns the turn for the request that starts now. Nil: there is none, and nobody to ask for one.
func (s *share) take() *turn {
	if s == nil {
		return nil
	}
	t := s.turn
	s.turn = nil
	return t
}

// freed is told that the request of t has ended: without Redis nobody else says so.
func (s *share) freed(t *turn) {
	if s != nil && t.mode() == ModeSpread {
		s.again = time.Time{}
	}
}

// agreed returns how long the first in the queue, whose delay is given, waits for the other instances: 0 if there is a
// turn to take. Who asks does not know that yet; pump is run again when the answer is there.
func (ln *lane) agreed(delay time.Duration, now time.Time) time.Duration {
	s := ln.share
	if s.turn != nil && s.turn.delay >= delay {
		return 0
	}
	if wait := s.again.Sub(now); wait > 0 {
		return wait
	}
	ln.question(delay, now)
	return endless // the answer to it runs pump
}

// crowds puts a question although it is not time yet, if twice as many wait here as the others know of.
func (ln *lane) crowds(now time.Time) {
	if ln.share == nil || ln.queue.waiting() < 2*max(1, ln.share.said) {
		return
	}
	if w := ln.next(now); !w.kept() && !ln.heldBack(w.client, now) {
		ln.question(ln.restraint.delay(w.delay), now)
	}
}

// mayAsk reports whether a request that does not wait may ask the others all the same.
func (ln *lane) mayAsk(now time.Time, delay time.Duration) bool {
	return ln.share != nil && ln.vacant(now) && ln.until(now, delay) <= 0
}

// question asks the other instances for a turn, unless that is being done.
func (ln *lane) question(delay time.Duration, now time.Time) {
	s := ln.share
	if s.asking {
		return
	}
	s.asking, s.asked, s.stale, s.said = true, now, false, ln.queue.waiting()
	o := ln.limiter.rules()
	a := LeaseRequest{Key: ln.key, Delay: delay, Start: o.SpacingStart, Limit: 1, UnderWay: ln.flights.n, Waiting: s.said, Last: s.last, Heard: s.heard, Hold: o.ReleaseAfter}
	if delay == 0 {
		a.Delay, a.Start, a.Limit = o.DefaultDelay, true, max(0, o.MaxConcurrent)
	}
	go ln.ask(a, delay)
}

// ask puts the question, and makes the move that the answer calls for.
func (ln *lane) ask(a LeaseRequest, delay time.Duration) {
	answer, err := ln.limiter.coordinator.Lease(a)
	ln.mu.Lock()
	defer ln.mu.Unlock()
	now, s := time.Now(), ln.share
	s.asking = false
	if err != nil {
		ln.dismiss(now, func(*waiter) error { return err })
		ln.pump(now)
		return
	}
	s.again, s.rivals, s.last, s.heard = now.Add(answer.Wait), answer.Rivals, answer.Last, now
	ln.obey(answer, now)
	if answer.Lease != nil {
		ln.unyield()
		s.turn, s.lined = &turn{answer, delay}, false
	} else {
		s.lined = answer.Mode == ModeRedis
		ln.yield(answer, delay, now)
	}
	ln.foresee(answer, now)
	ln.pump(now)
	if s.turn != nil { // nobody was there to take it
		s.take().cancel()
	}
	ln.leaveLine()
}

// leaveLine gives up this instance's place in the line if nobody waits here any more, or the others would wait for it.
func (ln *lane) leaveLine() {
	if s := ln.share; s != nil && s.lined && !s.asking && ln.queue.waiting() == 0 {
		s.lined, s.said = false, 0
		ln.limiter.coordinator.Leave(ln.key)
	}
}

// complain has the instances count an answer that named no time, or that may concern client alone. One that is not personal is
// counted here alone if they cannot.
func (ln *lane) complain(o Outcome, client string, sent time.Time) {
	ln.mu.Lock()
	c := Complaint{Key: ln.key, Client: client, Sent: sent, Streak: ln.restrain().climbed(time.Now()), Personal: o.personal(), Told: o.told()}
	ln.mu.Unlock()
	verdict, err := ln.limiter.coordinator.Complain(c)

	ln.mu.Lock()
	now, rs, pause := time.Now(), ln.restrain(), Pause{}
	switch until := now.Add(verdict.Paused); {
	case err != nil && o.personal(): // it was counted here
	case err != nil:
		if rs.hear(o, client, sent, now) {
			pause = ln.paused(now)
		}
	case verdict.Paused > 0 && until.Sub(rs.until) > pauseGrace:
		rs.streak = verdict.Streak
		rs.pause(until, verdict.PausedBy, now)
		pause = ln.paused(now)
	}
	ln.mu.Unlock()
	if err != nil {
		ln.limiter.keep(pause)
		return
	}
	ln.limiter.store(pause) // the others know of it
}

// obey takes in what the operator and the host have said to other instances.
func (ln *lane) obey(a LeaseResult, now time.Time) {
	if a.Paused > 0 && now.Add(a.Paused).Sub(ln.restrain().until) > pauseGrace {
		ln.restraint.pause(now.Add(a.Paused), a.PausedBy, now)
	}
	if ln.share.telling > 0 || !ln.share.asked.After(ln.share.told) {
		return // what the operator has said here is newer
	}
	if ln.restraint == nil && a.Override == (Override{}) {
		return
	}
	rs := ln.restrain()
	rs.stopped, rs.stopUntil, rs.floor = a.Override.Stop, a.Override.Until, a.Override.Floor
	ln.review(now)
}

// pauseGrace is how much the end of a pause may differ after it was told around.
const pauseGrace = time.Second

// yield takes in that it is not this instance's turn.
func (ln *lane) yield(a LeaseResult, delay time.Duration, now time.Time) {
	if ln.share.stale {
		ln.share.again = now
	}
	if last := now.Add(-a.Gap); a.Gap >= 0 && delay > 0 && last.After(ln.pacer.delayFrom) {
		ln.unyield()
		s := ln.share
		s.delayFrom, s.gapFrom = ln.pacer.delayFrom, ln.gapFrom
		ln.countFrom(last, later(ln.gapFrom, last))
		s.moves = ln.moves
	}
}

// unyield forgets what was last taken in of other instances: they know better by now, since what had started there may have
// been cancelled.
func (ln *lane) unyield() {
	if s := ln.share; ln.moves == s.moves {
		ln.countFrom(s.delayFrom, s.gapFrom)
	}
}

// foresee turns away requests that have come since the question was put, and whose wait was foreseen without what the
// answer says of the others, if it is too long.
func (ln *lane) foresee(a LeaseResult, now time.Time) {
	ln.dismiss(now, func(w *waiter) error {
		if w.arrived.Before(ln.share.asked) {
			return nil
		}
		wait := ln.predict(now, w.client, ln.queue.place(w), ln.restraint.delay(w.delay))
		if w.maxWait <= 0 {
			wait = max(wait, a.Wait)
		}
		if wait <= max(0, w.maxWait) {
			return nil
		}
		return ln.tooLong(w.client, w.maxWait, wait, false, now)
	})
}

// predict returns how long a request of client with this delay would wait at a place in the client's file: as predictHere
// does, and a step more for each request of another instance that has its turn before.
func (ln *lane) predict(now time.Time, client string, place int, delay time.Duration) time.Duration {
	wait := ln.predictHere(now, client, place, delay)
	if ln.share == nil {
		return wait
	}
	step := ln.step(delay, ln.takes(now))
	turns := ln.share.turns(ln.queue.before(client, place, ln.takes(now)), step, now)
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
func (s *share) turns(n int, step time.Duration, now time.Time) int {
	if s == nil {
		return 0
	}
	if s.turn == nil {
		n++
	}
	turns := 0
	for _, waiting := range s.rivals {
		turns += min(waiting, n)
	}
	if step > 0 {
		turns -= int(now.Sub(s.heard) / step)
	}
	return max(0, turns)
}

// woken is told when there is news of key from other instances.
func (l *Limiter) woken(key string) {
	ln := l.present(key)
	if ln == nil {
		return
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.share.again, ln.share.stale = time.Time{}, true
	if ln.queue == nil {
		return
	}
	now := time.Now()
	if w := ln.next(now); !w.kept() && !ln.heldBack(w.client, now) {
		ln.question(ln.restraint.delay(w.delay), now)
	}
}

// tell has the other instances know of the lane's order. Its lock is held, but not while they are told.
func (ln *lane) tell(o Override) error {
	s := ln.share
	if s == nil {
		return nil
	}
	s.telling++
	ln.mu.Unlock()
	err := ln.limiter.coordinator.Override(ln.key, o)
	ln.mu.Lock()
	s.telling--
	s.told = time.Now()
	return err
}

// tellSent has the other instances know of a request that is sent whatever they say.
func (ln *lane) tellSent(delay time.Duration) {
	if ln.share != nil {
		ln.limiter.coordinator.Sent(ln.key, delay)
	}
}
