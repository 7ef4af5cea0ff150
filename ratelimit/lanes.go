package ratelimit

import (
	"strings"
	"time"
)

// Every sweepEvery calls, sweepSome lanes are looked at: two for each call, so the hand is round before the lanes can
// have doubled. Before a key is turned away for want of a lane, sweepMany are looked at.
const (
	sweepEvery = 64
	sweepSome  = 2 * sweepEvery
	sweepMany  = 256
)

// remembered is for how long a lane is kept after its last request if no longer Delay was seen: a Delay that begins to
// apply, with a new robots.txt or for another client, is then still kept from that request.
const remembered = time.Minute

// lane returns the lane of key, locked, and makes it if there is none.
//
// A lane may be dropped between the moment it is found and the moment its lock is held: A finds the lane, a sweep locks
// it, sees that it is idle and drops it, A locks it. A then holds a lane that nobody else will find, so it looks again.
func (l *Limiter) lane(key string) (*lane, error) {
	if l.calls.Add(1)%sweepEvery == 0 {
		l.mu.Lock()
		l.sweep(time.Now(), sweepSome)
		l.mu.Unlock()
	}
	for {
		ln, err := l.find(key)
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

// find returns the lane of key, not locked, and makes it if there is none.
func (l *Limiter) find(key string) (*lane, error) {
	if ln := l.present(key); ln != nil {
		return ln, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if ln := l.lanes[key]; ln != nil {
		return ln, nil // made by another since
	}
	if len(l.lanes) >= l.rules().MaxLanes {
		l.sweep(time.Now(), sweepMany)
	}
	if len(l.lanes) >= l.rules().MaxLanes {
		return nil, ErrTooManyLanes
	}
	ln := newLane(l, strings.Clone(key)) // key may be part of a whole request
	l.lanes[ln.key] = ln
	l.ring.add(ln)
	return ln, nil
}

// present returns the lane of key, not locked, or nil if there is none.
func (l *Limiter) present(key string) *lane {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.lanes[key]
}

// sweep looks at the next n lanes and drops those that are idle. l.mu is held. A lane whose lock is taken is in use.
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
		ln.unlock()
	}
}

// A ring is the lanes in an order in which a hand can go round, a few at a time.
type ring struct {
	lanes []*lane
	hand  int
}

func (r *ring) add(ln *lane) {
	ln.index = int32(len(r.lanes))
	r.lanes = append(r.lanes, ln)
}

// next returns the lane at the hand and moves the hand on. The ring is not empty.
func (r *ring) next() *lane {
	if r.hand >= len(r.lanes) {
		r.hand = 0
	}
	ln := r.lanes[r.hand]
	r.hand++
	return ln
}

// remove puts the last lane in the place of ln.
func (r *ring) remove(ln *lane) {
	last := len(r.lanes) - 1
	r.lanes[ln.index] = r.lanes[last]
	r.lanes[ln.index].index = ln.index
	r.lanes[last] = nil
	r.lanes = r.lanes[:last]
}
