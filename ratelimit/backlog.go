package ratelimit

import "sync"

// A backlog runs functions in the background, one at a time, in the order of add. Its goroutine ends when it has run
// all of them. The zero value is an empty backlog.
type backlog struct {
	// mu guards the other fields.
	mu   sync.Mutex
	work []func()
	busy bool
	done sync.Cond // signals the end of busy; wait sets L
}

// add queues f, and reports whether fewer than most functions were in the queue.
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

// run calls all functions in the queue.
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

// wait returns when all functions have returned.
func (b *backlog) wait() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done.L = &b.mu
	for b.busy {
		b.done.Wait()
	}
}
