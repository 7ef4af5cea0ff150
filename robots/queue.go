package robots

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrBusy is the error if too many fetches wait. A BusyError wraps it if the fetches are those of one client.
var ErrBusy = errors.New("robots: too many fetches are waiting")

// BusyError says when a fetch may be tried again.
type BusyError struct {
	RetryAfter time.Duration // the time that the client's oldest waiting fetch has waited
}

func (e *BusyError) Error() string { return ErrBusy.Error() }

func (e *BusyError) Unwrap() error { return ErrBusy }

// errUnwanted ends a flight that no caller waits for: at once if it waits for a place, else if another flight wants its place.
var errUnwanted = errors.New("no request waits for the file any more")

// unwantedError is the failure of a fetch that ended with errUnwanted. client began the fetch.
type unwantedError struct{ client string }

func (e *unwantedError) Error() string {
	return errUnwanted.Error() + ", and others need the place of its fetch"
}

// errSlow ends the fetch of a slow body if a client that reads no body waits for a place.
var errSlow = errors.New("the body comes slowly, and others wait for its place")

// slowBody is the time after which endSlow may end the fetch of a body.
const slowBody = time.Second

// perHost bounds the fetches of one client that wait for one host: a host with a thousand ports must leave room for others.
// Most hosts have two origins.
const perHost = 16

// storeReaders bounds the concurrent calls of Store.Load.
const storeReaders = 4

// queue bounds the fetches that run, with one at a time for each host, the bodies that are read and compiled, the calls of the
// Store, and the fetches that wait. Clients get turns for each of them.
type queue struct {
	most int // fetches that may wait

	mu       sync.Mutex // guards what follows, and each pass
	fetches  gate       // from the look-up of the address to the end of the body; the key is the host
	bodies   gate       // from the first byte of a body to its compiled rules
	compiles gate       // one for each processor
	loads    gate       // calls of Store.Load
	slow     map[*pass]struct{}
}

func newQueue(fetches, bodies, compiles, most int) *queue {
	return &queue{
		most: most, fetches: newGate(fetches), bodies: newGate(bodies), compiles: newGate(compiles), loads: newGate(storeReaders),
		slow: make(map[*pass]struct{}),
	}
}

// pass lets one flight through a queue.
type pass struct {
	queue  *queue
	client string                  // that began the flight
	cancel context.CancelCauseFunc // ends the flight

	waiters []waiter // the callers that wait for the flight
	ticket  *ticket  // that waits for a place; nil if none does
	gate    *gate    // where ticket waits
	fetch   *place   // nil if the flight fetches nothing
	body    *place   // nil if it reads none
	timer   *time.Timer

	leaveHost func() // ends its turn at the host; nil: it has none
	asked     bool   // the host whose turn it has was asked, and Cache.space not called since
	moved     bool   // it follows redirects: perHost does not bound how many wait where those lead
}

// waiter counts the calls of one client that wait for a flight.
type waiter struct {
	client string
	calls  int
}

func (q *queue) newPass(client string, cancel context.CancelCauseFunc) *pass {
	return &pass{queue: q, client: client, cancel: cancel}
}

// join counts a caller that waits for p. The flight then also waits in the line of that caller's client.
func (p *pass) join(client string) {
	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.fetches.unwanted, p)
	delete(q.bodies.unwanted, p)
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

// leave takes back a join. A flight that no caller waits for ends, unless it fetches and its place is not wanted.
func (p *pass) leave(client string) {
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
		p.cancel(errUnwanted)
	case len(p.waiters) == 0:
		p.unwant(&q.fetches, p.fetch)
		p.unwant(&q.bodies, p.body)
	case p.ticket != nil && len(p.ticket.stands) > 1:
		p.gate.remove(p.ticket, client)
	}
}

// unwant marks the place of a flight that no caller waits for. The flight ends if the place is wanted.
func (p *pass) unwant(g *gate, held *place) {
	if held == nil {
		return
	}
	if g.isWanted(held) {
		g.end(p, errUnwanted)
		return
	}
	g.unwanted[p] = struct{}{}
}

// clients returns the clients that give p their turns.
func (p *pass) clients() []waiter {
	if len(p.waiters) == 0 {
		return []waiter{{client: p.client}}
	}
	return p.waiters
}

// begin waits until a fetch from host may run; end must be called afterwards. A pass may begin again after its end. The
// error is a BusyError or the cause of ctx.
func (p *pass) begin(ctx context.Context, host string) error {
	return p.take(ctx, &p.queue.fetches, host, &p.fetch)
}

