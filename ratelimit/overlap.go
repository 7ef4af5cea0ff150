package ratelimit

import (
	"slices"
	"time"
)

// overlaps holds, by client, the requests that the client has blocked for maxBlocked and that have made room for
// requests of other clients, but have not ended. For their own client they still hold the lane: its requests wait as if
// there were no others. The nil map is empty.
type overlaps map[string]*overlap

type overlap struct {
	inflights []*inflight
	until     time.Time // a Delay after the end of those that have ended
}

func (os *overlaps) add(f *inflight) {
	if *os == nil {
		*os = make(overlaps)
	}
	o := (*os)[f.client]
	if o == nil {
		o = &overlap{}
		(*os)[f.client] = o
	}
	o.inflights = append(o.inflights, f)
}

// end removes f, which has ended.
func (os *overlaps) end(f *inflight, at time.Time, r *rules) {
	o := (*os)[f.client]
	o.inflights = slices.DeleteFunc(o.inflights, func(other *inflight) bool { return other == f })
	if f.spacing > 0 {
		o.until = later(o.until, r.nextStart(f, at))
	}
	os.dropOver(at)
}

// dropOver removes the clients for which nothing is left to wait for.
func (os *overlaps) dropOver(now time.Time) {
	for client, o := range *os {
		if len(o.inflights) == 0 && !o.until.After(now) {
			delete(*os, client)
		}
	}
	if len(*os) == 0 {
		*os = nil
	}
}

// heldFor returns how long requests of client wait for its own requests in os, 0 or less if they do not. The lane
// counts n requests in flight besides.
func (os overlaps) heldFor(client string, n int, r *rules, now time.Time) time.Duration {
	o := os[client]
	if o == nil {
		return 0
	}
	held, firstEnd := o.until.Sub(now), endless
	for _, f := range o.inflights {
		end := f.start.Add(r.ReleaseAfter)
		switch {
		case f.spacing > 0:
			held = max(held, r.nextStart(f, end).Sub(now))
		case end.After(now):
			n++
			firstEnd = min(firstEnd, end.Sub(now))
		}
	}
	if firstEnd < endless && r.MaxConcurrent > 0 && n >= r.MaxConcurrent {
		held = max(held, firstEnd)
	}
	return held
}

// nextStart returns when the Delay of f allows the next request if f ends at the moment end.
func (r *rules) nextStart(f *inflight, end time.Time) time.Time {
	if last := f.start.Add(r.ReleaseAfter); end.After(last) {
		end = last
	}
	if r.SpacingStart {
		return end
	}
	return end.Add(f.spacing)
}

// blockedAt returns when the client of f had blocked it for maxBlocked, or the zero time if it has not.
func (f *inflight) blockedAt(now time.Time) time.Time {
	if f.clientTime == nil {
		return time.Time{}
	}
	return f.clientTime.blocked(now)
}

// reclaim makes the requests that their clients have blocked overlap, for each client for which wanted returns true:
// for all other clients, they have ended.
func (s *state) reclaim(now time.Time, wanted func(client string) bool) {
	for f := s.inflights.oldest; f != nil; {
		newer := f.newer
		if at := f.blockedAt(now); !at.IsZero() && wanted(f.client) {
			f.clientTime.gaveBack()
			f.overlaps = true
			s.overlaps.add(f)
			s.end(f, later(f.start, at))
		}
		f = newer
	}
}

// reclaimForOthers reclaims for other instances, whose requests may wait for the lane.
func (s *state) reclaimForOthers(now time.Time) {
	s.expireOverdue(now)
	s.reclaim(now, func(string) bool { return true })
	s.watchAgain(now)
	s.dispatch(now)
}

// soonestEnd returns how long it takes at most until the next check of the requests in flight: when the oldest has gone
// on for ReleaseAfter, or when a client may have blocked its request for maxBlocked while others wait.
func (s *state) soonestEnd(now time.Time) time.Duration {
	soonest := s.inflights.oldest.start.Add(s.rules.ReleaseAfter)
	if look := s.inflights.nextLook(now, s.queue.othersWait); !look.IsZero() && look.Before(soonest) {
		soonest = look
	}
	return soonest.Sub(now)
}

// watchAgain sets the timer for the next call of reclaimForOthers, if the client of a request in flight can block it.
func (s *state) watchAgain(now time.Time) {
	if look := s.inflights.nextLook(now, func(string) bool { return true }); !look.IsZero() {
		s.emit(effect{kind: setWatch, after: look.Sub(now)})
	}
}

// nextLook returns when to check next whether clients have blocked their requests, of the clients for which wanted
// returns true. It is the zero time if none can.
func (fs *inflights) nextLook(now time.Time, wanted func(client string) bool) time.Time {
	var next time.Time
	for f := fs.oldest; f != nil; f = f.newer {
		if f.clientTime == nil || !wanted(f.client) {
			continue
		}
		if look := f.clientTime.nextLook(now); next.IsZero() || look.Before(next) {
			next = look
		}
	}
	return next
}
