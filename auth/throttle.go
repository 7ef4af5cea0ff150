package auth

import (
	"sync"
	"time"
)

const (
	freeFailures = 5                // of one network for one user, before the first delay
	maxDelay     = time.Minute      // between two attempts; the first delay is a second, and each failure doubles it
	failureLife  = 10 * time.Minute // after which failures are forgotten
	maxAttempts  = 10_000           // for which failures are kept: at most 1 MiB
)

// throttle delays attempts after failures. The zero value is ready to use.
type throttle struct {
	mu       sync.Mutex          // guards failures
	failures map[uint64]failures // by the hash of the attempt
}

// failures are those of one attempt.
type failures struct {
	count   int
	next    time.Time // when the next attempt is checked
	expires time.Time
}

// wait returns the time until the attempt of key is checked again.
func (t *throttle) wait(key uint64, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, t.failures[key].next.Sub(now))
}

// count returns the failures of the attempt of key.
func (t *throttle) count(key uint64) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failures[key].count
}

// fail counts a failure of the attempt of key, and returns the count.
func (t *throttle) fail(key uint64, now time.Time) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.failures[key]
	if now.After(f.expires) {
		f.count = 0
	}
	f.count++
	f.expires = now.Add(failureLife)
	if extra := f.count - freeFailures; extra > 0 {
		f.next = now.Add(min(maxDelay, time.Second<<min(extra-1, 10)))
	}
	if t.failures == nil {
		t.failures = make(map[uint64]failures)
	}
	if _, present := t.failures[key]; !present && len(t.failures) >= maxAttempts {
		t.evictLocked(now)
	}
	t.failures[key] = f
	return f.count
}

// evictLocked removes expired failures, and then arbitrary ones until a thousand places are free, so that it does not
// run for every failure. Only an attacker with thousands of users or networks fills the map, mostly with its own
// attempts.
func (t *throttle) evictLocked(now time.Time) {
	for key, f := range t.failures {
		if now.After(f.expires) {
			delete(t.failures, key)
		}
	}
	for key := range t.failures {
		if len(t.failures) <= maxAttempts-1000 {
			return
		}
		delete(t.failures, key)
	}
}
