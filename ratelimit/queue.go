package ratelimit

import (
	"context"
	"iter"
	"slices"
	"time"
)

// A waiter is a request that waits for its turn, or the place of one whose client was told to come back: see places.go.
type waiter struct {
	ctx     context.Context // nil: the client is away
	client  string
	delay   time.Duration // its own; the lane's floor may be more
	maxWait time.Duration
	arrived time.Time
	due     time.Time     // when it was foreseen to start; a client that is away was told to come back then
	ready   chan struct{} // of capacity 1: tells the client that its wait has ended

	inflight *inflight   // the request that w becomes
	granted  bool        // it has started
	err      error       // why w was turned away
	own      *ClientTime // nil: its client does not block it

}

// A queue holds the requests waiting for one lane: one file of requests per client, first come first served, and the
// files in the order of their last turns, the longest ago first. No file is empty, and neither is a queue. Every operation
// is at most linear in the requests that wait.
type queue struct {
	files []*file
	n     int    // requests in all files
	debts *debts // the lane's
}

// A file is the requests of one client.
type file struct {
	client  string
	waiters []*waiter
	passed  int // how often another client was served since this one's turn would have come
}

// head returns the first request of the client whose last turn is the longest ago. The queue is not empty.
func (q *queue) head() *waiter { return q.files[0].waiters[0] }

// find returns the place of client's file among the turns, or len(q.files) if it has none.
func (q *queue) find(client string) int {
	i := slices.IndexFunc(q.files, func(f *file) bool { return f.client == client })
	if i < 0 {
		return len(q.files)
	}
	return i
}

// len returns how many requests of client wait, and its reservations. A nil queue has none.
func (q *queue) len(client string) int {
	if q == nil {
		return 0
	}
	i := q.find(client)
	if i == len(q.files) {
		return 0
	}
	return len(q.files[i].waiters)
}

// waiting returns how many requests wait, without reservations.
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

// place returns where w, which waits, stands in the file of its client.
func (q *queue) place(w *waiter) int { return slices.Index(q.files[q.find(w.client)].waiters, w) }

// all yields the requests that wait. Those that were yielded may be removed meanwhile.
func (q *queue) all() iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		for _, f := range slices.Clone(q.files) {
			for _, w := range slices.Clone(f.waiters) {
				if !yield(w) {
					return
				}
			}
		}
	}
}

// push adds w behind the other requests of its client, and before those of its reservations that are due later. A client
// that had none has the last turn.
func (q *queue) push(w *waiter) {
	q.n++
	i := q.find(w.client)
	if i == len(q.files) {
		q.files = append(q.files, &file{client: w.client})
	}
	f := q.files[i]
	j := len(f.waiters)
	for j > 0 && f.waiters[j-1].reserved() && f.waiters[j-1].due.After(w.due) {
		j--
	}
	f.waiters = slices.Insert(f.waiters, j, w)
}

// pop takes out w, whose client has had its turn by that: its next one is last.
func (q *queue) pop(w *waiter) {
	i := q.find(w.client)
	f := q.files[i]
	q.remove(w)
	if len(f.waiters) > 0 {
		copy(q.files[i:], q.files[i+1:])
		q.files[len(q.files)-1] = f
	}
}

// first returns the file of client and where in it the first of such requests stands; nil if there is none, or no queue.
func (q *queue) first(client string, such func(*waiter) bool) (f *file, place int) {
	if q == nil {
		return nil, 0
	}
	i := q.find(client)
	if i == len(q.files) {
		return nil, 0
	}
	place = slices.IndexFunc(q.files[i].waiters, such)
	if place < 0 {
		return nil, 0
	}
	return q.files[i], place
}

// waits reports whether the client has requests in the queue, and not only reservations.
func (f *file) waits() bool {
	return slices.ContainsFunc(f.waiters, func(w *waiter) bool { return !w.reserved() })
}

// remove takes out w wherever it stands, and reports whether it was there.
func (q *queue) remove(w *waiter) bool {
	i := q.find(w.client)
	if i == len(q.files) {
		return false
	}
	f := q.files[i]
	j := slices.Index(f.waiters, w)
	if j < 0 {
		return false
	}
	f.waiters = slices.Delete(f.waiters, j, j+1)
	if len(f.waiters) == 0 {
		q.files = slices.Delete(q.files, i, i+1)
	}
	q.n--
	return true
}

// before returns how many ahead yields; none where there is no queue.
func (q *queue) before(client string, k int, takes time.Duration) int {
	n := 0
	if q == nil {
		return n
	}
	for range q.ahead(client, k, takes) {
		n++
	}
	return n
}

// ahead yields the requests that have their turn before that of client at a place in its file, the head first and the
// others in no particular order: k before it in the file, and k of each client whose turn comes after the client's, and
// k+1 of each whose turn comes before; more or less of a client that owes less or more, where a request takes so long.
func (q *queue) ahead(client string, k int, takes time.Duration) iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		own := q.find(client)
		for i, f := range q.files {
			rounds := k
			if i != own {
				rounds = q.rounds(f.client, client, k, i < own, takes)
			}
			for _, w := range f.waiters[:min(rounds, len(f.waiters))] {
				if !yield(w) {
					return
				}
			}
		}
	}
}
