package ratelimit

import "time"

// A View is a lane as it stands at one moment, for people to look at.
type View struct {
	Waiting  int // requests that wait
	Clients  int // with requests that wait, or reservations
	Reserved int // reservations for clients that were turned away
	UnderWay int

	Last  time.Time     // the last start or end of a request; zero: none is remembered
	Took  time.Duration // how long requests have taken of late
	Floor time.Duration // an operator's least Delay

	PausedUntil  time.Time // zero: the host is not paused
	PausedBy     Source    // Backoff or RetryAfter
	Stopped      bool
	StoppedUntil time.Time // zero: until the stop is lifted
}

// Peek returns how the lane of key stands now, and false if there is none, which is as good as an idle one. Like
// every look at a lane, it takes what has gone on for longer than ReleaseAfter for ended, and it changes nothing else.
func (l *Limiter) Peek(key string) (View, bool) {
	ln := l.present(key)
	if ln == nil {
		return View{}, false
	}
	ln.lock()
	defer ln.unlock()
	now := time.Now()
	ln.expireOverdue(now)
	v := View{UnderWay: ln.inflights.n, Last: ln.gapFrom, Took: ln.avgDuration}
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
	if rs := ln.hold; rs != nil {
		v.Floor, v.Stopped = rs.floor, rs.stop(now) != nil
		if v.Stopped {
			v.StoppedUntil = rs.stopUntil
		}
		if rs.pauseLeft(now) > 0 {
			v.PausedUntil, v.PausedBy = rs.until, rs.source
		}
	}
	return v, true
}
