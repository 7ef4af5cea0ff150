package ratelimit

import (
	"iter"
	"slices"
	"time"
)

// A Wait is a lane with requests that wait, for display.
type Wait struct {
	Key      string
	Requests int           // that wait
	Start    time.Time     // predicted, of the first of them; it may have passed
	Delay    time.Duration // of that request, or of the operator if that is longer
	Paused   bool          // the host is paused
}

// Waits yields the lanes with requests that wait, in no order. It looks at each lane in turn, so a program should not
// call it for each request.
func (l *Limiter) Waits() iter.Seq[Wait] {
	return func(yield func(Wait) bool) {
		l.mu.RLock()
		lanes := slices.Clone(l.ring.lanes)
		l.mu.RUnlock()
		for _, ln := range lanes {
			if w := ln.wait(); w.Requests > 0 && !yield(w) {
				return
			}
		}
	}
}

func (ln *lane) wait() Wait {
	ln.lock()
	defer ln.unlock()
	v := Wait{Key: ln.key}
	if ln.queue == nil {
		return v
	}
	for w := range ln.queue.all() {
		if w.reserved() {
			continue
		}
		if v.Requests++; v.Requests == 1 || w.due.Before(v.Start) {
			v.Start, v.Delay = w.due, ln.hold.delay(w.delay)
		}
	}
	if h := ln.hold; h != nil && h.pauseLeft(time.Now()) > 0 {
		v.Start, v.Paused = later(v.Start, h.until), true
	}
	return v
}
