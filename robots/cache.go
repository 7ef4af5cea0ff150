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
	Fetch      func(context.Context, origin.Origin) (*Snapshot, error) // required: Fetcher.Fetch
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
	kept, err := ristretto.NewCache(&ristretto.Config[uint64, *Snapshot]{
		NumCounters: min(max(o.MaxBytes/200, 1<<10), 4<<20), // ten for each Snapshot of 2 KiB
		MaxCost:     o.MaxBytes, BufferItems: 64, IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, fmt.Errorf("robots: making the cache: %w", err)
	}
	c := &Cache{options: o, seed: maphash.MakeSeed(), kept: kept, slots: make(chan struct{}, o.MaxFetches)}
	c.life, c.end = context.WithCancel(context.Background())
	return c, nil
}

// Close ends the fetches under way and frees the memory. No other method may be called after it.
func (c *Cache) Close() {
	c.end()
	c.busy.Wait()
	c.kept.Close()
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
	c.busy.Add(1)
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
	s.failures = before.failures + 1
	ttl := s.Expires.Sub(s.Fetched)
	for range min(s.failures-1, 16) {
		if ttl >= longestError {
			return
		}
		ttl = min(2*ttl, longestError)
	}
	s.Expires = s.Fetched.Add(ttl)
}

// recent holds the newest Snapshots beside ristretto, which declines some that it thinks little of. Without it a busy host
// that was declined would be asked for its robots.txt at every request. The zero value is empty.
type recent struct {
	mu    sync.RWMutex // guards what follows
	at    map[origin.Origin]*Snapshot
	queue []origin.Origin // in the order in which they came
	bytes int64
}

// Bounds of recent, whichever is met first.
const (
	recentCount = 256
	recentBytes = 8 << 20
)

func (r *recent) get(o origin.Origin) *Snapshot {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.at[o]
}

func (r *recent) add(snap *Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == nil {
		r.at = make(map[origin.Origin]*Snapshot, recentCount)
	}
	if old, known := r.at[snap.Origin]; known {
		r.bytes -= old.size()
	} else {
		r.queue = append(r.queue, snap.Origin)
	}
	r.at[snap.Origin] = snap
	r.bytes += snap.size()
	for len(r.queue) > recentCount || r.bytes > recentBytes {
		oldest := r.queue[0]
		r.queue = r.queue[1:]
		r.bytes -= r.at[oldest].size()
		delete(r.at, oldest)
	}
}
