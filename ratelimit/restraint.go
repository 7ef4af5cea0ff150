package ratelimit

import "time"

// A restraint is what holds a lane up beyond the Delay of its requests: the host's own trouble, and an operator's word.
// Nearly all lanes have none, which is a nil one.
type restraint struct {
	backoff
	floor     time.Duration // the least Delay
	stopped   bool
	stopUntil time.Time // zero: until it is lifted
}

// restrain returns the lane's restraint, and makes it if there is none.
func (s *state) restrain() *restraint {
	if s.restraint == nil {
		s.restraint = &restraint{}
	}
	return s.restraint
}

// rest returns how long the lane is paused from now on: 0 or less if it is not.
func (rs *restraint) rest(now time.Time) time.Duration {
	if rs == nil {
		return 0
	}
	return rs.until.Sub(now)
}

// clientRest returns the rest of the pause of client alone, 0 or less if it has none.
func (rs *restraint) clientRest(client string, now time.Time) time.Duration {
	if rs == nil || rs.client.client != client {
		return 0
	}
	return rs.client.until.Sub(now)
}

// restFor returns the rest of the pause that holds back requests of client, that of the host or its own; 0 or less if there is
// none.
func (rs *restraint) restFor(client string, now time.Time) time.Duration {
	return max(rs.rest(now), rs.clientRest(client, now))
}

// waitError returns the error of a request of client that would wait. If a pause longer than limit holds it back, the error
// names the pause.
func (rs *restraint) waitError(client string, wait, limit time.Duration, now time.Time) *WaitError {
	err := &WaitError{Wait: wait}
	rest, own := rs.rest(now), rs.clientRest(client, now)
	switch {
	case own > rest && own > limit:
		err.Source, err.OneClient = rs.client.source, true
	case rest > 0 && rest > limit:
		err.Source = rs.source
	}
	return err
}

// stop returns the error of a lane that is stopped, and nil for all others.
func (rs *restraint) stop(now time.Time) error {
	if rs == nil || !rs.stopped || !rs.stopUntil.IsZero() && !now.Before(rs.stopUntil) {
		return nil
	}
	return &StoppedError{Until: rs.stopUntil}
}

// over reports whether there is nothing left of it to remember.
func (rs *restraint) over(now time.Time) bool {
	return rs == nil || rs.floor == 0 && rs.stop(now) == nil && rs.forgivenAt(now)
}

// delay returns d, or the operator's floor if that is more.
func (rs *restraint) delay(d time.Duration) time.Duration {
	if rs == nil {
		return d
	}
	return max(d, rs.floor)
}

// required returns the least gap between the last request and one that client starts now, and the source of it if that is not
// the request's own delay.
func (s *state) required(client string, delay time.Duration) (time.Duration, Source) {
	rs, source := s.restraint, Source("")
	if d := s.rules.DefaultDelay; d > 0 && rs.delay(delay) == 0 {
		delay, source = d, Default
	}
	if rs == nil {
		return delay, source
	}
	if rs.floor > delay {
		delay, source = rs.floor, Floor
	}
	if s.gapFrom.IsZero() {
		return delay, source
	}
	if pause := rs.until.Sub(s.gapFrom); pause > delay {
		delay, source = pause, rs.source
	}
	if pause := rs.clientRest(client, s.gapFrom); pause > delay {
		delay, source = pause, rs.client.source
	}
	return delay, source
}

// throttled handles an answer with which the host asked for fewer requests: o is the answer to a request that client sent.
func (s *state) throttled(o Outcome, client string, sent, now time.Time) {
	rs := s.restrain()
	alone := rs.client.until
	switch {
	case rs.hear(o, client, sent, now):
		s.paused(keepPause, now)
	case rs.client.until.After(alone):
		s.review(now)
		s.dispatch(now)
	}
}

