package ratelimit

import (
	"maps"
	"strings"
	"time"
)

// Every sweepEvery calls, a sweep checks sweepSome lanes, and drops the idle ones. That is two lanes for each call, so
// every lane is checked before their number can have doubled. Before a key is rejected because there are too many
// lanes, a sweep checks sweepMany.
//
// A Limiter that gets few calls also checks all lanes every sweepPause, sweepMany at a time, as long as there are any.
const (
	sweepEvery = 64
	sweepSome  = 2 * sweepEvery
	sweepMany  = 256
	sweepPause = time.Minute
)

// remembered is how long a lane is kept after its last request if it has seen no longer Delay. A Delay that begins to
// apply within that time, after a robots.txt has changed or for another client, still counts from that request.
const remembered = time.Minute

// lane returns the locked lane of key. If there is no lane, it makes one.
//
// A sweep may drop the lane between findOrMake and lock: this call finds the lane; the sweep locks it, sees that it is
// idle and drops it; this call locks it. No other call will find that lane, so this one looks again.
func (l *Limiter) lane(key string) (*lane, error) {
	if l.calls.Add(1)%sweepEvery == 0 {
		l.mu.Lock()
		l.sweep(time.Now(), sweepSome)
		l.mu.Unlock()
	}
	for {
		ln, err := l.findOrMake(key)
		if err != nil {
			return nil, err
		}
		ln.lock()
		if !ln.dropped {
			return ln, nil
		}
		ln.unlock()
	}
}

// findOrMake returns the lane of key without locking it. If there is no lane, it makes one.
func (l *Limiter) findOrMake(key string) (*lane, error) {
	if ln := l.find(key); ln != nil {
		return ln, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.successor.Load() != nil {
		return nil, errMoved
	}
	if ln := l.lanes[key]; ln != nil {
		return ln, nil // another call has made it
	}
	if len(l.lanes) >= l.rules().MaxLanes {
		l.sweep(time.Now(), sweepMany)
	}
	if len(l.lanes) >= l.rules().MaxLanes {
		return nil, ErrTooManyLanes
	}
	ln := newLane(l, strings.Clone(key)) // key may share memory with a whole request
	l.lanes[ln.key] = ln
	l.ring.add(ln)
	l.most = max(l.most, len(l.lanes))
	if l.sweeper == nil && !l.closed {
		l.sweeper = time.AfterFunc(sweepPause, l.sweepAll)
	}
	return ln, nil
}

// find returns the lane of key without locking it, or nil if there is no lane.
func (l *Limiter) find(key string) *lane {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.lanes[key]
}

// sweep checks the next n lanes and drops the idle ones. A lane that is locked is in use. l.mu must be held.
func (l *Limiter) sweep(now time.Time, n int) {
	for range min(n, len(l.ring.lanes)) {
		ln := l.ring.next()
		if !ln.mu.TryLock() {
			continue
		}
		ln.rules = l.rules()
		if ln.idle(now) {
			ln.dropped = true
			delete(l.lanes, ln.key)
			l.ring.remove(ln)
		}
		ln.trim()
		ln.unlock()
	}
}

// sweepAll checks all lanes, and frees the memory for those that it drops. Its timer calls it.
func (l *Limiter) sweepAll() {
	l.mu.RLock()
	lanes := len(l.lanes)
	l.mu.RUnlock()
	for n := 0; n < lanes; n += sweepMany {
		l.mu.Lock()
		l.sweep(time.Now(), sweepMany)
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shrink()
	if l.closed || len(l.lanes) == 0 {
		l.sweeper = nil
		return
	}
	l.sweeper.Reset(sweepPause)
}

// shrink copies the lanes if there were many more, since a map and a slice do not become smaller. l.mu must be held.
func (l *Limiter) shrink() {
	if l.most < sweepMany || len(l.lanes) > l.most/8 {
		return
	}
	lanes := make(map[string]*lane, len(l.lanes))
	maps.Copy(lanes, l.lanes)
	l.lanes, l.most = lanes, len(lanes)
	l.ring.lanes = append([]*lane(nil), l.ring.lanes...) // slices.Clone keeps the memory of an empty slice
}

// stopSweeps ends the sweeps by time.
func (l *Limiter) stopSweeps() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.sweeper != nil {
		l.sweeper.Stop()
	}
}

// A ring holds all lanes in an order in which sweeps visit them, a few at a time.
type ring struct {
	lanes []*lane
	hand  int // index of the next lane to visit
}

func (r *ring) add(ln *lane) {
	ln.index = int32(len(r.lanes))
	r.lanes = append(r.lanes, ln)
}

// next returns the next lane to visit. The ring must not be empty.
func (r *ring) next() *lane {
	if r.hand >= len(r.lanes) {
		r.hand = 0
	}
	ln := r.lanes[r.hand]
	r.hand++
	return ln
}

// remove removes ln, and moves the last lane to its index, which is visited next.
func (r *ring) remove(ln *lane) {
	r.hand = int(ln.index)
	last := len(r.lanes) - 1
	r.lanes[ln.index] = r.lanes[last]
	r.lanes[ln.index].index = ln.index
	r.lanes[last] = nil
	r.lanes = r.lanes[:last]
}
