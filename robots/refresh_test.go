package robots_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/robots"
)

func TestPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, store := mustOrigin(t, "http://a.example"), newShelf()
		c := newCache(t, robots.CacheOptions{Fetch: finds, Store: store})
		if snap, err := c.Peek(t.Context(), o); snap != nil || !errors.Is(err, robots.ErrNoSnapshot) {
			t.Errorf("before all: Peek = %v, %v, want %v", snap, err, robots.ErrNoSnapshot)
		}
		want := lookUp(t, c, o)
		if snap, err := c.Peek(t.Context(), o); snap != want || err != nil {
			t.Errorf("in memory: Peek = %p, %v, want %p", snap, err, want)
		}
		synctest.Wait()
		other := newCache(t, robots.CacheOptions{Fetch: finds, Store: store})
		snap, err := other.Peek(t.Context(), o)
		if err != nil || snap.State() != "found" || string(snap.Body) != file || !snap.Renewal().Before(snap.Expires) {
			t.Errorf("in the Store: Peek = %v, %v", snap, err)
		}
		if snap.Rules != nil {
			t.Error("in the Store: Peek has compiled the rules, which nobody needs who lists a thousand files")
		}
		if got := outline(lookUp(t, other, o)); got != "found 200 /open" {
			t.Errorf("Snapshot after Peek = %s, want the rules too", got)
		}
		if got := other.Stats().Fetches; got != 0 {
			t.Errorf("Peek fetched %d times", got)
		}
	})
}

func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, site, store := mustOrigin(t, "http://a.example"), &scripted{say: has(file)}, newShelf()
		c := newCache(t, robots.CacheOptions{Fetch: site.fetch, Store: store})
		for i := range 3 { // also the first time
			if snap, err := c.Refresh(t.Context(), o); err != nil || outline(snap) != "found 200 /open" || site.asked != i+1 {
				t.Errorf("Refresh = %v, %v after %d questions", snap, err, site.asked)
			}
		}
		site.say = missing
		if snap := lookUp(t, c, o); outline(snap) != "found 200 /open" {
			t.Errorf("Snapshot = %s, want the copy", outline(snap))
		}
		if snap, err := c.Refresh(t.Context(), o); err != nil || outline(snap) != "unavailable 404 /open /private" {
			t.Errorf("Refresh = %v, %v, want what is there now", snap, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if snap, err := c.Refresh(ctx, o); snap != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("Refresh of one who left = %v, %v", snap, err)
		}
	})
}

// TestRefreshOfStore refreshes while a fetch is under way that ends with what the Store has: that is not what was
// asked.
func TestRefreshOfStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, site, store := mustOrigin(t, "http://a.example"), &scripted{say: missing}, newShelf()
		store.kept[o] = onPaper(robots.Parsed(found(o, file, time.Hour)))
		store.setBefore(func(context.Context, string) error { time.Sleep(time.Second); return nil })
		c := newCache(t, robots.CacheOptions{Fetch: site.fetch, Store: store})
		var all sync.WaitGroup
		all.Go(func() {
			if snap := lookUp(t, c, o); outline(snap) != "found 200 /open" {
				t.Errorf("Snapshot = %s, want what the Store has", outline(snap))
			}
		})
		synctest.Wait()
		if snap, err := c.Refresh(t.Context(), o); err != nil || outline(snap) != "unavailable 404 /open /private" {
			t.Errorf("Refresh = %v, %v, want what the origin says", snap, err)
		}
		all.Wait()
	})
}
