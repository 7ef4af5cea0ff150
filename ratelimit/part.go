package ratelimit

import "time"

// partsFirst is how long the request or reservation that has the next turn lets parts start before it: see
// Request.Part. Without a limit, a client that sends parts more often than the Delay would keep it from starting.
const partsFirst = 30 * time.Second

// letsPartsPass reports whether parts go before the request or reservation that has the next turn. The queue must not
// be empty.
func (s *state) letsPartsPass(now time.Time) bool {
	w := s.leastDebt(now)
	return w != nil && s.hold.delay(w.delay) > 0 && (w.passedAt.IsZero() || now.Sub(w.passedAt) < partsFirst)
}

// notePart records that a part starts before the request or reservation that has the next turn, if there is one.
func (s *state) notePart(now time.Time) {
	if s.queue == nil {
		return
	}
	if w := s.leastDebt(now); w != nil && w.passedAt.IsZero() {
		w.passedAt = now
	}
}

// nextPart returns the first part in the queue that no pause or blocked request of its client holds back, or nil. A
// client that was served goes last, so parts of several clients take turns.
func (s *state) nextPart(now time.Time) *waiter {
	for w := range s.queue.all() {
		if w.part && !s.heldBack(w.client, now) {
			return w
		}
	}
	return nil
}

// predictPart predicts the wait of a part of client if parts may pass: a step for each other part that waits.
func (s *state) predictPart(now time.Time, client string, delay time.Duration) time.Duration {
	took := s.expectedDuration(now)
	wait := max(s.headWait(now, delay, took), s.heldFor(client, now))
	for w := range s.queue.all() {
		if w.part {
			wait = plus(wait, s.rules.step(delay, took))
		}
	}
	return wait
}
