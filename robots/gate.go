package robots

import (
	"container/heap"
	"container/list"
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
// The mutex of the queue guards its gates.
type gate struct {
	places   int
	free     int
	grants   uint64 // so far
	waiting  int    // tickets in lines; a ticket in two lines counts twice
	lines    map[string]*line
	ready    lineHeap
	hosts    map[string]*host   // by origin.Key; see host.go
	sweep    int                // number of hosts at which host removes some
	mu       *sync.Mutex        // of the queue, for the timers of hosts
	unwanted map[*pass]struct{} // they hold a place, and no caller waits for them
	ending   map[*pass]struct{} // they were ended, and still hold a place
}

// eager is the number of places that a client may hold for each free place. A client alone gets 7/8 of the places.
const eager = 7

// line holds the tickets of one client.
type line struct {
	client  string
	held    int       // places
	last    uint64    // number of the last grant
	waiting list.List // of *ticket, in the order of arrival
	ready   list.List // of *ticket: those in waiting that are not blocked
	index   int       // in gate.ready, or -1
}

// ticket is a pass that waits for a place. It is in the line of each client that waits for the pass.
type ticket struct {
	pass    *pass
	host    string        // empty: no particular one
	origin  origin.Origin // the zero Origin: the Delay of the host does not matter
	most    time.Duration // the longest wait because of that Delay
	since   time.Time
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
	pass *pass
	line *line
	host string
}

func newGate(places int, mu *sync.Mutex) gate {
	return gate{
		places: places, free: places, mu: mu,
		lines: make(map[string]*line), hosts: make(map[string]*host),
		unwanted: make(map[*pass]struct{}), ending: make(map[*pass]struct{}),
	}
}

// add puts t in the line of client, unless it is there already.
func (g *gate) add(t *ticket, client string) {
	l := g.lines[client]
	if l == nil {
		l = &line{client: client, index: -1}
		g.lines[client] = l
	}
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
	first := l.waiting.Front().Value.(*ticket)
	if g.remove(t, l.client) {
		t.err = &BusyError{RetryAfter: time.Since(first.since)}
		close(t.over)
	}
}

func (g *gate) leaveLine(t *ticket, s stand) {
	l := s.line
	l.waiting.Remove(s.waiting)
	if s.ready != nil {
		l.ready.Remove(s.ready)
	}
	g.waiting--
	g.fix(l)
}

// dispatch grants places as long as there are free ones and tickets for them.
func (g *gate) dispatch() {
	now := time.Now()
	for g.free > 0 && len(g.ready) > 0 {
		l := g.ready[0]
		if !g.mayHold(l) {
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

// mayHold reports whether l may hold one place more.
func (g *gate) mayHold(l *line) bool { return l.held < eager*g.free }

func (g *gate) grant(t *ticket, l *line) {
	g.grants++
	l.held, l.last = l.held+1, g.grants
	g.free--
	if h := g.hosts[t.host]; h != nil {
		h.granted(t)
	}
	g.withdraw(t)
	t.place = &place{pass: t.pass, line: l, host: t.host}
	close(t.over)
}

// release takes a place back.
func (g *gate) release(p *place) {
	g.free++
	p.line.held--
	delete(g.unwanted, p.pass)
	delete(g.ending, p.pass)
	if h := g.hosts[p.host]; h != nil {
		h.holder = nil
		g.unblock(h)
	}
	g.fix(p.line)
	g.dispatch()
}

// isWanted reports whether a ticket could use the place p.
func (g *gate) isWanted(p *place) bool {
	if h := g.hosts[p.host]; h != nil && len(h.waiting) > 0 {
		return true
	}
	return len(g.ready) > 0 && len(g.ending) < g.waiting
}

// end ends the job of p, which holds a place.
func (g *gate) end(p *pass, cause error) {
	delete(g.unwanted, p)
	g.ending[p] = struct{}{}
	p.giveUp(cause)
}

// fix restores the order of g.ready after a change of l. It removes l if it is empty.
func (g *gate) fix(l *line) {
	switch listed, has := l.index >= 0, l.ready.Len() > 0; {
	case listed && has:
		heap.Fix(&g.ready, l.index)
	case listed:
		heap.Remove(&g.ready, l.index)
	case has:
		heap.Push(&g.ready, l)
	}
	if l.held == 0 && l.waiting.Len() == 0 {
		delete(g.lines, l.client)
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
