package store

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
)

// fetchOf makes e rest on a robots.txt of its origin that was fetched at its arrival.
func fetchOf(t testing.TB, e audit.Entry, body string, change func(*audit.Entry)) audit.Entry {
	t.Helper()
	e = withFile(t, e, "news", []byte(body))
	e.Evidence.Robots.ETag = fmt.Sprintf(`"%d"`, e.ID)
	if change != nil {
		change(&e)
	}
	snap := e.Evidence.Robots
	e.RobotsStatus, e.RobotsState, e.RobotsFetchedAt = snap.Status, snap.State(), snap.Fetched
	return e
}

func TestVersionsInOrder(t *testing.T) { onEach(t, checkVersionsInOrder) }

// A file that returns to an earlier text has one more version. So has one that moves.
func checkVersionsInOrder(t *testing.T, open opener) {
	r := open(t, RecordsOptions{})
	ctx := context.Background()
	entries := crawl(9, 1, 9*time.Hour)
	move := func(e *audit.Entry) { e.Evidence.Robots.Redirects = []string{"https://moved.example/robots.txt"} }
	stale := func(e *audit.Entry) {
		snap := e.Evidence.Robots
		snap.Stale, snap.Status, snap.Fetched = true, 503, entries[6].Time
	}
	for i, f := range []struct {
		body   string
		change func(*audit.Entry)
	}{
		{"A", nil},
		{"B", nil},
		{"A", nil},
		{"A", nil},
		{"A", func(e *audit.Entry) { e.Evidence.Robots.Status = 304 }},
		{"C", nil},
		{"C", move},
		{"C", func(e *audit.Entry) { move(e); stale(e) }},
		{"C", move},
	} {
		entries[i] = fetchOf(t, entries[i], f.body, f.change)
	}
	for _, i := range []int{0, 1, 3, 2, 4, 5, 6, 7, 8} { // the first record of a version is written after the next one
		writeRecords(t, r, entries[i])
	}
	files, err := r.Files(ctx, entries[0].Host)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ first, last int }{{0, 0}, {1, 1}, {2, 4}, {5, 5}, {6, 6}, {7, 7}, {8, 8}}
	for i, f := range files {
		if i >= len(want) {
			break
		}
		first, last := &entries[want[i].first], &entries[want[i].last]
		if f.SHA256 != first.RobotsSHA256 || f.State != first.RobotsState || !f.FirstSeen.Equal(first.ID.Time()) ||
			!f.LastSeen.Equal(last.ID.Time()) || !f.Fetched.Equal(first.RobotsFetchedAt.Truncate(time.Microsecond)) {
			t.Errorf("version %d: %+v", i+1, f)
		}
	}
	if len(files) != len(want) {
		t.Errorf("%d versions, want %d", len(files), len(want))
	}
	for i, version := range []int{0, 1, -1, -1, -1, 5, 6, 7, 8} { // by its first fetch
		if version < 0 {
			continue
		}
		f, err := r.File(ctx, &entries[i].Record)
		if err != nil {
			t.Fatal(err)
		}
		if snap := entries[version].Evidence.Robots; f.Header != headerLines(snap) || len(f.Redirects) != 1 || f.Redirects[0] != snap.Redirects[0] {
			t.Errorf("the file of record %d has the header %q and the redirects %q", i, f.Header, f.Redirects)
		}
	}
	if f, err := r.File(ctx, &entries[4].Record); err != nil || f.Status != 200 || string(f.Body) != "A" {
		t.Errorf("the file that a 304 validated = %+v, %v", f, err)
	}
}

func TestLastSeen(t *testing.T) { onEach(t, checkLastSeen) }

// The last record of a version counts to the microsecond.
func checkLastSeen(t *testing.T, open opener) {
	r := open(t, RecordsOptions{})
	entries := crawl(20, 1, time.Minute)
	for i := range entries {
		body := strings.Repeat("x", i/10+1)
		entries[i] = fetchOf(t, entries[i], body, func(e *audit.Entry) { e.Evidence.Robots.Fetched = entries[i/10*10].Time })
	}
	writeRecords(t, r, entries[1:]...)
	writeRecords(t, r, entries[0]) // it lasted longer
	files, err := r.Files(context.Background(), entries[0].Host)
	if err != nil || len(files) != 2 {
		t.Fatalf("Files = %+v, %v", files, err)
	}
	for i, f := range files {
		if first, last := entries[10*i].ID.Time(), entries[10*i+9].ID.Time(); !f.FirstSeen.Equal(first) || !f.LastSeen.Equal(last) {
			t.Errorf("version %d was seen from %v to %v, want %v to %v", i+1, f.FirstSeen, f.LastSeen, first, last)
		}
	}
}

func TestFlappingFile(t *testing.T) { onEach(t, checkFlappingFile) }

// A file that changes at each fetch has a version for each fetch that a kept record refers to.
func checkFlappingFile(t *testing.T, open opener) {
	r := open(t, RecordsOptions{})
	entries := crawl(200, 1, 20*24*time.Hour)
	for i := range entries {
		entries[i] = fetchOf(t, entries[i], strings.Repeat("x", i%2+1), nil)
	}
	writeAll(t, r, entries)
	if n := scanOne(t, r, "SELECT count(*) FROM files"); n != 200 {
		t.Errorf("%d versions, want 200", n)
	}
	if _, err := r.Prune(context.Background(), PruneOptions{Before: firstDay.Add(18 * 24 * time.Hour), Why: "age"}); err != nil {
		t.Fatal(err)
	}
	if n := scanOne(t, r, "SELECT count(*) FROM files"); n < 20 || n > 30 {
		t.Errorf("%d versions are left for the 20 kept records, and 10 of the day before", n)
	}
}

func scanOne(t *testing.T, r *Records, question string) (n int) {
	t.Helper()
	if err := r.read.QueryRowContext(context.Background(), question).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
