package ratelimit

import (
	"sync"
	"time"
)

// maxBlocked is how long a client may block its own request while others wait.
const maxBlocked = time.Second

// leastLook is the least time between two checks of a request that is not blocked at the moment.
const leastLook = 20 * time.Millisecond

// A ClientTime measures how long a request waits for its own client to read the response or to send the rest of the
// body. The caller calls Begin and End around each such wait. Waits may overlap.
//
// After waits of one second in total, the request no longer holds the lane against other clients. If one of them has a
// request, its Delay counts from the end of that second. For its own client, the request holds the lane until it ends
// or for Options.ReleaseAfter.
//
// The zero value is ready to use. A ClientTime is for one request. It is safe for concurrent use.
type ClientTime struct {
	// mu guards the other fields.
	mu      sync.Mutex
	waits   int       // begun and not ended
	since   time.Time // begin of the first of them
	total   time.Duration
	reached time.Time // when total reached maxBlocked; zero: it has not
	overlap bool
}

// Begin marks the begin of a wait for the client.
func (c *ClientTime) Begin() {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits++; c.waits == 1 {
		c.since = now
	}
}

// End marks the end of a wait for the client. A wait shorter than least does not count, unless another one overlaps it.
func (c *ClientTime) End(least time.Duration) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits--; c.waits > 0 {
		return
	}
	waited := now.Sub(c.since)
	if waited < least {
		return
	}
	c.reached = c.reachedAt(now)
	c.total += waited
}

// Overlapped reports whether a request of another client may have started while this one went on.
func (c *ClientTime) Overlapped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.overlap
}

// reachedAt returns when total, with the present wait, reached maxBlocked, or the zero time if it has not. c.mu must be
// held.
func (c *ClientTime) reachedAt(now time.Time) time.Time {
	if !c.reached.IsZero() || c.total+now.Sub(c.since) < maxBlocked {
		return c.reached
	}
	return c.since.Add(maxBlocked - c.total)
}

// blocked returns when the client had blocked the request for maxBlocked in total, or the zero time if it has not.
func (c *ClientTime) blocked(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits == 0 {
		return c.reached
	}
	return c.reachedAt(now)
}

// nextLook returns when to call blocked again.
func (c *ClientTime) nextLook(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits == 0 {
		return now.Add(max(maxBlocked-c.total, leastLook))
	}
	at := c.since.Add(maxBlocked - c.total) // may be in the past
	return later(at, now.Add(time.Millisecond))
}

// gaveBack records that the request no longer holds the lane against other clients.
func (c *ClientTime) gaveBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.overlap = true
}
