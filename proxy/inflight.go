package proxy

import (
	"context"
	"net/http"
	"sync"
)

// inflight counts the requests that are being handled. A sync.WaitGroup would not do: it forbids Add while Wait is
// called with a counter of zero, and requests begin at any time.
type inflight struct {
	mu     sync.Mutex // guards n and closed
	n      int
	closed bool
	zero   sync.Cond // n is 0, or a ctx of wait has ended
}

func newInflight() *inflight {
	f := &inflight{}
	f.zero.L = &f.mu
	return f
}

// begin counts one more request. After close it ends the calling handler with a panic that net/http recovers.
func (f *inflight) begin() {
	if !f.tryBegin() {
		panic(http.ErrAbortHandler)
	}
}

// tryBegin is begin for goroutines that are not those of a handler. It reports whether the request may begin.
func (f *inflight) tryBegin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.n++
	}
	return !f.closed
}

func (f *inflight) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n--; f.n == 0 {
		f.zero.Broadcast()
	}
}

// wait returns when no request is being handled, or with an error when ctx ends.
func (f *inflight) wait(ctx context.Context) error {
	defer context.AfterFunc(ctx, f.wake)()
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.n > 0 && ctx.Err() == nil {
		f.zero.Wait()
	}
	if f.n > 0 {
		return ctx.Err()
	}
	return nil
}

func (f *inflight) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.zero.Broadcast()
}

// close returns when no request is being handled. No request begins after that.
func (f *inflight) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.n > 0 {
		f.zero.Wait()
	}
	f.closed = true
}
