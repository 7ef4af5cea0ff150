package ratelimit

import "time"

// A hold is what delays the requests of a lane beyond their own Delay: the pauses of the host, and an operator's
// override. Most lanes have no hold. A nil hold delays nothing.
type hold struct {
	backoff
	floor     time.Duration // the least Delay
	stopped   bool
	stopUntil time.Time // zero: until Lift
}

// ensureHold returns the hold of the lane, and adds it if there is none.
func (s *state) ensureHold() *hold {
	if s.hold == nil {
		s.hold = &hold{}
	}
	return s.hold
}

// pauseLeft returns how long the lane is still paused, 0 or less if it is not.
func (h *hold) pauseLeft(now time.Time) time.Duration {
	if h == nil {
		return 0
	}
	return h.until.Sub(now)
}

// clientPauseLeft returns how long client alone is still paused, 0 or less if it is not.
func (h *hold) clientPauseLeft(client string, now time.Time) time.Duration {
	if h == nil || h.client.client != client {
		return 0
	}
	return h.client.until.Sub(now)
}

// pauseLeftFor returns how long requests of client are still paused, with the lane or alone; 0 or less if they are not.
func (h *hold) pauseLeftFor(client string, now time.Time) time.Duration {
	return max(h.pauseLeft(now), h.clientPauseLeft(client, now))
}

// waitError returns the error of a request of client with this wait. If a pause longer than limit delays the request,
// the error names the source of the pause.
func (h *hold) waitError(client string, wait, limit time.Duration, now time.Time) *WaitError {
	err := &WaitError{Wait: wait}
	left, own := h.pauseLeft(now), h.clientPauseLeft(client, now)
	switch {
	case own > left && own > limit:
		err.Source, err.OneClient = h.client.source, true
	case left > 0 && left > limit:
		err.Source = h.source
	}
	return err
}

// stop returns a *StoppedError if the lane is stopped, else nil.
func (h *hold) stop(now time.Time) error {
	if h == nil || !h.stopped || !h.stopUntil.IsZero() && !now.Before(h.stopUntil) {
		return nil
	}
	return &StoppedError{Until: h.stopUntil}
}

// over reports whether h makes no difference any more.
func (h *hold) over(now time.Time) bool {
	return h == nil || h.floor == 0 && h.stop(now) == nil && h.forgettable(now)
}

// delay returns d, or the floor if that is longer.
func (h *hold) delay(d time.Duration) time.Duration {
	if h == nil {
		return d
	}
	return max(d, h.floor)
}

// required returns the least gap between the last request and a request of client that starts now. It also returns the
// source of the gap, which is empty if that is the request's own delay.
func (s *state) required(client string, delay time.Duration) (time.Duration, Source) {
	h, source := s.hold, Source("")
	if d := s.rules.DefaultDelay; d > 0 && h.delay(delay) == 0 {
		delay, source = d, Default
	}
	if h == nil {
		return delay, source
	}
	if h.floor > delay {
		delay, source = h.floor, Floor
	}
	if s.gapFrom.IsZero() {
		return delay, source
	}
	if pause := h.until.Sub(s.gapFrom); pause > delay {
		delay, source = pause, h.source
	}
	if pause := h.clientPauseLeft(client, s.gapFrom); pause > delay {
		delay, source = pause, h.client.source
	}
	return delay, source
}

// throttled handles a response with which the host throttles: o is the outcome of a request that client sent.
func (s *state) throttled(o Outcome, client string, sent, now time.Time) {
	h := s.ensureHold()
	clientUntil := h.client.until
	switch {
	case h.hear(o, client, sent, now):
		s.paused(now, true)
	case h.client.until.After(clientUntil):
		s.rejectHeld(now)
		s.dispatch(now)
	}
}

// paused stores the pause that has just begun, reports it to other instances if they do not know it, and rejects the
// requests that would wait too long.
func (s *state) paused(now time.Time, report bool) {
	b := s.hold.backoff
	if report {
		s.emit(effect{kind: reportPause, backoff: &b})
	}
	s.emit(effect{kind: storePause, backoff: &b})
	s.rejectHeld(now)
	s.dispatch(now)
}

// Paused returns when the pause ends that the host of key has asked for, or the zero time if there is none.
func (l *Limiter) Paused(key string) time.Time {
	ln := l.find(key)
	if ln == nil {
		v, _ := l.successor.Load().peek(key)
		return v.PausedUntil
	}
	ln.lock()
	defer ln.unlock()
	if ln.hold.pauseLeft(time.Now()) <= 0 {
		return time.Time{}
	}
	return ln.hold.until
}

// rejectHeld rejects waiting requests if the lane is stopped, or if its pause is longer than they may wait.
func (s *state) rejectHeld(now time.Time) {
	stopped := s.hold.stop(now)
	s.rejectIf(now, func(w *waiter) error {
		left := s.hold.pauseLeftFor(w.client, now)
		if stopped == nil && left > 0 && plus(left, now.Sub(w.arrived)) > w.maxWait {
			return s.hold.waitError(w.client, left, 0, now)
		}
		return stopped
	})
}

// rejectIf rejects each waiting request for which why returns an error.
func (s *state) rejectIf(now time.Time, why func(*waiter) error) {
	if s.queue == nil {
		return
	}
	for w := range s.queue.all() {
		if w.reserved() {
			continue // its client gets the error when it comes back
		}
		if err := why(w); err != nil {
			s.remove(w)
			w.err = err
			s.emit(effect{kind: wakeRefused, waiter: w})
		}
	}
}
