package ratelimit

import (
	"iter"
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
		for key, v := range l.Views() {
			if v.Waiting == 0 {
				continue
			}
			w := Wait{Key: key, Requests: v.Waiting, Start: later(v.Start, v.PausedUntil), Delay: v.Delay, Paused: !v.PausedUntil.IsZero()}
			if !yield(w) {
				return
			}
		}
	}
}
