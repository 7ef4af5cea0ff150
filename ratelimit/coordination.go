package ratelimit

import "time"

// A coordination is the part of a lane's state that concerns other instances. It is nil if there is no Coordinator.
//
// A lane asks for a lease if the head of its queue may start by the state of this instance, and sooner after a message
// from another instance or if askEarly says so. The lane stays unlocked during the question. The result is another
// move, and the lease goes to the request that is the head by then.
type coordination struct {
	asking   bool          // a question has no result yet
	askedAt  time.Time     // when the last question was asked
	askedFor time.Duration // the Delay in it
	reported int           // how many requests waited then
	woken    bool          // a message came since then, so the Wait of its result may be old
	askAfter time.Time     // it is useless to ask before, unless for a shorter Delay
	inLine   bool          // this instance has a place in the line of those that wait

	overriding int       // calls of Coordinator.Override that have not returned
	overridden time.Time // when the last one returned

	rivals    []int // how many requests wait in each other instance, by the last result
	lastLease int64 // by the last result
	heardAt   time.Time

	// What the lane counted from before countFromOthers changed it, and the lane's moves after that.
	moves     uint64
	delayFrom time.Time
	gapFrom   time.Time

	lease *lease // granted in this move, and not taken by a request yet
}

// A lease is the result that holds the right to start a request whose Delay is delay or less. It is nil if there is no
// Coordinator.
type lease struct {
	LeaseResult
	delay time.Duration
}

func (l *lease) mode() Mode {
	if l == nil {
		return ModeLocal
	}
	return l.Mode
}

// take returns the lease for the request that starts now.
func (c *coordination) take() *lease {
	if c == nil {
		return nil
	}
	l := c.lease
	c.lease = nil
	return l
}

// endLease gives back the lease of a request that has ended.
func (s *state) endLease(l *lease) {
	if l == nil {
		return
	}
	s.emit(effect{kind: endLease, lease: l.Lease})
	if l.Mode == ModeSpread {
		s.coordination.askAfter = time.Time{} // no message comes, since there is no connection to other instances
	}
}

// cancelLease gives back the lease of a request that was not sent.
func (s *state) cancelLease(l *lease) {
	if l != nil {
		s.emit(effect{kind: cancelLease, lease: l.Lease})
	}
}

// untilLease returns how long the head of the queue, which has this delay, waits for a lease: 0 if there is one. If
// necessary it asks for one; dispatch runs again when the result is there.
func (s *state) untilLease(delay time.Duration, now time.Time) time.Duration {
	c := s.coordination
	if c.lease != nil && c.lease.delay >= delay {
		return 0
	}
	if wait := c.askAfter.Sub(now); wait > 0 && delay >= c.askedFor {
		return wait
	}
	s.askForLease(delay, now)
	return endless
}

// askEarly asks for a lease before askAfter if the number of waiting requests has doubled since the last question. The
// other instances predict longer waits then.
func (s *state) askEarly(now time.Time) {
	if s.coordination != nil && s.queue.waiting() >= 2*max(1, s.coordination.reported) {
		s.askForHead(now)
	}
}

// askForHead asks for a lease for the head of the queue, unless its client is held back.
func (s *state) askForHead(now time.Time) {
	if w := s.next(now); !w.reserved() && !s.heldBack(w.client, now) {
		s.askForLease(s.hold.delay(w.delay), now)
	}
}

// mayAsk reports whether the lane may ask for a lease for a request that does not wait.
func (s *state) mayAsk(now time.Time, delay time.Duration, part bool) bool {
	return s.coordination != nil && s.vacant(now, part) && s.untilStart(delay, now) <= 0
}

// askForLease asks for a lease, unless a question has no result yet.
func (s *state) askForLease(delay time.Duration, now time.Time) {
	c := s.coordination
	if c.asking {
		return
	}
	c.asking, c.askedAt, c.askedFor, c.woken, c.reported = true, now, delay, false, s.queue.waiting()
	r := LeaseRequest{
		Delay: delay, FromStart: s.rules.SpacingStart, Limit: 1, InFlight: s.inflights.n, Waiting: c.reported,
		LastLease: c.lastLease, LastHeard: c.heardAt, MaxHold: s.rules.ReleaseAfter,
	}
	if delay == 0 {
		r.Delay, r.FromStart, r.Limit = s.rules.DefaultDelay, true, max(0, s.rules.MaxConcurrent)
	}
	s.emit(effect{kind: askForLease, ask: &r, after: delay})
}

// leased handles the result of a question for a request with this Delay.
func (s *state) leased(r LeaseResult, err error, delay time.Duration, now time.Time) {
	c := s.coordination
	c.asking = false
	s.expireOverdue(now)
	if err != nil {
		s.rejectIf(now, func(*waiter) error { return err })
		s.dispatch(now)
		return
	}
	c.askAfter, c.rivals, c.lastLease, c.heardAt = now.Add(r.Wait), r.Rivals, r.LastLease, now
	s.follow(r, now)
	if r.Lease != nil {
		s.countFromHere()
		c.lease, c.inLine = &lease{r, delay}, false
	} else {
		c.inLine = r.Mode == ModeRedis
		if c.woken {
			c.askAfter = now
		}
		if delay > 0 {
			s.countFromOthers(r.Gap, now)
		}
	}
	s.refuseLate(r, now)
	s.dispatch(now)
	if c.lease != nil { // no request took it
		s.cancelLease(c.take())
	}
	s.leaveLine()
}

