package ratelimit

import (
	"iter"
	"slices"
	"time"
)

// A View is the state of a lane at one moment, for display.
type View struct {
	Waiting  int // requests that wait
	Clients  int // with requests that wait, or reservations
	Reserved int // reservations for rejected requests
	InFlight int // requests in flight

	Start time.Time     // predicted, of the first request that waits; it may have passed; zero: no request waits
	Delay time.Duration // of that request, or of the operator if that is longer

	Last  time.Time     // the last start or end of a request; zero: unknown
	Took  time.Duration // the usual duration of a request
	Floor time.Duration // an operator's least Delay

	PausedUntil  time.Time // zero: the host is not paused
	PauseSource  Source    // Backoff or RetryAfter
	Stopped      bool
	StoppedUntil time.Time // zero: until Lift
}

// Peek returns the state of the lane of key. It returns false if key has no lane, as an idle key may.
func (l *Limiter) Peek(key string) (View, bool) {
	ln := l.find(key)
	if ln == nil {
		return l.successor.Load().peek(key)
	}
	return ln.view(), true
}

// Views yields the keys and states of all lanes of this process, in no order. It looks at each lane in turn, so a
// program should not call it for each request.
func (l *Limiter) Views() iter.Seq2[string, View] {
	return func(yield func(string, View) bool) {
		l.mu.RLock()
		lanes := slices.Clone(l.ring.lanes)
		l.mu.RUnlock()
		for _, ln := range lanes {
			if !yield(ln.key, ln.view()) {
				return
			}
		}
	}
}

func (ln *lane) view() View {
	ln.lock()
	defer ln.unlock()
	now := time.Now()
	ln.expireOverdue(now)
	v := View{InFlight: ln.inflights.n, Last: ln.gapFrom, Took: ln.avgDuration}
	if ln.queue != nil {
		ln.viewQueue(&v)
	}
	if h := ln.hold; h != nil {
		v.Floor, v.Stopped = h.floor, h.stop(now) != nil
		if v.Stopped {
			v.StoppedUntil = h.stopUntil
		}
		if h.pauseLeft(now) > 0 {
			v.PausedUntil, v.PauseSource = h.until, h.source
		}
	}
	return v
}

func (ln *lane) viewQueue(v *View) {
	v.Clients = len(ln.queue.clients)
	for w := range ln.queue.all() {
		if w.reserved() {
			v.Reserved++
			continue
		}
		if v.Waiting++; v.Waiting == 1 || w.due.Before(v.Start) {
			v.Start, v.Delay = w.due, ln.hold.delay(w.delay)
		}
	}
}
