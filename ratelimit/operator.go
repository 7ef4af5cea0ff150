package ratelimit

import "time"

// SetFloor spaces the requests of key by at least d from now on, including requests that wait already. If d is zero, it
// removes the floor. The Limiter does not forget a lane with a floor.
//
// The error is ErrTooManyLanes, or says that other instances do not know the floor yet.
func (l *Limiter) SetFloor(key string, d time.Duration) error {
	return l.intervene(key, func(h *hold) { h.floor = min(max(d, 0), longestDelay) })
}

// Stop rejects all requests for key with a *StoppedError until the given time or, if that is zero, until Lift. This
// includes requests that wait already, but not requests that have their Grant. The Limiter does not forget a stopped
// lane.
//
// The error is ErrTooManyLanes, or says that other instances do not know the stop yet.
func (l *Limiter) Stop(key string, until time.Time) error {
	return l.intervene(key, func(h *hold) { h.stopped, h.stopUntil = true, until })
}

// Lift undoes Stop and SetFloor. It does not end a pause that the host has asked for.
//
// The error is ErrTooManyLanes, or says that other instances do not know of it yet.
func (l *Limiter) Lift(key string) error {
	return l.intervene(key, func(h *hold) { h.stopped, h.floor = false, 0 })
}

// Stopped returns a *StoppedError if key is stopped, else nil. It is for requests that are not paced; Acquire returns
// the same error.
func (l *Limiter) Stopped(key string) error {
	ln := l.find(key)
	if ln == nil {
		if v, _ := l.successor.Load().peek(key); v.Stopped {
			return &StoppedError{Until: v.StoppedUntil}
		}
		return nil
	}
	ln.lock()
	defer ln.unlock()
	return ln.hold.stop(time.Now())
}

// intervene changes the hold of key's lane, here and in other instances.
func (l *Limiter) intervene(key string, change func(*hold)) error {
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
	ln.coordination.overriding--
	ln.coordination.overridden = time.Now()
	return err
}

// intervene changes the hold, and returns the override for other instances.
func (s *state) intervene(change func(*hold), now time.Time) Override {
	change(s.ensureHold())
	if s.coordination != nil {
		s.coordination.overriding++
	}
	s.rejectHeld(now)
	s.dispatch(now)
	return s.hold.override()
}

// override returns the operator's override of the lane.
func (h *hold) override() Override {
	o := Override{Stop: h.stopped, Floor: h.floor}
	if o.Stop {
		o.Until = h.stopUntil
	}
	return o
}
