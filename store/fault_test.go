package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/store"
)

// checkWords wants an error with all words in it.
func checkWords(t *testing.T, act string, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s = %v, want %q in it", act, err, word)
		}
	}
}

func TestFileThatIsNoDatabase(t *testing.T) {
	for name, text := range map[string]string{"text": strings.Repeat("all work and no play\n", 400), "a torn head": "SQLite format 3\x00\x10"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			refused(t, path, "not a database", "move the file")
		})
	}
}

// Of a file with rubbish in it every load is right or an error that says what to do.
func TestDamagedFile(t *testing.T) {
	store.Long(t)
	const n, page = 300, 4096
	empty, err := strconv.Atoi(ask(t, fresh(t), "PRAGMA page_count")) // pages, in which the tables themselves are
	if err != nil {
		t.Fatal(err)
	}
	for first := range 8 { // each run has another page in eight damaged
		path := filepath.Join(t.TempDir(), "state.db")
		s := open(t, path)
		for i := range n {
			save(t, s, found(mustOrigin(t, fmt.Sprintf("http://h%d.example", i)), fmt.Sprintf("%s# %d", file, i), dawn), nil)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := (empty + first) * page; at < len(data); at += 8 * page {
			copy(data[at:], bytes.Repeat([]byte{0xa5}, page))
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if broken := loadAll(t, open(t, path), n, path); broken == 0 {
			t.Errorf("all %d loads of a damaged file were right", n)
		}
		if info, err := os.Stat(path); err != nil || info.Size() < int64(len(data)) {
			t.Errorf("Stat of the damaged file: %v, %v; want it there", info, err)
		}
	}
}

// loadAll returns how many loads failed.
func loadAll(t *testing.T, s *store.State, n int, path string) (broken int) {
	t.Helper()
	for i := range n {
		o := mustOrigin(t, fmt.Sprintf("http://h%d.example", i))
		snap, err := s.Load(context.Background(), o)
		if err != nil {
			broken++
			if !errors.Is(err, robots.ErrNoSnapshot) { // its entry in the index is gone
				checkWords(t, "Load", err, path, o.String(), "move the file")
			}
			continue
		}
		if diff := differ(snap, found(o, fmt.Sprintf("%s# %d", file, i), dawn)); diff != "" {
			t.Errorf("Load(%s) of a damaged file (-want +got):\n%s", o, diff)
		}
	}
	return broken
}

// An octet that fell over is nothing that SQLite would see.
func TestRotIsSeen(t *testing.T) {
	s, ctx := fresh(t), context.Background()
	a, b := mustOrigin(t, "http://a.example"), mustOrigin(t, "http://b.example")
	for _, damage := range []string{
		"UPDATE bodies SET body = CAST(replace(CAST(body AS TEXT), 'Disallow', 'Dis\x01llow') AS BLOB)",
		"UPDATE snapshots SET header = '{', redirects = '[]' WHERE origin = (SELECT id FROM origins WHERE host = 'a.example')",
		"UPDATE snapshots SET header = '', redirects = '[1]' WHERE origin = (SELECT id FROM origins WHERE host = 'a.example')",
		"UPDATE snapshots SET redirects = '[]', marks = 'scratched' WHERE origin = (SELECT id FROM origins WHERE host = 'a.example')",
	} {
		save(t, s, found(a, file, dawn), nil)
		save(t, s, found(b, "# b", dawn), nil)
		if err := s.Exec(ctx, damage); err != nil {
			t.Fatalf("%s: %v", damage, err)
		}
		_, err := s.Load(ctx, a)
		checkWords(t, "Load after "+damage, err, "http://a.example", "not what was saved", "is fetched again and takes its place")
		load(t, s, b)
		if err := s.Exec(ctx, "UPDATE bodies SET body = ? WHERE sha256 = unhex(?)", []byte(file), hashOf(file)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Exec(ctx, "UPDATE bodies SET body = x'00'"); err != nil {
		t.Fatal(err)
	}
	_, err := s.Body(ctx, hashOf(file))
	checkWords(t, "Body", err, hashOf(file), "not what was saved")
	if err := s.Exec(ctx, "UPDATE origins SET site = 'nowhere'||id"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Origins(ctx, "", 9)
	checkWords(t, "Origins", err, "nowhere", "not what was saved")
}

// A body that fell over is replaced by the same text when that is saved again, also of another origin, and stays one.
func TestRotIsHealed(t *testing.T) {
	s, ctx := fresh(t), context.Background()
	a, b := mustOrigin(t, "http://a.example"), mustOrigin(t, "http://b.example")
	for _, text := range []string{file, ""} {
		save(t, s, found(a, text, dawn), nil)
		if err := s.Exec(ctx, "UPDATE bodies SET body = x'00' WHERE sha256 = unhex(?)", hashOf(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(ctx, a); err == nil {
			t.Fatalf("Load of a damaged %q succeeds", text)
		}
		save(t, s, found(b, text, dawn), nil)
		for _, o := range []origin.Origin{a, b} {
			if got := string(load(t, s, o).Body); got != text {
				t.Errorf("Load(%s) after the next Save = %q, want %q", o, got, text)
			}
		}
	}
	if got := count(t, s, "bodies"); got != 2 {
		t.Errorf("%d bodies are kept, want 2", got)
	}
}

// fill saves large texts until that fails, and returns how many were kept and the error.
func fill(t *testing.T, s *store.State) (kept int, err error) {
	t.Helper()
	for ; kept < 1000; kept++ {
		o := mustOrigin(t, fmt.Sprintf("http://h%d.example", kept))
		if err := s.Save(context.Background(), found(o, fmt.Sprintf("%20000d", kept), dawn), nil); err != nil {
			return kept, err
		}
	}
	t.Fatal("nothing was ever full")
	return 0, nil
}

// checkFilled wants all that was kept, and nothing half.
func checkFilled(t *testing.T, s *store.State, kept int) {
	t.Helper()
	for i := range kept {
		o := mustOrigin(t, fmt.Sprintf("http://h%d.example", i))
		if got := string(load(t, s, o).Body); got != fmt.Sprintf("%20000d", i) {
			t.Errorf("Load(%s) from a full disk = %d octets %q ..., want the number %d", o, len(got), got[:min(len(got), 9)], i)
		}
	}
	for _, table := range []string{"snapshots", "versions", "bodies"} {
		if got := count(t, s, table); got != kept {
			t.Errorf("%d %s are kept, want %d", got, table, kept)
		}
	}
}

func TestDatabaseIsFull(t *testing.T) {
	s, ctx := fresh(t), context.Background()
	if err := s.Exec(ctx, "PRAGMA max_page_count = 300"); err != nil {
		t.Fatal(err)
	}
	kept, err := fill(t, s)
	checkWords(t, "Save", err, fmt.Sprintf("http://h%d.example", kept), "full", "state.db")
	checkFilled(t, s, kept)
	if err := s.Exec(ctx, "PRAGMA max_page_count = 600"); err != nil {
		t.Fatal(err)
	}
	save(t, s, found(mustOrigin(t, fmt.Sprintf("http://h%d.example", kept)), fmt.Sprintf("%20000d", kept), dawn), nil)
	checkFilled(t, s, kept+1)
}

// smallDisk returns a folder on a disk of its own, and what changes that disk.
func smallDisk(t *testing.T) (dir string, remount func(options string)) {
	t.Helper()
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("only root on Linux can mount a small disk")
	}
	dir = t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("no disk can be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir, func(options string) {
		if out, err := exec.Command("mount", "-o", "remount,"+options, dir).CombinedOutput(); err != nil {
			t.Fatalf("mount -o remount,%s: %v: %s", options, err, out)
		}
	}
}

func TestDiskIsFull(t *testing.T) {
	dir, remount := smallDisk(t)
	path := filepath.Join(dir, "state.db")
	s := open(t, path)
	kept, err := fill(t, s)
	checkWords(t, "Save", err, path, fmt.Sprintf("http://h%d.example", kept), "whether the disk is full")
	checkFilled(t, s, kept)
	remount("size=16m")
	save(t, s, found(mustOrigin(t, fmt.Sprintf("http://h%d.example", kept)), fmt.Sprintf("%20000d", kept), dawn), nil)
	checkFilled(t, s, kept+1)
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	s = open(t, path)
	checkFilled(t, s, kept+1)
	if got := ask(t, s, "PRAGMA integrity_check"); got != "ok" {
		t.Errorf("integrity_check: %s", got)
	}
}

func TestReadOnlyDisk(t *testing.T) {
	dir, remount := smallDisk(t)
	path := filepath.Join(dir, "state.db")
	if err := open(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	remount("ro")
	refused(t, path, "writable")
}

// TestLogWithoutIndex opens a copy that was made without the -shm, in a folder that cannot be written.
func TestLogWithoutIndex(t *testing.T) {
	dir, remount := smallDisk(t)
	live := filepath.Join(t.TempDir(), "audit.db")
	r, err := store.OpenRecords(store.RecordsOptions{Path: live})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	path := filepath.Join(dir, "audit.db")
	for _, end := range []string{"", "-wal"} {
		data, err := os.ReadFile(live + end)
		if err == nil {
			err = os.WriteFile(path+end, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	remount("ro")
	_, err = store.OpenRecords(store.RecordsOptions{Path: path, ReadOnly: true})
	checkWords(t, "OpenRecords", err, path, "its -wal is here without its -shm", "copy all files to a folder that you can write")
}

func TestReadOnlyFile(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write any file; see TestReadOnlyDisk")
	}
	path := filepath.Join(t.TempDir(), "state.db")
	if err := open(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	refused(t, path, "writable")
}

func TestFolderCannotBeMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file", "state.db")
	if err := os.WriteFile(filepath.Dir(path), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := store.Open(store.Options{Path: path})
	checkWords(t, "Open", err, path, "opening the database")
}

// While another connection writes, reading goes on; who wants to write waits, but not for ever.
func TestAnotherWrites(t *testing.T) {
	path, ctx := filepath.Join(t.TempDir(), "state.db"), context.Background()
	holder := open(t, path)
	a := mustOrigin(t, "http://a.example")
	save(t, holder, found(a, file, dawn), nil)
	hasty, err := store.Open(store.Options{Path: path, Wait: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer hasty.Close()
	patient, err := store.Open(store.Options{Path: path, Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer patient.Close()
	if err := holder.Exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	load(t, hasty, a)
	checkWords(t, "Save", hasty.Save(ctx, found(a, "# new", dawn), nil), path, "another process is writing")
	saved := make(chan error)
	go func() { saved <- patient.Save(ctx, found(a, "# new", dawn), nil) }()
	if err := holder.Exec(ctx, "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-saved; err != nil {
		t.Errorf("Save after the other had written: %v", err)
	}
	if got := string(load(t, hasty, a).Body); got != "# new" {
		t.Errorf("Load = %q, want %q", got, "# new")
	}
}

// A call that waits for another process returns when its context ends, with an error that names the reason.
func TestWaitEndsWithItsContext(t *testing.T) {
	path, ctx := filepath.Join(t.TempDir(), "state.db"), context.Background()
	const wait = time.Minute
	holder := open(t, path)
	s, err := store.Open(store.Options{Path: path, Wait: wait})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := holder.Exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	hasty, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	err = s.Save(hasty, found(mustOrigin(t, "http://a.example"), file, dawn), nil)
	checkWords(t, "Save", err, "another process is writing")
	if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > wait/2 {
		t.Errorf("Save: %v after %v, want %v at once", err, took, context.DeadlineExceeded)
	}
	if err := holder.Exec(ctx, "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
}

func TestContextIsHeeded(t *testing.T) {
	s := fresh(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	a := mustOrigin(t, "http://a.example")
	_, loaded := s.Load(ctx, a)
	_, listed := s.Origins(ctx, "", 9)
	_, pruned := s.Prune(ctx, dawn)
	for act, err := range map[string]error{"Save": s.Save(ctx, found(a, file, dawn), nil), "Load": loaded, "Origins": listed, "Prune": pruned, "Delete": s.Delete(ctx, a)} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a context that has ended = %v, want %v", act, err, context.Canceled)
		}
	}
	if n := count(t, s, "snapshots"); n != 0 {
		t.Errorf("%d snapshots are kept, want none", n)
	}
}

// A State is closed while many use it: each call is whole or an error.
func TestClosedUnderItsCallers(t *testing.T) {
	path, ctx := filepath.Join(t.TempDir(), "state.db"), context.Background()
	s := open(t, path)
	a := mustOrigin(t, "http://a.example")
	save(t, s, found(a, file, dawn), nil)
	var callers sync.WaitGroup
	begun := make(chan bool, 8)
	for range cap(begun) {
		callers.Go(func() {
			begun <- true
			for {
				if err := s.Save(ctx, found(a, file, dawn), nil); err != nil {
					checkWords(t, "Save", err, path, "closed")
					_, err := s.Load(ctx, a)
					checkWords(t, "Load", err, path, "closed")
					return
				}
			}
		})
	}
	for range cap(begun) {
		<-begun
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	callers.Wait()
	if diff := differ(load(t, open(t, path), a), found(a, file, dawn)); diff != "" {
		t.Errorf("after Close (-want +got):\n%s", diff)
	}
}
