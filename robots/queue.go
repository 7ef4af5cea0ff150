package robots

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/robots/fetch"
	"github.com/robotsproxy/robotsproxy/rules"
)

// ErrBusy is the error of a fetch that did not begin because too many fetches wait. It may be wrapped by a *BusyError.
var ErrBusy = errors.New("robots: too many fetches are waiting")

// BusyError says when a fetch may be tried again.
type BusyError struct {
	// RetryAfter is the time in which the fetches that wait now are likely to begin, by the rate of the last seconds. It
	// has jitter, so that the callers do not all come back at once.
	RetryAfter time.Duration
}

func (e *BusyError) Error() string { return ErrBusy.Error() }

func (e *BusyError) Unwrap() error { return ErrBusy }

// errUnwanted ends a job for which no caller waits: at once if it waits for a place, else when another job needs its
// place.
var errUnwanted = errors.New("no request waits for the file any more")

// unwantedError is errUnwanted as the failure of a fetch that client began.
type unwantedError struct{ client string }

func (e *unwantedError) Error() string {
	return errUnwanted.Error() + ", and others need the place of its fetch"
}

func (e *unwantedError) Unwrap() error { return errUnwanted }

// errSlow ends the fetch of a slow body if a client that reads no body waits for a place.
var errSlow = errors.New("the body comes slowly, and others wait for its place")

// slowBody is the time after which endSlow may end the fetch of a body.
const slowBody = time.Second

// perHost bounds the fetches of one client that wait for one host: a host with a thousand ports must leave room for
// others. Most hosts have two origins.
const perHost = 16

// storeReaders bounds the concurrent calls of Store.Load, and sharedReaders those of a SharedStore, which wait for a
// network.
const (
	storeReaders  = 4
	sharedReaders = 128
)

// longFetch is the time after which a fetch moves to the places for long ones: over a second.
const longFetch = 1100 * time.Millisecond

// queue bounds the fetches that run, with one at a time for each host; the bodies in memory; the parsers; the calls of
// Store.Load; and the fetches that wait. Clients get turns for each of them.
type queue struct {
	most int // fetches that may wait

	mu      sync.Mutex // guards the fields below, and each pass
	fetches gate       // held from the look-up of the address to the end of the body; the key is the host
	bodies  gate       // held from the first byte of a body until it is parsed
	parsers gate       // one for each processor
	loads   gate       // calls of Store.Load
	slow    map[*pass]struct{}
}

func newQueue(fetches, bodies, parsers, readers, most int) *queue {
	q := &queue{most: most, slow: make(map[*pass]struct{})}
	q.fetches, q.bodies = newGate(fetches, fetches, &q.mu), newGate(bodies, 0, &q.mu)
	q.parsers, q.loads = newGate(parsers, 0, &q.mu), newGate(readers, 0, &q.mu)
	return q
}

// pass lets one job through a queue. It is the fetch.Queue of its fetch.
type pass struct {
	queue  *queue
	client string                  // that began the job
	cancel context.CancelCauseFunc // ends the job

	waiters []waiter       // the callers that wait for the job
	ticket  *ticket        // nil unless it waits for a place
	gate    *gate          // of ticket
	fetch   *place         // nil unless the job fetches
	long    *time.Timer    // for longFetch
	body    *place         // nil unless it reads a body
	timer   *time.Timer    // for slowBody
	rules   *rules.Ruleset // of the body; nil before Parse

	onEnd    func() // is called before fetch is given back for the first time
	asked    bool   // the host was asked, and Cache.space was not called since
	redirect bool   // it has followed a redirect: perHost does not bound how many jobs wait for its target
}

// waiter counts the calls of one client that wait for a job.
type waiter struct {
	client string
	calls  int
}

func (q *queue) newPass(client string, cancel context.CancelCauseFunc) *pass {
	return &pass{queue: q, client: client, cancel: cancel}
}

