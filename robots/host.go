package robots

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// host is the state of one host in a gate. Its fetches run one at a time, and those for different origins are kept
// apart: each port of a host has a robots.txt, and all ports are one server.
type host struct {
	holder  *place            // or nil
	waiting []*ticket         // in the order of arrival
	last    origin.Origin     // that was fetched last
	free    time.Time         // when another origin may be fetched
	timer   *time.Timer       // for free; nil if it was not needed
	had     map[string]uint64 // the number of the last turn of each client; nil if no ticket waits
	turns   uint64
}

// maxHosts is the number of hosts that a gate remembers. If there are more, it removes those that no ticket uses.
const maxHosts = 50_000

// host returns the state of a host.
func (g *gate) host(key string) *host {
	h := g.hosts[key]
	if h == nil {
		g.sweepHosts(time.Now())
		h = &host{}
		g.hosts[key] = h
	}
	return h
}

// sweepHosts removes hosts that are free, if there are many.
func (g *gate) sweepHosts(now time.Time) {
	if len(g.hosts) < max(g.sweep, 1000) {
		return
	}
	for key, h := range g.hosts {
		if h.isIdle() && (len(g.hosts) >= maxHosts || !now.Before(h.free)) {
			delete(g.hosts, key)
		}
	}
	g.sweep = 2 * len(g.hosts)
}

// waitingIn returns the number of tickets for h in the line l.
func (h *host) waitingIn(l *line) (n int) {
	for _, t := range h.waiting {
		for _, s := range t.stands {
			if s.line == l {
				n++
			}
		}
	}
	return n
}

func (h *host) isIdle() bool { return h.holder == nil && len(h.waiting) == 0 }

// leaveHost ends the wait of t for its host.
func (g *gate) leaveHost(t *ticket) {
	h := g.hosts[t.host]
	if h == nil {
		return
	}
	h.waiting = slices.DeleteFunc(h.waiting, func(u *ticket) bool { return u == t })
	if len(h.waiting) == 0 {
		h.had = nil
	}
	t.blocked = false
}

// delay returns how long t must wait because another origin of h was fetched.
func (h *host) delay(t *ticket, now time.Time) time.Duration {
	if t.origin.IsZero() || t.origin == h.last {
		return 0
	}
	return max(0, h.free.Sub(now))
}

// admits reports whether t may have a place now.
func (h *host) admits(t *ticket, now time.Time) bool { return h.holder == nil && h.delay(t, now) == 0 }

// block makes t wait until h admits it.
func (g *gate) block(t *ticket, h *host, now time.Time) {
	switch {
	case h.holder == nil:
		g.wake(h, h.delay(t, now))
	case g.isUnwanted(h.holder):
		g.end(h.holder, errUnwanted)
	}
	t.blocked = true
	for i := range t.stands {
		s := &t.stands[i]
		s.line.ready.Remove(s.ready)
		s.ready = nil
		g.fix(s.line)
	}
}

// wake unblocks the tickets of h after d.
func (g *gate) wake(h *host, d time.Duration) {
	if h.timer != nil {
		h.timer.Reset(d)
		return
	}
	h.timer = time.AfterFunc(d, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.unblock(h)
		g.dispatch()
	})
}

// unblock puts the blocked tickets of h at the front of their lines, since they have waited there.
func (g *gate) unblock(h *host) {
	for _, t := range slices.Backward(h.waiting) {
		if !t.blocked {
			continue
		}
		t.blocked = false
		for i := range t.stands {
			s := &t.stands[i]
			s.ready = s.line.ready.PushFront(t)
			g.fix(s.line)
		}
	}
}

// firstAt returns the ticket that gets the next turn at h, and its line. T in l may have it.
func (g *gate) firstAt(h *host, t *ticket, l *line, now time.Time) (*ticket, *line) {
	for _, u := range h.waiting {
		if !h.admits(u, now) {
			continue
		}
		for _, s := range u.stands {
			if s.line.mayHoldMore() && h.isBefore(u, s.line, t, l) {
				t, l = u, s.line
			}
		}
	}
	return t, l
}

// maxPassed is the number of turns in a row that a client may lose at a host because it holds more places than others.
const maxPassed = 3

// isBefore reports whether u in the line m comes before t in l: the client that holds fewer places, unless the last
// turn of the other client is too long ago.
func (h *host) isBefore(u *ticket, m *line, t *ticket, l *line) bool {
	hadU, hadT := h.lastTurn(u), h.lastTurn(t)
	if m.held == l.held || h.turns-min(hadU, hadT) >= maxPassed {
		return hadU < hadT
	}
	return m.held < l.held
}

// lastTurn returns the number of the oldest last turn among the clients of t, or 0 if one of them had no turn.
func (h *host) lastTurn(t *ticket) uint64 {
	least := h.turns
	for _, s := range t.stands {
		least = min(least, h.had[s.line.client])
	}
	return least
}

// granted notes that t has a place.
func (h *host) granted(t *ticket) {
	h.holder = t.place
	h.turns++
	if h.had == nil {
		h.had = make(map[string]uint64)
	}
	for _, s := range t.stands {
		h.had[s.line.client] = h.turns
	}
}

// space keeps fetches for other origins of o's host from starting before d has passed.
func (q *queue) space(o origin.Origin, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h, now := q.fetches.host(origin.Key(o.Host())), time.Now()
	h.last, h.free = o, now.Add(d)
	q.refuseLate(h, now)
}

// refuseLate refuses the tickets that would wait for too long because of the Delay of h.
func (q *queue) refuseLate(h *host, now time.Time) {
	for _, t := range slices.Clone(h.waiting) {
		left := h.delay(t, now)
		if left <= t.most {
			continue
		}
		q.fetches.withdraw(t)
		why := fmt.Errorf("another port of %s was asked a moment ago, and the next may be asked in %v",
			t.origin.Host(), left.Round(time.Millisecond))
		t.err = &fetch.LaterError{At: h.free, Err: why}
		close(t.over)
	}
}

// space keeps fetches for other origins of o's host from starting for the time that Options.Spacing returns. Snap is
// the Snapshot of o that counts, or nil if that is not known.
func (c *Cache) space(p *pass, o origin.Origin, snap *Snapshot) {
	p.asked = false
	spacing := c.options.Load().Spacing
	if spacing == nil {
		return
	}
	if d := spacing(o, snap); d > 0 {
		c.queue.space(o, d)
	}
}

// enter waits until a fetch for o, of which before is kept, may begin. The caller must call p.end. The error is a *BusyError, a *fetch.LaterError
// or the cause of ctx.
func (c *Cache) enter(ctx context.Context, p *pass, o origin.Origin, before *Snapshot) error {
	p.onEnd = func() {
		if p.asked { // the fetch has not ended
			c.space(p, o, nil)
		}
	}
	t := &ticket{host: origin.Key(o.Host()), origin: o, most: c.options.Load().MaxWait}
	t.long = before != nil && before.Failures > 0
	return p.begin(ctx, t)
}
