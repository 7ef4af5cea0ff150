package proxy

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

const (
	freeGuesses = 5                // wrong credentials of one network for one user that cost it nothing
	maxPenalty  = time.Minute      // between two more; it begins at a second and doubles
	guessLife   = 10 * time.Minute // after which wrong credentials are forgotten
	maxGuessers = 10_000           // that are remembered: 1 MiB, whatever they sent
	maxWaiting  = 1000             // checks of one network that wait for their turn
)

// guesses counts wrong credentials. The zero value is ready.
type guesses struct {
	mu       sync.Mutex // guards failures
	failures map[uint64]failures
}

// failures are those of one guesser.
type failures struct {
	count int
	next  time.Time // when the next guess is looked at
	end   time.Time // when they are forgotten
}

// wait returns how long it is until the next guess of who is looked at.
func (g *guesses) wait(who uint64, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(0, g.failures[who].next.Sub(now))
}

// add counts a failure of who.
func (g *guesses) add(who uint64, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.failures[who]
	if now.After(f.end) {
		f.count = 0
	}
	f.count++
	f.end = now.Add(guessLife)
	if extra := f.count - freeGuesses; extra > 0 {
		f.next = now.Add(min(maxPenalty, time.Second<<min(extra-1, 10)))
	}
	if g.failures == nil {
		g.failures = make(map[uint64]failures)
	}
	if _, there := g.failures[who]; !there && len(g.failures) >= maxGuessers {
		g.makeRoomLocked(now)
	}
	g.failures[who] = f
}

// makeRoomLocked forgets what may be forgotten, or else anybody: whoever fills the memory fills it with himself. It makes
// room for a thousand, so that it is not called each time.
func (g *guesses) makeRoomLocked(now time.Time) {
	for who, f := range g.failures {
		if now.After(f.end) {
			delete(g.failures, who)
		}
	}
	for who := range g.failures {
		if len(g.failures) <= maxGuessers-1000 {
			return
		}
		delete(g.failures, who)
	}
}

// turns lets one at a time of each network through. The zero value is ready.
type turns struct {
	mu    sync.Mutex // guards queues
	queue map[netip.Prefix]*turn
}

// turn is that of one network: whoever can put something into token has it.
type turn struct {
	token chan struct{}
	n     int // who has it or waits for it; guarded by turns.mu
}

// take waits for the turn of network. leave ends it.
func (t *turns) take(ctx context.Context, network netip.Prefix) (leave func(), err error) {
	q, err := t.enter(network)
	if err != nil {
		return nil, err
	}
	select {
	case q.token <- struct{}{}:
		return func() {
			<-q.token
			t.leave(network, q)
		}, nil
	case <-ctx.Done():
		t.leave(network, q)
		return nil, context.Cause(ctx)
	}
}

func (t *turns) enter(network netip.Prefix) (*turn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queue[network]
	if q == nil {
		q = &turn{token: make(chan struct{}, 1)}
		if t.queue == nil {
			t.queue = make(map[netip.Prefix]*turn)
		}
		t.queue[network] = q
	}
	if q.n >= maxWaiting {
		return nil, errBusy
	}
	q.n++
	return q, nil
}

func (t *turns) leave(network netip.Prefix, q *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.n--; q.n == 0 {
		delete(t.queue, network)
	}
}

// networkOf returns whose guesses are counted as one: an IPv4 address, or the 64 bits of IPv6 that one host commands.
func networkOf(addr netip.Addr) netip.Prefix {
	addr = addr.WithZone("").Unmap()
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits) // it fails for more bits than there are
	return p
}
