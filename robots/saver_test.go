package robots_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// TestUnsaved lists the origins that wait to be saved, until they are saved or purged.
func TestUnsaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		store := newShelf()
		store.setBefore(func(ctx context.Context, call string) error {
			if call == "Save" {
				select {
				case <-release:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
		c := newCache(t, robots.CacheOptions{Fetch: finds, Store: store})
		a, b := mustOrigin(t, "http://a.example"), mustOrigin(t, "http://b.example")
		lookUp(t, c, a)
		lookUp(t, c, b)
		if got := c.Unsaved(); len(got) != 2 {
			t.Errorf("a locked file leaves %v unsaved, want %v and %v", got, a, b)
		}
		if err := c.Purge(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got := c.Unsaved(); len(got) != 1 || got[0] != a {
			t.Errorf("%v are unsaved after %v was purged, want %v", got, b, a)
		}
		close(release)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := c.Unsaved(); len(got) != 0 || store.kept[a] == nil || store.kept[b] != nil {
			t.Errorf("%v are unsaved after all was saved or purged; the Store has %v", got, store.kept)
		}
	})
}

// TestLostIsNotOlder has a file change that cannot be saved, and leave the memory: the older one does not count again,
// not even while its origin is down. When the Store works again, it is given the latest, and read again.
func TestLostIsNotOlder(t *testing.T) {
	third := has("User-agent: *\nDisallow: /open/third\n")
	for name, then := range map[string]func(*robots.Answer){"it changes again": third, "it is down": down} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var full atomic.Bool
				site := &scripted{say: has(file)}
				store := onDisk(&full)
				c := newCache(t, robots.CacheOptions{Fetch: site.fetch, Store: store, MaxBytes: 1 << 10})
				o := mustOrigin(t, "http://a.example")
				lookUp(t, c, o)
				synctest.Wait()
				full.Store(true)
				site.say = has("User-agent: *\nDisallow: /open\n")
				if _, err := c.Refresh(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				for i := range 300 {
					lookUp(t, c, mustOrigin(t, fmt.Sprintf("http://h%d.example", i)))
				}
				synctest.Wait()
				asked := site.asked
				site.say = then
				if snap := lookUp(t, c, o); allowed(snap, "/open/third") || site.asked != asked+1 {
					t.Errorf("Snapshot = %s after %d fetches, want what the origin has after one", outline(snap), site.asked-asked)
				}
				synctest.Wait()
				site.say = third
				full.Store(false)
				if _, err := c.Refresh(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if got := store.kept[o].SHA256; got != "of /open/third" {
					t.Errorf("the Store has the text %q, want that of the origin", got)
				}
				for i := range 300 {
					lookUp(t, c, mustOrigin(t, fmt.Sprintf("http://i%d.example", i)))
				}
				hits := c.Stats().StoreHits
				if lookUp(t, c, o); c.Stats().StoreHits != hits+1 {
					t.Error("what the Store was given is not read")
				}
			})
		})
	}
}

// onDisk is a Store whose Save fails while the disk is full.
func onDisk(full *atomic.Bool) *shelf {
	store := newShelf()
	store.setBefore(func(_ context.Context, call string) error {
		if full.Load() && call == "Save" {
			return errors.New("the disk is full")
		}
		return nil
	})
	return store
}

// TestSlowSaveCostsNoFetch has one Save take too long, and far more origins than fit the memory: none is fetched twice.
func TestSlowSaveCostsNoFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var saves atomic.Int64
		store := newShelf()
		store.setBefore(func(ctx context.Context, call string) error {
			if call == "Save" && saves.Add(1) == 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		})
		c := newCache(t, robots.CacheOptions{Store: store, MaxBytes: 2 << 20, Fetch: func(_ context.Context, r fetch.Request) (*robots.Answer, error) {
			return found(r.Origin, ownFile(r.Origin, 3000), 24*time.Hour), nil
		}})
		for range 2 {
			for i := range 1000 {
				o := mustOrigin(t, fmt.Sprintf("http://h%d.example", i))
				checkOwn(t, lookUp(t, c, o), o)
				time.Sleep(10 * time.Millisecond)
			}
		}
		if got := c.Stats(); got.Fetches != 1000 || len(store.kept) != 1000 {
			t.Errorf("%d fetches of 1000 origins, %d are kept; %+v", got.Fetches, len(store.kept), got)
		}
	})
}

// TestCloseSaves closes a Cache while a Snapshot waits to be saved.
func TestCloseSaves(t *testing.T) {
	for name, takes := range map[string]time.Duration{"a slow Store": 100 * time.Millisecond, "one that hangs": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newShelf()
				store.setBefore(func(ctx context.Context, _ string) error {
					select {
					case <-time.After(takes):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				})
				o := mustOrigin(t, "http://a.example")
				c, err := robots.NewCache(robots.CacheOptions{Fetch: finds, Store: store})
				if err != nil {
					t.Fatal(err)
				}
				lookUp(t, c, o)
				begin := time.Now()
				c.Close()
				if got := time.Since(begin); got > 2*time.Second {
					t.Errorf("Close took %v, want two seconds at most", got)
				}
				if saved := store.kept[o] != nil; saved != (takes < time.Second) {
					t.Errorf("saved: %t", saved)
				}
			})
		})
	}
}

