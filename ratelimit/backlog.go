package ratelimit

import "sync"

// A backlog is work that is done in the background: one piece after another, in the order in which it came. A goroutine runs
// while there is some. The zero value is empty.
type backlog struct {
	// mu guards what follows.
	mu   sync.Mutex
	work []func()
	busy bool
	done sync.Cond // busy became false; L is &mu once somebody waits
}

// add has f called after all that was added before, and reports whether there was room for it among most pieces.
func (b *backlog) add(f func(), most int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.work) >= most {
		return false
	}
	b.work = append(b.work, f)
	if !b.busy {
		b.busy = true
		go b.run()
	}
	return true
}

// run works until nothing is left.
func (b *backlog) run() {
	for f := b.next(); f != nil; f = b.next() {
		f()
	}
}

func (b *backlog) next() func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.work) == 0 {
		b.work, b.busy = nil, false
		b.done.Broadcast()
		return nil
	}
	f := b.work[0]
	b.work[0] = nil
	b.work = b.work[1:]
	return f
}

// wait returns when all work is done.
func (b *backlog) wait() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done.L = &b.mu
	for b.busy {
		b.done.Wait()
	}
}
