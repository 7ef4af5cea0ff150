package store

import (
	"os"
	"testing"
	"time"
)

// TestSizeOfRecords checks that a record takes at most 150 bytes on disk with all indexes, counts and dictionaries, for
// paths of 40 bytes over 1,000 hosts.
func TestSizeOfRecords(t *testing.T) {
	const n = 150_000
	Long(t)
	r := openRecords(t, RecordsOptions{})
	entries := crawl(n, 1000, time.Hour)
	writeAll(t, r, entries)
	if _, err := r.write.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(r.path)
	if err != nil {
		t.Fatal(err)
	}
	paths, lines := 0, 0
	for i := range entries {
		paths += len(entries[i].Path)
		lines += len(entries[i].AppendJSON(nil))
	}
	if per := float64(info.Size()) / n; per > 150 {
		t.Errorf("a record takes %.1f bytes, want 150 at most; as JSON %d bytes, its path %d", per, lines/n, paths/n)
	} else {
		t.Logf("a record takes %.1f bytes; as JSON %d bytes, its path %d", per, lines/n, paths/n)
	}
}
