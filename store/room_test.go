package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/store"
)

// bounded opens a database of its own that takes maxSize bytes.
func bounded(tb testing.TB, path string, maxSize int64, used func(origin.Origin) bool) *store.State {
	tb.Helper()
	s, err := store.Open(store.Options{Path: path, MaxSize: maxSize, Used: used})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// diskUse returns what the database at path takes, with its log.
func diskUse(tb testing.TB, path string) (bytes int64) {
	tb.Helper()
	for _, name := range []string{path, path + "-wal"} {
		info, err := os.Stat(name)
		if err != nil {
			tb.Fatal(err)
		}
		bytes += info.Size()
	}
	return bytes
}

// unique returns a file of size bytes that no other call returns.
func unique(size int) string {
	return fmt.Sprintf("# %d %d\n%s", rand.Uint64(), rand.Uint64(), strings.Repeat("#", size))
}

// saveFor saves a file of o that was fetched for client.
func saveFor(tb testing.TB, s *store.State, client string, o origin.Origin, body string) {
	tb.Helper()
	snap := found(o, body, time.Now())
	snap.Client = client
	save(tb, s, snap, nil)
}

func isKept(tb testing.TB, s *store.State, o origin.Origin) bool {
	tb.Helper()
	_, err := s.Load(context.Background(), o)
	if err != nil && err != robots.ErrNoSnapshot {
		tb.Errorf("Load(%s): %v", o, err)
	}
	return err == nil
}

func hostN(tb testing.TB, i int) origin.Origin {
	return mustOrigin(tb, fmt.Sprintf("http://h%d.example", i))
}

// checkSound compares the sums with what they are sums of.
func checkSound(t *testing.T, s *store.State) {
	t.Helper()
	for question, want := range map[string]string{
		"PRAGMA integrity_check":                        "ok",
		"SELECT count(*) FROM pragma_foreign_key_check": "0",
		"SELECT count(*) FROM bodies WHERE NOT EXISTS (SELECT 1 FROM body_uses WHERE body = bodies.id)":             "0",
		`SELECT count(*) FROM bodies b FULL JOIN charges c ON c.body = b.id WHERE octet_length(b.body) IS NOT size`: "0",
		`SELECT count(*) FROM charges WHERE NOT EXISTS (SELECT 1 FROM snapshots WHERE origin = charges.origin AND body = charges.body)
			AND NOT EXISTS (SELECT 1 FROM versions WHERE origin = charges.origin AND body = charges.body)`: "0",
		`WITH parts AS (
			SELECT origin, bytes FROM snapshots UNION ALL SELECT origin, bytes FROM versions
			UNION ALL SELECT origin, 256 FROM changes UNION ALL SELECT origin, size FROM charges
		), sums AS (SELECT origin, sum(bytes) AS bytes FROM parts GROUP BY origin)
		SELECT count(*) FROM sums FULL JOIN origins ON id = origin WHERE bytes IS NOT size`: "0",
		`WITH sums AS (SELECT client, sum(size) AS bytes FROM origins GROUP BY client)
		SELECT count(*) FROM sums FULL JOIN shares USING (client) WHERE bytes IS NOT size`: "0",
	} {
		if got := ask(t, s, question); got != want {
			t.Errorf("%s\nis %s, want %s", question, got, want)
		}
	}
}

// TestSizeIsBounded saves far more than MaxSize. The file and its log stay within it, but for the last file saved, and
// a new process goes on so.
func TestSizeIsBounded(t *testing.T) {
	store.Long(t)
	for _, maxSize := range []int64{4 << 20, 20 << 20} {
		t.Run(fmt.Sprint(maxSize), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			s := bounded(t, path, maxSize, nil)
			const size, n = 500_000, 100
			most := int64(0)
			for i := range n {
				if i == n/2 {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = bounded(t, path, maxSize, nil)
				}
				saveFor(t, s, "one", hostN(t, i), unique(size))
				most = max(most, diskUse(t, path))
			}
			t.Logf("at most %d KiB of %d", most>>10, maxSize>>10)
			if most > maxSize+size+64<<10 {
				t.Errorf("the files took %d bytes, want %d and a file at most", most, maxSize)
			}
			if got, want := s.Size(), diskUse(t, path); got != want {
				t.Errorf("Size() = %d, want %d", got, want)
			}
			kept := 0
			for i := range n {
				if isKept(t, s, hostN(t, i)) {
					kept++
				} else if kept > 0 {
					t.Errorf("host %d was dropped, and an older one was not", i)
				}
			}
			if least := int(maxSize/size) / 2; kept < least {
				t.Errorf("%d files are kept, want at least %d", kept, least)
			}
			checkSound(t, s)
		})
	}
}

