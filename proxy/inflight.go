package proxy

import "sync"

// inflight counts the requests that are being handled. A sync.WaitGroup would not do: it forbids Add while Wait is called with a
// counter of zero, and requests begin at any time.
type inflight struct {
	mu     sync.Mutex // guards n and closed
	n      int
	closed bool
	zero   sync.Cond // n is 0
}

func newInflight() *inflight {
	f := &inflight{}
	f.zero.L = &f.mu
	return f
}

// begin counts one more request, or reports false after close.
func (f *inflight) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.n++
	return true
}

func (f *inflight) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n--; f.n == 0 {
		f.zero.Broadcast()
	}
}

// wait returns when no request is being handled.
func (f *inflight) wait() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waitLocked()
}

// close returns when no request is being handled. From then on, none begins.
func (f *inflight) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waitLocked()
	f.closed = true
}

func (f *inflight) waitLocked() {
	for f.n > 0 {
		f.zero.Wait()
	}
}
