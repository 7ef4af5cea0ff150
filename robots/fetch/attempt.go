package fetch

import (
	"context"
	"errors"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/timelimit"
)

// Queue limits the fetches of a cache: the requests under way, the bodies in memory and the parsers at work. The
// methods that wait return the cause of ctx if it ends. Fetch returns their other errors: they say nothing about the
// file.
type Queue interface {
	// Enter waits for a place for requests to host, or for a place of no particular host if host is empty. It first
	// gives back the place that it has, unless that is one for host.
	Enter(ctx context.Context, host string) error
	// Leave gives back the place of Enter. It does nothing if there is none.
	Leave()
	// BeginBody waits until a body may be read.
	BeginBody(ctx context.Context) error
	// EndBody ends BeginBody. It is called after Parse.
	EndBody()
	// Parse parses the body of a when that may be done.
	Parse(ctx context.Context, a *Answer) error
}

// noQueue is a Queue without limits, which parses nothing.
type noQueue struct{}

func (noQueue) Enter(context.Context, string) error  { return nil }
func (noQueue) Leave()                               {}
func (noQueue) BeginBody(context.Context) error      { return nil }
func (noQueue) EndBody()                             {}
func (noQueue) Parse(context.Context, *Answer) error { return nil }

// queueError is an error of a Queue.
type queueError struct{ error }

func (e queueError) Unwrap() error { return e.error }

// attempt is the context of one Fetch. It ends with context.DeadlineExceeded when the timeout has passed. Waits for the
// queue do not count: our own load is not a failure of the origin.
type attempt struct {
	*timelimit.Context
	queue Queue
	paced bool // the request under way holds a place in the lane of its host, so waits count
}

func newAttempt(ctx context.Context, q Queue, timeout time.Duration) *attempt {
	if q == nil {
		q = noQueue{}
	}
	return &attempt{Context: timelimit.New(ctx, timeout, context.DeadlineExceeded), queue: q}
}

// wait calls f, which waits for the queue. The time of the call does not count.
func (a *attempt) wait(f func(context.Context) error) error {
	if !a.paced {
		if !a.Pause() {
			return a.Err()
		}
		defer a.Resume()
	}
	err := f(a)
	if err != nil && context.Cause(a.Context) == nil {
		return queueError{err}
	}
	return err
}

// enter calls Queue.Enter.
func (a *attempt) enter(host string) error {
	return a.wait(func(ctx context.Context) error { return a.queue.Enter(ctx, host) })
}

func (a *attempt) leave() { a.queue.Leave() }

// beginBody calls Queue.BeginBody. If the timeout passes first, it returns a *LaterError.
func (a *attempt) beginBody() error {
	err := a.wait(a.queue.BeginBody)
	if a.paced && err == context.DeadlineExceeded {
		return &LaterError{At: time.Now().Add(bodyRetry), Err: errBodies}
	}
	return err
}

// parse calls Queue.Parse.
func (a *attempt) parse(answer *Answer) error {
	return a.wait(func(ctx context.Context) error { return a.queue.Parse(ctx, answer) })
}

// bodyRetry is the delay before a file is fetched again that could not be read in time.
const bodyRetry = 5 * time.Second

var errBodies = errors.New("too many files are being read at once")
