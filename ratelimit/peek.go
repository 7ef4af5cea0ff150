package ratelimit

import "time"

// A View is the state of a lane at one moment, for display.
type View struct {
	Waiting  int // requests that wait
	Clients  int // with requests that wait, or reservations
	Reserved int // reservations for rejected requests
	InFlight int // requests in flight

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
	ln.lock()
	defer ln.unlock()
	now := time.Now()
	ln.expireOverdue(now)
	v := View{InFlight: ln.inflights.n, Last: ln.gapFrom, Took: ln.avgDuration}
	if ln.queue != nil {
		clients := make(map[string]bool)
		for w := range ln.queue.all() {
			clients[w.client] = true
			if w.reserved() {
				v.Reserved++
			} else {
				v.Waiting++
			}
		}
		v.Clients = len(clients)
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
	return v, true
}
