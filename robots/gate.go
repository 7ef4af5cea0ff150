package robots

import (
	"container/heap"
	"container/list"
	"time"
)

// gate grants places to clients. A client may hold at most eager times as many places as are free, so that another
// client finds a free place at once. If several clients wait, the one that holds the fewest places gets the next.
//
// A ticket may name a key. Of the tickets with one key, one holds a place at a time; the others wait and hold no place.
//
// The mutex of the queue guards its gates.
type gate struct {
	places   int
	free     int
	grants   uint64 // so far
	waiting  int    // tickets in lines; a ticket in two lines counts twice
	lines    map[string]*line
	ready    lineHeap
	keys     map[string]*keyed
	unwanted map[*pass]struct{} // they hold a place, and no caller waits for them
	ending   map[*pass]struct{} // they were ended, and still hold a place
}

// eager is the number of places that a client may hold for each free place. A client alone gets 7/8 of the places.
const eager = 7

// line holds the tickets of one client.
type line struct {
	client  string
	held    int            // places
	last    uint64         // number of the last grant
	waiting list.List      // of *ticket, in the order of arrival
	ready   list.List      // of *ticket: those in waiting that are not blocked
	byKey   map[string]int // number of tickets in waiting
	index   int            // in gate.ready, or -1
}

// keyed is a key for which a place is held.
type keyed struct {
	holder  *pass
	blocked list.List // of *ticket
}

// ticket is a pass that waits for a place. It is in the line of each client that waits for the pass.
type ticket struct {
	pass    *pass
	key     string
	since   time.Time
	stands  []stand
	blocked *list.Element // in keyed.blocked; nil if it is not blocked
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
	key  string
}

func newGate(places int) gate {
	return gate{
		places: places, free: places,
		lines: make(map[string]*line), keys: make(map[string]*keyed),
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
	if t.blocked == nil {
		s.ready = l.ready.PushBack(t)
	}
	t.stands = append(t.stands, s)
	if t.key != "" {
		l.count(t.key, 1)
	}
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
	if t.blocked != nil {
		g.keys[t.key].blocked.Remove(t.blocked)
		t.blocked = nil
	}
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
	if t.key != "" {
		l.count(t.key, -1)
	}
	g.waiting--
	g.fix(l)
}

func (l *line) count(key string, n int) {
	if l.byKey == nil {
		l.byKey = make(map[string]int)
	}
	if l.byKey[key] += n; l.byKey[key] == 0 {
		delete(l.byKey, key)
	}
}

// dispatch grants places as long as there are free ones and tickets for them.
func (g *gate) dispatch() {
	for g.free > 0 && len(g.ready) > 0 {
		l := g.ready[0]
		if l.held >= eager*g.free {
			return // the other lines hold as many places or more
		}
		t := l.ready.Front().Value.(*ticket)
		if k := g.keys[t.key]; k != nil {
			g.block(t, k)
			continue
		}
		g.grant(t, l)
	}
}

func (g *gate) grant(t *ticket, l *line) {
	g.grants++
	l.held, l.last = l.held+1, g.grants
	g.free--
	if t.key != "" {
		g.keys[t.key] = &keyed{holder: t.pass}
	}
	g.withdraw(t)
	t.place = &place{pass: t.pass, line: l, key: t.key}
	close(t.over)
}

// block makes t wait until k is released.
func (g *gate) block(t *ticket, k *keyed) {
	if _, idle := g.unwanted[k.holder]; idle {
		g.end(k.holder, errUnwanted)
	}
	t.blocked = k.blocked.PushBack(t)
	for i := range t.stands {
		s := &t.stands[i]
		s.line.ready.Remove(s.ready)
		s.ready = nil
		g.fix(s.line)
	}
}

// release takes a place back. Tickets that were blocked on its key go to the front of their lines, since they have
// waited.
func (g *gate) release(p *place) {
	g.free++
	p.line.held--
	delete(g.unwanted, p.pass)
	delete(g.ending, p.pass)
	if k := g.keys[p.key]; k != nil {
		delete(g.keys, p.key)
		for e := k.blocked.Back(); e != nil; e = e.Prev() {
			g.unblock(e.Value.(*ticket))
		}
	}
	g.fix(p.line)
	g.dispatch()
}

func (g *gate) unblock(t *ticket) {
	t.blocked = nil
	for i := range t.stands {
		s := &t.stands[i]
		s.ready = s.line.ready.PushFront(t)
		g.fix(s.line)
	}
}

// isWanted reports whether a ticket could use the place p.
func (g *gate) isWanted(p *place) bool {
	if k := g.keys[p.key]; k != nil && k.blocked.Len() > 0 {
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
