package ratelimit

import (
	"sync"
	"time"
)

// blockedFor is how long a client may block its own request while others wait.
const blockedFor = time.Second

// leastLook is how soon it is looked again at a request that its client may block any moment.
const leastLook = 20 * time.Millisecond

// A ClientTime counts for how long a request waits for its own client: for the client to read the answer, or to send the
// rest of the body. Its owner calls Begin and End around each such wait; waits may overlap.
//
// A request that has waited for a second in all gives its place in the lane back when a request of another client wants it.
// The Delay of that one counts from the end of the second. For the client itself the request holds the lane as any other,
// until its end or for Options.ReleaseAfter.
//
// The zero value has counted nothing. A ClientTime is for one request, and safe for concurrent use.
type ClientTime struct {
	mu      sync.Mutex // guards what follows
	waits   int        // that go on
	since   time.Time  // when the first of them began
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

// End ends a wait for the client. One that was shorter than least does not count, unless others went on meanwhile.
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

// reachedAt returns when total reached blockedFor, with the wait that goes on: the zero time if it has not. c.mu is held.
func (c *ClientTime) reachedAt(now time.Time) time.Time {
	if !c.reached.IsZero() || c.total+now.Sub(c.since) < blockedFor {
		return c.reached
	}
	return c.since.Add(blockedFor - c.total)
}

// blocked returns when the client had blocked the request for so long that this gives its place back: the zero time if it
// has not.
func (c *ClientTime) blocked(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits == 0 {
		return c.reached
	}
	return c.reachedAt(now)
}

// nextLook returns when to ask again whether the client has blocked the request.
func (c *ClientTime) nextLook(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits == 0 {
		return now.Add(max(blockedFor-c.total, leastLook))
	}
	at := c.since.Add(blockedFor - c.total) // it may just have passed
	return later(at, now.Add(time.Millisecond))
}

// gaveBack notes that the request has given its place back.
func (c *ClientTime) gaveBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.overlap = true
}
