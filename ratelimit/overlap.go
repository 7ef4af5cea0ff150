package ratelimit

import (
	"slices"
	"time"
)

// An overlap holds the requests of one client that gave their places back to other clients and are still under way. They
// delay the next requests of the client itself.
type overlap struct {
	flights []*flight
	until   time.Time // a Delay after the last end of such a request
}

// reclaim takes back the places of requests that their clients have blocked, for each client for which wanted is true.
func (ln *lane) reclaim(now time.Time, wanted func(client string) bool) {
	for f := ln.flights.oldest; f != nil; {
		newer := f.newer
		if at := f.blocked(now); !at.IsZero() && wanted(f.client) {
			ln.overlap(f, later(f.start, at))
		}
		f = newer
	}
}

// blocked returns when the client of f had blocked it for blockedFor, the zero time if it has not.
func (f *flight) blocked(now time.Time) time.Time {
	if f.own == nil {
		return time.Time{}
	}
	return f.own.blocked(now)
}

// overlap ends f for all but its own client.
func (ln *lane) overlap(f *flight, at time.Time) {
	f.own.gaveBack()
	f.overlaps = true
	if ln.overlaps == nil {
		ln.overlaps = make(map[string]*overlap)
	}
	o := ln.overlaps[f.client]
	if o == nil {
		o = &overlap{}
		ln.overlaps[f.client] = o
	}
	o.flights = append(o.flights, f)
	ln.end(f, at)
}

// overlapped handles the end of f, which gave its place back earlier.
func (ln *lane) overlapped(f *flight, at time.Time) {
	o := ln.overlaps[f.client]
	o.flights = slices.DeleteFunc(o.flights, func(other *flight) bool { return other == f })
	if f.spacing > 0 {
		o.until = later(o.until, ln.freed(f, at))
	}
	if len(o.flights) == 0 && !o.until.After(at) {
		ln.dropOverlap(f.client)
	}
}

// freed returns when the client of f may send its next request if f ends at the moment at. It is the moment that would apply
// if f had held the lane to its end.
func (ln *lane) freed(f *flight, at time.Time) time.Time {
	rules := ln.limiter.rules()
	if end := f.start.Add(rules.ReleaseAfter); at.After(end) {
		at = end
	}
	if rules.SpacingStart {
		return at
	}
	return at.Add(f.spacing)
}

func (ln *lane) dropOverlap(client string) {
	delete(ln.overlaps, client)
	if len(ln.overlaps) == 0 {
		ln.overlaps = nil
	}
}

// heldByOwn returns how long requests of client wait for its own blocked requests, as if those still held their places. It is
// 0 or less if they do not wait.
func (ln *lane) heldByOwn(client string, now time.Time) time.Duration {
	o := ln.overlaps[client]
	if o == nil {
		return 0
	}
	rules := ln.limiter.rules()
	held, underWay, place := o.until.Sub(now), ln.flights.n, endless
	for _, f := range o.flights {
		end := f.start.Add(rules.ReleaseAfter)
		switch {
		case f.spacing > 0:
			held = max(held, ln.freed(f, end).Sub(now))
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
func (ln *lane) overlapsEnd(now time.Time) bool {
	for client, o := range ln.overlaps {
		if len(o.flights) == 0 && !o.until.After(now) {
			ln.dropOverlap(client)
		}
	}
	return ln.overlaps == nil
}

// soonestEnd returns how long it is until a request under way may give its place back: the oldest after ReleaseAfter, or one
// that its client blocks.
func (ln *lane) soonestEnd(now time.Time) time.Duration {
	soonest := ln.flights.oldest.start.Add(ln.limiter.rules().ReleaseAfter)
	for f := ln.flights.oldest; f != nil; f = f.newer {
		if f.own == nil || !ln.queue.others(f.client) {
			continue
		}
		if look := f.own.nextLook(now); look.Before(soonest) {
			soonest = look
		}
	}
	return soonest.Sub(now)
}

// others reports whether requests of other clients wait. Kept places do not count.
func (q *queue) others(client string) bool {
	if q == nil {
		return false
	}
	return slices.ContainsFunc(q.files, func(f *file) bool { return f.client != client && f.waitsBehind(0) })
}

// watch reclaims the places of blocked requests for other instances, which may wait for them. The timer of the share runs it.
func (ln *lane) watch() {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	now := time.Now()
	ln.settle(now)
	ln.reclaim(now, func(string) bool { return true })
	ln.watchAgain(now)
	ln.pump(now)
}

// watchAgain sets the timer for the next call of watch, if a request under way can be blocked.
func (ln *lane) watchAgain(now time.Time) {
	var soonest time.Time
	for f := ln.flights.oldest; f != nil; f = f.newer {
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
	if ln.share.watch == nil {
		ln.share.watch = time.AfterFunc(soonest.Sub(now), ln.watch)
		return
	}
	ln.share.watch.Reset(soonest.Sub(now))
}