// giveUp ends the job because of why, as a failure of the file if it is being fetched.
func (p *pass) giveUp(why error) {
	if why == errUnwanted {
		why = &unwantedError{p.client}
	}
	p.cancel(&fetch.GiveUpError{Err: why})
}

// addCaller adds a caller that waits for p. The job then waits in the line of that caller's client too.
func (p *pass) addCaller(client string) {
	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.fetch != nil {
		q.fetches.want(p.fetch)
	}
	if p.body != nil {
		q.bodies.want(p.body)
	}
	for i := range p.waiters {
		if p.waiters[i].client == client {
			p.waiters[i].calls++
			return
		}
	}
	p.waiters = append(p.waiters, waiter{client, 1})
	if t := p.ticket; t != nil && !t.settled() {
		p.gate.add(t, client)
		p.gate.dispatch()
		q.bound(p.gate, t, client)
	}
}

// removeCaller undoes an addCaller. If no caller is left, the job ends, unless it fetches and no ticket needs its
// place.
func (p *pass) removeCaller(client string) {
	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range p.waiters {
		w := &p.waiters[i]
		if w.client != client {
			continue
		}
		if w.calls--; w.calls > 0 {
			return
		}
		p.waiters = append(p.waiters[:i], p.waiters[i+1:]...)
		break
	}
	switch {
	case len(p.waiters) == 0 && p.fetch == nil:
		p.giveUp(errUnwanted)
	case len(p.waiters) == 0:
		q.fetches.unwant(p.fetch)
		if p.body != nil {
			q.bodies.unwant(p.body)
		}
	case p.ticket != nil && len(p.ticket.stands) > 1:
		p.gate.remove(p.ticket, client)
	}
}

// leaveLate undoes an addCaller for a caller that has waited for too long, and returns a *BusyError, if p waits for a
// place to fetch. It returns nil if p waits for the host of its origin, since perHost and refuseLate bound that wait.
func (p *pass) leaveLate(client string) error {
	g := &p.queue.fetches
	p.queue.mu.Lock()
	late := p.ticket != nil && p.gate == g && !p.ticket.settled() && (p.redirect || !p.ticket.blocked)
	busy := g.busy()
	p.queue.mu.Unlock()
	if !late {
		return nil
	}
	p.removeCaller(client)
	return busy
}

// clients returns the clients that give p their turns.
func (p *pass) clients() []waiter {
	if len(p.waiters) == 0 {
		return []waiter{{client: p.client}}
	}
	return p.waiters
}

// end gives back the place of Cache.enter or of Enter, if p has it.
func (p *pass) end() {
	if p.fetch == nil {
		return
	}
	if f := p.onEnd; f != nil {
		p.onEnd = nil
		f()
	}
	p.long.Stop()
	p.give(&p.queue.fetches, &p.fetch)
}

// Enter implements fetch.Queue. The first request of a fetch has a place already.
func (p *pass) Enter(ctx context.Context, host string) error {
	if p.fetch != nil && p.fetch.host == host {
		return nil
	}
	p.end()
	p.queue.mu.Lock()
	p.redirect = true
	p.queue.mu.Unlock()
	return p.begin(ctx, &ticket{host: host})
}

// begin waits with t for a place to fetch.
func (p *pass) begin(ctx context.Context, t *ticket) error {
	if err := p.take(ctx, &p.queue.fetches, t, &p.fetch); err != nil {
		return err
	}
	p.long = time.AfterFunc(longFetch, p.prolong)
	return nil
}

// prolong says that the fetch of p takes long.
func (p *pass) prolong() {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	if p.fetch != nil {
		p.queue.fetches.prolong(p.fetch)
	}
}

// Leave implements fetch.Queue.
func (p *pass) Leave() { p.end() }

// BeginBody implements fetch.Queue.
func (p *pass) BeginBody(ctx context.Context) error {
	if err := p.take(ctx, &p.queue.bodies, &ticket{}, &p.body); err != nil {
		return err
	}
	p.timer = time.AfterFunc(slowBody, p.markSlow)
	return nil
}

