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

	purges uint64    // of the Cache, at the beginning
	seen   *Snapshot // in memory, before it asked the origin

	landing landing
	err     error
}

// errAgain is for a flight that failed for reasons that do not concern a caller that joined it.
var errAgain = errors.New("the flight ended for reasons of other callers")

// start returns the flight under way to e's origin, or a new one for e. If waits is true, the caller must wait until it is
// done or leave its pass. A flight that judges a redirect is not one of those that may follow redirects: two of these would
// wait for each other if each redirects to the host of the other.
func (c *Cache) start(e errand, waits bool) *flight {
	under := c.underWay(e)
	under.mu.Lock()
	defer under.mu.Unlock()
	f := under.of[e.origin]
	if f == nil {
		ctx, cancel := context.WithCancelCause(c.life)
		f = &flight{errand: e, pass: c.queue.newPass(e.asker.Client, cancel), done: make(chan struct{})}
		if under.of == nil {
			under.of = make(map[origin.Origin]*flight)
		}
		under.of[e.origin] = f
		defer func() { go c.run(ctx, f) }()
	}
	if waits {
		f.pass.join(e.asker.Client)
	}
	return f
}

func (c *Cache) underWay(e errand) *flights {
	if e.purpose == toJudge {
		return &c.judging
	}
	return &c.flights
}

// run flies f.
func (c *Cache) run(ctx context.Context, f *flight) {
	defer f.pass.cancel(nil)
	defer close(f.done)
	defer c.underWay(f.errand).remove(f.origin)
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

// writers are the flights that write, one at a time for each origin. The zero value has none.
type writers struct {
	mu sync.Mutex                      // guards of
	of map[origin.Origin]chan struct{} // closed when the flight has written
}

// enter waits until a flight to o may write. It must call leave afterwards.
func (w *writers) enter(o origin.Origin) (leave func()) {
	for {
		other := w.take(o)
		if other == nil {
			return func() { w.give(o) }
		}
		<-other
	}
}

// take returns nil if nobody writes, or what is closed when that is over.
func (w *writers) take(o origin.Origin) (other chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if other = w.of[o]; other != nil {
		return other
	}
	if w.of == nil {
		w.of = make(map[origin.Origin]chan struct{})
	}
	w.of[o] = make(chan struct{})
	return nil
}

func (w *writers) give(o origin.Origin) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.of[o])
	delete(w.of, o)
}
