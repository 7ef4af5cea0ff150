package ratelimit

import (
	"context"
	"iter"
	"slices"
	"time"
)

// A waiter is a request that waits for its turn.
type waiter struct {
	ctx     context.Context
	client  string
	delay   time.Duration // its own; the lane's floor may be more
	maxWait time.Duration
	arrived time.Time
	ready   chan answer // of capacity 1, so that who answers never waits
}

// An answer ends the wait: exactly one of the fields is not nil.
type answer struct {
	grant *Grant
	err   error
}

// A queue holds the requests waiting for one lane: one file of requests per client, first come first served, and the
// files in the order of their turns. No file is empty. Every operation is at most linear in the requests that wait.
type queue struct {
	files []*file
	n     int         // requests in all files
	timer *time.Timer // runs lane.tick when the head may be ready
}

// A file is the requests of one client.
type file struct {
	client  string
	waiters []*waiter
}

// head returns the request whose turn it is. The queue is not empty.
func (q *queue) head() *waiter { return q.files[0].waiters[0] }

// find returns the place of client's file among the turns, or len(q.files) if it has none.
func (q *queue) find(client string) int {
	i := slices.IndexFunc(q.files, func(f *file) bool { return f.client == client })
	if i < 0 {
		return len(q.files)
	}
	return i
}

// len returns how many requests of client wait.
func (q *queue) len(client string) int {
	i := q.find(client)
	if i == len(q.files) {
		return 0
	}
	return len(q.files[i].waiters)
}

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

// push adds w behind the other requests of its client. A client that had none has the last turn.
func (q *queue) push(w *waiter) {
	i := q.find(w.client)
	if i == len(q.files) {
		q.files = append(q.files, &file{client: w.client})
	}
	q.files[i].waiters = append(q.files[i].waiters, w)
	q.n++
}

// pop takes out the head. The turn passes to the next client, and this one's next is last.
func (q *queue) pop() {
	f := q.files[0]
	q.remove(f.waiters[0])
	if len(f.waiters) > 0 {
		copy(q.files, q.files[1:])
		q.files[len(q.files)-1] = f
	}
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

// ahead yields the requests that have their turn before a new one of client, in no particular order: if k of the
// client's own wait, those, k of each client whose turn comes after the client's, and k+1 of each whose turn comes before.
func (q *queue) ahead(client string) iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		own, k := q.find(client), q.len(client)
		for i, f := range q.files {
			rounds := k
			if i < own {
				rounds++
			}
			for _, w := range f.waiters[:min(rounds, len(f.waiters))] {
				if !yield(w) {
					return
				}
			}
		}
	}
}
