package redislease

import (
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// orders holds the last order of each key that this instance has given or heard of. Redis may forget an order, and many of
// its answers say nothing of one, so only a newer order replaces an older one. Lifts are kept for the same reason. There
// are as many as keys for which an operator has given an order.
type overrides struct {
	mu    sync.Mutex // guards byKey
	byKey map[string]datedOverride
}

// A datedOverride is an order and when it was given: microseconds of the clock of Redis, more than those of the order before.
// Zero is an order that Redis has not confirmed, which is newer than all that Redis has.
type datedOverride struct {
	ratelimit.Override
	at int64
}

// give notes an order that was given in this instance.
func (s *overrides) give(key string, o ratelimit.Override) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(key, datedOverride{Override: o})
}

// confirm notes that Redis has stored o at the moment at, unless another order was given since.
func (s *overrides) confirm(key string, o ratelimit.Override, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if given, ok := s.byKey[key]; ok && given == (datedOverride{Override: o}) {
		s.set(key, datedOverride{o, at})
	}
}

// hear takes in the order that Redis has, at 0 if it has none, and returns the newer one of that and the one known here.
func (s *overrides) hear(key string, said datedOverride, now time.Time) ratelimit.Override {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.byKey[key]; ok && (known.at == 0 || known.at > said.at) {
		return inForce(known.Override, now)
	}
	if said.at > 0 {
		s.set(key, said)
	}
	return said.Override
}

// last returns the last order for key, the zero one if none is known or it has ended.
func (s *overrides) last(key string, now time.Time) ratelimit.Override {
	s.mu.Lock()
	defer s.mu.Unlock()
	return inForce(s.byKey[key].Override, now)
}

// reminder returns the last order for key, of which Redis is reminded; at 0 if there is none, Redis has not confirmed it, or
// it has ended.
func (s *overrides) reminder(key string, now time.Time) datedOverride {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.byKey[key]
	if o.Stop && o.Floor <= 0 && !inForce(o.Override, now).Stop {
		return datedOverride{}
	}
	return o
}

// all returns the last order of each key.
func (s *overrides) all() map[string]datedOverride {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.byKey)
}

// set stores o for key. s.mu is held.
func (s *overrides) set(key string, o datedOverride) {
	if s.byKey == nil {
		s.byKey = make(map[string]datedOverride)
	}
	s.byKey[strings.Clone(key)] = o // key may be part of a whole request
}

// inForce returns o as it holds at now, without a stop that has ended.
func inForce(o ratelimit.Override, now time.Time) ratelimit.Override {
	o.Stop = o.Stop && (o.Until.IsZero() || o.Until.After(now))
	return o
}
