package ratelimit

import "time"

// until returns how long a request with this delay must wait, if it is the next: 0 or less if it may start now. While it
// is held up by requests under way, that is when one of them gives the lane back at the latest.
func (s *state) until(now time.Time, delay time.Duration) time.Duration {
	rest := s.hold.pauseLeft(now)
	if s.blocked(delay) {
		return max(rest, s.soonestEnd(now))
	}
	return max(rest, s.pacer.wait(delay, &s.rules.Options, now))
}

// blocked reports whether a request with this delay must wait for one under way to end.
func (s *state) blocked(delay time.Duration) bool {
	if delay > 0 {
		return s.inflights.n > 0
	}
	limit := s.rules.MaxConcurrent
	return limit > 0 && s.inflights.n >= limit
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
