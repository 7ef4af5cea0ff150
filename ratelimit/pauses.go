package ratelimit

import (
	"fmt"
	"math"
	"time"
)

// A Pause is a host's request to be left alone, as it is kept over a restart.
type Pause struct {
	Key    string
	Until  time.Time
	Source Source // Backoff or RetryAfter
	Streak int    // how many pauses of the curve have followed one another
}

// Pauses keep long pauses over a restart of the process. All methods may be called by many goroutines at once.
type Pauses interface {
	// Keep keeps p in the place of what was kept for its key, unless that ends later: two answers of a host may come here
	// in either order.
	Keep(p Pause) error

	// Kept returns what is kept, half an hour past its end at least: so long a pause counts for the one after it.
	Kept() ([]Pause, error)
}

// keepsAbove is how long a pause is that is worth keeping: a restart takes about as long.
const keepsAbove = time.Minute

// restore makes the lanes of the pauses that are kept.
func (l *Limiter) restore(kept Pauses) error {
	if kept == nil {
		return nil
	}
	pauses, err := kept.Kept()
	if err != nil {
		return fmt.Errorf("ratelimit: reading the pauses that were kept: %w", err)
	}
	for _, p := range pauses {
		b := backoff{until: p.Until, source: p.Source, streak: p.Streak}
		if b.forgivenAt(time.Now()) {
			continue
		}
		ln, err := l.lane(p.Key)
		if err != nil {
			return fmt.Errorf("ratelimit: restoring the pause of %s: %w", p.Key, err)
		}
		ln.restrain().backoff = b
		ln.unlock()
		l.tellPause(p)
	}
	return nil
}

// tellPause has the other instances know of a pause.
func (l *Limiter) tellPause(p Pause) {
	if rest := time.Until(p.Until); l.coordinator != nil && rest > 0 {
		l.coordinator.Pause(p.Key, rest, p.Source)
	}
}

// keep tells the other instances of a new pause and stores it, both in the background. It ignores the zero Pause.
func (l *Limiter) keep(p Pause) {
	if p.Until.IsZero() {
		return
	}
	l.tellPause(p)
	l.store(p)
}

// store hands p to Pauses in the background, if it is long. If a pause of the same key is still queued, only the one that ends
// last is kept, so the queue has at most one pause for each lane.
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

// storeNow hands the pause of key to Pauses.
func (l *Limiter) storeNow(key string) {
	l.storing.Lock()
	p := l.unstored[key]
	delete(l.unstored, key)
	l.storing.Unlock()
	if err := l.pauses.Keep(p); err != nil {
		l.unkept.Add(1)
	}
}
