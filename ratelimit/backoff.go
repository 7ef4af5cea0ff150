package ratelimit

import (
	"math/rand/v2"
	"slices"
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
}

// A complaint is an answer of 429 or 503 that named no time.
type complaint struct {
	client string
	at     time.Time
}

// hear takes in what the host answered to a request that client sent, and reports whether the pause became longer.
func (b *backoff) hear(o Outcome, client string, sent, now time.Time) bool {
	if told := o.told(); told > 0 {
		return b.pause(now.Add(told), RetryAfter, now)
	}
	if !o.pushesBack() || sent.Before(b.began) {
		return false // what was under way when the pause began tells nothing new
	}
	if !b.complains(client, now) {
		return false
	}
	b.streak = b.climbed(now)
	rest := min(firstPause<<min(b.streak, 10), longestPause)
	b.streak++
	return b.pause(now.Add(rest+rand.N(rest/10)), Backoff, now)
}

// climbed returns how far up the curve the host is, if it was not forgiven.
func (b *backoff) climbed(now time.Time) int {
	if b.forgivenAt(now) {
		return 0
	}
	return b.streak
}

// complains adds a complaint, and reports whether it is the host that complains.
func (b *backoff) complains(client string, now time.Time) bool {
	b.recent = slices.DeleteFunc(b.recent, func(c complaint) bool { return now.Sub(c.at) > within })
	another := func(c complaint) bool { return c.client != client }
	if len(b.recent) < enough-1 && !slices.ContainsFunc(b.recent, another) {
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
	if b.streak == 0 {
		return calm(b.until, 0)
	}
	return calm(b.until, forgiven)
}
