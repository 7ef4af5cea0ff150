package proxy

import (
	"context"
	"runtime"
	"sync"
)

// turns lets each client have one costly decision made at a time, and leaves one processor to everything else. Other decisions
// take microseconds and need no turn.
type turns struct {
	slots chan struct{} // one for each decision that may be made at a time

	mu      sync.Mutex // guards clients
	clients map[string]*turn
}

// turn belongs to one client: the request that has put something into token has it.
type turn struct {
	token    chan struct{}
	requests int // that have the turn or wait for it; guarded by turns.mu
}

func newTurns() *turns {
	return &turns{slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)), clients: make(map[string]*turn)}
}

// take waits for a turn of client, and returns the function that ends it. The error is the cause of the end of ctx.
func (t *turns) take(ctx context.Context, client string) (leave func(), err error) {
	own := t.enter(client)
	select {
	case own.token <- struct{}{}:
	case <-ctx.Done():
		t.leave(client, own)
		return nil, context.Cause(ctx)
	}
	select {
	case t.slots <- struct{}{}:
	case <-ctx.Done():
		<-own.token
		t.leave(client, own)
		return nil, context.Cause(ctx)
	}
	return func() {
		<-t.slots
		<-own.token
		t.leave(client, own)
	}, nil
}

func (t *turns) enter(client string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.clients[client]
	if own == nil {
		own = &turn{token: make(chan struct{}, 1)}
		t.clients[client] = own
	}
	own.requests++
	return own
}

func (t *turns) leave(client string, own *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.requests--; own.requests == 0 {
		delete(t.clients, client)
	}
}

// costly reports whether a decision may take longer than about a tenth of a millisecond: it compares each rule with the target,
// and each user-agent line with the User-Agent.
func (j *judgement) costly() bool {
	if j.snap == nil {
		return false
	}
	const perRule, limit = 64, 8 << 20 // bytes, and their product
	return j.snap.Rules.Size()*(perRule+len(j.request.Target)+len(j.request.UserAgent)) > limit
}
