package robots_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/robotsproxy/robotsproxy/robots"
)

// TestUnsaved has a Store fail and recover: what it lacks is known, until it is saved or forgotten.
func TestUnsaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, store := true, newShelf()
		store.before = func(_ context.Context, call string) error {
			if full && call == "Save" {
				return errors.New("the disk is full")
			}
			return nil
		}
		c := newCache(t, robots.CacheOptions{Fetch: finds, Store: store})
		a, b := mustOrigin(t, "http://a.example"), mustOrigin(t, "http://b.example")
		lookUp(t, c, a)
		lookUp(t, c, b)
		if got := c.Unsaved(); len(got) != 2 {
			t.Errorf("a full disk leaves %v unsaved, want %v and %v", got, a, b)
		}
		full = false
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

// TestUnsavedIsNotOlder has a file change that cannot be saved, and leave the memory: the older one does not count again.
func TestUnsavedIsNotOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, store, site := false, newShelf(), &scripted{say: has(file)}
		store.before = func(_ context.Context, call string) error {
			if full && call == "Save" {
				return errors.New("the disk is full")
			}
			return nil
		}
		c := newCache(t, robots.CacheOptions{Fetch: site.fetch, Store: store, MaxBytes: 1 << 10})
		o := mustOrigin(t, "http://a.example")
		lookUp(t, c, o)
		full, site.say = true, has("User-agent: *\nDisallow: /open\n")
		if _, err := c.Refresh(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		for i := range 300 {
			lookUp(t, c, mustOrigin(t, fmt.Sprintf("http://h%d.example", i)))
		}
		asked := site.asked
		if snap := lookUp(t, c, o); allowed(snap, "/open") || site.asked != asked+1 {
			t.Errorf("Snapshot = %s after %d fetches, want what the origin has after one", outline(snap), site.asked-asked)
		}
	})
}
