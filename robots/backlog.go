package robots

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// record is what the Store is given of one answer.
type record struct {
	snap   *Snapshot // as it is in memory
	header http.Header
	change *Change // may be nil
}

func (r record) size() int64 {
	n := r.snap.size()
	for name, values := range r.header {
		n += int64(fieldSize(name, values))
	}
	return n
}

// after returns r with what has changed since before earlier, which the Store has not heard of. What was kept between the two
// may be forgotten, and r say of no change.
func (r record) after(earlier record) record {
	if earlier.change == nil {
		return r
	}
	both := *earlier.change
	if r.change != nil {
		both = *r.change
		both.OldSHA256, both.OldState = earlier.change.OldSHA256, earlier.change.OldState
	}
	both.NewSHA256, both.NewState = r.snap.SHA256, r.snap.State()
	r.change = &both
	if both.OldSHA256 == both.NewSHA256 && both.OldState == both.NewState {
		r.change = nil
	}
	return r
}

// backlog holds what the Store could not take, since it was full, locked or slow. What is in it counts as what is in memory
// does, and is saved when the Store takes something again.
type backlog struct {
	limit int64 // octets

	mu     sync.Mutex // guards what follows
	of     map[origin.Origin]record
	bytes  int64 // of those with a snap
	worked bool  // a goroutine is at work on it
}

// Bounds of backlog. What has no room is noted without its snap and its fields, and fetched again when it has left the
// memory: an older one in the Store is not to take its place.
const (
	backlogCount = 10_000
	backlogBytes = 16 << 20
)

// add takes r of o in, in the place of an older one, and reports whether somebody has to go to work.
func (b *backlog) add(o origin.Origin, r record) (idle bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(o)
	if len(b.of) >= backlogCount {
		return false
	}
	if size := r.size(); b.bytes+size <= b.limit {
		b.bytes += size
		idle = !b.worked
		b.worked = true
	} else {
		r.snap, r.header = nil, nil
	}
	if b.of == nil {
		b.of = make(map[origin.Origin]record)
	}
	b.of[o] = r
	return idle
}

// get returns what is late of o; its snap is nil where there was no room for it, or nothing is late.
func (b *backlog) get(o origin.Origin) (r record, late bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, late = b.of[o]
	return r, late
}

func (b *backlog) remove(o origin.Origin) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(o)
}

func (b *backlog) drop(o origin.Origin) {
	if r := b.of[o]; r.snap != nil {
		b.bytes -= r.size()
	}
	delete(b.of, o)
}

// next returns one that can be saved. If there is none, the work is over.
func (b *backlog) next() (r record, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.of {
		if r.snap != nil {
			return r, true
		}
	}
	b.worked = false
	return record{}, false
}

// Unsaved returns the origins of which the Store, having failed, does not have what counts, in no order. There may be more
// than the 10,000 that it returns at the most.
func (c *Cache) Unsaved() []origin.Origin {
	c.backlog.mu.Lock()
	defer c.backlog.mu.Unlock()
	return slices.Collect(maps.Keys(c.backlog.of))
}

// hold keeps r until it can be saved. A flight calls it.
func (c *Cache) hold(r record) {
	if c.backlog.add(r.snap.Origin, r) {
		c.busy.Add(1)
		go c.catchUp()
	}
}

// retry is when the Store is tried again after it has failed.
const retry = time.Second

// catchUp saves what is late, each by a flight of its own, until nothing is or the Cache is closed.
func (c *Cache) catchUp() {
	defer c.busy.Done()
	for {
		select {
		case <-c.life.Done():
			return
		case <-time.After(retry):
		}
		for failed := false; !failed; {
			r, ok := c.backlog.next()
			if !ok {
				return
			}
			o := r.snap.Origin
			<-c.start(errand{origin: o, key: c.key(o), purpose: catchUp}, false).done
			_, failed = c.backlog.get(o)
		}
	}
}

// closePatience is how long the end of a Cache may take for what is late.
const closePatience = 2 * time.Second

// catchUpAtLast saves what is late when there are no more flights.
func (c *Cache) catchUpAtLast() {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	for r, ok := c.backlog.next(); ok; r, ok = c.backlog.next() {
		if err := c.give(ctx, r); err != nil {
			return
		}
	}
}
