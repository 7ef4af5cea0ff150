package ratelimit

import (
	"sync"
	"time"
)

// blockedFor is how long a client may block its own request while others wait.
const blockedFor = time.Second

// leastLook is the least time between two looks at a request that is not blocked at the moment.
const leastLook = 20 * time.Millisecond

// A ClientTime measures how long a request waits for its own client: until the client reads the response, or sends the rest of
// the body. The caller calls Begin and End around each such wait. Waits may overlap.
//
// A request that has waited for a second in all gives its place in the lane back if a request of another client wants it. The
// Delay of that request counts from the end of the second. For the client itself, the blocked request holds the lane like any
// other, until its end or for Options.ReleaseAfter.
//
// The zero value is ready to use. A ClientTime is for one request, and safe for concurrent use.
type ClientTime struct {
	// mu guards the other fields.
	mu      sync.Mutex
	waits   int       // begun and not ended
	since   time.Time // begin of the first of them
	total   time.Duration
	reached time.Time // when total reached blockedFor; zero: it has not
	overlap bool
}

// Begin begins a wait for the client.
func (c *ClientTime) Begin() {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits++; c.waits == 1 {
		c.since = now
	}
}

// End ends a wait for the client. A wait shorter than least does not count, unless another one overlaps it.
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

// Overlapped reports whether the request has given its place back while it went on.
func (c *ClientTime) Overlapped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.overlap
}

// reachedAt returns when total, with the present wait, reached blockedFor, the zero time if it has not. c.mu is held.
func (c *ClientTime) reachedAt(now time.Time) time.Time {
	if !c.reached.IsZero() || c.total+now.Sub(c.since) < blockedFor {
		return c.reached
	}
	return c.since.Add(blockedFor - c.total)
}

// blocked returns when the client had blocked the request for blockedFor in all, the zero time if it has not.
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
		return now.Add(max(blockedFor-c.total, leastLook))
	}
	at := c.since.Add(blockedFor - c.total) // may be in the past
	return later(at, now.Add(time.Millisecond))
}

// gaveBack records that the request has given its place back.
func (c *ClientTime) gaveBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.overlap = true
}
