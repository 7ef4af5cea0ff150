package ratelimit

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// The curve of the pauses after 429 and 503 without a time of their own: 1, 2, 4 ... minutes up to an hour, each longer by
// up to a tenth, so that what waits for several hosts does not come back to all of them at once.
const (
	firstPause   = time.Minute
	longestPause = time.Hour

	// forgiven is how long the end of a pause must be past, with nothing to complain of since, until the curve begins anew.
	forgiven = 30 * time.Minute

	// One broken URL, or one account that has used up its quota, is not the host's trouble. So many answers of the kind
	// within so long a time are, or such answers to two clients.
	enough = 3
	within = time.Minute
)

// A backoff is how a host has pushed back of late. Its zero value has not.
type backoff struct {
	until  time.Time // nothing is sent before
	source Source    // why
	began  time.Time // when the last pause was begun
	streak int       // how far up the curve
	recent []complaint
	client clientPause
}

// A clientPause holds back one client, after the host has pushed back in answer to its request with credentials: the quota of
// one account may be used up. If a second client hears the same, the host is paused instead, so a lane has one clientPause at
// most.
type clientPause struct {
	client string
	until  time.Time
	source Source
	streak int       // how far up the curve
	heard  time.Time // when the host last said so
}

// A complaint is an answer of 429 or 503 that named no time.
type complaint struct {
	client string
	at     time.Time
}

// hear takes in what the host answered to a request that client sent, and reports whether the pause of the host became longer.
// That of the client alone may have.
func (b *backoff) hear(o Outcome, client string, sent, now time.Time) bool {
	told := o.told()
	another := b.another(client, now)
	switch {
	case told > 0 && (another || !o.personal()):
		return b.pause(now.Add(told), RetryAfter, now)
	case told > 0:
		b.hold(client).extend(now.Add(told), RetryAfter, now)
		return false
	case !o.pushesBack() || sent.Before(b.began):
		return false // what was under way when the pause began tells nothing new
	case !b.complains(client, another, now):
		return false
	case !another && o.personal():
		b.hold(client).climb(now)
		return false
	}
	b.streak = b.climbed(now)
	rest := curve(b.streak)
	b.streak++
	return b.pause(now.Add(rest), Backoff, now)
}

// curve returns the length of a pause that follows streak others.
func curve(streak int) time.Duration {
	rest := min(firstPause<<min(streak, 10), longestPause)
	return rest + rand.N(rest/10)
}

// hold returns the pause of client. It replaces the pause of another client, which is over.
func (b *backoff) hold(client string) *clientPause {
	if b.client.client != client {
		b.client = clientPause{client: strings.Clone(client)} // it may be part of a whole request
	}
	return &b.client
}

// extend moves the end of the pause to until, if that is later.
func (p *clientPause) extend(until time.Time, source Source, now time.Time) {
	p.heard = now
	if until.After(p.until) {
		p.until, p.source = until, source
	}
}

// climb extends the pause along the curve.
func (p *clientPause) climb(now time.Time) {
	if now.Sub(p.until) >= forgiven {
		p.streak = 0
	}
	rest := curve(p.streak)
	p.streak++
	p.extend(now.Add(rest), Backoff, now)
}

// another reports whether the host has pushed back to another client too, within a minute or in a pause that is not over.
func (b *backoff) another(client string, now time.Time) bool {
	p := &b.client
	if p.client != client && !p.heard.IsZero() && (now.Sub(p.heard) <= within || now.Before(p.until)) {
		return true
	}
	return slices.ContainsFunc(b.recent, func(c complaint) bool { return c.client != client && now.Sub(c.at) <= within })
}

// climbed returns how far up the curve the host is, if it was not forgiven.
func (b *backoff) climbed(now time.Time) int {
	if b.forgivenAt(now) {
		return 0
	}
	return b.streak
}

// complains adds a complaint, and reports whether there are enough: one is, if another client has heard the same.
func (b *backoff) complains(client string, another bool, now time.Time) bool {
	b.recent = slices.DeleteFunc(b.recent, func(c complaint) bool { return now.Sub(c.at) > within })
	if len(b.recent) < enough-1 && !another {
		b.recent = append(b.recent, complaint{client, now})
		return false
	}
	b.recent = nil
	return true
}

// pause begins a pause, or makes the present one longer.
func (b *backoff) pause(until time.Time, source Source, now time.Time) bool {
	b.began = now
	if !until.After(b.until) {
		return false
	}
	b.until, b.source = until, source
	return true
}

// forgivenAt reports whether nothing of b is worth remembering.
func (b *backoff) forgivenAt(now time.Time) bool {
	calm := func(at time.Time, d time.Duration) bool { return now.Sub(at) >= d }
	for _, c := range b.recent {
		if !calm(c.at, within) {
			return false
		}
	}
	if !calm(b.client.heard, within) || !calm(b.client.until, forgivenAfter(b.client.streak)) {
		return false
	}
	return calm(b.until, forgivenAfter(b.streak))
}

// forgivenAfter returns how long a pause is remembered after its end.
func forgivenAfter(streak int) time.Duration {
	if streak == 0 {
		return 0
	}
	return forgiven
}
