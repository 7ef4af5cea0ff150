package ratelimit

import "time"

// reckon returns the wait of r if all requests that are passed to reckon were paced, and the time since the previous
// request, which is negative if the lane remembers none. See Limiter.Reckon.
//
// The slots of these requests are spaced by their Delays. As with a bucket, the requests of a burst start before their
// slots. A part does not wait for the slots of documents, since it would start before them.
func (s *state) reckon(r Request, now time.Time) (wait, gap time.Duration, ok bool) {
	o := s.rules
	delay, burst := s.hold.delay(r.delay()), 1
	if delay == 0 {
		delay, burst = o.DefaultDelay, o.DefaultBurst
	}
	s.longest = max(s.longest, delay)
	s.expireOverdue(now)
	if gap = -1; !s.gapFrom.IsZero() {
		gap = now.Sub(s.gapFrom)
	}
	s.sent(r.delay(), now)

	slot := later(now, s.lastSlot().Add(delay))
	wait = max(0, s.hold.pauseLeftFor(r.Client, now))
	if !r.Part || delay > 0 {
		wait = max(wait, slot.Sub(now)-time.Duration(burst-1)*delay)
	}
	if wait > max(0, r.MaxWait) || delay > 0 && wait/delay >= time.Duration(o.MaxQueue) {
		return wait, gap, false
	}
	if s.reportSlot == nil {
		s.reportSlot = new(time.Time)
	}
	*s.reportSlot = slot
	return wait, gap, true
}

// lastSlot returns the slot of the last call of reckon, or the zero time.
func (s *state) lastSlot() time.Time {
	if s.reportSlot == nil {
		return time.Time{}
	}
	return *s.reportSlot
}

// sent records a request that was sent without a Grant. It does not delay requests that wait already.
func (s *state) sent(delay time.Duration, now time.Time) {
	s.reportSent(delay)
	s.gapFrom = now
	s.moves++
	if s.queue.waiting() == 0 {
		s.pacer.countFrom(now)
	}
}
