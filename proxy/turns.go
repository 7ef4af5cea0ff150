package proxy

import (
	"context"
	"runtime"
	"sync"
)

// decisionSlots lets each client have one costly decision made at a time, and leaves one processor to everything else. Other decisions
// take microseconds and need no turn.
type decisionSlots struct {
	slots chan struct{} // one for each decision that may be made at a time

	mu      sync.Mutex // guards clients
	clients map[string]*clientSlot
}

// clientSlot belongs to one client: the request that has put something into token has it.
type clientSlot struct {
	token    chan struct{}
	requests int // that have the turn or wait for it; guarded by decisionSlots.mu
}

func newDecisionSlots() *decisionSlots {
	return &decisionSlots{slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)), clients: make(map[string]*clientSlot)}
}

// take waits for a turn of client, and returns the function that ends it. The error is the cause of the end of ctx.
func (t *decisionSlots) take(ctx context.Context, client string) (leave func(), err error) {
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

func (t *decisionSlots) enter(client string) *clientSlot {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.clients[client]
	if own == nil {
		own = &clientSlot{token: make(chan struct{}, 1)}
		t.clients[client] = own
	}
	own.requests++
	return own
}

func (t *decisionSlots) leave(client string, own *clientSlot) {
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