// TestHistoryCountsToo has one origin change its file again and again, and another one its state.
func TestHistoryCountsToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	const maxSize = 4 << 20
	s := bounded(t, path, maxSize, nil)
	o := hostN(t, 0)
	for range 45 {
		saveFor(t, s, "one", o, unique(400_000))
	}
	if got := diskUse(t, path); got > maxSize+400_000+64<<10 || !isKept(t, s, o) {
		t.Errorf("the texts of one origin take %d bytes, want %d at most; its own is kept: %t", got, maxSize, isKept(t, s, o))
	}
	for i := range 9000 {
		o := hostN(t, i%10)
		save(t, s, unreachable(o, time.Now()), &robots.Change{Origin: o, Time: time.Now(), OldState: "found", NewState: "unreachable"})
	}
	if got := diskUse(t, path); got > maxSize+400_000+64<<10 {
		t.Errorf("with 9,000 changes, the files take %d bytes, want %d at most", got, maxSize)
	}
	checkSound(t, s)
}

// TestOneClientDropsNoneOfAnother has a client fill the file. The origins of another one stay, with their history.
func TestOneClientDropsNoneOfAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := bounded(t, path, 10<<20, nil)
	const own = 40
	theirs := func(i int) origin.Origin { return mustOrigin(t, fmt.Sprintf("http://other-%d.example", i)) }
	for i := range own {
		saveFor(t, s, "other", theirs(i), unique(10_000))
		snap := found(theirs(i), unique(10_000), time.Now())
		snap.Client = "other"
		save(t, s, snap, &robots.Change{Origin: theirs(i), Time: time.Now(), OldState: "found", NewState: "found"})
	}
	for i := range 200 {
		saveFor(t, s, "one", hostN(t, i), unique(500_000))
		saveFor(t, s, "one", theirs(i%own), string(load(t, s, theirs(i%own)).Body)) // has it validated, and does not get it so
	}
	for i := range own {
		versions, err := s.Versions(context.Background(), theirs(i), 10)
		changes, err2 := s.Changes(context.Background(), theirs(i), 10)
		if !isKept(t, s, theirs(i)) || len(versions) != 2 || len(changes) != 1 || err != nil || err2 != nil {
			t.Errorf("of %s, %d versions and %d changes are kept (%v, %v), want 2 and 1", theirs(i), len(versions), len(changes), err, err2)
		}
	}
	checkSound(t, s)
}

// TestClientsShareEvenly has three clients fill the file. Each ends with about a third, whenever it came.
func TestClientsShareEvenly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := bounded(t, path, 12<<20, nil)
	for _, client := range []string{"one", "two", "three"} {
		for i := range 60 {
			saveFor(t, s, client, mustOrigin(t, fmt.Sprintf("http://%s-%d.example", client, i)), unique(200_000))
		}
	}
	for _, client := range []string{"one", "two", "three"} {
		kept := 0
		for i := range 60 {
			if isKept(t, s, mustOrigin(t, fmt.Sprintf("http://%s-%d.example", client, i))) {
				kept++
			}
		}
		if kept < 14 || kept > 20 {
			t.Errorf("client %s has %d files, want a third of about 50", client, kept)
		}
	}
	checkSound(t, s)
}

