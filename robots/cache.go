package robots

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/ristretto/v2"
	"golang.org/x/sync/singleflight"

	"github.com/robotsproxy/robotsproxy/origin"
)

// CacheOptions say what a Cache asks and how much it keeps.
type CacheOptions struct {
	Fetch      func(context.Context, origin.Origin) (*Snapshot, error) // required: Fetcher.Fetch; each Snapshot is a new one
	MaxBytes   int64                                                   // of memory for Snapshots; if zero, 256 MiB
	MaxFetches int                                                     // at once, for all origins; if zero, 64
}

// Cache holds the Snapshots of many origins. Each is fetched once, however many ask for it at the same time, and kept until
// it expires; a failure is kept too, so that a dead origin is not asked for every request. Its methods may be called by
// many goroutines at once.
type Cache struct {
	options CacheOptions
	seed    maphash.Seed
	kept    *ristretto.Cache[uint64, *Snapshot]
	recent  recent
	flights singleflight.Group
	slots   chan struct{} // one for each fetch that may run

	life context.Context // ends with Close, and with it every fetch
	end  context.CancelFunc
	mu   sync.Mutex     // held to end life, and to add to busy
	busy sync.WaitGroup // the flights

	hits, fetches, failures atomic.Uint64
}

// Stats are counts since the Cache was made.
type Stats struct {
	Hits     uint64 // look-ups that were answered from memory
	Fetches  uint64 // flights to an origin
	Failures uint64 // of those, the ones that left the origin Unreachable
}

// NewCache returns an empty Cache. It must be closed.
func NewCache(o CacheOptions) (*Cache, error) {
	if o.Fetch == nil {
		return nil, errors.New("robots: a Cache needs a Fetch")
	}
	setDefault(&o.MaxBytes, 256<<20)
	setDefault(&o.MaxFetches, 64)
	forRecent := min(o.MaxBytes/4, recentBytes)
	kept, err := ristretto.NewCache(&ristretto.Config[uint64, *Snapshot]{
		NumCounters: min(max(o.MaxBytes/200, 1<<10), 4<<20), // ten for each Snapshot of 2 KiB
		MaxCost:     o.MaxBytes - forRecent, BufferItems: 64, IgnoreInternalCost: true,
		TtlTickerDurationInSec: 24 * 60 * 60, // what it would clean up are TTLs of its own, which nothing has here
	})
	if err != nil {
		return nil, fmt.Errorf("robots: making the cache: %w", err)
	}
	c := &Cache{options: o, seed: maphash.MakeSeed(), kept: kept, recent: newRecent(forRecent), slots: make(chan struct{}, o.MaxFetches)}
	c.life, c.end = context.WithCancel(context.Background())
	return c, nil
}

// Close ends the fetches under way, waits for them and frees the memory. No other method may be called meanwhile or after.
func (c *Cache) Close() {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	c.busy.Wait()
	c.kept.Close()
}

// begin counts a flight, or says that the Cache is closed: a flight whose callers have all left may begin after that.
func (c *Cache) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.life.Err(); err != nil {
		return err
	}
	c.busy.Add(1)
	return nil
}

// Stats returns the counts so far.
func (c *Cache) Stats() Stats {
	return Stats{Hits: c.hits.Load(), Fetches: c.fetches.Load(), Failures: c.failures.Load()}
}

// Snapshot returns o's robots.txt as it stands now, fetching it if no fresh copy is kept. Its error is that of ctx, or of a
// guard that refuses o's address.
func (c *Cache) Snapshot(ctx context.Context, o origin.Origin) (*Snapshot, error) {
	return c.snapshot(ctx, o, time.Now())
}

func (c *Cache) snapshot(ctx context.Context, o origin.Origin, now time.Time) (*Snapshot, error) {
	key := maphash.Comparable(c.seed, o)
	if snap := c.fresh(key, o, now); snap != nil {
		c.hits.Add(1)
		return snap, nil
	}
	// The flight is everybody's: that one caller leaves must not end it, so it does not see ctx.
	result := c.flights.DoChan(o.String(), func() (any, error) { return c.fly(key, o) })
	select {
	case r := <-result:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*Snapshot), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("robots: waiting for %s: %w", o, ctx.Err())
	}
}

// fresh returns the kept copy of o if it has not expired.
func (c *Cache) fresh(key uint64, o origin.Origin, now time.Time) *Snapshot {
	if snap := c.copy(key, o); snap != nil && now.Before(snap.Expires) {
		return snap
	}
	return nil
}

// copy returns the kept copy of o, fresh or not. Two origins may have one key, so the Snapshot's own is compared.
func (c *Cache) copy(key uint64, o origin.Origin) *Snapshot {
	if snap, ok := c.kept.Get(key); ok && snap.Origin == o {
		return snap
	}
	return c.recent.get(o)
}

// fly fetches o's file for all who wait for it. What it returns is what they get: ristretto may drop a Set or carry it out
// later, so nothing is ever read back from it here.
//
// It looks again first. Otherwise: A and B miss; A's flight lands and is forgotten; B, who was slower, begins another.
func (c *Cache) fly(key uint64, o origin.Origin) (snap *Snapshot, err error) {
	if err := c.begin(); err != nil {
		return nil, fmt.Errorf("robots: fetching for %s: %w", o, err)
	}
	defer c.busy.Done()
	defer func() {
		if v := recover(); v != nil {
			snap, err = nil, fmt.Errorf("robots: fetching for %s: panic: %v", o, v)
		}
	}()
	if snap := c.fresh(key, o, time.Now()); snap != nil {
		return snap, nil
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-c.life.Done():
		return nil, fmt.Errorf("robots: fetching for %s: %w", o, c.life.Err())
	}
	c.fetches.Add(1)
	if snap, err = c.options.Fetch(c.life, o); err != nil {
		return nil, err
	}
	if snap.Availability == Unreachable {
		c.failures.Add(1)
		snap.postpone(c.copy(key, o))
	}
	c.recent.add(snap)
	c.kept.Set(key, snap, snap.size())
	return snap, nil
}

// longestError is how long a failure is kept at the most, unless the origin itself asked for more.
const longestError = 30 * time.Minute

// postpone doubles the lifetime of a failure for each one before it in a row. It runs before s is anybody else's.
func (s *Snapshot) postpone(before *Snapshot) {
	if before == nil || before.Availability != Unreachable {
		return
	}
	s.failures = min(before.failures+1, 16) // 16 doublings of a day still fit a Duration
	asked := s.Expires.Sub(s.Fetched)
	s.Expires = s.Fetched.Add(max(asked, min(asked<<s.failures, longestError)))
}
