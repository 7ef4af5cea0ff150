package proxy

import "sync"

// underWay counts what is under way. A sync.WaitGroup would not do: requests begin while somebody waits for the last to
// end, which it takes for misuse.
type underWay struct {
	mu   sync.Mutex // guards n
	n    int
	none sync.Cond // n is 0
}

func newUnderWay() *underWay {
	u := &underWay{}
	u.none.L = &u.mu
	return u
}

func (u *underWay) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n++
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
	for u.n > 0 {
		u.none.Wait()
	}
}
