package proxy

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// Addresses say at which address a host lives, for a pace that hosts on one machine share. They are not what is dialled:
// that address the guard looks at, at each dial. A name is looked up at most once a minute.
type Addresses struct {
	egress *Egress
	lookUp func(ctx context.Context, network, host string) ([]netip.Addr, error)

	mu    sync.Mutex // guards known
	known map[string]address
}

type address struct {
	addr    netip.Addr // zero: the name has none
	expires time.Time
}

const (
	addressTTL     = time.Minute
	knownAddresses = 10_000
)

// NewAddresses returns the addresses of the hosts that e lets through.
func NewAddresses(e *Egress) *Addresses {
	return &Addresses{egress: e, lookUp: net.DefaultResolver.LookupNetIP, known: make(map[string]address)}
}

// Of returns the address of o's host: of several the first in order, so that the same set of addresses, in
// whatever order it is told, is the same machine. It is the zero Addr where the name has none.
func (a *Addresses) Of(ctx context.Context, o origin.Origin) netip.Addr {
	host := o.Host()
	if mapped, ok := a.egress.options.Resolve[host]; ok {
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
		return netip.Addr{} // the client left, which says nothing about the host
	}
	if err != nil || len(addrs) == 0 {
		addrs = []netip.Addr{{}} // the dial will say what is wrong
	}
	for i, addr := range addrs {
		addrs[i] = origin.Reached(addr)
	}
	addr := slices.MinFunc(addrs, netip.Addr.Compare)
	a.keep(host, address{addr, now.Add(addressTTL)})
	return addr
}

// keep remembers an address. When too many are known, all are forgotten: a look-up is cheap.
func (a *Addresses) keep(host string, found address) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) >= knownAddresses {
		clear(a.known)
	}
	a.known[host] = found
}