// end gives back what begin or move took, if that was not given back before.
func (p *pass) end() {
	if p.fetch != nil {
		p.give(&p.queue.fetches, &p.fetch)
	}
	if leave := p.leaveHost; leave != nil {
		p.leaveHost = nil
		leave()
	}
}

// waitingClients returns the clients that wait for the flight.
func (p *pass) waitingClients() []string {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	clients := make([]string, len(p.waiters))
	for i, w := range p.waiters {
		clients[i] = w.client
	}
	return clients
}

// move is begin for a host to which a redirect leads; if that is empty, it is for no host in particular.
func (p *pass) move(ctx context.Context, host string) error {
	p.queue.mu.Lock()
	p.moved = true
	p.queue.mu.Unlock()
	return p.begin(ctx, host)
}

// isAt reports whether p holds a place for host.
func (p *pass) isAt(host string) bool { return p.fetch != nil && p.fetch.key == host }

// beginBody waits until a body may be read; endBody must be called afterwards. The error is the cause of ctx.
func (p *pass) beginBody(ctx context.Context) error {
	if err := p.take(ctx, &p.queue.bodies, "", &p.body); err != nil {
		return err
	}
	p.timer = time.AfterFunc(slowBody, p.markSlow)
	return nil
}

// endBody gives back what beginBody took.
func (p *pass) endBody() {
	p.timer.Stop()
	p.give(&p.queue.bodies, &p.body)
}

// load calls f, which reads from the Store, when it is the turn of p. The error is the cause of ctx.
func (p *pass) load(ctx context.Context, f func()) error { return p.at(ctx, &p.queue.loads, f) }

// compile calls f, which compiles a file, when it is the turn of p. The error is the cause of ctx.
func (p *pass) compile(ctx context.Context, f func()) error {
	return p.at(ctx, &p.queue.compiles, f)
}

func (p *pass) at(ctx context.Context, g *gate, f func()) error {
	var held *place
	if err := p.take(ctx, g, "", &held); err != nil {
		return err
	}
	defer p.give(g, &held)
	f()
	return nil
}

// take waits for a place at g and puts it into held.
func (p *pass) take(ctx context.Context, g *gate, key string, held **place) error {
	t := p.ask(g, key)
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
		p.unwant(g, t.place)
	}
	return nil
}

// ask returns a ticket that waits at g, or is granted or refused already.
func (p *pass) ask(g *gate, key string) *ticket {
	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	t := &ticket{pass: p, key: key, since: time.Now(), over: make(chan struct{})}
	p.ticket, p.gate = t, g
	clients := p.clients()
	for _, c := range clients {
		g.add(t, c.client)
	}
	g.dispatch()
	for _, c := range clients {
		q.bound(g, t, c.client)
	}
	if t.settled() || t.blocked != nil {
		return t
	}
	for other := range g.unwanted {
		g.end(other, errUnwanted)
		return t
	}
	q.endSlow()
	return t
}

func (p *pass) give(g *gate, held **place) {
	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.slow, p)
	g.release(*held)
	*held = nil
}

// bound refuses t, which has come into the line of client, or the last ticket of a longer line, if too many wait.
func (q *queue) bound(g *gate, t *ticket, client string) {
	if g != &q.fetches || t.settled() {
		return
	}
	if l := g.lines[client]; l.byKey[t.key] > perHost && !t.pass.moved {
		g.refuse(t, l)
	}
	for g.waiting > q.most {
		l := g.longest(t)
		g.refuse(l.waiting.Back().Value.(*ticket), l)
	}
}

// markSlow lets the place of a body be given to a client that reads none.
func (p *pass) markSlow() {
	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.body != nil {
		q.slow[p] = struct{}{}
		q.endSlow()
	}
}

// endSlow ends a slow body for each client that waits and reads none: of the clients that read the most.
func (q *queue) endSlow() {
	g := &q.bodies
	waiting := 0
	for _, l := range g.ready {
		if l.held == 0 {
			waiting++
		}
	}
	for len(q.slow) > 0 && len(g.ending) < waiting {
		var victim *pass
		for p := range q.slow {
			if victim == nil || p.body.line.held > victim.body.line.held {
				victim = p
			}
		}
		delete(q.slow, victim)
		g.end(victim, errSlow)
	}
}

// load returns how many fetches wait and run.
func (q *queue) load() (waiting, running int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.fetches.waiting, q.fetches.places - q.fetches.free
}
