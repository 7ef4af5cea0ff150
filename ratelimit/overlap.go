package ratelimit

import (
	"slices"
	"time"
)

// An overlap is what a client's own requests, which it has blocked, hold up of its next ones: they gave their places back to
// other clients, and go on.
type overlap struct {
	flights []*flight
	until   time.Time // a Delay after the end of the last one that has ended
}

// reclaim takes the places back of requests that their clients have blocked, if others want them.
func (ln *lane) reclaim(now time.Time, wanted func(client string) bool) {
	for f := ln.flights.oldest; f != nil; {
		newer := f.newer
		if at := f.blocked(now); !at.IsZero() && wanted(f.client) {
			ln.overlap(f, later(f.start, at))
		}
		f = newer
	}
}

// blocked returns when the client of f had blocked it for so long that it gives its place back: the zero time if it has not.
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

// overlapped notes that f has ended, which had given its place back.
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

// freed returns when the client of f may send its next request, if f, which gave its place back and keeps a Delay, ends at the
// moment at: as if it had held the lane.
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

// heldByOwn returns how long requests of client wait for those that it has blocked itself: until a Delay after their end, or
// for ReleaseAfter, as if they had not given their places back. 0 or less: they do not wait.
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

// overlapsEnd drops what is over of the overlaps, and reports whether nothing is left.
func (ln *lane) overlapsEnd(now time.Time) bool {
	for client, o := range ln.overlaps {
		if len(o.flights) == 0 && !o.until.After(now) {
			ln.dropOverlap(client)
		}
	}
	return ln.overlaps == nil
}

// soonestEnd returns when one of the requests under way gives its place back at the latest: the oldest after ReleaseAfter, or
// one that its client blocks.
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

// others reports whether requests of others than client wait, and not only kept places.
func (q *queue) others(client string) bool {
	if q == nil {
		return false
	}
	if slices.ContainsFunc(q.riders, func(w *waiter) bool { return w.client != client }) {
		return true
	}
	return slices.ContainsFunc(q.files, func(f *file) bool { return f.client != client && f.waitsBehind(0) })
}

// watch looks at requests that their clients may block, for other instances, which may wait for them. The timer runs it.
func (ln *lane) watch() {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	now := time.Now()
	ln.settle(now)
	ln.reclaim(now, func(string) bool { return true })
	ln.watchAgain(now)
	ln.pump(now)
}

// watchAgain sets the timer for the next look, if there is something to look at.
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
