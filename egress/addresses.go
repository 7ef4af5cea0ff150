package egress

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// Addresses resolves hosts, for a pace that is shared by the hosts at one address. It resolves a name at most once a minute.
// The dial resolves the name again.
type Addresses struct {
	guard  *Guard
	lookUp func(ctx context.Context, network, host string) ([]netip.Addr, error)

	mu    sync.Mutex // guards known
	known map[string]address
}

type address struct {
	addr    netip.Addr // zero: the name does not resolve
	expires time.Time
}

const (
	addressTTL     = time.Minute
	knownAddresses = 10_000
)

// NewAddresses returns Addresses that honour the Options.Resolve of g.
func NewAddresses(g *Guard) *Addresses {
	return &Addresses{guard: g, lookUp: net.DefaultResolver.LookupNetIP, known: make(map[string]address)}
}

// Of returns the address of o's host. If there are several, it returns the lowest, which does not depend on their order in the
// response. It returns the zero Addr if the name does not resolve.
func (a *Addresses) Of(ctx context.Context, o origin.Origin) netip.Addr {
	host := o.Host()
	if mapped, ok := a.guard.options.Resolve[host]; ok {
		return origin.Reached(mapped)
	}
	if addr, ok := o.Addr(); ok {
		return origin.Reached(addr)
	}
	now := time.Now()
	a.mu.Lock()
	found, ok := a.known[host]
	a.mu.Unlock()
	if ok && now.Before(found.expires) {
		return found.addr
	}
	addrs, err := a.lookUp(ctx, "ip", host)
	if ctx.Err() != nil {
		return netip.Addr{} // the caller left; the name may resolve
	}
	if err != nil || len(addrs) == 0 {
		addrs = []netip.Addr{{}} // the dial returns the error
	}
	for i, addr := range addrs {
		addrs[i] = origin.Reached(addr)
	}
	addr := slices.MinFunc(addrs, netip.Addr.Compare)
	a.keep(host, address{addr, now.Add(addressTTL)})
	return addr
}

// keep stores an address. If there are too many, it first drops all: a look-up is cheap.
func (a *Addresses) keep(host string, found address) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) >= knownAddresses {
		clear(a.known)
	}
	a.known[host] = found
}
