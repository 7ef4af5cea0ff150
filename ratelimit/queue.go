package ratelimit

import (
	"context"
	"iter"
	"slices"
	"time"
)

// A waiter is a request in the queue of a lane, or a reservation: see reservations.go.
type waiter struct {
	ctx     context.Context // nil: a reservation
	client  string
	delay   time.Duration // its own; the floor of the lane may be longer
	maxWait time.Duration
	arrived time.Time
	due     time.Time // predicted start; for a reservation, the moment of its Retry-After
	part    bool      // see Request.Part

	ready    chan struct{} // of capacity 1; a value says that granted or err is set
	inflight *inflight     // becomes the request in flight
	granted  bool          // inflight has started
	err      error         // why the request was rejected

	passedAt time.Time // when the first part started before it, although it had the next turn
}

// A queue holds the requests that wait for one lane: a clientQueue for each client, in the order in which they were
// last served, the longest ago first. Neither a queue nor a clientQueue is empty. Each operation takes time that is at
// most linear in the number of waiting requests.
type queue struct {
	clients []*clientQueue
	n       int    // requests of all clients
	debts   *debts // those of the state, which keeps them while there is a queue
}

// A clientQueue holds the requests of one client, first in, first out.
type clientQueue struct {
	client  string
	waiters []*waiter
	passed  int // how often another client was served since this one would have been without debts
}

// head returns the first request of the client that was served the longest ago. The queue must not be empty.
func (q *queue) head() *waiter { return q.clients[0].waiters[0] }

// find returns the index of client in q.clients, or len(q.clients) if it has no requests.
func (q *queue) find(client string) int {
	i := slices.IndexFunc(q.clients, func(c *clientQueue) bool { return c.client == client })
	if i < 0 {
		return len(q.clients)
	}
	return i
}

// of returns the requests and reservations of client. A nil queue is empty.
func (q *queue) of(client string) []*waiter {
	if q == nil {
		return nil
	}
	i := q.find(client)
	if i == len(q.clients) {
		return nil
	}
	return q.clients[i].waiters
}

// waiting returns the number of requests, without reservations.
func (q *queue) waiting() int {
	n := 0
	if q == nil {
		return n
	}
	for w := range q.all() {
		if !w.reserved() {
			n++
		}
	}
	return n
}

// position returns the position of w among the requests of its client.
func (q *queue) position(w *waiter) int { return slices.Index(q.of(w.client), w) }

// all yields all requests and reservations. The loop may remove those that it was given.
func (q *queue) all() iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		for _, c := range slices.Clone(q.clients) {
			for _, w := range slices.Clone(c.waiters) {
				if !yield(w) {
					return
				}
			}
		}
	}
}

// push adds w after the other requests of its client, and before reservations that are due later. A client that had no
// requests is served last.
func (q *queue) push(w *waiter) {
	q.n++
	i := q.find(w.client)
	if i == len(q.clients) {
		q.clients = append(q.clients, &clientQueue{client: w.client})
	}
	c := q.clients[i]
	j := len(c.waiters)
	for j > 0 && c.waiters[j-1].reserved() && c.waiters[j-1].due.After(w.due) {
		j--
	}
	c.waiters = slices.Insert(c.waiters, j, w)
}

// pop removes w, which is served. Its client is served last from now on.
func (q *queue) pop(w *waiter) {
	i := q.find(w.client)
	c := q.clients[i]
	q.remove(w)
	if len(c.waiters) > 0 {
		copy(q.clients[i:], q.clients[i+1:])
		q.clients[len(q.clients)-1] = c
	}
}

// waits reports whether the client has requests, and not only reservations.
func (c *clientQueue) waits() bool {
	return slices.ContainsFunc(c.waiters, func(w *waiter) bool { return !w.reserved() })
}

// remove removes w, and reports whether it was in the queue.
func (q *queue) remove(w *waiter) bool {
	i := q.find(w.client)
	if i == len(q.clients) {
		return false
	}
	c := q.clients[i]
	j := slices.Index(c.waiters, w)
	if j < 0 {
		return false
	}
	c.waiters = slices.Delete(c.waiters, j, j+1)
	if len(c.waiters) == 0 {
		q.clients = slices.Delete(q.clients, i, i+1)
	}
	q.n--
	return true
}

// before returns how many requests ahead yields. A nil queue is empty.
func (q *queue) before(client string, k int, took time.Duration) int {
	n := 0
	if q == nil {
		return n
	}
	for range q.ahead(client, k, took) {
		n++
	}
	return n
}

// ahead yields the requests that are served before request k of client: the head first, and the others in no particular
// order. They are the k requests of client before it, k of each client that is served after client, and k+1 of each
// that is served before; and more or fewer of a client with a smaller or larger debt. A request takes about the time
// took.
func (q *queue) ahead(client string, k int, took time.Duration) iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		own := q.find(client)
		for i, c := range q.clients {
			rounds := k
			if i != own {
				rounds = q.rounds(c.client, client, k, i < own, took)
			}
			for _, w := range c.waiters[:min(rounds, len(c.waiters))] {
				if !yield(w) {
					return
				}
			}
		}
	}
}

// othersWait reports whether requests of other clients wait. Reservations do not count.
func (q *queue) othersWait(client string) bool {
	if q == nil {
		return false
	}
	return slices.ContainsFunc(q.clients, func(c *clientQueue) bool { return c.client != client && c.waits() })
}

// full reports whether there is no room for another request of client.
func (q *queue) full(client string, o *rules) bool {
	own := len(q.of(client))
	return own >= o.MaxQueuePerClient || own > 0 && q.n >= o.MaxQueue
}