// TestUnusedGoFirst saves some origins again, and has some in use.
func TestUnusedGoFirst(t *testing.T) {
	inUse := map[origin.Origin]int{hostN(t, 0): 3, hostN(t, 1): 1000}
	path := filepath.Join(t.TempDir(), "state.db")
	s := bounded(t, path, 4<<20, func(o origin.Origin) bool {
		inUse[o]--
		return inUse[o] >= 0
	})
	for i := range 5 {
		saveFor(t, s, "one", hostN(t, i), unique(300_000))
	}
	saveFor(t, s, "one", hostN(t, 2), string(load(t, s, hostN(t, 2)).Body))
	saveFor(t, s, "one", hostN(t, 3), unique(300_000))
	for i := 100; isKept(t, s, hostN(t, 4)); i++ {
		if i == 200 {
			t.Fatal("nothing was dropped")
		}
		saveFor(t, s, "one", hostN(t, i), unique(100_000))
	}
	for i := range 4 {
		if !isKept(t, s, hostN(t, i)) {
			t.Errorf("host %d, which was used since, went before one that was not", i)
		}
	}
	for i := 200; i < 400; i++ {
		saveFor(t, s, "one", hostN(t, i), unique(100_000))
	}
	for i, want := range []bool{false, true, false, false} {
		if got := isKept(t, s, hostN(t, i)); got != want {
			t.Errorf("host %d is kept: %t, want %t", i, got, want)
		}
	}
	checkSound(t, s)
}

// TestSharedTextStays has two clients keep the same text, which is charged once. One of them loses its origin.
func TestSharedTextStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := bounded(t, path, 4<<20, nil)
	text := unique(100_000)
	for i := range 30 {
		saveFor(t, s, "one", hostN(t, i), text)
	}
	theirs := mustOrigin(t, "http://other.example")
	saveFor(t, s, "other", theirs, text)
	if got := diskUse(t, path); got > 1<<20 {
		t.Errorf("31 origins with one text take %d bytes", got)
	}
	checkSound(t, s)
	for i := range 100 {
		saveFor(t, s, "one", hostN(t, 100+i), unique(200_000))
	}
	if isKept(t, s, hostN(t, 0)) || string(load(t, s, theirs).Body) != text {
		t.Errorf("the origin of the client that takes too much is kept: %t; want only the other's, with its text", isKept(t, s, hostN(t, 0)))
	}
	checkSound(t, s)
}

// TestPausesStay fills the file. What is no robots.txt is not dropped.
func TestPausesStay(t *testing.T) {
	s := bounded(t, filepath.Join(t.TempDir(), "state.db"), 4<<20, nil)
	until := time.Now().Add(time.Hour)
	for i := range 100 {
		if err := s.Keep(ratelimit.Pause{Key: fmt.Sprint(i), Until: until}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		saveFor(t, s, "one", hostN(t, i), unique(500_000))
	}
	if pauses, err := s.Kept(); len(pauses) != 100 || err != nil {
		t.Errorf("%d pauses are kept, %v; want 100", len(pauses), err)
	}
}

// TestSumsAreKept does at random what a State can, and checks the sums.
func TestSumsAreKept(t *testing.T) {
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 0))
		s := bounded(t, filepath.Join(t.TempDir(), "state.db"), 1<<20, func(origin.Origin) bool { return random.IntN(4) == 0 })
		ctx := context.Background()
		for step := range 300 {
			o := hostN(t, random.IntN(12))
			at := dawn.Add(time.Duration(step) * time.Minute)
			switch random.IntN(20) {
			case 0:
				if err := s.Delete(ctx, o); err != nil {
					t.Fatal(err)
				}
			case 1:
				if _, err := s.Prune(ctx, at.Add(-100*time.Minute)); err != nil {
					t.Fatal(err)
				}
			case 2:
				save(t, s, unreachable(o, at), &robots.Change{Origin: o, Time: at})
			case 3:
				page := found(o, unique(random.IntN(30_000)), at)
				page.Flags = robots.WebPage
				save(t, s, page, nil)
			default:
				snap := found(o, strings.Repeat("#", 10_000*random.IntN(8))+fmt.Sprint(random.IntN(3)), at)
				snap.Client = fmt.Sprint(random.IntN(3))
				save(t, s, snap, nil)
			}
		}
		checkSound(t, s)
		if _, err := s.Prune(ctx, dawn.AddDate(1, 0, 0)); err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"origins", "shares", "charges", "bodies"} {
			if n := count(t, s, table); n != 0 {
				t.Errorf("%d rows are left in %s when nothing is kept", n, table)
			}
		}
	}
}

