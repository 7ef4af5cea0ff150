package robots

import (
	"context"
	"errors"
	"sync"

	"github.com/robotsproxy/robotsproxy/origin"
)

// flights are the flights under way, at most one for each origin.
type flights struct {
	mu sync.Mutex // guards of
	of map[origin.Origin]*flight
}

// flight is an errand under way.
type flight struct {
	errand
	pass *pass
	done chan struct{} // closed when the flight has ended; landing and err are set then

	landing landing
	err     error
}

// errAgain is for a flight that failed for reasons that do not concern a caller that joined it.
var errAgain = errors.New("the flight ended for reasons of other callers")

// start returns the flight under way to e's origin, or a new one for e. If waits is true, the caller must wait until it is
// done or leave its pass.
func (c *Cache) start(e errand, waits bool) *flight {
	c.flights.mu.Lock()
	defer c.flights.mu.Unlock()
	f := c.flights.of[e.origin]
	if f == nil {
		ctx, cancel := context.WithCancelCause(c.life)
		f = &flight{errand: e, pass: c.queue.newPass(e.asker.Client, cancel), done: make(chan struct{})}
		c.flights.of[e.origin] = f
		defer func() { go c.run(ctx, f) }()
	}
	if waits {
		f.pass.join(e.asker.Client)
	}
	return f
}

// run flies f.
func (c *Cache) run(ctx context.Context, f *flight) {
	defer f.pass.cancel(nil)
	defer close(f.done)
	defer c.flights.remove(f.origin)
	f.err = errors.New("robots: the goroutine of a flight exited")
	f.landing, f.err = c.fly(withPass(ctx, f.pass), f)
}

func (f *flights) remove(o origin.Origin) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, o)
}

// result returns what f came to for a caller of client. f must be done.
func (f *flight) result(client string) (landing, error) {
	ofTurn := errors.Is(f.err, ErrBusy) || errors.As(f.err, new(*LaterError)) // the turn of the client that began f
	if errors.Is(f.err, errUnwanted) || ofTurn && f.asker.Client != client {
		return landing{}, errAgain
	}
	return f.landing, f.err
}
