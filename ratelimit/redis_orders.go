package ratelimit

import (
	"maps"
	"strings"
	"sync"
	"time"
)

// orders holds the last order of each key that this instance has given or heard of. Redis may forget an order, and many of
// its answers say nothing of one, so only a newer order replaces an older one. Lifts are kept for the same reason. There
// are as many as keys for which an operator has given an order.
type orders struct {
	mu    sync.Mutex // guards byKey
	byKey map[string]datedOrder
}

// A datedOrder is an order and when it was given: microseconds of the clock of Redis, more than those of the order before.
// Zero is an order that Redis has not confirmed, which is newer than all that Redis has.
type datedOrder struct {
	Order
	at int64
}

// give notes an order that was given in this instance.
func (s *orders) give(key string, o Order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(key, datedOrder{Order: o})
}

// confirm notes that Redis has stored o at the moment at, unless another order was given since.
func (s *orders) confirm(key string, o Order, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if given, ok := s.byKey[key]; ok && given == (datedOrder{Order: o}) {
		s.set(key, datedOrder{o, at})
	}
}

// hear takes in the order that Redis has, at 0 if it has none, and returns the newer one of that and the one known here.
func (s *orders) hear(key string, said datedOrder, now time.Time) Order {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.byKey[key]; ok && (known.at == 0 || known.at > said.at) {
		return known.inForce(now)
	}
	if said.at > 0 {
		s.set(key, said)
	}
	return said.Order
}

// last returns the last order for key, the zero one if none is known or it has ended.
func (s *orders) last(key string, now time.Time) Order {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byKey[key].inForce(now)
}

// reminder returns the last order for key, of which Redis is reminded; at 0 if there is none, Redis has not confirmed it, or
// it has ended.
func (s *orders) reminder(key string, now time.Time) datedOrder {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.byKey[key]
	if o.Stop && o.Floor <= 0 && !o.inForce(now).Stop {
		return datedOrder{}
	}
	return o
}

// all returns the last order of each key.
func (s *orders) all() map[string]datedOrder {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.byKey)
}

// set stores o for key. s.mu is held.
func (s *orders) set(key string, o datedOrder) {
	if s.byKey == nil {
		s.byKey = make(map[string]datedOrder)
	}
	s.byKey[strings.Clone(key)] = o // key may be part of a whole request
}

// inForce returns o as it holds at now, without a stop that has ended.
func (o Order) inForce(now time.Time) Order {
	o.Stop = o.Stop && (o.Until.IsZero() || o.Until.After(now))
	return o
}
