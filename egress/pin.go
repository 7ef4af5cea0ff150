package egress

import (
	"container/list"
	"context"
	"net/http"
	"net/netip"
	"sync"
)

type pinKey struct{}

// Pin returns a context with which a Guard dials, and a Transport sends, to addr instead of the addresses of the name.
// The guard judges addr as any other address. The name stays that of TLS and of the Host field. A Guard with an
// Upstream ignores the pin, since the upstream proxy resolves the name.
func Pin(ctx context.Context, addr netip.Addr) context.Context {
	return context.WithValue(ctx, pinKey{}, addr)
}

// pinned returns the address that Pin has put into ctx.
func pinned(ctx context.Context) (addr netip.Addr, ok bool) {
	addr, ok = ctx.Value(pinKey{}).(netip.Addr)
	return addr, ok
}

// poolIdleConns is the number of idle connections to one address.
const poolIdleConns = 2

// pools holds an http.Transport for each address to which requests were pinned last. An http.Transport reuses a
// connection for all requests to one scheme, host and port. A common one would send a request that is pinned to one
// address over a connection that an earlier request has made to another.
type pools struct {
	max int

	mu    sync.Mutex // guards the fields below
	byKey map[poolKey]*list.Element
	order *list.List // of *pool, most recently used first
}

type poolKey struct {
	addr     netip.Addr
	insecure bool
}

type pool struct {
	poolKey
	transport *http.Transport
}

// newPools returns pools that keep at most about idle connections.
func newPools(idle int) pools {
	return pools{max: max(1, idle/poolIdleConns), byKey: make(map[poolKey]*list.Element), order: list.New()}
}

// get returns the transport of key. It calls create if there is none, and drops the one that was not used for the
// longest time if there are too many.
func (p *pools) get(key poolKey, create func() *http.Transport) *http.Transport {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := p.byKey[key]; ok {
		p.order.MoveToFront(e)
		return e.Value.(*pool).transport
	}
	if p.order.Len() >= p.max {
		oldest := p.order.Remove(p.order.Back()).(*pool)
		oldest.transport.CloseIdleConnections() // and those in use, when they become idle
		delete(p.byKey, oldest.poolKey)
	}
	t := create()
	t.MaxIdleConns = poolIdleConns
	p.byKey[key] = p.order.PushFront(&pool{key, t})
	return t
}

func (p *pools) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := p.order.Front(); e != nil; e = e.Next() {
		e.Value.(*pool).transport.CloseIdleConnections()
	}
}
