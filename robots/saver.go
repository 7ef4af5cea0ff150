package robots

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// saver calls Store.Save in the background, in the order in which the Snapshots came, so that no request waits for it. If
// the Store is a BatchStore, it saves many at once. A Save that takes too long is repeated. If it fails, or if too much waits, the Snapshot is not saved. The Store then
// keeps an older one, which may allow more, so it is not read for that origin until a later Save succeeds.
type saver struct {
	limit int64 // of bytes; one Snapshot may be larger

	saving chan struct{} // holds an element during each Save and Delete

	mu      sync.Mutex // guards the fields below
	queue   []*unsaved
	latest  map[origin.Origin]*unsaved // those in queue
	bytes   int64
	running bool                       // a goroutine calls saveAll
	lost    map[origin.Origin]struct{} // not saved since
	floor   time.Time                  // Snapshots of the Store that were fetched earlier may be outdated
}

// unsaved is a Snapshot that waits in a saver.
type unsaved struct {
	snap   *Snapshot
	change *Change // may be nil

	release func() // ends the claim of the fetch; nil if there is none
}

// Limits of a saver.
const (
	saverBytes   = 16 << 20
	batchLength  = 100
	batchBytes   = 1 << 20 // one Snapshot may be larger
	maxLost      = 10_000
	lastPatience = 2 * time.Second // for all that waits when the Cache is closed
)

func newSaver(limit int64) saver {
	return saver{
		limit: limit, saving: make(chan struct{}, 1),
		latest: make(map[origin.Origin]*unsaved), lost: make(map[origin.Origin]struct{}),
	}
}

// add adds u, unless too much waits. It reports whether the caller must call saveAll.
func (s *saver) add(u *unsaved) (kept, start bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, size := u.snap.Origin, u.snap.size()
	if s.bytes > 0 && s.bytes+size > s.limit {
		delete(s.latest, o) // its success would not be that of u
		s.lose(o)
		return false, false
	}
	s.bytes += size
	s.queue = append(s.queue, u)
	s.latest[o] = u
	start = !s.running
	s.running = true
	return true, start
}

// lose notes that the Store keeps an outdated Snapshot of o.
func (s *saver) lose(o origin.Origin) {
	if len(s.lost) >= maxLost {
		clear(s.lost)
		s.floor = time.Now()
	}
	s.lost[o] = struct{}{}
}

// next returns the Snapshots that are saved next, most of them at most. If it returns none, saveAll must return.
func (s *saver) next(most int) []*unsaved {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running = len(s.queue) > 0; !s.running {
		return nil
	}
	n, bytes := 1, s.queue[0].snap.size()
	for ; n < min(most, len(s.queue)); n++ {
		if bytes += s.queue[n].snap.size(); bytes > batchBytes {
			break
		}
	}
	return slices.Clone(s.queue[:n])
}

// waiting returns the number of Snapshots that wait.
func (s *saver) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// done removes u after a Save that returned err.
func (s *saver) done(u *unsaved, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 || s.queue[0] != u {
		return // forget has removed it
	}
	s.queue = slices.Delete(s.queue, 0, 1)
	s.bytes -= u.snap.size()
	o := u.snap.Origin
	switch {
	case s.latest[o] != u:
		return
	case err != nil:
		s.lose(o)
	default:
		delete(s.lost, o)
	}
	delete(s.latest, o)
}

// forget removes and returns all that waits for o, after a Delete.
func (s *saver) forget(o origin.Origin) (gone []*unsaved) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = slices.DeleteFunc(s.queue, func(u *unsaved) bool {
		if u.snap.Origin != o {
			return false
		}
		s.bytes -= u.snap.size()
		gone = append(gone, u)
		return true
	})
	delete(s.latest, o)
	delete(s.lost, o)
	return gone
}

// get returns the Snapshot of o that waits, or nil.
func (s *saver) get(o origin.Origin) *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.latest[o]; u != nil {
		return u.snap
	}
	return nil
}

// trusts reports whether the Store may be read for o.
func (s *saver) trusts(o origin.Origin) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, lost := s.lost[o]
	return !lost
}

// outdated reports whether snap, which the Store returned, may be older than one that was not saved.
func (s *saver) outdated(snap *Snapshot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return snap.Fetched.Before(s.floor)
}

// Unsaved returns the origins whose latest Snapshot waits to be saved, in no order.
func (c *Cache) Unsaved() []origin.Origin {
	c.saver.mu.Lock()
	defer c.saver.mu.Unlock()
	return slices.Collect(maps.Keys(c.saver.latest))
}

// save has u saved in the background. Only jobs call it, since c.busy must not be zero.
func (c *Cache) save(u *unsaved) {
	kept, start := c.saver.add(u)
	if !kept {
		c.endClaim(u.release)
	}
	if start {
		c.busy.Go(c.saveAll)
	}
}

func (c *Cache) saveAll() {
	for c.saveNext() {
	}
}

// saveNext reports whether more may wait.
func (c *Cache) saveNext() bool {
	store, batches := c.options.Load().Store.(BatchStore)
	most := 1
	if batches {
		most = batchLength
		c.gather()
	}
	c.saver.saving <- struct{}{}
	defer func() { <-c.saver.saving }()
	next := c.saver.next(most)
	if len(next) > 1 && c.saveBatch(store, next) {
		return true
	}
	for _, u := range next {
		if !c.saveOne(u) {
			break
		}
	}
	return len(next) > 0
}

// While many files are fetched, a batch is saved every 50 ms or when it is full.
const (
	manyFetches = 8
	gatherTime  = 50 * time.Millisecond
)

func (c *Cache) gather() {
	if _, running := c.queue.counts(); running < manyFetches || c.saver.waiting() >= batchLength {
		return
	}
	select {
	case <-time.After(gatherTime):
	case <-c.life.Done():
	}
}

// saveBatch saves all at once. It returns false if they must be saved one by one, so that one that cannot be saved costs
// no other.
func (c *Cache) saveBatch(store BatchStore, all []*unsaved) bool {
	entries := make([]StoreEntry, len(all))
	for i, u := range all {
		entries[i] = StoreEntry{u.snap, u.change}
	}
	ctx, cancel := context.WithTimeout(c.saves, storePatience)
	defer cancel()
	err := caught(func() error { return store.SaveAll(ctx, entries) })
	if err != nil {
		return errors.Is(err, ErrStoreBusy) && c.saves.Err() == nil // the next call tries again
	}
	for _, u := range all {
		c.saver.done(u, nil)
		c.endClaim(u.release)
	}
	return true
}

// saveOne reports whether u is done. If not, it must be saved again.
func (c *Cache) saveOne(u *unsaved) bool {
	ctx, cancel := context.WithTimeout(c.saves, storePatience)
	defer cancel()
	err := caught(func() error { return c.options.Load().Store.Save(ctx, u.snap, u.change) })
	if err != nil {
		c.storeFailed(fmt.Errorf("robots: saving the snapshot of %s: %w", u.snap.Origin, err))
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return false
		}
	}
	c.saver.done(u, err)
	c.endClaim(u.release)
	return true
}

// caught calls f and returns its panic as an error.
func caught(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return f()
}
