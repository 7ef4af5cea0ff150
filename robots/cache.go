package robots

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/ristretto/v2"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// CacheOptions are the options of a Cache.
type CacheOptions struct {
	// Fetch fetches a file: Fetcher.Fetch. It returns a new Answer each time. Required.
	Fetch func(context.Context, fetch.Request) (*Answer, error)

	// Store keeps Snapshots that leave the memory, and those of earlier processes. If nil, they are fetched again.
	Store Store
	// Expiry returns when an Answer from the Store must be fetched again, since it may have been fetched with other
	// options: Fetcher.Expiry. If nil, Answer.Expires counts.
	Expiry func(*Answer) time.Time
	// StoreFailed is called after each call of Store that failed. May be nil.
	StoreFailed func(error)
	// Paused returns the time until which no request should be sent to host. If nil, no host is paused.
	Paused func(host string) time.Time
	// Changed is called for each Change. May be nil.
	Changed func(Change)
	// Fetched is called after each call of Fetch, with its results and duration. May be nil.
	Fetched func(*Answer, error, time.Duration)

	// Spacing returns the least time from the end of a fetch for an origin to the start of one for another origin of
	// its host. The Snapshot is what counts after the fetch, or nil if that is not known. If Spacing is nil, there is
	// none.
	Spacing func(origin.Origin, *Snapshot) time.Duration
	// MaxWait is the longest wait because of Spacing, and that for a place to fetch if Asker.MaxWait is zero; the latter is
	// at least a second. If zero, 150 s.
	MaxWait time.Duration

	// UnreachableAllows says that a file that was unreachable for 30 days allows every path (RFC 9309 section 2.3.1.4).
	// If false, it disallows every path.
	UnreachableAllows bool

	// MaxBytes limits the memory of Snapshots. If zero, 256 MiB. Those that wait to be saved may take 16 MiB
	// more.
	MaxBytes int64
	// MaxFetches limits concurrent fetches. If zero, 1,024. As many again may last longer than a second, or be for hosts
	// whose last fetch failed. A client alone gets 7/8 of either: see gate.
	MaxFetches int
	// MaxBodies limits the files that are read and parsed at once. If zero, 64. A client alone gets 7/8 of them.
	MaxBodies int
	// MaxQueue limits waiting fetches. If zero, 20,000. Beyond that, the client with the most waiting fetches gets
	// ErrBusy.
	MaxQueue int
}

// Cache keeps the Snapshots of many origins in memory and in its Store. It fetches an origin once, however many callers
// ask for it at the same time, and keeps the Snapshot until it expires. A Snapshot in use is renewed before that.
// Failures are kept too, so that a dead origin is not asked for each request. The methods may be called concurrently.
type Cache struct {
	options  atomic.Pointer[CacheOptions]
	born     time.Time
	seed     atomic.Pointer[maphash.Seed]
	kept     *ristretto.Cache[uint64, *Snapshot]
	recent   recent
	inflight inflightPool
	judging  inflightPool  // with the purpose toJudge
	writing  sync.Mutex    // held to replace the Snapshot of an origin, since two jobs for it may run: one of each pool
	purges   atomic.Uint64 // number of purges
	outages  outages
	saver    saver
	queue    *queue
	counts   counts

	life     context.Context // of fetches; ended by Close
	end      context.CancelFunc
	saves    context.Context // of Store.Save; ended by Close, after lastPatience
	endSaves context.CancelFunc
	mu       sync.Mutex     // held to end life, and to add to busy
	busy     sync.WaitGroup // the jobs and saveAll
}

// NewCache returns a Cache whose memory is empty. It must be closed.
func NewCache(o CacheOptions) (*Cache, error) {
	if o.Fetch == nil {
		return nil, errors.New("robots: a Cache needs a Fetch")
	}
	setDefault(&o.MaxBytes, 256<<20)
	setDefault(&o.MaxFetches, 1024)
	setDefault(&o.MaxBodies, 64)
	setDefault(&o.MaxQueue, 20_000)
	setDefault(&o.MaxWait, 150*time.Second)
	if o.Store == nil {
		o.Store = noStore{}
	}
	if o.StoreFailed == nil {
		o.StoreFailed = func(error) {}
	}
	if o.Paused == nil {
		o.Paused = func(string) time.Time { return time.Time{} }
	}
	if o.Changed == nil {
		o.Changed = func(Change) {}
	}
	forRecent := min(o.MaxBytes/4, recentBytes)
	kept, err := ristretto.NewCache(&ristretto.Config[uint64, *Snapshot]{
		NumCounters: min(max(o.MaxBytes/200, 1<<10), 4<<20), // ten for each Snapshot of 2 KiB, as ristretto advises
		MaxCost:     o.MaxBytes - forRecent, BufferItems: 64, IgnoreInternalCost: true,
		TtlTickerDurationInSec: 24 * 60 * 60, // no entry has a TTL
	})
	if err != nil {
		return nil, fmt.Errorf("robots: making the cache: %w", err)
	}
	readers := storeReaders
	if _, shared := o.Store.(SharedStore); shared {
		readers = sharedReaders
	}
	c := &Cache{
		born: time.Now(), kept: kept, recent: newRecent(forRecent),
		queue: newQueue(o.MaxFetches, o.MaxBodies, runtime.GOMAXPROCS(0), readers, o.MaxQueue),
		saver: newSaver(saverBytes),
	}
	c.options.Store(&o)
	c.newSeed()
	c.life, c.end = context.WithCancel(context.Background())
	c.saves, c.endSaves = context.WithCancel(context.Background())
	return c, nil
}

