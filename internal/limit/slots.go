package limit

import (
	"context"
	"sync"
)

// Slots bounds concurrent work to one piece for each client and to a number in total. Unlike a Counter, it makes the
// others wait.
type Slots struct {
	all chan struct{} // one value for each slot that is taken

	mu      sync.Mutex // guards clients
	clients map[string]*clientSlot
}

// clientSlot is the slot of one client. Its owner has sent a value to taken.
type clientSlot struct {
	taken chan struct{}
	users int // that have the slot or wait for it; guarded by Slots.mu
}

// NewSlots returns Slots with n slots, at least one.
func NewSlots(n int) *Slots {
	return &Slots{all: make(chan struct{}, max(1, n)), clients: make(map[string]*clientSlot)}
}

// Take waits for the slot of client, and then for one of all. The caller must call release. The error is the cause of
// the end of ctx.
func (s *Slots) Take(ctx context.Context, client string) (release func(), err error) {
	own := s.enter(client)
	select {
	case own.taken <- struct{}{}:
	case <-ctx.Done():
		s.leave(client, own)
		return nil, context.Cause(ctx)
	}
	select {
	case s.all <- struct{}{}:
	case <-ctx.Done():
		<-own.taken
		s.leave(client, own)
		return nil, context.Cause(ctx)
	}
	return func() {
		<-s.all
		<-own.taken
		s.leave(client, own)
	}, nil
}

func (s *Slots) enter(client string) *clientSlot {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.clients[client]
	if own == nil {
		own = &clientSlot{taken: make(chan struct{}, 1)}
		s.clients[client] = own
	}
	own.users++
	return own
}

func (s *Slots) leave(client string, own *clientSlot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(s.clients, client)
	}
}
