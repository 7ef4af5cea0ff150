// Package limit caps how much of a resource clients hold at a time, in total and each: connections, requests, bytes.
//
//	requests := limit.NewCounter[string](log, "client", limit.Bound{Max: 1000, Key: "limits.requests"}, limit.Bound{})
//	share := requests.Take("news", 1)
//	if share == nil {
//		// answer 503
//	}
//	defer share.Release()
//
// It caps amounts and not rates.
package limit

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Bound is the most that may be held at a time.
type Bound struct {
	Max int    // if zero, no limit
	Key string // of the configuration, for the log

	logged time.Time
}

// logInterval is the least time between two log lines about one bound.
const logInterval = time.Minute

func (b *Bound) exceededBy(n int) bool { return b.Max > 0 && n > b.Max }

// Counter counts how much of one resource clients hold. K tells clients apart; its zero value stands for no client in
// particular. Its methods may be called by many goroutines at once.
type Counter[K comparable] struct {
	log   *slog.Logger
	label string

	mu        sync.Mutex // guards the fields below
	all, each Bound
	used      int
	byClient  map[K]int // of the shares that were taken while each was a limit

	refused atomic.Int64
}

// NewCounter returns a Counter with a bound for all clients and one for each. If one is reached, log names its key and,
// as label, the client, at most once a minute.
func NewCounter[K comparable](log *slog.Logger, label string, all, each Bound) *Counter[K] {
	return &Counter[K]{log: log, label: label, all: all, each: each, byClient: make(map[K]int)}
}

// SetMax replaces the bounds. Shares that were taken stay taken, even if they exceed a new bound. A bound for each
// client does not count the shares that were taken while there was none.
func (c *Counter[K]) SetMax(all, each int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all.Max, c.each.Max = all, each
}

// Share is an amount that a client holds. A nil Share is of nothing.
type Share[K comparable] struct {
	of       *Counter[K]
	client   K
	n        int
	byClient bool // it counts in Counter.byClient
	released atomic.Bool
}

// Take returns a Share of n for client, or nil if that would exceed a bound. The caller must release it.
func (c *Counter[K]) Take(client K, n int) *Share[K] {
	s, toLog := c.take(client, n, time.Now())
	if s == nil {
		c.refused.Add(1)
	}
	if toLog.Key != "" {
		c.warn(toLog, client)
	}
	return s
}

func (c *Counter[K]) warn(b Bound, client K) {
	log := c.log
	if client != *new(K) {
		log = log.With(c.label, client)
	}
	log.Warn("a limit is reached: requests beyond it are answered 503", "key", b.Key, "limit", b.Max)
}

// take is Take at a moment. It also returns the bound that is exceeded, unless that was logged within logInterval.
func (c *Counter[K]) take(client K, n int, now time.Time) (s *Share[K], toLog Bound) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.exceededLocked(client, n); b != nil {
		if now.Sub(b.logged) >= logInterval {
			b.logged, toLog = now, *b
		}
		return nil, toLog
	}
	s = &Share[K]{of: c, client: client, n: n, byClient: c.each.Max != 0}
	c.addLocked(s, n)
	return s, toLog
}

// exceededLocked returns the bound that client would exceed with n more, or nil.
func (c *Counter[K]) exceededLocked(client K, n int) *Bound {
	switch {
	case c.all.exceededBy(c.used + n):
		return &c.all
	case c.each.exceededBy(c.byClient[client] + n):
		return &c.each
	}
	return nil
}

func (c *Counter[K]) addLocked(s *Share[K], n int) {
	c.used += n
	if !s.byClient {
		return
	}
	if c.byClient[s.client] += n; c.byClient[s.client] == 0 {
		delete(c.byClient, s.client)
	}
}

// Release gives s back. Only the first call counts.
func (s *Share[K]) Release() {
	if s == nil || !s.released.CompareAndSwap(false, true) {
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.addLocked(s, -s.n)
}

// InUse returns how much is held now.
func (c *Counter[K]) InUse() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(c.used)
}

// Refused returns how often Take has returned nil.
func (c *Counter[K]) Refused() int64 { return c.refused.Load() }
