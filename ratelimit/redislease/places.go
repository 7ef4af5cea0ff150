package redislease

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

const (
	// freshFor is the time after a question about a lane without a Delay during which further requests start by its
	// answer. It bounds how late an instance learns of a pause or an override if a message is lost.
	freshFor = 2 * time.Second

	// reusableFor is the time since its last renewal for which a lease that is not in use may be used again.
	reusableFor = leaseLasts / 2

	// renewReused is the time since its last renewal after which a lease that was used again is renewed: later than
	// another one, so that a short request needs no renewal.
	renewReused = leaseLasts * 3 / 5

	// maxKept is the most leases of one lane that are kept. A question has all of them as arguments, and Lua takes less
	// than 8,000.
	maxKept = 128
)

// places keep the leases of lanes without a Delay after their requests have ended, so that most requests to such a host
// ask Redis nothing. A lease in places is not renewed. It goes back to Redis with the next question of its lane, at once
// if another instance wants one, or expires.
type places struct {
	// mu guards the fields below. It may be locked while a heldLease is.
	mu     sync.Mutex
	closed bool
	byKey  map[string]*lanePlaces
	swept  int // how many lanes were left when those without a lease were last removed
}

// lanePlaces are the places of one lane.
type lanePlaces struct {
	free    []place
	asked   time.Time // when the last question was sent
	doubted time.Time // when a message last came that the answer to an earlier question may not know of
	fresh   time.Time // until when requests may start without a question
	shared  time.Time // until when leases go back to Redis at once, since someone waits
}

// place is a lease that is not in use.
type place struct {
	token   string
	renewed time.Time // as of heldLease
}

func newPlaces() places { return places{byKey: make(map[string]*lanePlaces)} }

// take returns a place that a request to key may use without a question.
func (p *places) take(key string, now time.Time) (place, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lane := p.byKey[key]
	if lane == nil || !now.Before(lane.fresh) {
		return place{}, false
	}
	for i, found := range slices.Backward(lane.free) {
		if now.Sub(found.renewed) < reusableFor {
			lane.free = slices.Delete(lane.free, i, i+1)
			return found, true
		}
	}
	return place{}, false
}

// keep keeps the lease of a request that has ended. It reports false if the lease must go back to Redis.
func (p *places) keep(key string, kept place, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	lane := p.byKey[key]
	if p.closed || lane == nil || now.Before(lane.shared) || len(lane.free) >= maxKept {
		return false
	}
	lane.free = append(lane.free, kept)
	return true
}

// add adds a lease that a question has just granted beyond the first. It reports false if the lease must go back to
// Redis.
func (p *places) add(key string, extra place, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	lane := p.laneLocked(key, now)
	lane.free = append(lane.free, extra)
	return true
}

// ask notes that a question about a lane without a Delay is sent. The messages that come before its answer count.
func (p *places) ask(key string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.laneLocked(key, now).asked = now
}

// answered notes the answer to a question about a lane without a Delay, which was sent at asked. It reports whether
// another instance has wanted the leases since.
func (p *places) answered(key string, r ratelimit.LeaseResult, asked, now time.Time) (wanted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lane := p.laneLocked(key, now)
	wanted = lane.shared.After(asked.Add(leaseLasts))
	switch {
	case wanted:
		lane.fresh = time.Time{}
	case r.Lease == nil || len(r.Rivals) > 0:
		lane.fresh, lane.shared = time.Time{}, now.Add(leaseLasts)
	case r.Paused > 0 || r.Override != (ratelimit.Override{}):
		lane.fresh, lane.shared = time.Time{}, time.Time{}
	case lane.doubted.After(asked): // Redis may have sent the answer before the message
		lane.fresh, lane.shared = time.Time{}, time.Time{}
	default:
		lane.fresh, lane.shared = asked.Add(freshFor), time.Time{}
	}
	return wanted
}

// laneLocked returns the places of key. It removes the lanes whose leases have expired whenever their number has
// doubled.
func (p *places) laneLocked(key string, now time.Time) *lanePlaces {
	if lane := p.byKey[key]; lane != nil {
		return lane
	}
	if len(p.byKey) >= 2*max(p.swept, 1024) {
		maps.DeleteFunc(p.byKey, func(_ string, lane *lanePlaces) bool { return lane.isOver(now) })
		p.swept = len(p.byKey)
	}
	lane := new(lanePlaces)
	p.byKey[strings.Clone(key)] = lane
	return lane
}

func (l *lanePlaces) isOver(now time.Time) bool {
	return now.After(l.asked.Add(leaseLasts)) && now.After(l.fresh) && now.After(l.shared) &&
		!slices.ContainsFunc(l.free, func(kept place) bool { return now.Sub(kept.renewed) < leaseLasts })
}

// give removes the leases of key that are not in use, and returns the tokens of those that last, for Redis.
func (p *places) give(key string, now time.Time) (tokens []any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lane := p.byKey[key]
	if lane == nil {
		return nil
	}
	for _, kept := range lane.free {
		if now.Sub(kept.renewed) < leaseLasts {
			tokens = append(tokens, kept.token)
		}
	}
	lane.free = nil
	return tokens
}

// share makes the leases of key go back to Redis at once, since another instance wants one.
func (p *places) share(key string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if lane := p.byKey[key]; lane != nil {
		lane.shared = now.Add(leaseLasts)
	}
}

// doubt makes the next request to key ask Redis.
func (p *places) doubt(key string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if lane := p.byKey[key]; lane != nil {
		lane.doubted, lane.fresh = now, time.Time{}
	}
}

// forget drops all leases, since Redis may not know them.
func (p *places) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.byKey)
}

// close returns all tokens by key. From now on nothing is kept.
func (p *places) close() (keys []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return slices.Collect(maps.Keys(p.byKey))
}

// reuse returns a result by a lease of an earlier request, if r may start without a question.
func (c *Client) reuse(r ratelimit.LeaseRequest, now time.Time) (ratelimit.LeaseResult, bool) {
	if r.Delay > 0 || !c.hears.Load() || c.overrides.last(r.Key, now) != (ratelimit.Override{}) {
		return ratelimit.LeaseResult{}, false
	}
	found, ok := c.places.take(r.Key, now)
	if !ok {
		return ratelimit.LeaseResult{}, false
	}
	return ratelimit.LeaseResult{
		Lease: c.hold(r, found, renewReused), Gap: -1, LastLease: r.LastLease, Mode: ratelimit.ModeRedis,
	}, true
}

// giveBack returns the leases of key that are not in use to Redis.
func (c *Client) giveBack(key string) {
	for _, token := range c.places.give(key, time.Now()) {
		c.endUnused(key, token)
	}
}

// endUnused gives back a lease that is not in use.
func (c *Client) endUnused(key string, token any) {
	c.pipe(key).put(&command{verb: "end", key: key, args: []any{token, int64(0)}, repeats: true})
}

// wanted gives back the leases of key, since another instance waits for one.
func (c *Client) wanted(key string) {
	c.places.share(key, time.Now())
	c.giveBack(key)
}