// TestLogIsBounded has readers at work all the time, so that SQLite itself finds no moment to empty the log.
func TestLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	const maxSize = 16 << 20
	s := bounded(t, path, maxSize, nil)
	for i := range 20 {
		saveFor(t, s, "one", hostN(t, i), unique(500_000))
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	for r := range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				_, _ = s.Load(ctx, hostN(t, r))
			}
		}()
	}
	most := int64(0)
	for i := range 60 {
		saveFor(t, s, "one", hostN(t, 100+i), unique(500_000))
		most = max(most, diskUse(t, path))
	}
	stop()
	for range 8 {
		<-done
	}
	t.Logf("at most %d KiB of %d", most>>10, maxSize>>10)
	if most > maxSize+2<<20 {
		t.Errorf("the files took %d bytes while others read, want %d", most, maxSize)
	}
}

// TestOldDatabase opens one of before sizes were kept, which takes more than it may today. Nothing is lost by that,
// until it is made smaller.
func TestOldDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	body := unique(200_000)
	texts := []string{
		fmt.Sprintf("INSERT INTO bodies VALUES ('%s', '%s')", hashOf(body), body),
		"INSERT INTO pauses VALUES ('a.example', 9000000000000000, '429', 1)",
	}
	for i := range 100 {
		own, o := unique(200_000), hostN(t, i)
		texts = append(texts, fmt.Sprintf("INSERT INTO bodies VALUES ('%s', CAST('%s' AS BLOB))", hashOf(own), own))
		texts[0] = fmt.Sprintf("INSERT INTO bodies VALUES ('%s', CAST('%s' AS BLOB))", hashOf(body), body)
		for j, hash := range []string{hashOf(own), hashOf(body)} {
			texts = append(texts, fmt.Sprintf("INSERT INTO versions (origin, sha256, status, redirects, header, first_seen, last_seen) VALUES ('%s', '%s', 200, '[]', '{}', %d, %[3]d)", o, hash, i+j))
		}
		texts = append(texts,
			fmt.Sprintf(`INSERT INTO snapshots VALUES ('%s', '%s', 2, 200, '[]', %d, %[3]d, '%s', 0, '', '', '', '{}', '', '', NULL, 0, 0, 0)`, o, o.Host(), 1000+i, hashOf(body)),
			fmt.Sprintf("INSERT INTO changes (origin, host, time, old_sha256, new_sha256, old_state, new_state) VALUES ('%s', '%s', %d, '', '', '', '')", o, o.Host(), i))
	}
	if err := store.MakeOld(path, 2, texts...); err != nil {
		t.Fatal(err)
	}
	const maxSize = 8 << 20
	s := bounded(t, path, maxSize, nil)
	checkSound(t, s)
	for i := range 100 {
		versions, err := s.Versions(context.Background(), hostN(t, i), 9)
		if string(load(t, s, hostN(t, i)).Body) != body || len(versions) != 2 || err != nil {
			t.Fatalf("host %d has %d versions, %v; want its file and 2", i, len(versions), err)
		}
	}
	if err := s.Shrink(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := diskUse(t, path); got > maxSize {
		t.Errorf("the files take %d bytes, want %d at most", got, maxSize)
	}
	checkSound(t, s)
	if !isKept(t, s, hostN(t, 99)) || isKept(t, s, hostN(t, 0)) {
		t.Errorf("the first is kept: %t, the last: %t; want the last alone", isKept(t, s, hostN(t, 0)), isKept(t, s, hostN(t, 99)))
	}
	if pauses, err := s.Kept(); len(pauses) != 1 || err != nil {
		t.Errorf("%d pauses are kept, %v; want 1", len(pauses), err)
	}
}

// TestShrink makes a file smaller while others read and write. A file that is small enough is left as it is.
func TestShrink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := bounded(t, path, 40<<20, nil)
	for i := range 60 {
		saveFor(t, s, "one", hostN(t, i), unique(500_000))
	}
	s.Close()
	const maxSize = 10 << 20
	s = bounded(t, path, maxSize, nil)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			saveFor(t, s, "other", hostN(t, 1000+i%10), unique(1000))
			load(t, s, hostN(t, 1000))
		}
	}()
	err := s.Shrink(ctx)
	stop()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	if got := diskUse(t, path); got > maxSize+maxSize/8 {
		t.Errorf("the files take %d bytes, want about %d at most", got, maxSize)
	}
	checkSound(t, s)
	if kept := isKept(t, s, hostN(t, 59)) && isKept(t, s, hostN(t, 1000)); !kept {
		t.Error("the latest files are not kept")
	}
}
