package ratelimit

import (
	"slices"
	"time"
)

// An overlap holds the requests of one client that gave their places back to other clients and are still under way. They
// delay the next requests of the client itself.
type overlap struct {
	inflights []*inflight
	until     time.Time // a Delay after the last end of such a request
}

// reclaim takes back the places of requests that their clients have blocked, for each client for which wanted is true.
func (s *state) reclaim(now time.Time, wanted func(client string) bool) {
	for f := s.inflights.oldest; f != nil; {
		newer := f.newer
		if at := f.blocked(now); !at.IsZero() && wanted(f.client) {
			s.overlap(f, later(f.start, at))
		}
		f = newer
	}
}

// blocked returns when the client of f had blocked it for maxBlocked, the zero time if it has not.
func (f *inflight) blocked(now time.Time) time.Time {
	if f.own == nil {
		return time.Time{}
	}
	return f.own.blocked(now)
}

// overlap ends f for all but its own client.
func (s *state) overlap(f *inflight, at time.Time) {
	f.own.gaveBack()
	f.overlaps = true
	if s.overlaps == nil {
		s.overlaps = make(map[string]*overlap)
	}
	o := s.overlaps[f.client]
	if o == nil {
		o = &overlap{}
		s.overlaps[f.client] = o
	}
	o.inflights = append(o.inflights, f)
	s.end(f, at)
}

// overlapped handles the end of f, which gave its place back earlier.
func (s *state) overlapped(f *inflight, at time.Time) {
	o := s.overlaps[f.client]
	o.inflights = slices.DeleteFunc(o.inflights, func(other *inflight) bool { return other == f })
	if f.spacing > 0 {
		o.until = later(o.until, s.freed(f, at))
	}
	if len(o.inflights) == 0 && !o.until.After(at) {
		s.dropOverlap(f.client)
	}
}

// freed returns when the client of f may send its next request if f ends at the moment at. It is the moment that would apply
// if f had held the lane to its end.
func (s *state) freed(f *inflight, at time.Time) time.Time {
	rules := s.rules
	if end := f.start.Add(rules.ReleaseAfter); at.After(end) {
		at = end
	}
	if rules.SpacingStart {
		return at
	}
	return at.Add(f.spacing)
}

func (s *state) dropOverlap(client string) {
	delete(s.overlaps, client)
	if len(s.overlaps) == 0 {
		s.overlaps = nil
	}
}

// heldByOwn returns how long requests of client wait for its own blocked requests, as if those still held their places. It is
// 0 or less if they do not wait.
func (s *state) heldByOwn(client string, now time.Time) time.Duration {
	o := s.overlaps[client]
	if o == nil {
		return 0
	}
	rules := s.rules
	held, underWay, place := o.until.Sub(now), s.inflights.n, endless
	for _, f := range o.inflights {
		end := f.start.Add(rules.ReleaseAfter)
		switch {
		case f.spacing > 0:
			held = max(held, s.freed(f, end).Sub(now))
		case end.After(now):
			underWay++
			place = min(place, end.Sub(now))
		}
	}
	if place < endless && rules.MaxConcurrent > 0 && underWay >= rules.MaxConcurrent {
		held = max(held, place)
	}
	return held
}

// overlapsEnd drops the overlaps that are over, and reports whether none is left.
func (s *state) overlapsEnd(now time.Time) bool {
	for client, o := range s.overlaps {
		if len(o.inflights) == 0 && !o.until.After(now) {
			s.dropOverlap(client)
		}
	}
	return s.overlaps == nil
}

// soonestEnd returns how long it is until a request under way may give its place back: the oldest after ReleaseAfter, or one
// that its client blocks.
func (s *state) soonestEnd(now time.Time) time.Duration {
	soonest := s.inflights.oldest.start.Add(s.rules.ReleaseAfter)
	for f := s.inflights.oldest; f != nil; f = f.newer {
		if f.own == nil || !s.queue.others(f.client) {
			continue
		}
		if look := f.own.nextLook(now); look.Before(soonest) {
			soonest = look
		}
	}
	return soonest.Sub(now)
}

// others reports whether requests of other clients wait. Reservations do not count.
func (q *queue) others(client string) bool {
	if q == nil {
		return false
	}
	return slices.ContainsFunc(q.files, func(f *file) bool { return f.client != client && f.waits() })
}

// reclaimForOthers reclaims the places of all blocked requests, since other instances may wait for them.
func (s *state) reclaimForOthers(now time.Time) {
	s.expireOverdue(now)
	s.reclaim(now, func(string) bool { return true })
	s.watchAgain(now)
	s.dispatch(now)
}

// watchAgain sets the timer for the next call of watch, if a request under way can be blocked.
func (s *state) watchAgain(now time.Time) {
	var soonest time.Time
	for f := s.inflights.oldest; f != nil; f = f.newer {
		if f.own == nil {
			continue
		}
		if look := f.own.nextLook(now); soonest.IsZero() || look.Before(soonest) {
			soonest = look
		}
	}
	if soonest.IsZero() {
		return
	}
	s.emit(effect{kind: setWatch, after: soonest.Sub(now)})
}