// Reload replaces Fetch, Expiry, MaxWait and UnreachableAllows in the options, and keeps the others. The Snapshots in
// memory are read again from the Store when they are needed, so that Expiry applies to them. Fetches under way are not
// disturbed.
func (c *Cache) Reload(o CacheOptions) error {
	if o.Fetch == nil {
		return errors.New("robots: a Cache needs a Fetch")
	}
	setDefault(&o.MaxWait, 150*time.Second)
	now := *c.options.Load()
	now.Fetch, now.Expiry, now.MaxWait, now.UnreachableAllows = o.Fetch, o.Expiry, o.MaxWait, o.UnreachableAllows
	c.options.Store(&now)
	c.ForgetAll()
	return nil
}

// newSeed changes all keys, so that no Snapshot in ristretto is found any more. Ristretto removes those that are not
// used first.
func (c *Cache) newSeed() {
	seed := maphash.MakeSeed()
	c.seed.Store(&seed)
}

// Close ends the fetches under way, waits for them, saves what waits to be saved, for two seconds at most, and frees
// the memory. No other method may be called during Close or after it.
func (c *Cache) Close() {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	timer := time.AfterFunc(lastPatience, c.endSaves)
	c.busy.Wait()
	timer.Stop()
	c.endSaves()
	c.kept.Close()
}

// begin counts a job. It returns an error if the Cache is closed: a job may begin after its callers have left and Close
// was called.
func (c *Cache) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.life.Err(); err != nil {
		return err
	}
	c.busy.Add(1)
	return nil
}

// Snapshot returns the robots.txt of o. It fetches it, with the token of asker in User-Agent, if no fresh copy is kept.
// It returns the error of ctx; that of Options.Prohibited for the address of o; a *fetch.UpstreamError; a
// *fetch.LaterError; or ErrBusy.
func (c *Cache) Snapshot(ctx context.Context, o origin.Origin, asker Asker) (*Snapshot, error) {
	now := c.born.Add(time.Since(c.born)) // reads the monotonic clock only, in half the time of time.Now
	key := c.key(o)
	snap := c.inMemory(key, o)
	if snap == nil || !snap.freshAt(now) || !snap.countsFor(asker.Client) {
		return c.await(ctx, job{origin: o, key: key, asker: asker, purpose: onExpiry})
	}
	c.counts.hits.Add(1)
	c.counts.served(snap)
	snap.use()
	if snap.dueAt(now) {
		// If this fails, the first look-up after the expiry tries again.
		c.start(job{origin: o, key: key, asker: asker, purpose: early}, false)
	}
	return snap, nil
}

// ToJudge returns the robots.txt of o, which judges a redirect to a page of o during the fetch of another origin: a
// fresh copy, or the result of a fetch that does not wait for another fetch of o and does not follow such a redirect.
// It returns the errors of Snapshot.
func (c *Cache) ToJudge(ctx context.Context, o origin.Origin, asker Asker) (*Snapshot, error) {
	return c.await(ctx, job{origin: o, key: c.key(o), asker: asker, purpose: toJudge})
}

// Refresh asks o for its robots.txt now and returns what counts then. The request is conditional if a copy is kept. A
// fetch under way is shared. Refresh returns the errors of Snapshot.
func (c *Cache) Refresh(ctx context.Context, o origin.Origin) (*Snapshot, error) {
	return c.await(ctx, job{origin: o, key: c.key(o), purpose: anyway})
}

// Peek returns the Snapshot that is kept of o, fresh or not, or ErrNoSnapshot. It does not fetch. If the Snapshot is
// not in memory, its Rules are nil: it is for display, and to parse takes longest.
func (c *Cache) Peek(ctx context.Context, o origin.Origin) (*Snapshot, error) {
	if snap := c.inMemory(c.key(o), o); snap != nil {
		return snap, nil
	}
	snap, err := c.load(ctx, o)
	if err != nil {
		return nil, err
	}
	return snap.schedule(), nil
}

// Kept returns the Snapshot of o in memory, fresh or not, or nil. It does not wait. It is for a request that was judged
// by an earlier Snapshot and is judged again.
func (c *Cache) Kept(o origin.Origin) *Snapshot { return c.inMemory(c.key(o), o) }

// Used reports whether the Snapshot of o in memory has answered a look-up since the last call for o. A Store that
// removes unused Snapshots can call it.
func (c *Cache) Used(o origin.Origin) bool {
	snap := c.inMemory(c.key(o), o)
	return snap != nil && snap.marks.And(^uint32(markUsed))&markUsed != 0
}

func (c *Cache) key(o origin.Origin) uint64 { return maphash.Comparable(*c.seed.Load(), o) }

// inMemory returns the Snapshot of o in memory, fresh or not, or nil. It compares origins, since two may have one key.
func (c *Cache) inMemory(key uint64, o origin.Origin) *Snapshot {
	if snap, ok := c.kept.Get(key); ok && snap.Origin == o {
		return snap
	}
	if snap := c.recent.get(o); snap != nil {
		return snap
	}
	return c.saver.get(o)
}

// remember adds snap to the memory. Ristretto may decline it; then later look-ups read the Store. When remember
// returns, ristretto has decided, so that it cannot add an older Snapshot later.
func (c *Cache) remember(key uint64, snap *Snapshot) {
	c.recent.add(snap)
	c.kept.Set(key, snap, snap.size())
	c.kept.Wait()
}

// forget removes o from the memory.
func (c *Cache) forget(key uint64, o origin.Origin) {
	c.recent.remove(o)
	c.kept.Del(key)
	c.kept.Wait()
}

func setDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}
