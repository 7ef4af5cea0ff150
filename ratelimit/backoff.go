package ratelimit

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A pause after 429 or 503 without a time lasts 1, 2, 4 ... minutes, up to an hour, and longer by up to a tenth at
// random. Without the random part, requests that wait for several hosts would all start at the same time.
const (
	firstPause   = time.Minute
	longestPause = time.Hour

	// forgetAfter is how long after the end of a pause, without a new event, the next pause is firstPause again.
	forgetAfter = 30 * time.Minute

	// The host is paused after throttleLimit events within throttleWindow, or after events of two clients. A single
	// event may concern one broken URL, or one account with a used-up quota.
	throttleLimit  = 3
	throttleWindow = time.Minute
)

// A backoff records how a host throttles requests: the pauses and the recent events. The zero value is a host that does
// not.
type backoff struct {
	until  time.Time // nothing is sent before
	source Source    // of until
	began  time.Time // when the last pause began
	streak int       // pauses without a time in a row
	recent []throttleEvent
	client clientPause
}

// A clientPause pauses one client, after the host has throttled a request of it that had credentials: the quota of one
// account may be used up. If the host throttles a second client too, the host is paused instead. So a lane has at
// most one clientPause.
type clientPause struct {
	client  string
	until   time.Time
	source  Source    // of until
	streak  int       // pauses without a time in a row
	eventAt time.Time // when the host last throttled the client
}

// A throttleEvent is a response with status 429 or 503 that named no time.
type throttleEvent struct {
	client string
	at     time.Time
}

// hear records the response to a request that client sent, and reports whether it begins or extends a pause of the
// host. It may also begin or extend the pause of the client.
func (b *backoff) hear(o Outcome, client string, sent, now time.Time) bool {
	asked := o.pauseAsked()
	another := b.throttledAnother(client, now)
	switch {
	case asked > 0 && (another || !o.personal()):
		return b.pause(now.Add(asked), RetryAfter, now)
	case asked > 0:
		b.clientPause(client).extend(now.Add(asked), RetryAfter, now)
		return false
	case !o.pushesBack() || sent.Before(b.began):
		return false // a request that was sent before the pause began says nothing about the pause
	case !b.count(client, another, now):
		return false
	case !another && o.personal():
		b.clientPause(client).lengthen(now)
		return false
	}
	b.streak = b.streakAt(now)
	pause := pauseAfter(b.streak)
	b.streak++
	return b.pause(now.Add(pause), Backoff, now)
}

// pauseAfter returns the length of a pause that follows a streak of others.
func pauseAfter(streak int) time.Duration {
	pause := min(firstPause<<min(streak, 10), longestPause)
	return pause + rand.N(pause/10)
}

// clientPause returns the pause of client. It replaces the pause of another client, which is over.
func (b *backoff) clientPause(client string) *clientPause {
	if b.client.client != client {
		b.client = clientPause{client: strings.Clone(client)} // client may hold a whole request in memory
	}
	return &b.client
}

// extend moves the end of the pause to until, if that is later.
func (p *clientPause) extend(until time.Time, source Source, now time.Time) {
	p.eventAt = now
	if until.After(p.until) {
		p.until, p.source = until, source
	}
}

// lengthen begins or extends a pause for which the host named no time.
func (p *clientPause) lengthen(now time.Time) {
	if now.Sub(p.until) >= forgetAfter {
		p.streak = 0
	}
	pause := pauseAfter(p.streak)
	p.streak++
	p.extend(now.Add(pause), Backoff, now)
}

// throttledAnother reports whether the host has throttled another client too, within throttleWindow or in a pause that
// is not over.
func (b *backoff) throttledAnother(client string, now time.Time) bool {
	p := &b.client
	if p.client != client && !p.eventAt.IsZero() && (now.Sub(p.eventAt) <= throttleWindow || now.Before(p.until)) {
		return true
	}
	return slices.ContainsFunc(b.recent, func(e throttleEvent) bool {
		return e.client != client && now.Sub(e.at) <= throttleWindow
	})
}

// streakAt returns the streak that counts now.
func (b *backoff) streakAt(now time.Time) int {
	if b.forgettable(now) {
		return 0
	}
	return b.streak
}

// count adds an event, and reports whether there are enough for a pause. One is enough if the host has throttled
// another client too.
func (b *backoff) count(client string, another bool, now time.Time) bool {
	b.recent = slices.DeleteFunc(b.recent, func(e throttleEvent) bool { return now.Sub(e.at) > throttleWindow })
	if len(b.recent) < throttleLimit-1 && !another {
		b.recent = append(b.recent, throttleEvent{client, now})
		return false
	}
	b.recent = nil
	return true
}

// pause begins or extends the pause of the host, and reports whether its end has changed.
func (b *backoff) pause(until time.Time, source Source, now time.Time) bool {
	b.began = now
	if !until.After(b.until) {
		return false
	}
	b.until, b.source = until, source
	return true
}

// forgettable reports whether b makes no difference any more.
func (b *backoff) forgettable(now time.Time) bool {
	calm := func(at time.Time, d time.Duration) bool { return now.Sub(at) >= d }
	recent := func(at time.Time) bool { return now.Sub(at) <= throttleWindow } // as in throttledAnother
	if recent(b.client.eventAt) || slices.ContainsFunc(b.recent, func(e throttleEvent) bool { return recent(e.at) }) {
		return false
	}
	return calm(b.client.until, forgetStreakAfter(b.client.streak)) && calm(b.until, forgetStreakAfter(b.streak))
}

// forgetStreakAfter returns how long after the end of a pause its streak counts.
func forgetStreakAfter(streak int) time.Duration {
	if streak == 0 {
		return 0
	}
	return forgetAfter
}
