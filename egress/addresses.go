package egress

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/robotsproxy/robotsproxy/origin"
)

// Addresses resolves origins before they are dialled, for a pace by address. It keeps the answers of the resolver for as
// long as its Guard does: see Options.KeepNames. A request must then be sent with Pin, or it may go to another address.
type Addresses struct {
	mu     sync.Mutex // guards the fields below
	guard  *Guard
	lookUp func(ctx context.Context, addr string) ([]netip.AddrPort, error)
	last   map[string]netip.Addr // that Of returned, by host
}

const lastAddresses = 10_000

// NewAddresses returns Addresses that resolve names as g does.
func NewAddresses(g *Guard) *Addresses {
	return &Addresses{guard: g, lookUp: g.lookUp, last: make(map[string]netip.Addr)}
}

// Reload makes a resolve names as g does from now on. It keeps no address.
func (a *Addresses) Reload(g *Guard) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.guard, a.lookUp = g, g.lookUp
	clear(a.last)
}

// Of returns the address to dial for o. The name may have several: Of takes those of the family that the resolver puts
// first, and returns the lowest that is permitted, so that the order in which a name server returns them makes no
// difference. Its error is that of a dial: a *net.DNSError, or a *ProhibitedError if no address is permitted.
func (a *Addresses) Of(ctx context.Context, o origin.Origin) (netip.Addr, error) {
	a.mu.Lock()
	guard, lookUp := a.guard, a.lookUp
	a.mu.Unlock()
	all, err := lookUp(ctx, o.HostPort())
	if err != nil {
		return netip.Addr{}, err
	}
	addr, err := guard.choose(all)
	if err != nil {
		return netip.Addr{}, err
	}
	a.keep(guard, o.Host(), addr)
	return addr, nil
}

// Last returns the address that Of last returned for a canonical host, and false if it has returned none. It does not
// resolve the name.
func (a *Addresses) Last(host string) (netip.Addr, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	addr, ok := a.last[host]
	return addr, ok
}

// keep stores an address that guard permits, for Last. If there are too many, it first drops all.
func (a *Addresses) keep(guard *Guard, host string, addr netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if guard != a.guard {
		return // Reload was called since
	}
	if len(a.last) >= lastAddresses {
		clear(a.last)
	}
	a.last[host] = addr
}

// choose returns one of the addresses of a name: see Addresses.Of. There is at least one.
func (g *Guard) choose(all []netip.AddrPort) (netip.Addr, error) {
	first := all[0].Addr().Is4()
	rank := func(ap netip.AddrPort) int {
		if ap.Addr().Is4() == first {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b netip.AddrPort) int { return cmp.Or(rank(a)-rank(b), a.Compare(b)) })
	prohibited := g.check(all[0])
	for _, ap := range all {
		if g.check(ap) == nil {
			return ap.Addr(), nil
		}
	}
	return netip.Addr{}, prohibited
}
