package auth

import (
	"context"
	"net/netip"
	"sync"
)

// Network returns the addresses that are counted as one client: an IPv4 address alone, or the /64 prefix of an IPv6
// address, since one host has all of it. It returns the zero Prefix for the zero Addr.
func Network(addr netip.Addr) netip.Prefix {
	addr = addr.WithZone("").Unmap()
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits) // fails only if bits is more than BitLen
	return p
}

// maxWaiting is how many checks of one network wait for its lock.
const maxWaiting = 1000

// networkLocks is a mutex for each network. The zero value is ready to use.
type networkLocks struct {
	mu    sync.Mutex // guards locks
	locks map[netip.Prefix]*networkLock
}

type networkLock struct {
	held chan struct{} // capacity 1; full while a check holds the lock
	n    int           // checks that hold the lock or wait for it; guarded by networkLocks.mu
}

// lock waits for the lock of network until ctx ends, and returns the function that releases it.
func (l *networkLocks) lock(ctx context.Context, network netip.Prefix) (unlock func(), err error) {
	n, err := l.enter(network)
	if err != nil {
		return nil, err
	}
	select {
	case n.held <- struct{}{}:
		return func() {
			<-n.held
			l.leave(network, n)
		}, nil
	case <-ctx.Done():
		l.leave(network, n)
		return nil, context.Cause(ctx)
	}
}

func (l *networkLocks) enter(network netip.Prefix) (*networkLock, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.locks[network]
	if n == nil {
		n = &networkLock{held: make(chan struct{}, 1)}
		if l.locks == nil {
			l.locks = make(map[netip.Prefix]*networkLock)
		}
		l.locks[network] = n
	}
	if n.n >= maxWaiting {
		return nil, ErrBusy
	}
	n.n++
	return n, nil
}

func (l *networkLocks) leave(network netip.Prefix, n *networkLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.n--; n.n == 0 {
		delete(l.locks, network)
	}
}
