package ratelimit

import (
	"fmt"
	"math"
	"time"
)

// A Pause is the pause of one key after a 429 or 503, as Pauses stores it.
type Pause struct {
	Key    string
	Until  time.Time
	Source Source // Backoff or RetryAfter
	Streak int    // number of pauses with growing length, this one included
}

// Pauses stores long pauses, so that they outlive the process. Its methods must be safe for concurrent use.
type Pauses interface {
	// Keep stores p instead of the pause that is stored for its key, unless that ends later. Pauses of one key can come
	// in any order.
	Keep(p Pause) error

	// Kept returns the stored pauses. It must include those that ended less than half an hour ago, since they make the
	// next pause longer.
	Kept() ([]Pause, error)
}

// Pauses stores only pauses that are longer than keepsAbove, which is about the time that a restart takes.
const keepsAbove = time.Minute

// restore makes lanes for the stored pauses.
func (l *Limiter) restore(kept Pauses) error {
	if kept == nil {
		return nil
	}
	pauses, err := kept.Kept()
	if err != nil {
		return fmt.Errorf("ratelimit: reading the stored pauses: %w", err)
	}
	for _, p := range pauses {
		b := backoff{until: p.Until, source: p.Source, streak: p.Streak}
		if b.forgettable(time.Now()) {
			continue
		}
		ln, err := l.lane(p.Key)
		if err != nil {
			return fmt.Errorf("ratelimit: restoring the pause of %s: %w", p.Key, err)
		}
		ln.ensureHold().backoff = b
		ln.unlock()
		l.reportPause(p)
	}
	return nil
}

// reportPause reports a pause to other instances, if there is a Coordinator.
func (l *Limiter) reportPause(p Pause) {
	if rest := time.Until(p.Until); l.coordinator != nil && rest > 0 {
		l.coordinator.Pause(p.Key, rest, p.Source)
	}
}

// store passes p to Pauses in the background, if it is long. If a pause of the same key is still queued, only the one
// that ends last remains, so the queue has at most one pause for each lane.
func (l *Limiter) store(p Pause) {
	if l.pauses == nil || time.Until(p.Until) <= keepsAbove {
		return
	}
	l.storing.Lock()
	defer l.storing.Unlock()
	earlier, waits := l.unstored[p.Key]
	if waits && earlier.Until.After(p.Until) {
		return
	}
	if l.unstored == nil {
		l.unstored = make(map[string]Pause)
	}
	l.unstored[p.Key] = p
	if !waits {
		l.stores.add(func() { l.storeNow(p.Key) }, math.MaxInt)
	}
}

// storeNow passes the queued pause of key to Pauses.
func (l *Limiter) storeNow(key string) {
	l.storing.Lock()
	p := l.unstored[key]
	delete(l.unstored, key)
	l.storing.Unlock()
	if err := l.pauses.Keep(p); err != nil {
		l.unkept.Add(1)
	}
}
