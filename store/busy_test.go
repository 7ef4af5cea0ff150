package store_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
	"github.com/robotsproxy/robotsproxy/store"
)

// TestSaveAll saves what one transaction keeps, or nothing if one snapshot cannot be saved.
func TestSaveAll(t *testing.T) {
	s, ctx := fresh(t), context.Background()
	var all []robots.StoreEntry
	for i := range 100 {
		snap := found(hostN(t, i), fmt.Sprintf("# %d", i%10), dawn)
		all = append(all, robots.StoreEntry{Snapshot: snap, Change: &robots.Change{Origin: snap.Origin, Time: dawn, NewState: "found"}})
	}
	bad := found(hostN(t, 100), "# bad", dawn)
	bad.SHA256 = hashOf("another")
	err := s.SaveAll(ctx, append(all, robots.StoreEntry{Snapshot: bad}))
	checkWords(t, "SaveAll", err, "101", "http://h100.example", "hash")
	if n := count(t, s, "snapshots"); n != 0 {
		t.Errorf("%d snapshots are kept of a batch that failed, want 0", n)
	}
	if err := s.SaveAll(ctx, all); err != nil {
		t.Fatal(err)
	}
	for i, each := range all {
		if diff := differ(load(t, s, each.Snapshot.Origin), each.Snapshot); diff != "" {
			t.Errorf("Load(%s) (-want +got):\n%s", each.Snapshot.Origin, diff)
		}
		if changes, err := s.Changes(ctx, hostN(t, i), 9); len(changes) != 1 || err != nil {
			t.Errorf("%d changes of host %d, %v; want 1", len(changes), i, err)
		}
	}
	checkSound(t, s)
}

// TestOwnWriterIsNoFault has each write wait for another one of this State, until its context ends.
func TestOwnWriterIsNoFault(t *testing.T) {
	s, ctx := fresh(t), context.Background()
	a := mustOrigin(t, "http://a.example")
	save(t, s, found(a, file, dawn), nil)
	release := s.HoldWriter(t)
	defer release()
	hasty, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, pruned := s.Prune(hasty, dawn)
	for act, err := range map[string]error{
		"Save": s.Save(hasty, found(a, file, dawn), nil), "Prune": pruned, "Delete": s.Delete(hasty, a),
		"SaveAll": s.SaveAll(hasty, []robots.StoreEntry{{Snapshot: found(a, file, dawn)}}),
	} {
		if !errors.Is(err, robots.ErrStoreBusy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s = %v, want %v and %v", act, err, robots.ErrStoreBusy, context.DeadlineExceeded)
		}
	}
	load(t, s, a)
}

// TestAnotherProcessIsAFault has the file locked by another process.
func TestAnotherProcessIsAFault(t *testing.T) {
	path, ctx := filepath.Join(t.TempDir(), "state.db"), context.Background()
	holder, s := open(t, path), open(t, path)
	if err := holder.Exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	hasty, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := s.Save(hasty, found(mustOrigin(t, "http://a.example"), file, dawn), nil); err == nil || errors.Is(err, robots.ErrStoreBusy) {
		t.Errorf("Save = %v, want an error that is not %v", err, robots.ErrStoreBusy)
	}
	if err := holder.Exec(ctx, "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
}

// TestStartWaits counts a start while another process writes for longer than SQLite waits.
func TestStartWaits(t *testing.T) {
	path, ctx := filepath.Join(t.TempDir(), "state.db"), context.Background()
	holder, s := open(t, path), open(t, path)
	if err := holder.Exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, func() {
		if err := holder.Exec(ctx, "ROLLBACK"); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.CountStart(ctx); err != nil {
		t.Error(err)
	}
}

// TestWideCrawl looks up thousands of origins while the State prunes, shrinks and keeps pauses. No call fails, and all
// are kept.
func TestWideCrawl(t *testing.T) {
	store.Long(t)
	const n, workers = 6000, 32
	s := fresh(t)
	c, err := robots.NewCache(robots.CacheOptions{
		MaxBytes: 1 << 20, Store: s, StoreFailed: func(err error) { t.Error(err) },
		Fetch: func(_ context.Context, r fetch.Request) (*robots.Answer, error) {
			return &found(r.Origin, fmt.Sprintf("%s# %d", file, len(r.Origin.String())), time.Now()).Answer, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var crawl, beside sync.WaitGroup
	beside.Go(func() { writeBeside(ctx, t, s) })
	for w := range workers {
		crawl.Go(func() {
			for i := w; i < 2*n; i += workers {
				if _, err := c.Snapshot(ctx, hostN(t, i%n), robots.Asker{Client: fmt.Sprint(w)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	crawl.Wait()
	for len(c.Unsaved()) > 0 {
		time.Sleep(time.Millisecond)
	}
	stop()
	beside.Wait()
	c.Close()
	if got := count(t, s, "snapshots"); got != n {
		t.Errorf("%d snapshots are kept, want %d", got, n)
	}
	checkSound(t, s)
}

// writeBeside makes the other writes of a proxy until ctx ends.
func writeBeside(ctx context.Context, t *testing.T, s *store.State) {
	for i := 0; ctx.Err() == nil; i++ {
		if err := s.Keep(ratelimit.Pause{Key: fmt.Sprint(i % 100), Until: time.Now()}); err != nil {
			t.Error(err)
		}
		if _, err := s.Prune(ctx, dawn); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		if err := s.Shrink(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
}
