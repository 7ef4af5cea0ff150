package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/store"
)

// The summary names the times in which requests were not recorded.
func TestSummaryNamesGaps(t *testing.T) {
	dir := t.TempDir()
	kept, err := store.OpenRecords(store.RecordsOptions{Path: filepath.Join(dir, "audit.db")})
	if err != nil {
		t.Fatal(err)
	}
	var ids audit.Sequence
	at := time.Now().Add(-time.Minute).Truncate(time.Microsecond)
	rec := audit.Record{ID: ids.Next(at), Time: at, Host: "a.example", Via: audit.Plain, Decision: policy.Allow, EndedAt: at}
	if err := kept.Write(t.Context(), []audit.Entry{{Record: rec}}); err != nil {
		t.Fatal(err)
	}
	if err := kept.AddLoss(t.Context(), store.Loss{Began: at, Ended: at.Add(time.Second), Records: 12}); err != nil {
		t.Fatal(err)
	}
	if err := kept.Close(); err != nil {
		t.Fatal(err)
	}
	var out, talk bytes.Buffer
	status := run([]string{"audit", "--data-dir", dir}, stdio{nil, &out, &talk})
	if want := "Gaps in the record: 12 requests not recorded between "; status != 0 || !strings.Contains(out.String(), want) {
		t.Errorf("audit = %d, %s%s; want %s in it", status, &out, &talk, want)
	}
}
