package robots

import (
	"context"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// SharedStore is a Store that the Caches of several processes share, so that one of them fetches a file for all. A
// Cache that has claimed a fetch looks into the Store once more before it asks the origin.
type SharedStore interface {
	Store

	// Claim claims the fetch of o, unless another Cache has claimed it. If claimed, the caller must call release after
	// the Save, or after a fetch without a result. If the process dies, its claim ends after some seconds. If the Store
	// fails, the fetch is claimed.
	Claim(ctx context.Context, o origin.Origin) (release func(), claimed bool)

	// AwaitClaim returns after the claim of another Cache for o has ended, or if the Store fails or ctx ends.
	AwaitClaim(ctx context.Context, o origin.Origin)
}

// enterAlone waits for a place in the queue, and until no other process fetches the file of f. It holds no place
// meanwhile: the other fetch may follow a redirect that a file judges which needs this place. It returns the Snapshot
// that is kept now, and whether it is enough.
func (c *Cache) enterAlone(ctx context.Context, f *inflight, before *Snapshot) (_ *Snapshot, enough bool, err error) {
	for {
		if err := c.enter(ctx, f.pass, f.origin, before); err != nil {
			return before, false, err
		}
		if before, enough = c.lookAgain(ctx, f, before); enough {
			return before, true, nil
		}
		store, shared := c.options.Load().Store.(SharedStore)
		if !shared || f.purpose == toJudge { // a fetch that holds a claim may wait for this one
			return before, false, nil
		}
		release, claimed := store.Claim(ctx, f.origin)
		if claimed {
			f.release = release
			before, enough = c.lookShared(ctx, f, before)
			return before, enough, nil
		}
		f.pass.end()
		store.AwaitClaim(ctx, f.origin)
	}
}

// lookAgain looks into the memory if the job that had the turn before f has changed it.
func (c *Cache) lookAgain(ctx context.Context, f *inflight, before *Snapshot) (_ *Snapshot, enough bool) {
	c.writing.Lock() // that job may still write
	now := c.inMemory(f.key, f.origin)
	c.writing.Unlock()
	if now == f.seen {
		return before, false
	}
	f.seen = now
	return c.look(ctx, f)
}

// lookShared looks for a Snapshot that another process has saved since f began.
func (c *Cache) lookShared(ctx context.Context, f *inflight, before *Snapshot) (_ *Snapshot, enough bool) {
	stored := c.loadInTurn(ctx, f)
	if stored == nil || before != nil && !stored.Fetched.After(before.Fetched) {
		return before, false
	}
	if err := f.pass.parse(ctx, func() { stored.prepare() }); err != nil {
		return before, false
	}
	if !stored.enoughFor(f.job) {
		return stored, false
	}
	c.counts.storeHits.Add(1)
	c.rememberFor(f, stored)
	return stored, true
}

// rememberFor adds snap to the memory, unless Forget was called for it since f began.
func (c *Cache) rememberFor(f *inflight, snap *Snapshot) {
	c.remember(f.key, snap)
	if snap.Fetched.UnixNano() < f.outdated.Load() {
		c.forget(f.key, f.origin)
	}
}

// endClaim calls release in the background, unless it is nil. Only jobs and saveAll call it, since c.busy must not be
// zero.
func (c *Cache) endClaim(release func()) {
	if release != nil {
		c.busy.Go(release)
	}
}

// ForgetAll removes all Snapshots from the memory, so that the next look-ups read the Store.
func (c *Cache) ForgetAll() {
	now := time.Now()
	c.inflight.outdateAll(now)
	c.judging.outdateAll(now)
	c.newSeed()
	c.recent.clear()
}

// Forget removes the Snapshot of o from the memory if it was fetched before the given time, so that the next look-up
// reads the Store. It is for a Snapshot that another process has replaced or removed there.
func (c *Cache) Forget(o origin.Origin, before time.Time) {
	c.inflight.outdate(o, before)
	c.judging.outdate(o, before)
	key := c.key(o)
	if snap := c.inMemory(key, o); snap != nil && snap.Fetched.Before(before) {
		c.forget(key, o)
	}
}
