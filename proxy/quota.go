package proxy

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// bound is the most that may be held at a time.
type bound struct {
	most int    // if zero, no limit
	key  string // of the configuration
	told time.Time
}

// toldAgain is the least time between two log lines about the same bound.
const toldAgain = time.Minute

func (b *bound) exceededBy(n int) bool { return b.most > 0 && n > b.most }

// quota counts what clients hold of one resource, in all and each. K tells clients apart; its zero value stands for no client
// in particular.
type quota[K comparable] struct {
	log   *slog.Logger
	label string // of a client in the log

	mu        sync.Mutex // guards what follows
	all, each bound
	used      int
	by        map[K]int // if each is a limit

	refused atomic.Int64
}

func newQuota[K comparable](log *slog.Logger, label string, all, each bound) *quota[K] {
	return &quota[K]{log: log, label: label, all: all, each: each, by: make(map[K]int)}
}

// share is what a client holds of a quota. It must be left; leaving it again does nothing.
type share[K comparable] struct {
	of     *quota[K]
	client K
	n      int
	left   atomic.Bool
}

// take returns a share of n for client, or nil if a bound does not allow it.
func (q *quota[K]) take(client K, n int) *share[K] {
	s, reached := q.tryTake(client, n, time.Now())
	if s == nil {
		q.refused.Add(1)
	}
	if reached.key != "" {
		q.warn(reached, client)
	}
	return s
}

func (q *quota[K]) warn(b bound, client K) {
	log := q.log
	if client != *new(K) {
		log = log.With(q.label, client)
	}
	log.Warn("a limit is reached: who comes now is answered 503", "key", b.key, "limit", b.most)
}

// tryTake also returns the bound that does not allow the share, if it was not logged within toldAgain.
func (q *quota[K]) tryTake(client K, n int, now time.Time) (s *share[K], reached bound) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b := q.exceededLocked(client, n); b != nil {
		if now.Sub(b.told) >= toldAgain {
			b.told, reached = now, *b
		}
		return nil, reached
	}
	q.used += n
	if q.each.most > 0 {
		q.by[client] += n
	}
	return &share[K]{of: q, client: client, n: n}, reached
}

// exceededLocked returns the bound that client would exceed with n more, or nil.
func (q *quota[K]) exceededLocked(client K, n int) *bound {
	switch {
	case q.all.exceededBy(q.used + n):
		return &q.all
	case q.each.exceededBy(q.by[client] + n):
		return &q.each
	}
	return nil
}

func (s *share[K]) leave() {
	if !s.left.CompareAndSwap(false, true) {
		return
	}
	q := s.of
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used -= s.n
	if q.each.most == 0 {
		return
	}
	if q.by[s.client] -= s.n; q.by[s.client] == 0 {
		delete(q.by, s.client)
	}
}

func (q *quota[K]) inUse() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int64(q.used)
}
