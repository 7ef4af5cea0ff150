package robots

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// maxSpaced is how many hosts spacing remembers; beyond, those are forgotten that no fetch asks or waits for.
const maxSpaced = 50_000

// spacing keeps the fetches for different origins of one host (see origin.Key) apart: each port of a host has a robots.txt of
// its own, and all ports are one server. Clients whose fetches wait for a host take turns. The zero value has no hosts.
type spacing struct {
	mu    sync.Mutex // guards what follows
	hosts map[string]*spaced
	sweep int // how many hosts there are when those that are free again are dropped
}

// spaced is what is known of the fetches from one host.
type spaced struct {
	last  origin.Origin     // that was asked
	free  time.Time         // when another one may be asked
	taken bool              // a fetch has its turn
	line  []*turn           // in the order of arrival
	timer *time.Timer       // for the next turn; nil: none was needed
	had   map[string]uint64 // number of the last turn of each client in line, and of those before them
	turns uint64
}

// turn is that of one fetch.
type turn struct {
	host   *spaced
	origin origin.Origin
	pass   *pass
	most   time.Duration // it may wait
	over   chan struct{} // closed when it has come, or err is set
	err    error
}

// enter waits for the turn of a fetch for o. Leave must be called when the fetch does not ask o's host any more. The error is
// ErrBusy, a *fetch.LaterError or the cause of ctx.
func (s *spacing) enter(ctx context.Context, o origin.Origin, p *pass, most time.Duration) (leave func(), err error) {
	t, err := s.ask(o, p, most)
	if err != nil {
		return nil, err
	}
	select {
	case <-t.over:
	case <-ctx.Done():
		s.withdraw(t)
		return nil, context.Cause(ctx)
	}
	if t.err != nil {
		return nil, t.err
	}
	return func() { s.leave(t.host) }, nil
}

// ask returns a turn, which may have come already.
func (s *spacing) ask(o origin.Origin, p *pass, most time.Duration) (*turn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	h := s.host(o, now)
	if h.waiting(p.client) >= perHost {
		return nil, fmt.Errorf("%w for %s", ErrBusy, o.Host())
	}
	t := &turn{host: h, origin: o, pass: p, most: most, over: make(chan struct{})}
	h.line = append(h.line, t)
	s.advance(h, now)
	return t, nil
}

// host returns what is known of o's host.
func (s *spacing) host(o origin.Origin, now time.Time) *spaced {
	key := origin.Key(o.Host())
	h := s.hosts[key]
	if h == nil {
		s.drop(now)
		h = &spaced{}
		s.hosts[key] = h
	}
	return h
}

// drop forgets hosts that are free again, if there are many.
func (s *spacing) drop(now time.Time) {
	if s.hosts == nil {
		s.hosts, s.sweep = make(map[string]*spaced), 1000
	}
	if len(s.hosts) < s.sweep {
		return
	}
	for host, h := range s.hosts {
		if idle := !h.taken && len(h.line) == 0; idle && (len(s.hosts) >= maxSpaced || !now.Before(h.free)) {
			delete(s.hosts, host)
		}
	}
	s.sweep = max(1000, 2*len(s.hosts))
}

// waiting returns how many fetches that client began wait for h.
func (h *spaced) waiting(client string) (n int) {
	for _, t := range h.line {
		if t.pass.client == client {
			n++
		}
	}
	return n
}

// advance gives the next turn, if it is time, and turns away those that would wait for too long.
func (s *spacing) advance(h *spaced, now time.Time) {
	left := h.free.Sub(now)
	h.line = slices.DeleteFunc(h.line, func(t *turn) bool { return t.origin != h.last && t.isLate(left) })
	switch i := h.next(left > 0); {
	case len(h.line) == 0:
		h.had = nil
	case h.taken:
	case i < 0:
		s.wake(h, left)
	default:
		h.grant(i)
	}
}

// isLate turns t away if it would wait for longer than it may.
func (t *turn) isLate(left time.Duration) bool {
	if left <= t.most {
		return false
	}
	why := fmt.Errorf("another port of %s was asked a moment ago, and the next may be asked in %v", t.origin.Host(), left.Round(time.Millisecond))
	t.err = &fetch.LaterError{At: t.host.free, Err: why}
	close(t.over)
	return true
}

// wake has advance called after d.
func (s *spacing) wake(h *spaced, d time.Duration) {
	if h.timer != nil {
		h.timer.Reset(d)
		return
	}
	h.timer = time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.advance(h, time.Now())
	})
}

// next returns whose turn in the line it is: that of the client whose last turn is longest ago. If that is too soon for any
// origin but the last, it returns -1 if nobody waits for that one.
func (h *spaced) next(tooSoon bool) (i int) {
	i = -1
	var least uint64
	for j, t := range h.line {
		if tooSoon && t.origin != h.last {
			continue
		}
		if had := h.lastTurn(t); i < 0 || had < least {
			i, least = j, had
		}
	}
	return i
}

// lastTurn returns the number of the last turn of the clients of t; 0 if one of them has had none.
func (h *spaced) lastTurn(t *turn) uint64 {
	least := h.had[t.pass.client]
	for _, client := range t.pass.waitingClients() {
		least = min(least, h.had[client])
	}
	return least
}

// grant gives the turn to the i-th in the line.
func (h *spaced) grant(i int) {
	t := h.line[i]
	h.line = slices.Delete(h.line, i, i+1)
	h.taken = true
	h.turns++
	if h.had == nil {
		h.had = make(map[string]uint64)
	}
	h.had[t.pass.client] = h.turns
	for _, client := range t.pass.waitingClients() {
		h.had[client] = h.turns
	}
	close(t.over)
}

// withdraw takes t out of its line, or gives its turn to the next.
func (s *spacing) withdraw(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(t.host.line, t); i >= 0 {
		t.host.line = slices.Delete(t.host.line, i, i+1)
		return
	}
	if t.err == nil {
		t.host.taken = false
		s.advance(t.host, time.Now())
	}
}

func (s *spacing) leave(h *spaced) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.taken = false
	s.advance(h, time.Now())
}

// note keeps fetches for other origins of o's host away from it until free.
func (s *spacing) note(o origin.Origin, free, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.host(o, now)
	h.last, h.free = o, free
	s.advance(h, now)
}

// space keeps fetches for other origins of o's host away from it for a while. Snap is what counts of o's; nil: not known.
func (c *Cache) space(p *pass, o origin.Origin, snap *Snapshot) {
	p.asked = false
	if c.options.Spacing == nil {
		return
	}
	if d := c.options.Spacing(o, snap); d > 0 {
		now := time.Now()
		c.spacing.note(o, now.Add(d), now)
	}
}

// enter waits until a fetch for o may begin: until the last one for another origin of its host is long enough ago, for the
// turn of the host, and for a place. p must end afterwards. The error is ErrBusy, a *fetch.LaterError or the cause of ctx.
func (c *Cache) enter(ctx context.Context, p *pass, o origin.Origin) error {
	if c.options.Spacing == nil {
		return p.begin(ctx, origin.Key(o.Host()))
	}
	leave, err := c.spacing.enter(ctx, o, p, c.options.MaxWait)
	if err != nil {
		return err
	}
	p.endTurn = func() {
		if p.asked { // and it is not known yet what counts
			c.space(p, o, nil)
		}
		leave()
	}
	if err := p.begin(ctx, origin.Key(o.Host())); err != nil {
		p.end()
		return err
	}
	return nil
}
