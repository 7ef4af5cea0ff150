package robots

import (
	"context"
	"errors"
	"time"
)

// attempt is one Fetch: its context, its time, and its places in the queue of a Cache. The context ends when the time is up,
// with the error of a deadline. To wait for a place takes no time of the attempt: our own load is not the origin's fault.
type attempt struct {
	context.Context
	cancel context.CancelCauseFunc
	pass   *pass // nil if no Cache asked

	timer *time.Timer
	until time.Time // when the time is up, unless the timer is stopped
	paced bool      // the request under way has a place in the pace of its host: to wait takes time
}

func newAttempt(ctx context.Context, timeout time.Duration) *attempt {
	a := &attempt{until: time.Now().Add(timeout)}
	a.pass, _ = ctx.Value(passKey{}).(*pass)
	a.Context, a.cancel = context.WithCancelCause(ctx)
	a.timer = time.AfterFunc(timeout, func() { a.cancel(context.DeadlineExceeded) })
	return a
}

// end frees what a holds; its context ends.
func (a *attempt) end() {
	a.timer.Stop()
	a.cancel(context.Canceled)
}

// Err returns context.DeadlineExceeded if the time was up first.
func (a *attempt) Err() error {
	if a.timedOut() {
		return context.DeadlineExceeded
	}
	return a.Context.Err()
}

func (a *attempt) timedOut() bool { return context.Cause(a.Context) == context.DeadlineExceeded }

// wait calls f, which waits for a place, and stops the time meanwhile.
func (a *attempt) wait(f func(context.Context) error) error {
	if a.paced {
		return f(a)
	}
	if !a.timer.Stop() {
		return context.DeadlineExceeded
	}
	left := time.Until(a.until)
	err := f(a)
	a.until = time.Now().Add(left)
	a.timer.Reset(left)
	return err
}

// moveTo gives back the place that a has and takes one for a request to host, unless it is for that host already. If host is
// empty, it is for any number of requests at once. The error is a *BusyError or that of a.
func (a *attempt) moveTo(host string) error {
	if a.pass == nil || a.pass.isAt(host) {
		return nil
	}
	a.leave()
	return a.wait(func(ctx context.Context) error { return a.pass.move(ctx, host) })
}

// leave gives back the place that a has.
func (a *attempt) leave() {
	if a.pass != nil {
		a.pass.end()
	}
}

// beginBody waits until a body may be read. If it succeeds, endBody must be called when the body is compiled.
func (a *attempt) beginBody() error {
	if a.pass == nil {
		return nil
	}
	err := a.wait(a.pass.beginBody)
	if a.paced && err == context.DeadlineExceeded {
		return &LaterError{At: time.Now().Add(laterBody), Err: errBodies} // our own load is not the origin's fault
	}
	return err
}

func (a *attempt) endBody() {
	if a.pass != nil {
		a.pass.endBody()
	}
}

// compile compiles snap when it is its turn.
func (a *attempt) compile(snap *Snapshot) error {
	if a.pass == nil {
		snap.compile()
		return nil
	}
	return a.wait(func(ctx context.Context) error { return a.pass.compile(ctx, snap.compile) })
}

// laterBody is when a file is asked for again whose body had no place in time.
const laterBody = 5 * time.Second

var errBodies = errors.New("too many files are being read at once")

type passKey struct{}

// withPass returns a context for a fetch that p lets through a queue.
func withPass(ctx context.Context, p *pass) context.Context {
	return context.WithValue(ctx, passKey{}, p)
}
