package ratelimit

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// gates space the starts of requests to one address, whatever the hosts that live there: many small sites share a
// machine. A gate is lighter than a lane: it has no queue. The head of a lane, when it could start, reserves the next
// slot at the gate and starts then.
type gates struct {
	mu   sync.Mutex // guards all that follows
	of   map[netip.Addr]*rate.Limiter
	most int // at so many, those that are as good as new are dropped
}

// fewGates is how many are kept without a look at what could be dropped.
const fewGates = 1024

// gate returns the gate of addr, nil if nothing holds up what goes there.
func (l *Limiter) gate(addr netip.Addr, now time.Time) *rate.Limiter {
	o := l.rules()
	if o.AddrDelay == 0 || !addr.IsValid() {
		return nil
	}
	addr = addr.Unmap().WithZone("")
	if slices.ContainsFunc(o.AddrExempt, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return nil
	}
	return l.gates.get(addr, rate.Every(o.AddrDelay), now)
}

// get returns the gate of addr, and makes it if there is none. One that was made for another limit is replaced, and the
// slots that were reserved there are void; how long ago the last start was is not known then, so it counts as just now.
func (gs *gates) get(addr netip.Addr, limit rate.Limit, now time.Time) *rate.Limiter {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	old := gs.of[addr]
	if old != nil && old.Limit() == limit {
		return old
	}
	if old == nil {
		gs.sweep(now)
	}
	gate := rate.NewLimiter(limit, 1)
	if old != nil {
		gate.AllowN(now, 1)
	}
	gs.of[addr] = gate
	return gate
}

// passes takes a slot at addr if there is one now, and reports whether there was.
func (l *Limiter) passes(addr netip.Addr, now time.Time) bool {
	gate := l.gate(addr, now)
	return gate == nil || gate.AllowN(now, 1)
}

// nextSlot returns how long it is to the next slot at addr.
func (l *Limiter) nextSlot(addr netip.Addr, now time.Time) time.Duration {
	gate := l.gate(addr, now)
	if gate == nil {
		return 0
	}
	return max(0, time.Duration((1-gate.TokensAt(now))/float64(gate.Limit())*float64(time.Second)))
}

// sweep drops the gates that are as good as new, each time there are twice as many as it last left. gs.mu is held.
func (gs *gates) sweep(now time.Time) {
	if gs.of == nil {
		gs.of, gs.most = make(map[netip.Addr]*rate.Limiter), fewGates
	}
	if len(gs.of) < gs.most {
		return
	}
	for addr, gate := range gs.of {
		if gate.TokensAt(now) >= 1 {
			delete(gs.of, addr)
		}
	}
	gs.most = max(fewGates, 2*len(gs.of))
}

// pass returns how long w, which could start otherwise, must wait for its slot at the gate of its address.
func (ln *lane) pass(w *waiter, now time.Time) time.Duration {
	gate := ln.limiter.gate(w.addr, now)
	if gate != w.gate {
		w.gate, w.slot = gate, nil // AddrDelay has changed
	}
	if gate == nil {
		return 0
	}
	if w.slot == nil {
		w.slot, ln.queue.gated = gate.ReserveN(now, 1), w
	}
	wait := w.slot.DelayFrom(now)
	w.gated = w.gated || wait > 0
	return wait
}

// giveBack gives the slot back that w had reserved, since w will not start then.
func (w *waiter) giveBack(now time.Time) {
	if w.slot != nil {
		w.slot.CancelAt(now)
		w.slot = nil
	}
}