// paused rejects the requests that the pause that has just begun makes wait for too long, and emits an effect of this kind.
func (s *state) paused(kind effectKind, now time.Time) {
	b := s.restraint.backoff
	s.emit(effect{kind: kind, backoff: &b})
	s.review(now)
	s.dispatch(now)
}

// override returns what an operator wants of the lane.
func (rs *restraint) override() Override {
	o := Override{Stop: rs.stopped, Floor: rs.floor}
	if o.Stop {
		o.Until = rs.stopUntil
	}
	return o
}

// SetFloor has requests of key spaced by d at least, from now on: those that wait already as well. If d is zero, the
// floor is lifted. A lane with a floor is not forgotten.
func (l *Limiter) SetFloor(key string, d time.Duration) error {
	return l.intervene(key, func(rs *restraint) { rs.floor = min(max(d, 0), longestDelay) })
}

// Stop has nothing sent to key any more from now on, until a moment or, if that is zero, until Lift. Requests that wait
// are turned away with a *StoppedError, and so is every other that comes; those under way go on. A stopped lane is not
// forgotten.
func (l *Limiter) Stop(key string, until time.Time) error {
	return l.intervene(key, func(rs *restraint) { rs.stopped, rs.stopUntil = true, until })
}

// Lift takes back Stop and SetFloor. A pause that the host itself has asked for stays.
func (l *Limiter) Lift(key string) error {
	return l.intervene(key, func(rs *restraint) { rs.stopped, rs.floor = false, 0 })
}

// Stopped returns the *StoppedError of a key that is stopped, and nil for all others. It is for requests that are not
// paced at all, since Acquire says the same.
func (l *Limiter) Stopped(key string) error {
	ln := l.present(key)
	if ln == nil {
		return nil
	}
	ln.lock()
	defer ln.unlock()
	return ln.restraint.stop(time.Now())
}

// Paused returns until when key is paused since its host pushed back, and the zero time if it is not.
func (l *Limiter) Paused(key string) time.Time {
	ln := l.present(key)
	if ln == nil {
		return time.Time{}
	}
	ln.lock()
	defer ln.unlock()
	if ln.restraint.rest(time.Now()) <= 0 {
		return time.Time{}
	}
	return ln.restraint.until
}

// intervene changes the restraint of key's lane, with effect on the requests that wait there, and in other instances.
// The error is ErrTooManyLanes, or says that other instances do not know yet.
func (l *Limiter) intervene(key string, change func(*restraint)) error {
	ln, err := l.lane(key)
	if err != nil {
		return err
	}
	override := ln.intervene(change, time.Now())
	ln.unlock()
	if l.coordinator == nil {
		return nil
	}
	err = l.coordinator.Override(key, override)
	ln.lock()
	defer ln.unlock()
	ln.others.overriding--
	ln.others.overridden = time.Now()
	return err
}

// intervene changes the restraint, and returns what other instances are to know of it.
func (s *state) intervene(change func(*restraint), now time.Time) Override {
	change(s.restrain())
	if s.others != nil {
		s.others.overriding++
	}
	s.review(now)
	s.dispatch(now)
	return s.restraint.override()
}

// review turns away those that wait for what will not come: a lane that is stopped, or one that is now paused for longer
// than they want to wait.
func (s *state) review(now time.Time) {
	stopped := s.restraint.stop(now)
	s.dismiss(now, func(w *waiter) error {
		rest := s.restraint.restFor(w.client, now)
		if stopped == nil && rest > 0 && plus(rest, now.Sub(w.arrived)) > w.maxWait {
			return s.restraint.waitError(w.client, rest, 0, now)
		}
		return stopped
	})
}

// dismiss turns away those that wait and for whom there is an error.
func (s *state) dismiss(now time.Time, why func(*waiter) error) {
	if s.queue == nil {
		return
	}
	for w := range s.queue.all() {
		if w.reserved() {
			continue // its client hears of it when it comes back
		}
		if err := why(w); err != nil {
			s.remove(w)
			s.refuse(w, err)
		}
	}
}
