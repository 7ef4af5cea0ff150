package ratelimit

import (
	"slices"
	"strings"
	"time"
)

// Clients that wait for one lane take turns so that each holds the lane for about the same time. The next turn goes to
// the client that has held the lane for the least time; if several have, to the one with the oldest last turn. Clients
// with requests of about equal length thus take turns one by one.
//
// The times are kept as in start-time fair queueing. A virtual clock moves, at each turn, to the time of the client
// that is served. A new client starts at the clock, so it gains nothing from the time when it was absent.
const (
	// leastTurn is the least time that a turn counts as. A turn of one second costs as much as 32 of the shortest.
	leastTurn = time.Second / 32

	// sameTime is the step in which times are compared, since requests of one kind do not take exactly the same time.
	sameTime = 250 * time.Millisecond

	// forgivenDebts is how long debts are kept after the last change, once the queue is empty.
	forgivenDebts = time.Minute

	// mostPasses is how many turns of each other client a waiting client is passed over for at most.
	mostPasses = 32
)

// debts holds, for each client that has held the lane while others waited, the time by which it is ahead of the clock.
type debts struct {
	clock time.Duration
	until map[string]time.Duration // by client: the position of the clock at which its debt ends
	last  time.Time                // when the last debt was made
}

// of returns the debt of client: how much longer it has held the lane than the others.
func (d *debts) of(client string) time.Duration { return max(0, d.until[client]-d.clock) }

// charge adds the turn of client that ended now, after it had held the lane for held. It keeps the debts of at most
// most clients, and drops all of them to make room.
func (d *debts) charge(client string, held time.Duration, most int, now time.Time) {
	owes := d.of(client)
	d.last = now
	if _, known := d.until[client]; !known && (d.until == nil || len(d.until) >= most) {
		d.until = make(map[string]time.Duration)
	}
	d.until[strings.Clone(client)] = d.clock + owes + max(held, leastTurn)
}

// serve moves the clock for a turn of client.
func (d *debts) serve(client string) {
	d.clock = max(d.clock, d.until[client])
	delete(d.until, client)
}

// next returns the request or reservation that has the next turn. The queue is not empty. If other requests have left
// the queue, requests may go before a reservation if they do not delay it. A request of a client that is held back goes
// last.
func (s *state) next(now time.Time) *waiter {
	if w := s.leastHeld(now); w != nil {
		return w
	}
	return s.queue.head()
}

// heldFor returns how long requests of client wait for a reason that applies to this client only: a pause of the
// client, or its own blocked requests. It is 0 or less if they do not wait.
func (s *state) heldFor(client string, now time.Time) time.Duration {
	if s.hold == nil && s.overlaps == nil {
		return 0
	}
	return max(s.hold.clientPauseLeft(client, now), s.heldByOwn(client, now))
}

// heldBack reports whether requests of client wait for a reason that applies to this client only.
func (s *state) heldBack(client string, now time.Time) bool { return s.heldFor(client, now) > 0 }

// soonest returns the shorter one of wait and the time until a client is no longer held back.
func (s *state) soonest(wait time.Duration, now time.Time) time.Duration {
	if h := s.hold; h != nil && h.client.until.After(now) {
		wait = min(wait, h.client.until.Sub(now))
	}
	for client := range s.overlaps {
		if held := s.heldByOwn(client, now); held > 0 {
			wait = min(wait, held)
		}
	}
	return wait
}

// vacant reports whether a request that comes now has the next turn: no request waits, and it delays no reservation.
func (s *state) vacant(now time.Time) bool {
	if s.queue == nil {
		return true
	}
	return !slices.ContainsFunc(s.queue.files, func(f *file) bool { return s.turn(f, now) != nil })
}

// turn returns the first request or reservation of f that may have its turn now, nil if there is none.
func (s *state) turn(f *file, now time.Time) *waiter {
	if s.heldBack(f.client, now) {
		return nil
	}
	for _, w := range f.waiters {
		if !w.reserved() || s.delayedBy(w, now) {
			return w
		}
	}
	return nil
}

// leastHeld returns the request or reservation that has the next turn, nil if the clients of all are held back.
func (s *state) leastHeld(now time.Time) *waiter {
	var first *waiter
	var least time.Duration
	for _, f := range s.queue.files {
		w := s.turn(f, now)
		if w == nil {
			continue
		}
		if len(s.queue.debts.until) == 0 || f.passed >= mostPasses*(len(s.queue.files)-1) {
			return w
		}
		if owes := s.queue.debts.of(f.client) / sameTime; first == nil || owes < least {
			first, least = w, owes
		}
	}
	return first
}

// passOver counts a pass for each file that w goes before although its own place in the order is later.
func (s *state) passOver(w *waiter, now time.Time) {
	for _, f := range s.queue.files {
		if f.client == w.client {
			f.passed = 0
			break
		}
		if s.turn(f, now) != nil {
			f.passed++
		}
	}
}

// forgive drops the debts if they are too old.
func (s *state) forgive(now time.Time) {
	if s.debts != nil && s.queue == nil && now.Sub(s.debts.last) >= forgivenDebts {
		s.debts = nil
	}
}

// rounds returns how many requests of client f have their turn before the request at place k of client own, if f has as
// many. If before is true, f comes first when both owe the same. A request takes about takes.
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
