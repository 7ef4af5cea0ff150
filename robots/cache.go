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
)

// CacheOptions say what a Cache asks, how much it keeps, and who else is concerned.
type CacheOptions struct {
	Fetch func(context.Context, Request) (*Snapshot, error) // required: Fetcher.Fetch; each Snapshot is a new one

	Store       Store                       // keeps what the memory drops and what a restart must not lose; if nil, nothing does
	Expiry      func(*Snapshot) time.Time   // of one from the Store, maybe fetched with other options: Fetcher.Expiry; if nil, as it says
	StoreFailed func(error)                 // is told of each call of Store that failed; may be nil
	Paused      func(host string) time.Time // until when a host wants no requests; if nil, or in the past, none is paused
	Changed     func(Change)                // is told of each robots.txt that is not what it was; may be nil

	// Spacing returns the least time from the end of a fetch for an origin to the start of one for another origin of its
	// host, given what counts after the fetch, which is nil if nothing is known. If nil, there is none.
	Spacing func(origin.Origin, *Snapshot) time.Duration
	MaxWait time.Duration // the longest wait for that; if zero, 150 s

	UnreachableAllows bool // what was unreachable for 30 days allows every path (RFC 9309 section 2.3.1.4); else it refuses

	MaxBytes   int64 // of memory for Snapshots; if zero, 256 MiB
	MaxFetches int   // at once; if zero, 1,024. A client alone gets 7/8 of them (see gate).
	MaxBodies  int   // that are read and compiled at once; if zero, 64. A client alone gets 7/8 of them.
	MaxQueue   int   // fetches that may wait; if zero, 20,000. If more come, the client with the most waiting gets ErrBusy.
}

// Cache holds the Snapshots of many origins: in memory, and in its Store. Each is fetched once, however many ask for it at
// the same time, and kept until it expires; one that is in use is renewed before. A failure is kept too, so that a dead
// origin is not asked for every request. Its methods may be called by many goroutines at once.
type Cache struct {
	options CacheOptions
	born    time.Time
	seed    maphash.Seed
	kept    *ristretto.Cache[uint64, *Snapshot]
	recent  recent
	flights flights
	judging flights       // those toJudge
	writing writers       // to the memory and the Store
	purges  atomic.Uint64 // so far
	outages outages
	saver   saver
	queue   *queue
	spacing spacing
	counts  counts

	life     context.Context // ends with Close, and with it every fetch
	end      context.CancelFunc
	saves    context.Context // ends a while after life, and with it every Save
	endSaves context.CancelFunc
	mu       sync.Mutex     // held to end life, and to add to busy
	busy     sync.WaitGroup // the flights and the saver
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
	if o.Expiry == nil {
		o.Expiry = func(s *Snapshot) time.Time { return s.Expires }
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
		NumCounters: min(max(o.MaxBytes/200, 1<<10), 4<<20), // ten for each Snapshot of 2 KiB
		MaxCost:     o.MaxBytes - forRecent, BufferItems: 64, IgnoreInternalCost: true,
		TtlTickerDurationInSec: 24 * 60 * 60, // what it would clean up are TTLs of its own, which nothing has here
	})
	if err != nil {
		return nil, fmt.Errorf("robots: making the cache: %w", err)
	}
	c := &Cache{
		options: o, born: time.Now(), seed: maphash.MakeSeed(), kept: kept, recent: newRecent(forRecent),
		queue: newQueue(o.MaxFetches, o.MaxBodies, runtime.GOMAXPROCS(0), o.MaxQueue),
		saver: newSaver(min(o.MaxBytes/4, saverBytes)),
	}
	c.life, c.end = context.WithCancel(context.Background())
	c.saves, c.endSaves = context.WithCancel(context.Background())
	return c, nil
}

// Close ends the fetches under way, waits for them, saves what waits to be saved, for two seconds at most, and frees the
// memory. No other method may be called during Close or after it.
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

// Snapshot returns o's robots.txt as it stands now, fetching it if no fresh copy is kept. The origin
// sees asker's token if this call begins the fetch. The error is that of ctx,
// of a guard that refuses o's address, of a failure on the way to every origin, a *LaterError, or ErrBusy.
func (c *Cache) Snapshot(ctx context.Context, o origin.Origin, asker Asker) (*Snapshot, error) {
	now := c.born.Add(time.Since(c.born)) // by the monotonic clock alone, which is half as dear as time.Now
	key := c.key(o)
	snap := c.inMemory(key, o)
	if snap == nil || !snap.freshAt(now) || !snap.countsFor(asker.Client) {
		return c.await(ctx, errand{origin: o, key: key, asker: asker, purpose: onExpiry})
	}
	c.counts.hits.Add(1)
	c.counts.served(snap)
	snap.use()
	if snap.dueAt(now) {
		c.start(errand{origin: o, key: key, asker: asker, purpose: early}, false) // what it fails with is met again when snap expires
	}
	return snap, nil
}

// ToJudge returns o's robots.txt, by which a redirect to a page of o is judged while the file of another origin is fetched:
// the copy that is kept if it is fresh, or what a fetch brings that waits for no other fetch of o's and follows no such
// redirect itself. The error is as that of Snapshot.
func (c *Cache) ToJudge(ctx context.Context, o origin.Origin, asker Asker) (*Snapshot, error) {
	return c.await(ctx, errand{origin: o, key: c.key(o), asker: asker, purpose: toJudge})
}

// Refresh asks o for its robots.txt now, by conditional request where a copy is kept, and returns what counts then. It
// shares a fetch that is under way. Its error is that of Snapshot.
func (c *Cache) Refresh(ctx context.Context, o origin.Origin) (*Snapshot, error) {
	return c.await(ctx, errand{origin: o, key: c.key(o), purpose: anyway})
}

// Peek returns what is kept of o, fresh or not, or ErrNoSnapshot. It asks no origin. It is for showing and not for judging:
// Rules is nil in what is not in memory, since to compile them takes longer than all else.
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

// Kept returns the copy of o in memory, fresh or not, and nil if there is none. It is for judging once more what was judged
// by a Snapshot before: it asks neither the Store nor the origin, and does not wait.
func (c *Cache) Kept(o origin.Origin) *Snapshot { return c.inMemory(c.key(o), o) }

// Used reports whether the Snapshot of o in memory has answered a look-up since the last call for o. A Store that drops what
// is not in use can ask it.
func (c *Cache) Used(o origin.Origin) bool {
	snap := c.inMemory(c.key(o), o)
	return snap != nil && snap.flags.And(^uint32(flagUsed))&flagUsed != 0
}

func (c *Cache) key(o origin.Origin) uint64 { return maphash.Comparable(c.seed, o) }

// inMemory returns the copy of o in memory, fresh or not; nil if there is none. Two origins may have one key, so the
// Snapshot's own is compared.
func (c *Cache) inMemory(key uint64, o origin.Origin) *Snapshot {
	if snap, ok := c.kept.Get(key); ok && snap.Origin == o {
		return snap
	}
	if snap := c.recent.get(o); snap != nil {
		return snap
	}
	return c.saver.get(o)
}

// remember takes snap into the memory. Ristretto may decline it, which costs those who ask next a read of the Store; but
// when this returns it has made up its mind, so that no older copy can come after.
func (c *Cache) remember(key uint64, snap *Snapshot) {
	c.recent.add(snap)
	c.kept.Set(key, snap, snap.size())
	c.kept.Wait()
}

// forget drops what the memory has of o.
func (c *Cache) forget(key uint64, o origin.Origin) {
	c.recent.remove(o)
	c.kept.Del(key)
	c.kept.Wait()
}
