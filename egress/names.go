package egress

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/timelimit"
)

const (
	lookUpTimeout = 10 * time.Second
	notFoundTTL   = 5 * time.Second // of a name that does not exist
	maxNames      = 20_000
)

// names looks up the addresses of hosts. Concurrent look-ups of one name share a question to the resolver. The answers
// are kept for ttl at least and twice ttl at most, since net.Resolver does not tell their own lifetime; a temporary
// failure is not kept. An address from names must be judged at each dial.
type names struct {
	resolver *net.Resolver
	ttl      time.Duration // if zero, no answer is kept

	mu    sync.Mutex // guards known, and the fields of its values
	known map[string]*name
}

// name is one question, and its answer.
type name struct {
	done    chan struct{} // closed when the answer is there
	waiting int           // callers
	cancel  context.CancelFunc

	addrs   []netip.Addr
	err     error
	expires time.Time
}

func newNames(r *net.Resolver, ttl time.Duration) *names {
	return &names{resolver: r, ttl: ttl, known: make(map[string]*name)}
}

// of returns the addresses of host. The caller must not change them. The error is that of the resolver, or of ctx.
func (n *names) of(ctx context.Context, host string) ([]netip.Addr, error) {
	asked := n.ask(host)
	select {
	case <-asked.done:
		return asked.addrs, asked.err
	case <-ctx.Done():
		n.leave(host, asked)
		return nil, ctx.Err()
	}
}

// ask returns the answer that is kept for host, or the question under way, or a new one.
func (n *names) ask(host string) *name {
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := n.known[host]
	if asked == nil || asked.isOver(time.Now()) {
		n.makeRoom()
		limit := timelimit.New(context.Background(), lookUpTimeout, context.DeadlineExceeded)
		asked = &name{done: make(chan struct{}), cancel: limit.End}
		n.known[host] = asked
		go n.lookUp(limit, host, asked)
	}
	asked.waiting++
	return asked
}

func (n *name) isOver(now time.Time) bool { return !n.expires.IsZero() && !now.Before(n.expires) }

// leave ends the question if no other caller waits for it.
func (n *names) leave(host string, asked *name) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if asked.waiting--; asked.waiting > 0 || !asked.expires.IsZero() {
		return
	}
	asked.cancel()
	n.drop(host, asked)
}

func (n *names) lookUp(ctx context.Context, host string, asked *name) {
	defer asked.cancel()
	addrs, err := n.resolver.LookupNetIP(ctx, "ip", host)
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	asked.addrs, asked.err = addrs, err
	asked.expires = now.Add(n.lifetime(err))
	if asked.isOver(now) {
		n.drop(host, asked)
	}
	close(asked.done)
}

// lifetime returns how long an answer is kept. It differs, so that names that were asked for together are not asked for
// together again.
func (n *names) lifetime(err error) time.Duration {
	var failure *net.DNSError
	switch {
	case n.ttl == 0:
		return 0
	case err == nil:
		return n.ttl + rand.N(n.ttl)
	case errors.As(err, &failure) && failure.IsNotFound:
		return notFoundTTL
	}
	return 0
}

func (n *names) drop(host string, asked *name) {
	if n.known[host] == asked {
		delete(n.known, host)
	}
}

// forget drops the answer for host. It does not end a question under way.
func (n *names) forget(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if asked := n.known[host]; asked != nil && !asked.expires.IsZero() {
		delete(n.known, host)
	}
}

// makeRoom removes the answers that are over if there are too many, and others if that is not enough.
func (n *names) makeRoom() {
	if len(n.known) < maxNames {
		return
	}
	now := time.Now()
	for host, asked := range n.known {
		if asked.isOver(now) {
			delete(n.known, host)
		}
	}
	for host, asked := range n.known {
		if len(n.known) < maxNames*9/10 {
			return
		}
		if !asked.expires.IsZero() {
			delete(n.known, host)
		}
	}
}
