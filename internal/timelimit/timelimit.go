// Package timelimit limits the time of an exchange with another machine.
//
//	limit := timelimit.New(ctx, 10*time.Second, context.DeadlineExceeded)
//	defer limit.End()
//	resp, err := transport.RoundTrip(req.WithContext(limit))
//
// The time in which this process or machine stood still does not count: an answer that came meanwhile has not been read
// yet, and the timer of package time would fire first.
package timelimit

import (
	"context"
	"sync"
	"time"
)

// Context ends when its time is up, or its parent ends. Its Deadline is that of the parent.
type Context struct {
	context.Context
	cancel context.CancelCauseFunc
	cause  error

	mu    sync.Mutex // guards the fields below
	left  time.Duration
	part  time.Duration // of left, that the timer waits for
	begun time.Time     // of part
	timer *time.Timer   // nil during a pause
	parts int           // begun so far
}

// longestPart is the most that counts of a time in which the process stands still.
const longestPart = time.Second

// New returns a Context that ends after d with the given cause. Its error is then context.DeadlineExceeded. The caller
// must call End.
func New(parent context.Context, d time.Duration, cause error) *Context {
	c := &Context{cause: cause, left: d}
	c.Context, c.cancel = context.WithCancelCause(parent)
	c.Resume()
	return c
}

// End ends the Context.
func (c *Context) End() {
	c.Pause()
	c.cancel(context.Canceled)
}

// Err returns context.DeadlineExceeded if the time is up, or the error of the parent.
func (c *Context) Err() error {
	if c.IsUp() {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

// IsUp reports whether the time was up before the Context ended otherwise.
func (c *Context) IsUp() bool { return context.Cause(c.Context) == c.cause }

// Left returns the time that is left.
func (c *Context) Left() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil {
		return c.left
	}
	return c.left - c.passed()
}

// passed returns how much of the part has passed.
func (c *Context) passed() time.Duration { return min(time.Since(c.begun), c.part) }

// Pause stops the time. It returns false if the Context has ended.
func (c *Context) Pause() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
		c.left -= c.passed()
	}
	return c.Context.Err() == nil
}

// Resume ends a Pause.
func (c *Context) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wait()
}

// wait sets the timer for the next part.
func (c *Context) wait() {
	c.parts++
	number := c.parts
	c.part, c.begun = min(c.left, longestPart), time.Now()
	c.timer = time.AfterFunc(c.part, func() { c.endPart(number) })
}

// endPart is called when the timer of a part fires, at its end or later.
func (c *Context) endPart(number int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil || c.parts != number {
		return // Pause was called since
	}
	if c.left -= c.part; c.left > 0 {
		c.wait()
		return
	}
	c.timer = nil
	c.cancel(c.cause)
}
