package store

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/seal"
)

// TestPostgresRetention prunes and erases sealed records of three days.
func TestPostgresRetention(t *testing.T) {
	ctx := context.Background()
	key, _, err := seal.OpenKey(filepath.Join(t.TempDir(), "keys"), "")
	if err != nil {
		t.Fatal(err)
	}
	s := &sealed{records: openPostgresRecords(t, RecordsOptions{}), key: key}
	today := time.Now().UTC().Truncate(24 * time.Hour)
	var entries []audit.Entry
	for i := range 72 {
		e := crawl(1, 1, time.Hour)[0]
		at := today.AddDate(0, 0, -3).Add(time.Duration(i) * time.Hour)
		e.ID, e.Time, e.EndedAt = audit.IDAt(at), at, at
		if e.Client = "shop"; i%2 == 0 {
			e.Client = "lab"
		}
		entries = append(entries, e)
	}
	writeRecords(t, s.records, entries...)
	s.seal(t)
	if erased, err := s.records.Erase(ctx, EraseOptions{Client: "lab", By: "me", Reason: "asked"}); err != nil || erased.Records != 36 {
		t.Errorf("Erase = %+v, %v, want 36 records", erased, err)
	}
	s.seal(t)
	if r := s.verify(t); !r.Sound() {
		t.Errorf("after an erasure: %+v", r)
	}
	p, err := s.records.Prune(ctx, PruneOptions{Before: today.AddDate(0, 0, -2).Add(6 * time.Hour)})
	if err != nil || p.Records != 12+3 {
		t.Errorf("Prune = %+v, %v, want 15 records", p, err)
	}
	expectDays(t, s.records, 4) // two of records, today and tomorrow
	if r := s.verify(t); !r.Sound() {
		t.Errorf("after a prune: %+v", r)
	}
	if p, err = s.records.Prune(ctx, PruneOptions{MaxSize: 1}); err != nil || p.Records != 36-15 {
		t.Errorf("Prune by size = %+v, %v, want all days but the one under way", p, err)
	}
	expectDays(t, s.records, 2)
	writeRecords(t, s.records, entries[0]) // late: its table was dropped
	expectDays(t, s.records, 4)
	sums, err := s.records.Sums(ctx, audit.Filter{})
	if err != nil || len(sums) != 1 {
		t.Errorf("Sums = %v, %v", sums, err)
	}
}

func expectDays(t *testing.T, r *Records, want int) {
	t.Helper()
	tables, err := list(context.Background(), r.read, scanText, partitionsSQL)
	if err != nil || len(tables) != want {
		t.Errorf("tables %v, %v, want %d", tables, err, want)
	}
}
