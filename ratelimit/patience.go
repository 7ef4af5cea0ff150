package ratelimit

import (
	"strings"
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

	// together is within how long requests are abandoned that were so by one act: a program that is stopped, or a page that
	// is left, takes all its requests with it.
	together = time.Second

	// relearned is how long it takes for a patience to be taken for twice as long. A client may have got a longer
	// time-out since, and only a request that waits can show it.
	relearned = 10 * time.Minute

	// knownClients bounds the clients whose patience is remembered.
	knownClients = 10_000
)

// An asker is one program of a client. Its time-out is its own, and says nothing of the client's other programs.
type asker struct{ client, agent string }

func (r Request) asker() asker { return asker{r.Client, r.Agent} }
func (w *waiter) asker() asker { return asker{w.client, w.agent} }

// A patience is what is known of how long an asker waits for an answer. A time-out is regular, and a change of mind is
// not: so it takes two requests that were abandoned after about the same time, and not together.
type patience struct {
	limit time.Duration // the time after which requests were abandoned; 0: not known
	since time.Time     // when the last one was

	once   time.Duration // the time after which one was abandoned, of late; 0: none
	onceAt time.Time

	left   time.Duration // as once, and not confirmed yet
	leftAt time.Time
}

// patiences are those of all askers that have ever lost it. Most have not, and are not here.
type patiences struct {
	mu     sync.Mutex // guards all that follows
	of     map[asker]*patience
	misses map[string]time.Time // client to when it last did not come back in time to a place that was kept for it
}

// limit returns the longest wait that is not hopeless for who asks, or the longest there is. It is called when that asks,
// which confirms what it has abandoned just before.
func (ps *patiences) limit(who asker, now time.Time) time.Duration {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.of[who]
	if p == nil {
		return endless
	}
	if p.left > 0 && now.Sub(p.leftAt) <= confirmed {
		p.learn()
	}
	p.left = 0
	if limit := p.at(now); limit < endless {
		return limit / 10 * 9 // the client's clock began before ours, and its answer takes a moment
	}
	return endless
}

// learn takes in what was abandoned, now that it is confirmed.
func (p *patience) learn() {
	switch {
	case p.left >= p.at(p.leftAt): // nothing new
	case p.once > 0 && p.leftAt.Sub(p.onceAt) <= together:
		p.once = min(p.once, p.left)
	case alike(p.left, p.limit), alike(p.left, p.once) && p.leftAt.Sub(p.onceAt) <= relearned:
		p.limit, p.since = p.left, p.leftAt
	default:
		p.once, p.onceAt = p.left, p.leftAt
	}
}

// alike reports whether two times may be one time-out: they are within a fifth of one another. Zero is none.
func alike(a, b time.Duration) bool { return max(a, b) <= min(a, b)/5*6 }

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

// abandoned notes that who asked left after so long a wait.
func (ps *patiences) abandoned(who asker, waited time.Duration, now time.Time) {
	if waited < shortest {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.get(who)
	if p.left == 0 || now.Sub(p.leftAt) > confirmed || waited < p.left {
		p.left = waited
	}
	p.leftAt = now
}

// waited notes that who asked was still there after so long a wait.
func (ps *patiences) waited(who asker, wait time.Duration, now time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if wait > punctual { // who comes late to a place does not wait there
		delete(ps.misses, who.client)
	}
	if p := ps.of[who]; p != nil && wait > p.at(now) {
		p.limit, p.once = 0, 0
	}
}

// missed notes that client did not come back in time to its place.
func (ps *patiences) missed(client string, now time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.misses == nil || len(ps.misses) >= knownClients {
		ps.misses = make(map[string]time.Time)
	}
	ps.misses[strings.Clone(client)] = now
}

// returns reports whether client may be expected to come back in time to a place that is kept for it.
func (ps *patiences) returns(client string, now time.Time) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	at, ok := ps.misses[client]
	return !ok || now.Sub(at) > relearned
}

// get returns what is known of who asks, and begins to know something. When too many are known, all are forgotten: what
// matters is learned again within two time-outs. ps.mu is held.
func (ps *patiences) get(who asker) *patience {
	p := ps.of[who]
	if p == nil {
		if ps.of == nil || len(ps.of) >= knownClients {
			ps.of = make(map[asker]*patience)
		}
		p = &patience{}
		ps.of[asker{strings.Clone(who.client), strings.Clone(who.agent)}] = p // they may be part of a whole request
	}
	return p
}
