package robots_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// sharedShelf is a shelf that several Caches share.
type sharedShelf struct {
	*shelf
	mu      sync.Mutex
	claimed map[origin.Origin]chan struct{}
}

func (s *sharedShelf) Claim(_ context.Context, o origin.Origin) (release func(), claimed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claimed[o] != nil {
		return nil, false
	}
	over := make(chan struct{})
	s.claimed[o] = over
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.claimed, o)
		close(over)
	}, true
}

func (s *sharedShelf) AwaitClaim(ctx context.Context, o origin.Origin) {
	s.mu.Lock()
	over := s.claimed[o]
	s.mu.Unlock()
	if over == nil {
		return
	}
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// TestCachesShareAFetch asks four Caches at the same moment for one origin, and then refreshes the file at one of them.
func TestCachesShareAFetch(t *testing.T) {
	store := &sharedShelf{shelf: newShelf(), claimed: make(map[origin.Origin]chan struct{})}
	var fetches atomic.Int64
	slowly := func(_ context.Context, r fetch.Request) (*robots.Answer, error) {
		fetches.Add(1)
		time.Sleep(50 * time.Millisecond)
		return found(r.Origin, file, time.Hour), nil
	}
	o := mustOrigin(t, "https://a.example")
	var caches []*robots.Cache
	for range 4 {
		caches = append(caches, newCache(t, robots.CacheOptions{Fetch: slowly, Store: store}))
	}
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			if _, err := caches[i%4].Snapshot(context.Background(), o, robots.Asker{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := fetches.Load(); n != 1 {
		t.Errorf("%d fetches for four Caches, want 1", n)
	}
	refreshed, err := caches[0].Refresh(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	for len(caches[0].Unsaved()) > 0 {
		time.Sleep(time.Millisecond)
	}
	caches[1].Forget(o, refreshed.Fetched)
	if got, err := caches[1].Snapshot(context.Background(), o, robots.Asker{}); err != nil || !got.Fetched.Equal(refreshed.Fetched) {
		t.Errorf("after a refresh elsewhere: %v, %v", got, err)
	}
	if n := fetches.Load(); n != 2 {
		t.Errorf("%d fetches after a refresh, want 2", n)
	}
}

// TestClaimEndsWithoutASave fails the fetch, and the Cache of another process fetches.
func TestClaimEndsWithoutASave(t *testing.T) {
	store := &sharedShelf{shelf: newShelf(), claimed: make(map[origin.Origin]chan struct{})}
	fails := newCache(t, robots.CacheOptions{Store: store, Fetch: func(context.Context, fetch.Request) (*robots.Answer, error) {
		return nil, &fetch.UpstreamError{Err: context.DeadlineExceeded}
	}})
	works := newCache(t, robots.CacheOptions{Store: store, Fetch: func(_ context.Context, r fetch.Request) (*robots.Answer, error) {
		return found(r.Origin, file, time.Hour), nil
	}})
	o := mustOrigin(t, "https://a.example")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := fails.Snapshot(ctx, o, robots.Asker{}); err == nil {
		t.Error("no error of the upstream proxy")
	}
	if _, err := works.Snapshot(ctx, o, robots.Asker{}); err != nil {
		t.Errorf("after a fetch without a result elsewhere: %v", err)
	}
}

// lateShelf calls late after each Load has read, and before it returns.
type lateShelf struct {
	*shelf
	late func()
}

func (s *lateShelf) Load(ctx context.Context, o origin.Origin) (*robots.Snapshot, error) {
	snap, err := s.shelf.Load(ctx, o)
	s.late()
	return snap, err
}

// TestForgetWhileLoading replaces a file elsewhere after the Cache has read the old one, and before it is in the memory.
func TestForgetWhileLoading(t *testing.T) {
	o := mustOrigin(t, "https://a.example")
	for name, forget := range map[string]func(*robots.Cache){
		"Forget":    func(c *robots.Cache) { c.Forget(o, time.Now()) },
		"ForgetAll": (*robots.Cache).ForgetAll,
	} {
		t.Run(name, func(t *testing.T) {
			kept := newShelf()
			fetching := func(_ context.Context, r fetch.Request) (*robots.Answer, error) {
				return found(r.Origin, file, time.Hour), nil
			}
			ctx := context.Background()
			elsewhere := newCache(t, robots.CacheOptions{Store: kept, Fetch: fetching})
			if _, err := elsewhere.Snapshot(ctx, o, robots.Asker{}); err != nil {
				t.Fatal(err)
			}
			for len(elsewhere.Unsaved()) > 0 {
				time.Sleep(time.Millisecond)
			}
			store := &lateShelf{shelf: kept}
			c := newCache(t, robots.CacheOptions{Store: store, Fetch: fetching})
			store.late = func() {
				store.late = func() {}
				if _, err := elsewhere.Refresh(ctx, o); err != nil {
					t.Error(err)
				}
				for len(elsewhere.Unsaved()) > 0 {
					time.Sleep(time.Millisecond)
				}
				forget(c)
			}
			old, err := c.Snapshot(ctx, o, robots.Asker{})
			if err != nil {
				t.Fatal(err)
			}
			if now, err := c.Snapshot(ctx, o, robots.Asker{}); err != nil || !now.Fetched.After(old.Fetched) {
				t.Errorf("the old file is still in the memory: %v", err)
			}
		})
	}
}
