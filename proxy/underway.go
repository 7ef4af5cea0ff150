package proxy

import "sync"

// underWay counts what is under way. A sync.WaitGroup would not do: requests begin while somebody waits for the last to
// end, which it takes for misuse.
type underWay struct {
	mu     sync.Mutex // guards n and closed
	n      int
	closed bool
	none   sync.Cond // n is 0
}

func newUnderWay() *underWay {
	u := &underWay{}
	u.none.L = &u.mu
	return u
}

// begin counts one more, or reports false after close.
func (u *underWay) begin() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return false
	}
	u.n++
	return true
}

func (u *underWay) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n--; u.n == 0 {
		u.none.Broadcast()
	}
}

// wait returns when nothing is under way.
func (u *underWay) wait() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.waitLocked()
}

// close returns when nothing is under way, and lets nothing begin from then on.
func (u *underWay) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.waitLocked()
	u.closed = true
}

func (u *underWay) waitLocked() {
	for u.n > 0 {
		u.none.Wait()
	}
}
