package robots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// Store keeps one Snapshot of each origin where it outlives the process. Its methods may be called by many goroutines at
// once. A Store that fails costs fetches and never an answer.
type Store interface {
	// Load returns what was last saved for o, or ErrNoSnapshot. Rules is nil, and the Snapshot is the caller's own.
	Load(ctx context.Context, o origin.Origin) (*Snapshot, error)

	// Save keeps s in the place of what was kept of its origin, and c, unless it is nil, for those who ask later what
	// changed. Both are kept or neither. It may not keep hold of s.
	Save(ctx context.Context, s *Snapshot, c *Change) error

	// Delete forgets o, but not what changed. To forget what is not kept is no error.
	Delete(ctx context.Context, o origin.Origin) error
}

// ErrNoSnapshot is what a Store returns for an origin of which it keeps nothing.
var ErrNoSnapshot = errors.New("robots: no snapshot is kept")

// Change says that an origin's robots.txt is not what it was: another state, or another body where one is kept.
type Change struct {
	Origin    origin.Origin
	Time      time.Time
	OldSHA256 string // of the body; empty where there was none
	NewSHA256 string
	OldState  string // as Snapshot.State says it
	NewState  string
	Why       string // for our log: what the trouble is that the new state is, or comes of; a Store does not keep it
}

// storePatience is how long a call of Load or Delete may take. Callers wait for it.
const storePatience = 5 * time.Second

// load reads o's Snapshot from the Store. Its error may be that of ctx; what else fails is told.
func (c *Cache) load(ctx context.Context, o origin.Origin) (*Snapshot, error) {
	limited, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	snap, err := c.options.Store.Load(limited, o)
	if err == nil && c.saver.outdated(snap) {
		err = ErrNoSnapshot
	}
	if err == nil && snap.Origin != o {
		err = fmt.Errorf("it is that of %s", snap.Origin)
	}
	if err == nil {
		now := time.Now()
		snap.Expires = now.Add(c.options.Expiry(snap).Sub(now)) // from here on by the monotonic clock: ours may be set
		return snap, nil
	}
	err = fmt.Errorf("robots: loading the snapshot of %s: %w", o, err)
	if !errors.Is(err, ErrNoSnapshot) && ctx.Err() == nil {
		c.storeFailed(err)
	}
	return nil, err
}

// erase forgets e's origin. The memory goes last, so that it keeps what a Store that fails does not forget.
func (c *Cache) erase(e errand) error {
	defer c.writing.enter(e.origin)()
	c.purges.Add(1)
	if err := c.deleteStored(e.origin); err != nil {
		err = fmt.Errorf("robots: deleting the snapshot of %s: %w", e.origin, err)
		c.storeFailed(err)
		return err
	}
	c.forget(e.key, e.origin)
	return nil
}

// deleteStored deletes o from the Store, and stops the Saves of o that wait.
func (c *Cache) deleteStored(o origin.Origin) error {
	c.saver.saving <- struct{}{}
	defer func() { <-c.saver.saving }()
	ctx, cancel := context.WithTimeout(c.life, storePatience)
	defer cancel()
	err := c.options.Store.Delete(ctx, o)
	c.saver.forget(o, err)
	return err
}

func (c *Cache) storeFailed(err error) {
	c.counts.storeErrors.Add(1)
	c.options.StoreFailed(err)
}

// noStore is in the place of a Store where there is none.
type noStore struct{}

func (noStore) Load(context.Context, origin.Origin) (*Snapshot, error) { return nil, ErrNoSnapshot }
func (noStore) Save(context.Context, *Snapshot, *Change) error         { return nil }
func (noStore) Delete(context.Context, origin.Origin) error            { return nil }