// leaveLine gives up this instance's place in the line if no request waits here any more. The other instances would
// otherwise wait for it.
func (s *state) leaveLine() {
	if c := s.coordination; c != nil && c.inLine && !c.asking && s.queue.waiting() == 0 {
		c.inLine, c.reported = false, 0
		s.emit(effect{kind: leaveLine})
	}
}

// counted handles the result of a ThrottleEvent.
func (s *state) counted(r ThrottleResult, now time.Time) {
	h, until := s.ensureHold(), now.Add(r.Paused)
	if r.Paused <= 0 || until.Sub(h.until) <= pauseGrace {
		return
	}
	h.streak = r.Streak
	h.pause(until, r.PauseSource, now)
	s.paused(now, false)
}

// follow adopts the pause and the override of other instances.
func (s *state) follow(r LeaseResult, now time.Time) {
	if r.Paused > 0 && now.Add(r.Paused).Sub(s.ensureHold().until) > pauseGrace {
		s.hold.pause(now.Add(r.Paused), r.PauseSource, now)
	}
	if s.coordination.overriding > 0 || !s.coordination.askedAt.After(s.coordination.overridden) {
		return // the override that was set here is newer
	}
	if s.hold == nil && r.Override == (Override{}) {
		return
	}
	h := s.ensureHold()
	h.stopped, h.stopUntil, h.floor = r.Override.Stop, r.Override.Until, r.Override.Floor
	s.rejectHeld(now)
}

// pauseGrace is how much the end of a pause may differ between instances.
const pauseGrace = time.Second

// countFromOthers makes the lane count from a request of another instance, gap ago, if it knows no later one. A
// negative gap is unknown.
func (s *state) countFromOthers(gap time.Duration, now time.Time) {
	last := now.Add(-gap)
	if gap < 0 || !last.After(s.pacer.delayFrom) {
		return
	}
	s.countFromHere()
	c := s.coordination
	c.delayFrom, c.gapFrom = s.pacer.delayFrom, s.gapFrom
	s.countFrom(last, later(s.gapFrom, last))
	c.moves = s.moves
}

// countFromHere undoes countFromOthers. The other instances know better by now, since a request of theirs may have been
// cancelled.
func (s *state) countFromHere() {
	if c := s.coordination; s.moves == c.moves {
		s.countFrom(c.delayFrom, c.gapFrom)
	}
}

// refuseLate refuses requests that came after the question was asked, if they would wait for too long by its result.
// Their waits were predicted without it.
func (s *state) refuseLate(r LeaseResult, now time.Time) {
	s.rejectIf(now, func(w *waiter) error {
		if w.part || w.arrived.Before(s.coordination.askedAt) { // a part waits for no turn of another instance
			return nil
		}
		wait := s.predict(now, w.client, s.queue.position(w), s.hold.delay(w.delay))
		if w.maxWait <= 0 {
			wait = max(wait, r.Wait)
		}
		if wait <= max(0, w.maxWait) {
			return nil
		}
		return s.hold.waitError(w.client, wait, w.maxWait, now)
	})
}

// predict returns how long a request of client with this delay would wait at a position among those of client. It adds
// one step to predictHere for each request of another instance that starts before.
func (s *state) predict(now time.Time, client string, position int, delay time.Duration) time.Duration {
	wait := s.predictHere(now, client, position, delay)
	if s.coordination == nil {
		return wait
	}
	step := s.rules.step(delay, s.expectedDuration(now))
	before := s.coordination.before(s.queue.before(client, position, s.expectedDuration(now)), step, now)
	if before == 0 || step == 0 {
		return wait
	}
	if step > endless/time.Duration(before) {
		return endless
	}
	return plus(wait, step*time.Duration(before))
}

// before returns how many requests of other instances start before one that has n requests of this instance before it.
// The instances take turns. One of the rivals of the last result has started in every step since.
func (c *coordination) before(n int, step time.Duration, now time.Time) int {
	if c.lease == nil {
		n++
	}
	before := 0
	for _, waiting := range c.rivals {
		before += min(waiting, n)
	}
	if step > 0 {
		before -= int(now.Sub(c.heardAt) / step)
	}
	return max(0, before)
}

// wake asks for a lease again, since a message has come from another instance.
func (s *state) wake(now time.Time) {
	s.coordination.askAfter, s.coordination.woken = time.Time{}, true
	s.expireOverdue(now)
	if s.queue != nil {
		s.askForHead(now)
	}
}

// reportSent reports a request that is sent without a lease.
func (s *state) reportSent(delay time.Duration) {
	if s.coordination != nil {
		s.emit(effect{kind: reportSent, after: delay})
	}
}
