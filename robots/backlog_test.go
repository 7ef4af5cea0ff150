package robots_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/robots"
)

// TestUnsaved has a Store fail and recover: what it lacks is known, until it is saved or forgotten.
func TestUnsaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		full.Store(true)
		store := onDisk(&full)
		c := newCache(t, robots.CacheOptions{Fetch: finds, Store: store})
		a, b := mustOrigin(t, "http://a.example"), mustOrigin(t, "http://b.example")
		lookUp(t, c, a)
		lookUp(t, c, b)
		if got := c.Unsaved(); len(got) != 2 {
			t.Errorf("a full disk leaves %v unsaved, want %v and %v", got, a, b)
		}
		full.Store(false)
		if _, err := c.Refresh(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if got := c.Unsaved(); len(got) != 1 || got[0] != b {
			t.Errorf("%v are unsaved after %v was saved, want %v", got, a, b)
		}
		if err := c.Purge(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got := c.Unsaved(); len(got) != 0 {
			t.Errorf("%v are unsaved after all was saved or purged", got)
		}
	})
}

// TestUnsavedWhileLocked has those noted too of which no Save is tried, and no more of them than the bound.
func TestUnsavedWhileLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newShelf()
		store.before = func(ctx context.Context, call string) error {
			if call == "Save" {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		c := newCache(t, robots.CacheOptions{Fetch: finds, Store: store, MaxBytes: 1 << 10})
		for i := range 10_050 {
			lookUp(t, c, mustOrigin(t, fmt.Sprintf("http://h%d.example", i)))
			if i == 10 && len(c.Unsaved()) != 11 {
				t.Errorf("%d of 11 are noted", len(c.Unsaved()))
			}
		}
		if got := len(c.Unsaved()); got != 10_000 {
			t.Errorf("%d are noted, want 10,000", got)
		}
	})
}

// TestUnsavedIsNotOlder has a file change that cannot be saved, and leave the memory: the older one does not count again, not
// even while its origin is down. When the Store works again, it hears of what has changed since.
func TestUnsavedIsNotOlder(t *testing.T) {
	third := has("User-agent: *\nDisallow: /open/third\n")
	for name, then := range map[string]func(*robots.Snapshot){"it changes again": third, "it is down": down} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var full atomic.Bool
				site := &scripted{say: has(file)}
				store := onDisk(&full)
				c := newCache(t, robots.CacheOptions{Fetch: site.fetch, Store: store, MaxBytes: 1 << 10})
				o := mustOrigin(t, "http://a.example")
				lookUp(t, c, o)
				full.Store(true)
				site.say = has("User-agent: *\nDisallow: /open\n")
				if _, err := c.Refresh(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				for i := range 300 {
					lookUp(t, c, mustOrigin(t, fmt.Sprintf("http://h%d.example", i)))
				}
				asked := site.asked
				site.say = then
				if snap := lookUp(t, c, o); allowed(snap, "/open/third") || site.asked != asked+1 {
					t.Errorf("Snapshot = %s after %d fetches, want what the origin has after one", outline(snap), site.asked-asked)
				}
				site.say = third
				full.Store(false)
				if _, err := c.Refresh(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				if n := len(store.changes); n != 1 || store.changes[0].OldSHA256 != "of /private" || store.changes[0].NewSHA256 != "of /open/third" {
					t.Errorf("the changes kept are %v, want one: from what the Store had to what the origin has", store.changes)
				}
			})
		})
	}
}

// onDisk is a Store whose Save fails while the disk is full.
func onDisk(full *atomic.Bool) *shelf {
	store := newShelf()
	store.before = func(_ context.Context, call string) error {
		if full.Load() && call == "Save" {
			return errors.New("the disk is full")
		}
		return nil
	}
	return store
}

// TestBacklog has a Store fail for ten seconds. What it could not take it is given a moment later, though nobody asks.
func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		full.Store(true)
		store := onDisk(&full)
		c := newCache(t, robots.CacheOptions{Fetch: finds, Store: store})
		for i := range 50 {
			lookUp(t, c, mustOrigin(t, fmt.Sprintf("http://h%d.example", i)))
		}
		time.Sleep(10 * time.Second)
		if got := store.called("Save"); got > 61 {
			t.Errorf("%d calls of Save for 50 origins in ten seconds, want one more a second at most", got)
		}
		full.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(store.kept) != 50 || len(c.Unsaved()) != 0 {
			t.Errorf("%d of 50 are kept, and %d late", len(store.kept), len(c.Unsaved()))
		}
		calls := store.called("Save")
		time.Sleep(time.Hour)
		if got := store.called("Save"); got != calls {
			t.Errorf("%d calls of Save after all was kept", got-calls)
		}
	})
}

// TestBacklogCounts has one Save take too long, and far more origins than fit the memory: none is fetched twice.
func TestBacklogCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var saves atomic.Int64
		store := newShelf()
		store.before = func(ctx context.Context, call string) error {
			if call == "Save" && saves.Add(1) == 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		c := newCache(t, robots.CacheOptions{Store: store, MaxBytes: 2 << 20, Fetch: func(_ context.Context, r robots.Request) (*robots.Snapshot, error) {
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

// TestBacklogAtTheEnd closes a Cache before the Store could be given what is late.
func TestBacklogAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, healed := range []bool{true, false} {
			var full atomic.Bool
			full.Store(true)
			store := onDisk(&full)
			c, err := robots.NewCache(robots.CacheOptions{Fetch: finds, Store: store})
			if err != nil {
				t.Fatal(err)
			}
			o := mustOrigin(t, "http://a.example")
			lookUp(t, c, o)
			full.Store(!healed)
			c.Close()
			if got := store.kept[o] != nil; got != healed {
				t.Errorf("the Store works: %v; it was given what was late: %v", healed, got)
			}
		}
	})
}

// TestBacklogOfChanges has a file change twice before it can be saved: the Store hears of what it has seen.
func TestBacklogOfChanges(t *testing.T) {
	for want, last := range map[string]string{"of /private -> of /third": "User-agent: *\nDisallow: /third\n", "": file} {
		synctest.Test(t, func(t *testing.T) {
			var full atomic.Bool
			site := &scripted{say: has(file)}
			store := onDisk(&full)
			c := newCache(t, robots.CacheOptions{Fetch: site.fetch, Store: store})
			o := mustOrigin(t, "http://a.example")
			lookUp(t, c, o)
			full.Store(true)
			for _, body := range []string{"User-agent: *\nDisallow: /second\n", "User-agent: *\nDisallow: /second\n", last} {
				site.say = has(body)
				if _, err := c.Refresh(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			full.Store(false)
			time.Sleep(time.Second)
			synctest.Wait()
			var got string
			for _, change := range store.changes {
				got += change.OldSHA256 + " -> " + change.NewSHA256
			}
			if got != want || string(store.kept[o].Body) != last {
				t.Errorf("the changes kept are %q, want %q; the text is %q", got, want, store.kept[o].Body)
			}
		})
	}
}

// TestBacklogWhileBusy has crawlers, an operator and a Store that fails now and then at the same time.
func TestBacklogWhileBusy(t *testing.T) {
	var calls atomic.Int64
	store := newShelf()
	store.before = func(context.Context, string) error {
		if calls.Add(1)%3 == 0 {
			return errors.New("now and then")
		}
		return nil
	}
	c := newCache(t, robots.CacheOptions{Store: store, MaxBytes: 64 << 10, Fetch: func(_ context.Context, r robots.Request) (*robots.Snapshot, error) {
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
