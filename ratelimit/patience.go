package ratelimit

import (
	"maps"
	"strings"
	"sync"
	"time"
)

const (
	// shortest is the least time after which a request counts as abandoned for want of patience. Nobody's time-out is
	// shorter, but people change their minds.
	shortest = 500 * time.Millisecond

	// confirmed is how soon a client must ask again after it has abandoned a request. A program whose request has timed
	// out goes on with the next one; one that was stopped does not.
	confirmed = 2 * time.Second

	// crossed is by how much what is known here of a client may be wrong: it leaves over one connection and asks again over
	// another, and both are heard of when the machine has time.
	crossed = 100 * time.Millisecond

	// together is within how long requests are abandoned that were so by one act: a program that is stopped, or a page that
	// is left, takes all its requests with it.
	together = 500 * time.Millisecond

	// provisional is for how long one request that was abandoned is believed. It must last until a second one may show
	// whether it was a time-out, and costs a client that has changed its mind no more than that.
	provisional = 5 * time.Minute

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
// not: so what one request shows is believed for a while, and to know it takes two that were abandoned after about the
// same time, and not together.
type patience struct {
	limit time.Duration // the time after which requests were abandoned; 0: not known
	since time.Time     // when the last one was

	once   time.Duration // the time after which one was abandoned, of late; 0: none
	onceAt time.Time

	wrong time.Time // when the asker last waited for longer than was believed

	left   time.Duration // as once, and not confirmed yet
	leftAt time.Time
}

// patiences are those of all askers that have ever lost it. Most have not, and are not here.
type patiences struct {
	mu     sync.Mutex // guards all that follows
	of     map[asker]*patience
	misses map[string]time.Time // client to when it last did not come back in time to a place that was kept for it
}

// patience returns the longest wait that is not hopeless for who asks, or the longest there is. Where that is news, what
// who has wait here in vain is turned away as well.
func (ln *lane) patience(who asker, now time.Time) time.Duration {
	limit, learned := ln.limiter.patiences.limit(who, now)
	if learned && ln.queue != nil {
		ln.turnAway(who, limit, now)
	}
	return limit
}

// turnAway turns away those requests of who that would have to wait for longer than it does, and keeps a place for each, as
// for what who asks from now on. A request whose time is about over is left to leave by itself, since nobody might come back
// to its place. All that they are told is foreseen before anything changes.
func (ln *lane) turnAway(who asker, limit time.Duration, now time.Time) {
	var vain []*waiter
	waits := make(map[*waiter]time.Duration)
	for w := range ln.queue.all() {
		if w.kept() || w.patient || w.asker() != who {
			continue
		}
		wait := ln.predict(now, w.client, ln.queue.place(w), ln.restraint.delay(w.delay))
		leaves := w.arrived.Add(limit/9*10 + crossed)
		switch {
		case now.Sub(w.arrived) > limit:
			if now.Add(wait).After(leaves) {
				w.leaves = leaves
			}
		case wait > limit-now.Sub(w.arrived):
			vain, waits[w] = append(vain, w), wait
		}
	}
	ln.dismiss(now, func(w *waiter) error {
		if wait, ok := waits[w]; ok {
			return ln.tooLong(w.client, limit, wait, false, now)
		}
		return nil
	})
	for _, w := range vain {
		ln.keepPlace(Request{Client: w.client, Delay: w.delay}, waits[w], now)
	}
	ln.pump(now) // no place may have been kept, and who is first now may start sooner than who was
}

// givenUp notes that the client of w, which waited, has left. If its program has asked again before that was known here,
// that confirms it as well.
func (ln *lane) givenUp(w *waiter, now time.Time) {
	ln.limiter.patiences.abandoned(w.asker(), now.Sub(w.arrived), now)
	if ln.queue == nil {
		return
	}
	for again := range ln.queue.all() {
		if !again.kept() && again.asker() == w.asker() && now.Sub(again.arrived) <= crossed {
			ln.patience(w.asker(), now)
			return
		}
	}
}

// limit returns the longest wait that is not hopeless for who asks, or the longest there is, and whether that has just
// become known. It is called when who asks, which confirms what it has abandoned just before.
func (ps *patiences) limit(who asker, now time.Time) (limit time.Duration, learned bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.of[who]
	if p == nil {
		return endless, false
	}
	before := p.at(now)
	if p.left > 0 && now.Sub(p.leftAt) <= confirmed {
		p.learn()
	}
	p.left = 0
	if limit = p.at(now); limit == endless {
		return endless, false
	}
	return limit / 10 * 9, limit < before // the client's clock began before ours, and its answer takes a moment
}

// learn takes in what was abandoned, now that it is confirmed.
func (p *patience) learn() {
	switch {
	case p.left >= p.known(p.leftAt): // nothing new
	case p.once > 0 && p.leftAt.Sub(p.onceAt) <= together:
		p.once = min(p.once, p.left)
	case alike(p.left, p.limit), alike(p.left, p.once) && p.leftAt.Sub(p.onceAt) <= relearned:
		p.limit, p.since, p.once = p.left, p.leftAt, 0
	default:
		p.once, p.onceAt = p.left, p.leftAt
	}
}

// alike reports whether two times may be one time-out: they are within a fifth of one another. Zero is none.
func alike(a, b time.Duration) bool { return max(a, b) <= min(a, b)/5*6 }

// at returns the limit as it is taken for now. Who has been misjudged of late is believed two requests, and not one.
func (p *patience) at(now time.Time) time.Duration {
	limit := p.known(now)
	if p.once > 0 && now.Sub(p.onceAt) <= provisional && now.Sub(p.wrong) > relearned {
		limit = min(limit, p.once)
	}
	return limit
}

// known returns the limit that two requests have shown, as it is taken for now.
func (p *patience) known(now time.Time) time.Duration {
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

// waited notes that who asked was still there after so long a wait. One that left at that very moment may not be known
// to have done so.
func (ps *patiences) waited(who asker, wait time.Duration, now time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if wait > punctual { // who comes late to a place does not wait there
		delete(ps.misses, who.client)
	}
	p := ps.of[who]
	if p == nil {
		return
	}
	if limit := p.at(now); wait > limit && !alike(wait, limit) {
		p.limit, p.once, p.wrong = 0, 0, now
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

// get returns what is known of who asks, and begins to know something. ps.mu is held.
func (ps *patiences) get(who asker) *patience {
	p := ps.of[who]
	if p == nil {
		if ps.of == nil {
			ps.of = make(map[asker]*patience)
		}
		if len(ps.of) >= knownClients {
			ps.forget()
		}
		p = &patience{}
		ps.of[asker{strings.Clone(who.client), strings.Clone(who.agent)}] = p // they may be part of a whole request
	}
	return p
}

// forget removes what is known of the client with the most programs, so that one which sends many User-Agents makes nothing of
// another forgotten. If clients have a few programs each, it removes all: what matters is learned again within two time-outs.
// ps.mu is held.
func (ps *patiences) forget() {
	programs, largest := make(map[string]int), ""
	for who := range ps.of {
		if programs[who.client]++; programs[who.client] > programs[largest] {
			largest = who.client
		}
	}
	few := programs[largest] < knownClients/100 // else every new program would count them again
	maps.DeleteFunc(ps.of, func(who asker, _ *patience) bool { return few || who.client == largest })
}