// EndBody implements fetch.Queue.
func (p *pass) EndBody() {
	p.timer.Stop()
	p.give(&p.queue.bodies, &p.body)
}

// Parse implements fetch.Queue.
func (p *pass) Parse(ctx context.Context, a *Answer) error {
	return p.parse(ctx, func() { p.rules = parse(a, rules.DialectRFC9309) })
}

// parse calls f, which parses a file, when it is the turn of p. The error is the cause of ctx.
func (p *pass) parse(ctx context.Context, f func()) error { return p.at(ctx, &p.queue.parsers, f) }

// load calls f, which reads from the Store, when it is the turn of p. The error is the cause of ctx.
func (p *pass) load(ctx context.Context, f func()) error { return p.at(ctx, &p.queue.loads, f) }

func (p *pass) at(ctx context.Context, g *gate, f func()) error {
	var held *place
	if err := p.take(ctx, g, &ticket{}, &held); err != nil {
		return err
	}
	defer p.give(g, &held)
	f()
	return nil
}

// take waits for a place of g with the ticket t and stores it in held.
func (p *pass) take(ctx context.Context, g *gate, t *ticket, held **place) error {
	p.enqueue(g, t)
	select {
	case <-t.over:
	case <-ctx.Done():
	}
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	p.ticket = nil
	if t.err != nil {
		return t.err
	}
	if cause := context.Cause(ctx); cause != nil {
		if t.place == nil {
			g.withdraw(t)
		} else {
			g.release(t.place)
		}
		return cause
	}
	*held = t.place
	if len(p.waiters) == 0 && (held == &p.fetch || held == &p.body) {
		g.unwant(t.place)
	}
	return nil
}

// enqueue adds t to g. It may end another job whose place t can have.
func (p *pass) enqueue(g *gate, t *ticket) {
	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	t.pass, t.over = p, make(chan struct{})
	p.ticket, p.gate = t, g
	clients := p.clients()
	for _, c := range clients {
		g.add(t, c.client)
	}
	if t.host != "" {
		h := g.host(t.host)
		h.waiting = append(h.waiting, t)
		q.refuseLate(h, time.Now())
	}
	g.dispatch()
	for _, c := range clients {
		q.bound(g, t, c.client)
	}
	if !t.settled() && !t.blocked {
		q.endSlow()
	}
}

func (p *pass) give(g *gate, held **place) {
	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.slow, p)
	g.release(*held)
	*held = nil
}

// bound refuses t, which is new in the line of client, or the last ticket of a longer line, if too many wait.
func (q *queue) bound(g *gate, t *ticket, client string) {
	if g != &q.fetches || t.settled() {
		return
	}
	if h, l := g.hosts[t.host], g.lines[lineKey{client, t.long}]; !t.pass.redirect && h.waitingIn(l) > perHost {
		g.refuse(t, l)
	}
	for g.waiting > q.most {
		l := g.longest(t)
		g.refuse(l.waiting.Back().Value.(*ticket), l)
	}
}

// markSlow says that the body of p may be ended by endSlow.
func (p *pass) markSlow() {
	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.body != nil {
		q.slow[p] = struct{}{}
		q.endSlow()
	}
}

// endSlow ends a slow body for each client that waits and reads no body. It chooses the clients that read the most.
func (q *queue) endSlow() {
	g := &q.bodies
	waiting := 0
	for _, l := range g.short.ready {
		if l.held == 0 {
			waiting++
		}
	}
	for len(q.slow) > 0 && g.short.ending < waiting {
		var victim *pass
		for p := range q.slow {
			if victim == nil || p.body.line.held > victim.body.line.held {
				victim = p
			}
		}
		delete(q.slow, victim)
		g.end(victim.body, errSlow)
	}
}

// counts returns the number of fetches that wait and that run.
func (q *queue) counts() (waiting, running int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.fetches.waiting, q.fetches.held()
}