// TestChangesAreSavedInOrder has a file change twice before the first change is saved.
func TestChangesAreSavedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site, store := &scripted{say: has(file)}, newShelf()
		store.setBefore(func(context.Context, string) error { time.Sleep(100 * time.Millisecond); return nil })
		c := newCache(t, robots.CacheOptions{Fetch: site.fetch, Store: store})
		o := mustOrigin(t, "http://a.example")
		for _, body := range []string{file, "User-agent: *\nDisallow: /second\n", "User-agent: *\nDisallow: /third\n"} {
			site.say = has(body)
			if _, err := c.Refresh(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		var got string
		for _, change := range store.changes {
			got += change.OldSHA256 + " -> " + change.NewSHA256 + "; "
		}
		if want := "of /private -> of /second; of /second -> of /third; "; got != want || store.kept[o].SHA256 != "of /third" {
			t.Errorf("the changes kept are %q, want %q; the text is %q", got, want, store.kept[o].Body)
		}
	})
}

// TestSaverWhileBusy has crawlers, an operator and a Store that fails now and then at the same time.
func TestSaverWhileBusy(t *testing.T) {
	var calls atomic.Int64
	store := newShelf()
	store.setBefore(func(context.Context, string) error {
		if calls.Add(1)%3 == 0 {
			return errors.New("now and then")
		}
		return nil
	})
	c := newCache(t, robots.CacheOptions{Store: store, MaxBytes: 64 << 10, Fetch: func(_ context.Context, r fetch.Request) (*robots.Answer, error) {
		return found(r.Origin, ownFile(r.Origin, 500), 24*time.Hour), nil
	}})
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range 400 {
				o := mustOrigin(t, fmt.Sprintf("http://h%d.example", (i*7+worker)%150))
				switch i % 20 {
				case 0:
					_ = c.Purge(t.Context(), o) // it may fail as the Store does
				case 1:
					_, _ = c.Refresh(t.Context(), o)
				default:
					checkOwn(t, lookUp(t, c, o), o)
				}
			}
		})
	}
	all.Wait()
}

// batches is a shelf that saves several Snapshots at once. A batch with the origin bad, or a Save of it, fails.
type batches struct {
	*shelf
	bad     origin.Origin
	largest int
}

func (b *batches) Save(ctx context.Context, snap *robots.Snapshot, c *robots.Change) error {
	if snap.Origin == b.bad {
		return errors.New("it cannot be saved")
	}
	return b.shelf.Save(ctx, snap, c)
}

func (b *batches) SaveAll(ctx context.Context, all []robots.StoreEntry) error {
	if err := b.call(ctx, "SaveAll"); err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(e robots.StoreEntry) bool { return e.Snapshot.Origin == b.bad }) {
		return errors.New("one cannot be saved")
	}
	for _, e := range all {
		if err := b.shelf.Save(ctx, e.Snapshot, e.Change); err != nil {
			return err
		}
	}
	b.largest = max(b.largest, len(all))
	return nil
}

// TestBatches has a thousand files wait for a Save: they are saved a hundred at once, and one that cannot be saved costs
// no other.
func TestBatches(t *testing.T) {
	const n = 1000
	synctest.Test(t, func(t *testing.T) {
		store := &batches{shelf: newShelf(), bad: mustOrigin(t, "http://h500.example")}
		release := make(chan struct{})
		store.setBefore(func(_ context.Context, call string) error {
			if call == "Save" {
				<-release
			}
			return nil
		})
		var told []error
		c := newCache(t, robots.CacheOptions{Fetch: finds, Store: store, StoreFailed: func(err error) { told = append(told, err) }})
		for i := range n {
			lookUp(t, c, mustOrigin(t, fmt.Sprintf("http://h%d.example", i)))
		}
		close(release)
		synctest.Wait()
		if len(store.kept) != n-1 || store.largest < 90 || store.called("SaveAll") > n/50 {
			t.Errorf("%d are kept, %d at once at most, with %d batches; want %d, about 100", len(store.kept), store.largest, store.called("SaveAll"), n-1)
		}
		if len(told) != 1 || len(c.Unsaved()) != 0 {
			t.Errorf("told of %v, %d wait; want one failure, none", told, len(c.Unsaved()))
		}
	})
}

// TestBusyStoreIsNoFailure has a Save wait for another call of this process for longer than a Save may take. It is
// repeated, and no failure is told.
func TestBusyStoreIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &batches{shelf: newShelf()}
		begin := time.Now()
		store.setBefore(func(ctx context.Context, call string) error {
			if call == "Load" || time.Since(begin) > time.Minute {
				return nil
			}
			<-ctx.Done()
			return fmt.Errorf("%w: %w", robots.ErrStoreBusy, ctx.Err())
		})
		c := newCache(t, robots.CacheOptions{Fetch: finds, Store: store, StoreFailed: func(err error) { t.Error(err) }})
		for i := range 10 {
			lookUp(t, c, mustOrigin(t, fmt.Sprintf("http://h%d.example", i)))
		}
		time.Sleep(2 * time.Minute)
		if got := c.Stats().StoreErrors; len(store.kept) != 10 || got != 0 {
			t.Errorf("%d are kept, %d errors; want 10, none", len(store.kept), got)
		}
	})
}

// TestPlaceIsLeftBeforeSave has one place for fetches and one for bodies, and a Store that hangs at Save.
func TestPlaceIsLeftBeforeSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newShelf()
		store.setBefore(func(ctx context.Context, call string) error {
			if call == "Save" {
				<-ctx.Done()
			}
			return ctx.Err()
		})
		c := newCache(t, robots.CacheOptions{Fetch: finds, Store: store, MaxFetches: 1, MaxBodies: 1})
		begin := time.Now()
		for i := range 10 {
			lookUp(t, c, mustOrigin(t, fmt.Sprintf("http://h%d.example", i)))
		}
		if took := time.Since(begin); took > 0 || len(c.Unsaved()) != 10 {
			t.Errorf("ten look-ups took %v with %d unsaved; want no wait for the Store, and 10", took, len(c.Unsaved()))
		}
	})
}
