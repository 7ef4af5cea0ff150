package ratelimit

import (
	"strings"
	"time"
)

// Clients that wait for one lane take turns so that each holds the lane for about as long: the next turn is that of the
// client that has held it for the least time, and of several the one that has waited for its turn longest. Clients whose
// requests take about as long thus take turns one by one.
//
// The times are kept as in start-time fair queueing: by a clock that stands, at each turn, at the time of the client whose
// turn it is. A client that comes anew has the time of the clock, so it is owed nothing for the time when it was away.
const (
	// leastTurn is what a turn counts at least: one that holds the lane for a second is worth 32 of the shortest.
	leastTurn = time.Second / 32

	// sameTime is within what times count as the same. Requests of one kind do not take equally long.
	sameTime = 250 * time.Millisecond

	// forgivenDebts is for how long debts are remembered after the last one was made, when nobody waits any more.
	forgivenDebts = time.Minute

	// mostPasses is how often each other client is served, at most, before one that waits.
	mostPasses = 32
)

// debts are the times of the clients that have held a lane while others waited, beyond that of the clock.
type debts struct {
	clock time.Duration
	until map[string]time.Duration // by client: where the clock must stand until it owes nothing
	last  time.Time                // when the last one was made
}

// of returns how much longer client has held the lane than the others.
func (d *debts) of(client string) time.Duration { return max(0, d.until[client]-d.clock) }

// charge counts a turn of client that held the lane for so long, and ended now. At most so many clients are remembered; when
// there are more, all are forgiven.
func (d *debts) charge(client string, held time.Duration, most int, now time.Time) {
	owes := d.of(client)
	d.last = now
	if _, known := d.until[client]; !known && (d.until == nil || len(d.until) >= most) {
		d.until = make(map[string]time.Duration)
	}
	d.until[strings.Clone(client)] = d.clock + owes + max(held, leastTurn)
}

// serve sets the clock for the turn of client.
func (d *debts) serve(client string) {
	d.clock = max(d.clock, d.until[client])
	delete(d.until, client)
}

// turn returns the request, or the place, of f whose turn it would be: nil if it has none that may have its turn now.
func (ln *lane) turn(f *file, now time.Time) *waiter {
	if ln.heldBack(f.client, now) {
		return nil
	}
	for _, w := range f.waiters {
		if !w.kept() || ln.wants(w, now) {
			return w
		}
	}
	return nil
}

// leastHeld returns the request, or the place, whose turn it is among those that do not ride: nil if there is none.
func (ln *lane) leastHeld(now time.Time) *waiter {
	var first *waiter
	var least time.Duration
	for _, f := range ln.queue.files {
		w := ln.turn(f, now)
		if w == nil {
			continue
		}
		if len(ln.queue.debts.until) == 0 || f.passed >= mostPasses*(len(ln.queue.files)-1) {
			return w
		}
		if owes := ln.queue.debts.of(f.client) / sameTime; first == nil || owes < least {
			first, least = w, owes
		}
	}
	return first
}

// passOver notes whom w passes over, whose turn it is.
func (ln *lane) passOver(w *waiter, now time.Time) {
	if w.rides {
		return
	}
	for _, f := range ln.queue.files {
		if f.client == w.client {
			f.passed = 0
			break
		}
		if ln.turn(f, now) != nil {
			f.passed++
		}
	}
}

// forgive drops the debts that are not remembered any longer.
func (ln *lane) forgive(now time.Time) {
	if ln.debts != nil && ln.queue == nil && now.Sub(ln.debts.last) >= forgivenDebts {
		ln.debts = nil
	}
}

// rounds returns how many requests of f have their turn before the one at place k of own, if both have enough. Before says
// that f is the first of the two if they owe the same.
func (q *queue) rounds(f, own string, k int, before bool, takes time.Duration) int {
	if before {
		k++
	}
	if len(q.debts.until) == 0 {
		return k
	}
	owes, others := q.debts.of(own)/sameTime, q.debts.of(f)/sameTime
	more := int((owes - others) * sameTime / max(takes, leastTurn))
	return max(0, k+min(more, mostPasses))
}
