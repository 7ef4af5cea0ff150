package redislease

import (
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// overrideLife is how long Redis and the instances remember an override.
const overrideLife = 365 * 24 * time.Hour

// overrides holds the last override of each key that this instance has set or learned. Redis may forget an override,
// and many of its answers do not mention one, so only a newer override replaces an older one. Lifts are kept for the
// same reason. Its size is that of the keys for which an operator has set an override.
type overrides struct {
	mu    sync.Mutex // guards byKey; may be locked while Client.mu is held
	byKey map[string]datedOverride
}

// A datedOverride is an override and when it was set: microseconds of the clock of Redis, later than the override
// before. An override at 0 is not confirmed by Redis yet, and newer than all that Redis has.
type datedOverride struct {
	ratelimit.Override
	at int64
}

// set stores an override that was set in this instance.
func (s *overrides) set(key string, o ratelimit.Override) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putLocked(key, datedOverride{Override: o})
}

// confirm notes that Redis has stored o at the time at, unless another override was set since.
func (s *overrides) confirm(key string, o ratelimit.Override, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.byKey[key]; ok && last == (datedOverride{Override: o}) {
		s.putLocked(key, datedOverride{o, at})
	}
}

// merge takes the override that Redis has, at 0 if it has none, and returns the newer one of that and the one known
// here.
func (s *overrides) merge(key string, theirs datedOverride, now time.Time) ratelimit.Override {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ours, ok := s.byKey[key]; ok && (ours.at == 0 || ours.at > theirs.at) {
		return inForce(ours.Override, now)
	}
	if theirs.at > 0 {
		s.putLocked(key, theirs)
	}
	return theirs.Override
}

// last returns the last override for key, zero if there is none or it has ended.
func (s *overrides) last(key string, now time.Time) ratelimit.Override {
	s.mu.Lock()
	defer s.mu.Unlock()
	return inForce(s.byKey[key].Override, now)
}

// reminder returns the last override for key, with which Redis is reminded; at 0 if there is none, Redis has not
// confirmed it, or it has ended.
func (s *overrides) reminder(key string, now time.Time) datedOverride {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.byKey[key]
	if o.Stop && o.Floor <= 0 && !inForce(o.Override, now).Stop {
		return datedOverride{}
	}
	return o
}

// all returns the last override of each key.
func (s *overrides) all() map[string]datedOverride {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.byKey)
}

func (s *overrides) putLocked(key string, o datedOverride) {
	if s.byKey == nil {
		s.byKey = make(map[string]datedOverride)
	}
	s.byKey[strings.Clone(key)] = o // key may be part of a whole request
}

// inForce returns o without a stop that has ended by now.
func inForce(o ratelimit.Override, now time.Time) ratelimit.Override {
	o.Stop = o.Stop && (o.Until.IsZero() || o.Until.After(now))
	return o
}

// overrideArgs returns o as the scripts take it: stop, floor, until, and for how many milliseconds Redis remembers it.
func overrideArgs(o ratelimit.Override) []any {
	stop, until, life := 0, int64(0), overrideLife
	if o.Stop {
		stop = 1
	}
	if !o.Until.IsZero() {
		until = o.Until.UnixMicro()
	}
	if o.Stop && until > 0 && o.Floor <= 0 {
		life = min(life, max(time.Millisecond, time.Until(o.Until)))
	}
	return []any{stop, micros(o.Floor), until, life.Milliseconds()}
}
