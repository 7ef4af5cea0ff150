package robots

import (
	"container/heap"
	"container/list"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// gate grants places to clients. A client may hold at most eager times as many places as are free, so that another
// client finds a free place at once. If several clients wait, the one that holds the fewest places gets the next.
//
// A ticket may name a host. Of the tickets with one host, one holds a place at a time; the others wait and hold no
// place.
//
// The places are in two pools. A place that is held for long moves to the pool long if that has room, so that dead hosts
// leave the places in short to others. A ticket of a host that failed before waits for a place in long.
//
// The mutex of the queue guards its gates.
type gate struct {
	short    *pool
	long     *pool
	overdue  map[*place]struct{} // in short, since long had no room
	grants   uint64              // so far
	released meter
	waiting  int // tickets in lines; a ticket in two lines counts twice
	lines    map[lineKey]*line
	hosts    map[string]*host // by origin.Key; see host.go
	sweep    int              // number of hosts at which host removes some
	mu       *sync.Mutex      // of the queue, for the timers of hosts
}

// eager is the number of places that a client may hold for each free place. A client alone gets 7/8 of the places.
const eager = 7

// pool is a number of places, and the lines with tickets for them.
type pool struct {
	places, free int
	ready        lineHeap
	unwanted     map[*place]struct{} // held, and no caller waits for the job
	ending       int                 // held by jobs that were ended
}

func newPool(places int) *pool {
	return &pool{places: places, free: places, unwanted: make(map[*place]struct{})}
}

// lineKey names a line: that of a client for a place in short or in long.
type lineKey struct {
	client string
	long   bool
}

// line holds the tickets of one client for one pool.
type line struct {
	lineKey
	pool    *pool
	held    int       // places
	last    uint64    // number of the last grant
	waiting list.List // of *ticket, in the order of arrival
	ready   list.List // of *ticket: those in waiting that are not blocked
	index   int       // in pool.ready, or -1
}

// ticket is a pass that waits for a place. It is in the line of each client that waits for the pass.
type ticket struct {
	pass    *pass
	host    string        // empty: no particular one
	origin  origin.Origin // the zero Origin: the Delay of the host does not matter
	most    time.Duration // the longest wait because of that Delay
	long    bool          // the host failed before
	stands  []stand
	blocked bool          // it waits for host, and is not in line.ready
	over    chan struct{} // closed when place or err is set
	place   *place        // if it was granted
	err     error         // if it was refused
}

func (t *ticket) settled() bool { return t.place != nil || t.err != nil }

// stand is the position of a ticket in a line.
type stand struct {
	line           *line
	waiting, ready *list.Element
}

// place is a place that was granted.
type place struct {
	pass   *pass
	line   *line
	host   string
	late   bool // it is held for long
	ending bool // its job was ended
}

func newGate(short, long int, mu *sync.Mutex) gate {
	return gate{
		short: newPool(short), long: newPool(long), mu: mu,
		overdue: make(map[*place]struct{}), lines: make(map[lineKey]*line), hosts: make(map[string]*host),
	}
}

// add puts t in the line of client, unless it is there already.
func (g *gate) add(t *ticket, client string) {
	l := g.line(lineKey{client, t.long})
	for _, s := range t.stands {
		if s.line == l {
			return
		}
	}
	s := stand{line: l, waiting: l.waiting.PushBack(t)}
	if !t.blocked {
		s.ready = l.ready.PushBack(t)
	}
	t.stands = append(t.stands, s)
	g.waiting++
	g.fix(l)
}

// line returns the line of key. If it stays empty, the caller must call fix.
func (g *gate) line(key lineKey) *line {
	l := g.lines[key]
	if l == nil {
		l = &line{lineKey: key, pool: g.short, index: -1}
		if key.long {
			l.pool = g.long
		}
		g.lines[key] = l
	}
	return l
}

// remove takes t out of the line of client. It reports whether t is now in no line.
func (g *gate) remove(t *ticket, client string) bool {
	for i, s := range t.stands {
		if s.line.client == client {
			g.leaveLine(t, s)
			t.stands = append(t.stands[:i], t.stands[i+1:]...)
			break
		}
	}
	if len(t.stands) == 0 {
		g.withdraw(t)
		return true
	}
	return false
}

// withdraw takes t out of all lines.
func (g *gate) withdraw(t *ticket) {
	for _, s := range t.stands {
		g.leaveLine(t, s)
	}
	t.stands = nil
	g.leaveHost(t)
}

// refuse takes t out of l. If that was its last line, it gets a BusyError.
func (g *gate) refuse(t *ticket, l *line) {
	busy := g.busy()
	if g.remove(t, l.client) {
		t.err = busy
		close(t.over)
	}
}

// busy returns the error for a ticket that is refused because others wait.
func (g *gate) busy() *BusyError {
	const least, most = time.Second, 10 * time.Minute
	wait := 10 * time.Second // about as long as a fetch may take, if none has ended yet
	if rate := g.released.rate(time.Now()); rate > 0 {
		wait = time.Duration(min(float64(g.waiting)/rate, most.Seconds()) * float64(time.Second))
	}
	wait = max(wait, least)
	return &BusyError{RetryAfter: wait + rand.N(wait/2)}
}

// held returns the number of places that are held.
func (g *gate) held() int { return g.short.places - g.short.free + g.long.places - g.long.free }

func (g *gate) leaveLine(t *ticket, s stand) {
	l := s.line
	l.waiting.Remove(s.waiting)
	if s.ready != nil {
		l.ready.Remove(s.ready)
	}
	g.waiting--
	g.fix(l)
}

// dispatch grants places as long as there are free ones and tickets for them. For the other tickets it ends unwanted
// jobs.
func (g *gate) dispatch() {
	now := time.Now()
	g.dispatchIn(g.short, now)
	g.dispatchIn(g.long, now)
	g.makeRoom()
}

func (g *gate) dispatchIn(p *pool, now time.Time) {
	for p.free > 0 && len(p.ready) > 0 {
		l := p.ready[0]
		if !l.mayHoldMore() {
			return // the other lines hold as many places or more
		}
		t := l.ready.Front().Value.(*ticket)
		if h := g.hosts[t.host]; h != nil {
			if !h.admits(t, now) {
				g.block(t, h, now)
				continue
			}
			t, l = g.firstAt(h, t, l, now)
		}
		g.grant(t, l)
	}
}

// mayHoldMore reports whether l may hold one place more.
func (l *line) mayHoldMore() bool { return l.held < eager*l.pool.free }

// hold adds n to the places that l holds.
func (l *line) hold(n int) {
	l.held += n
	l.pool.free -= n
}

func (g *gate) grant(t *ticket, l *line) {
	g.grants++
	l.hold(1)
	l.last = g.grants
	t.place = &place{pass: t.pass, line: l, host: t.host}
	if h := g.hosts[t.host]; h != nil {
		h.granted(t)
	}
	g.withdraw(t)
	close(t.over)
}

// release takes a place back.
func (g *gate) release(p *place) {
	g.released.add(time.Now())
	delete(g.overdue, p)
	delete(p.line.pool.unwanted, p)
	if p.ending {
		p.line.pool.ending--
	}
	p.line.hold(-1)
	if h := g.hosts[p.host]; h != nil {
		h.holder = nil
		g.unblock(h)
	}
	g.fix(p.line)
	if p.line.long {
		g.moveOverdue()
	}
	g.dispatch()
}

// prolong says that p is held for long. A place of an unwanted job does not move.
func (g *gate) prolong(p *place) {
	p.late = true
	if p.line.long || p.ending || g.isUnwanted(p) {
		return
	}
	g.overdue[p] = struct{}{}
	g.move(p)
	g.dispatch()
}

// moveOverdue moves one place to the pool long, which has a free one.
func (g *gate) moveOverdue() {
	for p := range g.overdue {
		if g.move(p) {
			return
		}
	}
}

// move moves p, which is overdue, to the pool long. It reports whether there was room for its client.
func (g *gate) move(p *place) bool {
	to := g.line(lineKey{p.line.client, true})
	defer g.fix(to)
	if !to.mayHoldMore() {
		return false
	}
	delete(g.overdue, p)
	from := p.line
	from.hold(-1)
	to.hold(1)
	p.line = to
	g.fix(from)
	return true
}

// unwant says that no caller waits for the job of p. It ends the job if a ticket could use the place.
func (g *gate) unwant(p *place) {
	if p.ending {
		return
	}
	delete(g.overdue, p)
	p.line.pool.unwanted[p] = struct{}{}
	if h := g.hosts[p.host]; h != nil && len(h.waiting) > 0 {
		g.end(p, errUnwanted)
		return
	}
	g.makeRoom()
}

// want undoes unwant.
func (g *gate) want(p *place) {
	if !g.isUnwanted(p) {
		return
	}
	delete(p.line.pool.unwanted, p)
	if p.late {
		g.prolong(p)
	}
}

func (g *gate) isUnwanted(p *place) bool {
	_, unwanted := p.line.pool.unwanted[p]
	return unwanted
}

// makeRoom ends an unwanted job for each ticket that could then have a place: in its pool, or in short after an overdue
// place has moved to long.
func (g *gate) makeRoom() {
	for _, p := range []*pool{g.short, g.long} {
		for len(p.unwanted) > 0 && p.lacks(p.ending) {
			g.endOne(p)
		}
	}
	for len(g.long.unwanted) > 0 && len(g.overdue) > g.long.ending && g.short.lacks(g.short.ending+g.long.ending) {
		g.endOne(g.long)
	}
}

// lacks reports whether more than n tickets are ready for a place of p. A ticket in two lines counts twice.
func (p *pool) lacks(n int) bool {
	for _, l := range p.ready {
		if n -= l.ready.Len(); n < 0 {
			return true
		}
	}
	return false
}

// endOne ends one of the unwanted jobs that hold a place of p.
func (g *gate) endOne(p *pool) {
	for held := range p.unwanted {
		g.end(held, errUnwanted)
		return
	}
}

// end ends the job of p, unless it was ended already.
func (g *gate) end(p *place, cause error) {
	if p.ending {
		return
	}
	delete(p.line.pool.unwanted, p)
	p.line.pool.ending++
	p.ending = true
	p.pass.giveUp(cause)
}

// fix restores the order of the lines after a change of l. It removes l if it is empty.
func (g *gate) fix(l *line) {
	ready := &l.pool.ready
	switch listed, has := l.index >= 0, l.ready.Len() > 0; {
	case listed && has:
		heap.Fix(ready, l.index)
	case listed:
		heap.Remove(ready, l.index)
	case has:
		heap.Push(ready, l)
	}
	if l.held == 0 && l.waiting.Len() == 0 {
		delete(g.lines, l.lineKey)
	}
}

// longest returns the line with the most tickets. If several have as many, it returns one with t.
func (g *gate) longest(t *ticket) *line {
	var most *line
	for _, s := range t.stands {
		if most == nil || s.line.waiting.Len() > most.waiting.Len() {
			most = s.line
		}
	}
	for _, l := range g.lines {
		if most == nil || l.waiting.Len() > most.waiting.Len() {
			most = l
		}
	}
	return most
}

// lineHeap orders lines by the number of places that they hold, then by the time since their last grant.
type lineHeap []*line

func (h lineHeap) Len() int { return len(h) }

func (h lineHeap) Less(i, j int) bool {
	if h[i].held != h[j].held {
		return h[i].held < h[j].held
	}
	return h[i].last < h[j].last
}

func (h lineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *lineHeap) Push(x any) {
	l := x.(*line)
	l.index = len(*h)
	*h = append(*h, l)
}

func (h *lineHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	l.index = -1
	*h = old[:len(old)-1]
	return l
}
