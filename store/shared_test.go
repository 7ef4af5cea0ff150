package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/robotsproxy/robotsproxy/internal/pgtest"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/store"
)

// share returns the files of one instance with a state.db of its own.
func share(tb testing.TB, dsn string) *store.SharedFiles {
	tb.Helper()
	return openPostgres(tb, dsn).Share(fresh(tb), store.SharedOptions{
		ClaimTime: 500 * time.Millisecond, Failed: func(err error) { tb.Logf("PostgreSQL: %v", err) },
	})
}

// TestSharedFiles saves at one instance and reads at another.
func TestSharedFiles(t *testing.T) {
	ctx := context.Background()
	dsn := pgtest.Database(t)
	one, two := share(t, dsn), share(t, dsn)
	o := mustOrigin(t, "https://a.example")
	if _, err := two.Load(ctx, o); !errors.Is(err, robots.ErrNoSnapshot) {
		t.Fatalf("Load of an empty database: %v", err)
	}
	first := found(o, file, dawn)
	first.ContentType, first.ETag, first.LastModified = "text/plain\xff", "\"\xfe\"", "then\x01"
	first.Redirects, first.Fields = []string{"https://a.example/\xff?\x00"}, "Cache-Control: max-age=60\xff\r\n"
	change := &robots.Change{Origin: o, Time: dawn, NewSHA256: first.SHA256, OldState: "unreachable", NewState: "found"}
	if err := one.Save(ctx, first, change); err != nil {
		t.Fatal(err)
	}
	got, err := two.Load(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if d := differ(got, first); d != "" {
		t.Errorf("another instance loads a snapshot that differs: %s", d)
	}
	failed := unreachable(o, dawn.Add(time.Hour))
	if err := two.Save(ctx, failed, nil); err != nil {
		t.Fatal(err)
	}
	if err := one.Save(ctx, first, nil); err != nil { // late: it must not replace what came after it
		t.Fatal(err)
	}
	if got, err = one.Load(ctx, o); err != nil || got.Availability != robots.Unreachable {
		t.Errorf("Load = %v, %v, want the failure that another instance met later", got, err)
	}
	expectHistory(t, two, first)
	if _, err := one.Prune(ctx, dawn.Add(30*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n := pgtest.SQL(t, dsn, "SELECT count(*) FROM snapshot_bodies"); n != "0" {
		t.Errorf("%s bodies are kept that nothing refers to", n)
	}
	if err := two.Delete(ctx, o); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Load(ctx, o); !errors.Is(err, robots.ErrNoSnapshot) {
		t.Errorf("Load after a Delete at another instance: %v", err)
	}
}

func expectHistory(t *testing.T, s *store.SharedFiles, first *robots.Snapshot) {
	t.Helper()
	ctx, o := context.Background(), first.Origin
	for _, host := range []string{"", o.Host()} {
		if all, err := s.Origins(ctx, host, 10); err != nil || !slices.Equal(all, []origin.Origin{o}) {
			t.Errorf("Origins(%q) = %v, %v", host, all, err)
		}
	}
	versions, err := s.Versions(ctx, o, 10)
	if err != nil || len(versions) != 1 || versions[0].SHA256 != first.SHA256 || versions[0].Size != len(file) {
		t.Errorf("Versions = %v, %v", versions, err)
	}
	changes, err := s.Changes(ctx, o, 10)
	if err != nil || len(changes) != 1 || changes[0].NewState != "found" || !changes[0].Time.Equal(dawn) {
		t.Errorf("Changes = %v, %v", changes, err)
	}
	if body, err := s.Body(ctx, first.SHA256); err != nil || string(body) != file {
		t.Errorf("Body = %q, %v", body, err)
	}
}

// TestOneClaimAtATime claims an origin from eight instances: one at a time has it.
func TestOneClaimAtATime(t *testing.T) {
	ctx := context.Background()
	s := share(t, pgtest.Database(t))
	o := mustOrigin(t, "https://a.example")
	var all sync.WaitGroup
	var mu sync.Mutex
	holders, most := 0, 0
	count := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		holders += by
		most = max(most, holders)
	}
	for range 8 {
		all.Go(func() {
			for {
				release, claimed := s.Claim(ctx, o)
				if claimed {
					count(1)
					time.Sleep(10 * time.Millisecond)
					count(-1)
					release()
					return
				}
				s.AwaitClaim(ctx, o)
			}
		})
	}
	all.Wait()
	if most != 1 {
		t.Errorf("%d instances had the claim at once", most)
	}
}

// TestClaimOfADeadInstanceEnds makes a claim that is not renewed, and one that is.
func TestClaimOfADeadInstanceEnds(t *testing.T) {
	ctx := context.Background()
	dsn := pgtest.Database(t)
	s := share(t, dsn)
	dead, alive := mustOrigin(t, "https://dead.example"), mustOrigin(t, "https://alive.example")
	pgtest.SQL(t, dsn, "INSERT INTO snapshot_claims VALUES ('https://dead.example', 'x', clock_timestamp() + interval '500 ms')")
	release, claimed := s.Claim(ctx, alive)
	if !claimed {
		t.Fatal("no claim of a free origin")
	}
	begin := time.Now()
	s.AwaitClaim(ctx, dead)
	if d := time.Since(begin); d > 3*time.Second {
		t.Errorf("the claim of a dead instance lasted %v", d)
	}
	time.Sleep(700 * time.Millisecond)
	if _, claimed := s.Claim(ctx, alive); claimed {
		t.Error("a claim ended although its instance renews it")
	}
	release()
	release, claimed = s.Claim(ctx, alive)
	if !claimed {
		t.Fatal("a claim was not ended by release")
	}
	release()
}

// TestWatch tells another instance of a save and of a deletion, and of a server that was away.
func TestWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	dsn := pgtest.Database(t)
	one, two := share(t, dsn), share(t, dsn)
	o := mustOrigin(t, "https://a.example")
	seen, lost := make(chan time.Time, 10), make(chan struct{}, 10)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		two.Watch(ctx, func(got origin.Origin, before time.Time) {
			if got == o {
				seen <- before
			}
		}, func() { lost <- struct{}{} })
	})
	<-lost // it listens
	if err := one.Save(ctx, found(o, file, dawn), nil); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; time.Since(got) > time.Minute {
		t.Errorf("told that files before %v do not count", got)
	}
	if err := one.Delete(ctx, o); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; time.Since(got) > time.Minute {
		t.Errorf("told that files before %v do not count", got)
	}
	if testing.Short() {
		return
	}
	pgtest.SQL(t, dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()")
	<-lost
}

