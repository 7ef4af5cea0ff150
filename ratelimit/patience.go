package ratelimit

import (
	"sync"
	"time"
)

const (
	// shortest is the least time after which a request counts as abandoned for want of patience. Nobody's time-out is
	// shorter, but people change their minds.
	shortest = time.Second

	// confirmed is how soon a client must ask again after it has abandoned a request. A program whose request has timed
	// out goes on with the next one; one that was stopped does not.
	confirmed = 2 * time.Second

	// relearned is how long it takes for a patience to be taken for twice as long. A client may have got a longer
	// time-out since, and only a request that waits can show it.
	relearned = 10 * time.Minute

	// knownClients bounds the clients whose patience is remembered.
	knownClients = 10_000
)

// A patience is what is known of how long one client waits for an answer.
type patience struct {
	limit time.Duration // the shortest time after which a request was abandoned; 0: not known
	since time.Time     // when that was

	left   time.Duration // a time after which a request was abandoned, not confirmed yet
	leftAt time.Time

	missed time.Time // when the client last did not come back to a place that was kept for it
}

// patiences are those of all clients that have ever lost it. Most have not, and are not here.
type patiences struct {
	mu sync.Mutex // guards all that follows
	of map[string]*patience
}

// limit returns the longest wait that is not hopeless for client, or the longest there is. It is called when client asks,
// which confirms what it has abandoned just before.
func (ps *patiences) limit(client string, now time.Time) time.Duration {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.of[client]
	if p == nil {
		return endless
	}
	if p.left > 0 && now.Sub(p.leftAt) <= confirmed && p.left < p.at(now) {
		p.limit, p.since = p.left, p.leftAt
	}
	p.left = 0
	if limit := p.at(now); limit < endless {
		return limit / 10 * 9 // the client's clock began before ours, and its answer takes a moment
	}
	return endless
}

// at returns the limit as it is taken for now.
func (p *patience) at(now time.Time) time.Duration {
	if p.limit == 0 {
		return endless
	}
	doublings := min(now.Sub(p.since)/relearned, 62)
	if p.limit > endless>>doublings {
		return endless
	}
	return p.limit << doublings
}

// abandoned notes that client left after so long a wait.
func (ps *patiences) abandoned(client string, waited time.Duration, now time.Time) {
	if waited < shortest {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.get(client)
	if p.left == 0 || now.Sub(p.leftAt) > confirmed || waited < p.left {
		p.left = waited
	}
	p.leftAt = now
}

// waited notes that client was still there after so long a wait.
func (ps *patiences) waited(client string, wait time.Duration, now time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.of[client]
	if p == nil {
		return
	}
	p.missed = time.Time{}
	if wait > p.at(now) {
		p.limit = 0
	}
}

// missed notes that client did not come back to its place.
func (ps *patiences) missed(client string, now time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.get(client).missed = now
}

// returns reports whether client may be expected to come back to a place that is kept for it.
func (ps *patiences) returns(client string, now time.Time) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.of[client]
	return p == nil || p.missed.IsZero() || now.Sub(p.missed) > relearned
}

// get returns what is known of client, and begins to know something. When too many are known, all are forgotten: what
// matters is learned again within one time-out. ps.mu is held.
func (ps *patiences) get(client string) *patience {
	p := ps.of[client]
	if p == nil {
		if ps.of == nil || len(ps.of) >= knownClients {
			ps.of = make(map[string]*patience)
		}
		p = &patience{}
		ps.of[client] = p
	}
	return p
}
