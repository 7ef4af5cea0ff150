package ratelimit

import (
	"strings"
	"time"
)

// debts holds the debts of the clients that have held the lane while others waited: how much longer than the others
// each has held it. They decide which client has the next turn.
//
// The clients that wait for a lane take turns such that each holds the lane for about the same time. The next turn goes
// to the client that has held the lane for the shortest time. If several have, it goes to the one that was served the
// longest ago. Clients with requests of about equal length thus take turns one by one.
//
// This is start-time fair queueing: at each turn, a virtual clock advances to the time of the client that is served. A
// new client starts at the clock, so it gains nothing from the time when it was absent.
type debts struct {
	clock time.Duration
	until map[string]time.Duration // by client: the position of the clock at which it owes nothing
	last  time.Time                // of the last charge
}

const (
	// leastTurn is the least time that is charged for a turn: 32 short turns cost as much as one of a second.
	leastTurn = time.Second / 32

	// sameTime is the unit in which debts are compared. Requests of one kind do not take exactly the same time.
	sameTime = 250 * time.Millisecond

	// debtsKept is how long debts are kept after the last charge if no request waits.
	debtsKept = time.Minute

	// mostPasses bounds how often each other client is served before a client whose turn it would be without debts.
	mostPasses = 32
)

// of returns the debt of client.
func (d *debts) of(client string) time.Duration { return max(0, d.until[client]-d.clock) }

// charge charges client for a turn that held the lane for held and ended now. If there are debts of most clients
// already, it drops them.
func (d *debts) charge(client string, held time.Duration, most int, now time.Time) {
	owes := d.of(client)
	d.last = now
	if _, known := d.until[client]; !known && (d.until == nil || len(d.until) >= most) {
		d.until = make(map[string]time.Duration)
	}
	d.until[strings.Clone(client)] = d.clock + owes + max(held, leastTurn)
}

// serve advances the clock for a turn of client.
func (d *debts) serve(client string) {
	d.clock = max(d.clock, d.until[client])
	delete(d.until, client)
}

// next returns the request or reservation that has the next turn, or a part that goes before it. The queue must not be
// empty. Requests go before a reservation that they do not delay. A request of a client that is held back goes last.
func (s *state) next(now time.Time) *waiter {
	if s.letsPartsPass(now) {
		if w := s.nextPart(now); w != nil {
			return w
		}
	}
	if w := s.leastDebt(now); w != nil {
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
	return max(s.hold.clientPauseLeft(client, now), s.overlaps.heldFor(client, s.inflights.n, s.rules, now))
}

// heldBack reports whether requests of client wait for a reason that applies to this client only.
func (s *state) heldBack(client string, now time.Time) bool { return s.heldFor(client, now) > 0 }

// soonest returns the shorter of wait and the time until some client is no longer held back.
func (s *state) soonest(wait time.Duration, now time.Time) time.Duration {
	if h := s.hold; h != nil && h.client.until.After(now) {
		wait = min(wait, h.client.until.Sub(now))
	}
	for client := range s.overlaps {
		if held := s.overlaps.heldFor(client, s.inflights.n, s.rules, now); held > 0 {
			wait = min(wait, held)
		}
	}
	return wait
}

// vacant reports whether a request that arrives now has the next turn: no other can start, and it delays no
// reservation, unless it is a part and may pass.
func (s *state) vacant(now time.Time, part bool) bool {
	if s.queue == nil {
		return true
	}
	if part && s.letsPartsPass(now) {
		return s.nextPart(now) == nil
	}
	return s.leastDebt(now) == nil
}

// turn returns the first request or reservation of c that may have the next turn, or nil.
func (s *state) turn(c *clientQueue, now time.Time) *waiter {
	if s.heldBack(c.client, now) {
		return nil
	}
	for _, w := range c.waiters {
		if !w.reserved() || s.delayedBy(w, now) {
			return w
		}
	}
	return nil
}

// leastDebt returns the first request or reservation of the client with the least debt, or nil if none may have the
// next turn.
func (s *state) leastDebt(now time.Time) *waiter {
	var first *waiter
	var least time.Duration
	for _, c := range s.queue.clients {
		w := s.turn(c, now)
		if w == nil {
			continue
		}
		if len(s.queue.debts.until) == 0 || c.passed >= mostPasses*(len(s.queue.clients)-1) {
			return w
		}
		if owes := s.queue.debts.of(c.client) / sameTime; first == nil || owes < least {
			first, least = w, owes
		}
	}
	return first
}

// passOver counts that w is served before the clients that were served longer ago.
func (s *state) passOver(w *waiter, now time.Time) {
	for _, c := range s.queue.clients {
		if c.client == w.client {
			c.passed = 0
			break
		}
		if s.turn(c, now) != nil {
			c.passed++
		}
	}
}

// forgive drops debts that are too old.
func (s *state) forgive(now time.Time) {
	if s.debts != nil && s.queue == nil && now.Sub(s.debts.last) >= debtsKept {
		s.debts = nil
	}
}

// rounds returns how many requests of the client other are served before request k of client, if other has as many. If
// first is true, other goes first when both have the same debt. A request takes about the time took.
func (q *queue) rounds(other, client string, k int, first bool, took time.Duration) int {
	if first {
		k++
	}
	if len(q.debts.until) == 0 {
		return k
	}
	owes, owed := q.debts.of(client)/sameTime, q.debts.of(other)/sameTime
	more := int((owes - owed) * sameTime / max(took, leastTurn))
	return max(0, k+min(more, mostPasses))
}