// TestNumbersDiffer opens more instances than there are numbers left.
func TestNumbersDiffer(t *testing.T) {
	ctx := context.Background()
	dsn := pgtest.Database(t)
	p := openPostgres(t, dsn)
	pgtest.SQL(t, dsn, `INSERT INTO instances SELECT n, 'x' || n, clock_timestamp() + interval '1 hour' FROM generate_series(0, 1017) AS n;
		INSERT INTO instances VALUES (1018, 'gone', clock_timestamp() - interval '1 second')`)
	var mu sync.Mutex
	var all sync.WaitGroup
	got := make(map[int]bool)
	for range 6 {
		all.Go(func() {
			n, err := p.Number(ctx, func(err error) { t.Error(err) })
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { n.Close() })
			mu.Lock()
			defer mu.Unlock()
			got[n.Get()] = true
		})
	}
	all.Wait()
	for n := 1018; n < 1024; n++ {
		if !got[n] {
			t.Errorf("no instance has the number %d: %v", n, got)
		}
	}
	if n, err := p.Number(ctx, func(error) {}); err == nil {
		t.Errorf("a number %d for one instance too many", n.Get())
	}
}

// TestSharedPurge purges a file at one instance. The other one does not hear of it, and saves the file that it has
// fetched before.
func TestSharedPurge(t *testing.T) {
	ctx := context.Background()
	dsn := pgtest.Database(t)
	one, two := share(t, dsn), share(t, dsn)
	o := mustOrigin(t, "https://a.example")
	snap := today(o, file)
	if err := errors.Join(one.Save(ctx, snap, nil), two.Save(ctx, snap, nil), one.Delete(ctx, o)); err != nil {
		t.Fatal(err)
	}
	gone := func(when string) {
		t.Helper()
		for _, f := range []*store.SharedFiles{one, two} {
			if got, err := f.Load(ctx, o); !errors.Is(err, robots.ErrNoSnapshot) {
				t.Errorf("%s: Load returns a file: %v, and %v", when, got != nil, err)
			}
			if all, err := f.Origins(ctx, "", 10); err != nil || len(all) > 0 {
				t.Errorf("%s: Origins = %v, %v, want none", when, all, err)
			}
		}
	}
	gone("after the purge")
	if err := two.Save(ctx, snap, nil); err != nil {
		t.Fatal(err)
	}
	gone("after a late Save")
	next := today(o, "User-agent: *\nDisallow: /next\n")
	if err := two.Save(ctx, next, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := one.Load(ctx, o); err != nil || got.SHA256 != next.SHA256 {
		t.Errorf("after the next fetch: Load = %v, %v", got, err)
	}
}

// TestBatchesOfTwoInstances has two instances save the same files at the same time, in opposite orders. Both stop in the
// middle, at a row that another connection has locked, and then neither waits for the other without end.
func TestBatchesOfTwoInstances(t *testing.T) {
	for name, row := range map[string]struct {
		lock      string
		ownBodies bool
	}{
		"origins": {"SELECT 1 FROM snapshots WHERE origin = 'https://h5.example' FOR UPDATE", true},
		"texts":   {"SELECT 1 FROM snapshot_bodies ORDER BY sha256 OFFSET 5 LIMIT 1 FOR UPDATE", false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			dsn := pgtest.Database(t)
			batch := func(instance, step int, fetched time.Time) (all []robots.StoreEntry) {
				for n := step; len(all) < 10; n = (n + step) % 10 {
					body := fmt.Sprintf("# %d\n", n)
					if row.ownBodies {
						body += fmt.Sprintf("# %d\n", instance)
					}
					all = append(all, robots.StoreEntry{Snapshot: found(mustOrigin(t, fmt.Sprintf("https://h%d.example", n)), body, fetched)})
				}
				return all
			}
			var instances []*store.SharedFiles
			for range 2 {
				f := openPostgres(t, dsn).Share(fresh(t), store.SharedOptions{Failed: func(err error) { t.Error(err) }})
				instances = append(instances, f)
			}
			begin := time.Now().Truncate(time.Second).Add(-time.Hour)
			if err := instances[0].SaveAll(ctx, batch(0, 1, begin)); err != nil {
				t.Fatal(err)
			}
			unlock := lockRow(t, dsn, row.lock)
			var saving sync.WaitGroup
			for i, f := range instances {
				all := batch(i, []int{1, 9}[i], begin.Add(time.Minute))
				saving.Go(func() {
					if err := f.SaveAll(ctx, all); err != nil {
						t.Error(err)
					}
				})
			}
			awaitLocks(t, dsn, 2)
			unlock()
			saving.Wait()
			saved := fmt.Sprintf("SELECT count(*) FROM snapshots WHERE fetched = %d", begin.Add(time.Minute).UnixMicro())
			if got := pgtest.SQL(t, dsn, saved); got != "10" {
				t.Errorf("%s of 10 files are saved", got)
			}
		})
	}
}

