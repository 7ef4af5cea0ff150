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

func TestPurge(t *testing.T) {
	o, store := mustOrigin(t, "http://a.example"), newShelf()
	c := newCache(t, robots.CacheOptions{Fetch: finds, Store: store})
	if err := c.Purge(t.Context(), o); err != nil {
		t.Errorf("Purge of nothing: %v", err)
	}
	lookUp(t, c, o)
	if err := c.Purge(t.Context(), o); err != nil {
		t.Errorf("Purge: %v", err)
	}
	if snap, err := c.Peek(t.Context(), o); !errors.Is(err, robots.ErrNoSnapshot) {
		t.Errorf("after Purge: Peek = %v, %v, want %v", snap, err, robots.ErrNoSnapshot)
	}
	lookUp(t, c, o)
	if got := c.Stats().Fetches; got != 2 {
		t.Errorf("%d fetches, want one before Purge and one after", got)
	}
	broken := errors.New("the disk is full")
	store.setBefore(func(context.Context, string) error { return broken })
	if err := c.Purge(t.Context(), o); !errors.Is(err, broken) {
		t.Errorf("Purge of a Store that fails: %v, want %v", err, broken)
	}
	if _, err := c.Peek(t.Context(), o); err != nil {
		t.Errorf("after a Purge that failed: Peek: %v, want the copy as it was", err)
	}
}

// TestPurgeMeanwhile purges while a fetch is under way, which may not bring back what it is to forget. Who asked gets
// an answer.
func TestPurgeMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, store := mustOrigin(t, "http://a.example"), newShelf()
		c := newCache(t, robots.CacheOptions{Store: store, Fetch: slowly})
		var all sync.WaitGroup
		all.Go(func() { lookUp(t, c, o) })
		synctest.Wait()
		if err := c.Purge(t.Context(), o); err != nil {
			t.Errorf("Purge: %v", err)
		}
		all.Wait()
		if snap, err := c.Peek(t.Context(), o); !errors.Is(err, robots.ErrNoSnapshot) {
			t.Errorf("after Purge: Peek = %v, %v, want %v", snap, err, robots.ErrNoSnapshot)
		}
	})
}

// TestAskMeanwhile asks while a Purge is under way, whose failure is nobody else's.
func TestAskMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, store := mustOrigin(t, "http://a.example"), newShelf()
		broken := errors.New("the disk is full")
		store.setBefore(func(_ context.Context, call string) error {
			if call != "Delete" {
				return nil
			}
			time.Sleep(time.Second)
			return broken
		})
		c := newCache(t, robots.CacheOptions{Store: store, Fetch: slowly})
		var all sync.WaitGroup
		all.Go(func() {
			if err := c.Purge(t.Context(), o); !errors.Is(err, broken) {
				t.Errorf("Purge: %v, want %v", err, broken)
			}
		})
		synctest.Wait()
		if snap := lookUp(t, c, o); outline(snap) != "found 200 /open" {
			t.Errorf("Snapshot = %s", outline(snap))
		}
		all.Wait()
	})
}
