package egress

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
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

const (
	maxPools      = 128 // of addresses
	poolIdleConns = 4   // to one address, so 512 in all, as for requests that are not pinned
)

// pools holds an http.Transport for each address to which requests were pinned last. An http.Transport reuses a
// connection for all requests to one scheme, host and port. A common one would send a request that is pinned to one
// address over a connection that an earlier request has made to another.
type pools struct {
	mu    sync.Mutex // guards the other fields
	byKey map[poolKey]*http.Transport
	order []poolKey // by last use
}

type poolKey struct {
	addr     netip.Addr
	insecure bool
}

// get returns the transport of key. It calls create if there is none, and drops the one that was not used for the
// longest time if there are too many.
func (p *pools) get(key poolKey, create func() *http.Transport) *http.Transport {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.order, key); i >= 0 {
		p.order = append(slices.Delete(p.order, i, i+1), key)
		return p.byKey[key]
	}
	if len(p.order) >= maxPools {
		p.byKey[p.order[0]].CloseIdleConnections() // and those in use, when they become idle
		delete(p.byKey, p.order[0])
		p.order = slices.Delete(p.order, 0, 1)
	}
	t := create()
	t.MaxIdleConns = poolIdleConns
	p.byKey[key], p.order = t, append(p.order, key)
	return t
}

func (p *pools) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.byKey {
		t.CloseIdleConnections()
	}
}