// lockRow locks the row that question returns, until unlock is called.
func lockRow(t *testing.T, dsn, question string) (unlock func()) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, "BEGIN; "+question); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := conn.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

// awaitLocks waits until n connections wait for a lock. The test times out if they do not.
func awaitLocks(t *testing.T, dsn string, n int) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	const waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
	for got := 0; got != n; time.Sleep(time.Millisecond) {
		if err := conn.QueryRow(ctx, waiting).Scan(&got); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSharedAfterAnOutage fetches a new version without PostgreSQL, which still has the older one when it returns.
func TestSharedAfterAnOutage(t *testing.T) {
	ctx := context.Background()
	dsn := pgtest.Database(t)
	local := fresh(t)
	one := openPostgres(t, dsn).Share(local, store.SharedOptions{Failed: func(err error) { t.Error(err) }})
	two := share(t, dsn)
	o := mustOrigin(t, "https://a.example")
	old, now := today(o, file), today(o, "User-agent: *\nDisallow: /later\n")
	old.Fetched = old.Fetched.Add(-time.Minute)
	if err := errors.Join(one.Save(ctx, old, nil), local.Save(ctx, now, nil)); err != nil { // as Save does without PostgreSQL
		t.Fatal(err)
	}
	for _, f := range []*store.SharedFiles{one, two} {
		if got, err := f.Load(ctx, o); err != nil || got.SHA256 != now.SHA256 {
			t.Errorf("Load = %v, %v, want the later version", got, err)
		}
	}
}

// TestSharedWithClocksThatDiffer fetches at an instance whose clock is five minutes ahead, and then at another.
func TestSharedWithClocksThatDiffer(t *testing.T) {
	ctx := context.Background()
	dsn := pgtest.Database(t)
	ahead, right := share(t, dsn), share(t, dsn)
	ahead.SetSkew(-5 * time.Minute)
	o := mustOrigin(t, "https://a.example")
	first, second := today(o, file), today(o, "User-agent: *\nDisallow: /later\n")
	now := first.Fetched
	first.Fetched, first.Expires = now.Add(5*time.Minute-2*time.Second), first.Expires.Add(5*time.Minute-2*time.Second)
	if err := ahead.Save(ctx, first, nil); err != nil {
		t.Fatal(err)
	}
	got, err := right.Load(ctx, o)
	if err != nil || !got.Fetched.Equal(now.Add(-2*time.Second)) || got.Expires.Sub(got.Fetched) != time.Hour {
		t.Fatalf("Load = %+v, %v, want one of two seconds ago", got, err)
	}
	if err := right.Save(ctx, second, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := ahead.Load(ctx, o); err != nil || got.SHA256 != second.SHA256 || !got.Fetched.Equal(second.Fetched.Add(5*time.Minute)) {
		t.Errorf("Load = %+v, %v, want the second version", got, err)
	}
}
