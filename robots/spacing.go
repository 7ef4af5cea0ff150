package robots

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// LaterError says that nothing was fetched, or not all of it, because a turn would have come too late. It says nothing of
// the file.
type LaterError struct {
	At  time.Time // when to ask again; zero: not known
	Err error
}

func (e *LaterError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *LaterError) Unwrap() error { return e.Err }

// maxSpaced is how many hosts spacing remembers; beyond, all are forgotten.
const maxSpaced = 50_000

// spacing keeps the fetches for different origins of one host (see origin.Key) apart: each port of a host has a robots.txt of its own, and
// all ports are one server. The zero value keeps nothing apart.
type spacing struct {
	mu    sync.Mutex // guards what follows
	hosts map[string]*spaced
	sweep int // how many hosts there are when those that are free again are dropped
}

// spaced is the last fetch from a host.
type spaced struct {
	origin  origin.Origin
	free    time.Time      // when a fetch for another origin may begin
	waiting map[string]int // fetches that wait for that, by client
}

// note keeps fetches for other origins of o's host away from it until free.
func (s *spacing) note(o origin.Origin, free, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.hosts[origin.Key(o.Host())]
	if last == nil {
		s.drop(now)
		last = &spaced{waiting: make(map[string]int)}
		s.hosts[origin.Key(o.Host())] = last
	}
	last.origin, last.free = o, free
}

// drop forgets the hosts that are free again, if there are many.
func (s *spacing) drop(now time.Time) {
	if len(s.hosts) < s.sweep {
		return
	}
	for host, last := range s.hosts {
		if !now.Before(last.free) {
			delete(s.hosts, host)
		}
	}
	if s.hosts == nil || len(s.hosts) >= maxSpaced {
		s.hosts = make(map[string]*spaced)
	}
	s.sweep = max(1000, 2*len(s.hosts))
}

// line returns for how long a fetch for o must wait, and counts it among those of client that do until leave is called. Its
// error is ErrBusy.
func (s *spacing) line(o origin.Origin, client string, now time.Time) (left time.Duration, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.hosts[origin.Key(o.Host())]
	if last == nil || last.origin == o || !now.Before(last.free) {
		return 0, func() {}, nil
	}
	if last.waiting[client] >= perHost {
		return 0, nil, fmt.Errorf("%w for %s", ErrBusy, o.Host())
	}
	last.waiting[client]++
	return last.free.Sub(now), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if last.waiting[client]--; last.waiting[client] == 0 {
			delete(last.waiting, client)
		}
	}, nil
}

// space keeps fetches for other origins of o's host away from it for a while. Snap is what counts of o's; nil: not known.
func (c *Cache) space(o origin.Origin, snap *Snapshot) {
	if d := c.options.Spacing(o, snap); d > 0 {
		now := time.Now()
		c.spacing.note(o, now.Add(d), now)
	}
}

// enter waits until a fetch for o may begin: for the turn of its host, for a place, and until the last fetch for another
// origin of the host is long enough ago. While it waits for that it holds nothing. p must end afterwards. Its error is
// ErrBusy, a *LaterError or the cause of ctx.
func (c *Cache) enter(ctx context.Context, p *pass, o origin.Origin) error {
	for {
		if err := p.begin(ctx, origin.Key(o.Host())); err != nil {
			return err
		}
		left, rise, err := c.spacing.line(o, p.client, time.Now())
		if err == nil && left <= 0 {
			return nil
		}
		p.end()
		if err != nil {
			return err
		}
		err = c.sleep(ctx, o, left)
		rise()
		if err != nil {
			return err
		}
	}
}

// sleep waits for left. Its error is the cause of ctx, or a *LaterError if that is longer than a fetch may wait.
func (c *Cache) sleep(ctx context.Context, o origin.Origin, left time.Duration) error {
	if left > c.options.MaxWait {
		err := fmt.Errorf("another port of %s was asked a moment ago, and the next may be asked in %v", o.Host(), left.Round(time.Millisecond))
		return &LaterError{At: time.Now().Add(left), Err: err}
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
