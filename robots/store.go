package robots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// Store keeps one Snapshot of each origin after the process has ended. Its methods may be called concurrently. If they
// fail, a Cache fetches more often, but gives the same answers.
type Store interface {
	// Load returns the Snapshot that was last saved for o, or ErrNoSnapshot. Its Rules are nil. The caller may change
	// it.
	Load(ctx context.Context, o origin.Origin) (*Snapshot, error)

	// Save keeps s in place of the previous Snapshot of its origin, and c unless that is nil. It keeps both or neither.
	// It must not use s after it has returned.
	Save(ctx context.Context, s *Snapshot, c *Change) error

	// Delete removes the Snapshot of o, but not its changes. If there is none, Delete returns nil.
	Delete(ctx context.Context, o origin.Origin) error
}

// BatchStore is a Store that saves several Snapshots at less cost than one by one.
type BatchStore interface {
	Store

	// SaveAll calls Save for each entry, in this order. It keeps all of them or none.
	SaveAll(ctx context.Context, all []StoreEntry) error
}

// StoreEntry has the arguments of one Store.Save.
type StoreEntry struct {
	Snapshot *Snapshot
	Change   *Change // may be nil
}

// ErrStoreBusy is wrapped by the error of a Store if ctx has ended while the call waited for another call of this process.
// That is no failure of the Store.
var ErrStoreBusy = errors.New("robots: the store is in use by another call of this process")

// ErrNoSnapshot is the error of a Store that has no Snapshot of an origin.
var ErrNoSnapshot = errors.New("robots: no snapshot is kept")

// Change is a change of the state of a robots.txt, or of its body if both are good files.
type Change struct {
	Origin    origin.Origin
	Time      time.Time
	OldSHA256 string // of the body; empty if there was none
	NewSHA256 string
	OldState  string // see Snapshot.State
	NewState  string
	Why       string // the error of the new state, for our log; a Store does not keep it
}

// Version is one text that a robots.txt has had. A Store keeps versions beside the last Snapshot.
type Version struct {
	Origin    origin.Origin
	SHA256    string // of the body, in hexadecimal
	Size      int    // of the body, in bytes
	Status    int    // of the first response with it
	Redirects []string
	FirstSeen time.Time
	LastSeen  time.Time
}

// storePatience is how long a call of the Store may take. Callers wait for Load and Delete.
const storePatience = 5 * time.Second

// load reads the Snapshot of o from the Store. If ctx ends, it returns the error of ctx; it reports other failures to
// CacheOptions.StoreFailed.
func (c *Cache) load(ctx context.Context, o origin.Origin) (*Snapshot, error) {
	limited, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	snap, err := c.options.Load().Store.Load(limited, o)
	if err == nil && c.saver.outdated(snap) {
		err = ErrNoSnapshot
	}
	if err == nil && snap.Origin != o {
		err = fmt.Errorf("it is that of %s", snap.Origin)
	}
	if err == nil {
		now := time.Now()
		snap.Expires = now.Add(c.expiry(snap).Sub(now)) // by the monotonic clock: the wall clock may be set
		return snap, nil
	}
	err = fmt.Errorf("robots: loading the snapshot of %s: %w", o, err)
	if !errors.Is(err, ErrNoSnapshot) && ctx.Err() == nil {
		c.storeFailed(err)
	}
	return nil, err
}

// expiry returns when snap must be fetched again under the options of today.
func (c *Cache) expiry(snap *Snapshot) time.Time {
	expiry := c.options.Load().Expiry
	if snap.Stale || expiry == nil {
		return snap.Expires
	}
	return expiry(&snap.Answer)
}

// erase removes the origin of j. It changes the memory last, so that a Store that fails leaves all unchanged.
func (c *Cache) erase(j job) error {
	c.writing.Lock()
	c.purges.Add(1) // a job that began before this keeps nothing after it
	c.writing.Unlock()
	if err := c.deleteStored(j.origin); err != nil {
		err = fmt.Errorf("robots: deleting the snapshot of %s: %w", j.origin, err)
		c.storeFailed(err)
		return err
	}
	c.forget(j.key, j.origin)
	return nil
}

// deleteStored deletes o from the Store, and drops what waits to be saved of it.
func (c *Cache) deleteStored(o origin.Origin) error {
	c.saver.saving <- struct{}{}
	defer func() { <-c.saver.saving }()
	ctx, cancel := context.WithTimeout(c.life, storePatience)
	defer cancel()
	if err := c.options.Load().Store.Delete(ctx, o); err != nil {
		return err
	}
	for _, u := range c.saver.forget(o) {
		c.endClaim(u.release)
	}
	return nil
}

// storeFailed reports a failure of the Store.
func (c *Cache) storeFailed(err error) {
	if errors.Is(err, ErrStoreBusy) {
		return
	}
	c.counts.storeErrors.Add(1)
	c.options.Load().StoreFailed(err)
}

// noStore is the Store of a Cache without one.
type noStore struct{}

func (noStore) Load(context.Context, origin.Origin) (*Snapshot, error) { return nil, ErrNoSnapshot }
func (noStore) Save(context.Context, *Snapshot, *Change) error         { return nil }
func (noStore) Delete(context.Context, origin.Origin) error            { return nil }
