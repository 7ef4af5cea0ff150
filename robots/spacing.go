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

// maxSpaced is the number of hosts that spacing remembers. If there are more, it forgets those that no fetch uses.
const maxSpaced = 50_000

// spacing keeps fetches for different origins of one host (see origin.Key) apart: each port of a host has a robots.txt,
// and all ports are one server. Clients that wait for a host take turns. The zero value has no hosts.
type spacing struct {
	mu    sync.Mutex // guards the fields below
	hosts map[string]*spaced
	sweep int // number of hosts at which drop removes some
}

// spaced is the state of one host.
type spaced struct {
	last  origin.Origin     // the origin that was fetched last
	free  time.Time         // when another origin may be fetched
	taken bool              // a fetch has the turn
	line  []*turn           // that wait, in the order of arrival
	timer *time.Timer       // calls advance; nil if it was never needed
	had   map[string]uint64 // the number of the last turn of each client; nil if no turn waits
	turns uint64            // number of turns
}

// turn is the right of one fetch to use its host.
type turn struct {
	host   *spaced
	origin origin.Origin
	pass   *pass
	most   time.Duration // the longest wait
	over   chan struct{} // closed when the turn has come, or err is set
	err    error
}

// enter waits for the turn of a fetch for o, for most at most. The caller must call leave after its last request to o's
// host. The error is ErrBusy, a *fetch.LaterError or the cause of ctx.
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

// ask adds a turn to the line. It may come at once.
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

// host returns the state of o's host.
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

// drop removes hosts that are free, if there are many.
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

// waiting returns the number of fetches in line that client began.
func (h *spaced) waiting(client string) (n int) {
	for _, t := range h.line {
		if t.pass.client == client {
			n++
		}
	}
	return n
}

// advance gives the next turn, or sets the timer for it. It refuses turns that would wait for too long.
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

// isLate refuses t if it would wait for longer than t.most.
func (t *turn) isLate(left time.Duration) bool {
	if left <= t.most {
		return false
	}
	why := fmt.Errorf("another port of %s was asked a moment ago, and the next may be asked in %v",
		t.origin.Host(), left.Round(time.Millisecond))
	t.err = &fetch.LaterError{At: t.host.free, Err: why}
	close(t.over)
	return true
}

// wake calls advance after d.
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

// next returns the index of the next turn in the line: the client with the oldest last turn comes first. If tooSoon,
// only the last origin may be fetched again. If there is no such turn, next returns -1.
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

// lastTurn returns the number of the oldest last turn among the clients of t, or 0 if one of them had no turn.
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

// withdraw removes t from its line, or ends its turn.
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

// note keeps fetches for other origins of o's host from starting before free.
func (s *spacing) note(o origin.Origin, free, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.host(o, now)
	h.last, h.free = o, free
	s.advance(h, now)
}

// space calls note with the result of Options.Spacing. Snap is the Snapshot of o that counts, or nil if that is not
// known.
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

// enter waits until a fetch for o may begin: for the turn of its host, and for a place in the queue. The caller must
// call p.end. The error is ErrBusy, a *fetch.LaterError or the cause of ctx.
func (c *Cache) enter(ctx context.Context, p *pass, o origin.Origin) error {
	if c.options.Spacing == nil {
		return p.begin(ctx, origin.Key(o.Host()))
	}
	leave, err := c.spacing.enter(ctx, o, p, c.options.MaxWait)
	if err != nil {
		return err
	}
	p.endTurn = func() {
		if p.asked { // the fetch has not ended
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
