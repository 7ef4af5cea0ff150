package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/robotsproxy/robotsproxy/policy"
)

func linesOf(ids ...ID) (batch []Entry) {
	for _, id := range ids {
		batch = append(batch, Entry{Record: Record{ID: id, Decision: policy.Allow}})
	}
	return batch
}

// Two processes write to one file, and each renames it when it is full. Each record is in one file, whole.
func TestLinesRotate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	const each, size, keep = 2000, 4096, 10_000
	var group sync.WaitGroup
	for p := range 2 {
		l, err := OpenLines(LinesOptions{Path: path, MaxSize: size, Keep: keep})
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			for i := range each {
				if err := l.write(t.Context(), linesOf(ID(p*each+i))); err != nil {
					t.Error(err)
				}
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	seen := make(map[ID]int)
	for _, file := range files {
		for _, r := range lines(t, file) {
			seen[r.ID]++
		}
		if info, err := os.Stat(file); err != nil || info.Size() > size+200 {
			t.Errorf("%s has %d bytes, %v", file, info.Size(), err)
		}
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("record %d is there %d times", id, n)
		}
	}
	if len(seen) != 2*each {
		t.Errorf("%d records, want %d", len(seen), 2*each)
	}
}

// The newest old file is .1, and no more than Keep stay.
func TestLinesKeep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := OpenLines(LinesOptions{Path: path, MaxSize: 1, Keep: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if err := l.write(t.Context(), linesOf(ID(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(path + "*")
	var ids []ID
	for _, file := range files {
		for _, r := range lines(t, file) {
			ids = append(ids, r.ID)
		}
	}
	if got := fmt.Sprint(ids); len(files) != 3 || got != fmt.Sprint([]ID{4, 3, 2}) {
		t.Errorf("%v have %s, want the last record, then the ones before", files, got)
	}
}

// A file that cannot be renamed, or not be opened after that, continues; and later it is renamed.
func TestLinesCannotRotate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")
	l, err := OpenLines(LinesOptions{Path: path, MaxSize: 1, Keep: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	write := func(id ID) {
		t.Helper()
		if err := l.write(t.Context(), linesOf(id)); err != nil {
			t.Fatal(err)
		}
	}
	write(1)
	if err := os.MkdirAll(filepath.Join(path+".1", "x"), 0o700); err != nil { // no file can replace it
		t.Fatal(err)
	}
	write(2)
	if n := len(lines(t, path)); n != 2 {
		t.Errorf("%d records, want 2 in the file that continues", n)
	}
	if err := os.RemoveAll(path + ".1"); err != nil {
		t.Fatal(err)
	}
	write(3)
	if old, now := lines(t, path+".1"), lines(t, path); len(old) != 2 || len(now) != 1 {
		t.Errorf("%d records in the old file and %d in the new one, want 2 and 1", len(old), len(now))
	}
}
