package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
)

// withFile makes e rest on a robots.txt of its origin.
func withFile(t testing.TB, e audit.Entry, client string, body []byte) audit.Entry {
	t.Helper()
	snap := &robots.Snapshot{Client: client}
	var err error
	if snap.Origin, err = origin.Parse("https://" + e.Host); err != nil {
		t.Fatal(err)
	}
	snap.Availability, snap.Status, snap.Body, snap.Fetched = robots.Found, 200, body, e.Time
	sum := sha256.Sum256(body)
	snap.SHA256 = hex.EncodeToString(sum[:])
	snap.Redirects, snap.ContentType = []string{"https://www." + e.Host + "/robots.txt"}, "text/plain"
	snap.ETag, snap.Fields = `"v1"`, "Cache-Control: max-age=60\r\n"
	e.Evidence.Robots = snap
	e.RobotsSHA256, e.RobotsStatus, e.RobotsState = snap.SHA256, 200, snap.State()
	return e
}

func TestFilesOfRecords(t *testing.T) { onEach(t, checkFilesOfRecords) }

func checkFilesOfRecords(t *testing.T, open opener) {
	r := open(t, RecordsOptions{})
	ctx := context.Background()
	entries := crawl(2, 1, 48*time.Hour)
	first := withFile(t, entries[0], "news", []byte("User-agent: *\nDisallow: /a\n"))
	second := withFile(t, entries[1], "news", []byte(strings.Repeat("User-agent: *\nDisallow: /b\n", 100)))
	writeRecords(t, r, first, second)
	for _, e := range []audit.Entry{first, second} {
		f, err := r.File(ctx, &e.Record)
		if err != nil {
			t.Fatal(err)
		}
		if string(f.Body) != string(e.Evidence.Robots.Body) || f.State != "found" || f.Size != len(f.Body) || len(f.Redirects) != 1 ||
			f.Header != "Content-Type: text/plain\r\nETag: \"v1\"\r\nCache-Control: max-age=60\r\n" {
			t.Errorf("File = %+v", f)
		}
	}
	files, err := r.Files(ctx, first.Host)
	if err != nil || len(files) != 2 || files[0].SHA256 != first.RobotsSHA256 || !files[1].FirstSeen.Equal(second.ID.Time()) {
		t.Errorf("Files = %+v, %v", files, err)
	}
	other := first.Record
	other.RobotsSHA256 = strings.Repeat("0", 64)
	if _, err := r.File(ctx, &other); !errors.Is(err, audit.ErrNoFile) {
		t.Errorf("File of another record = %v, want ErrNoFile", err)
	}
}

func TestPruneByAge(t *testing.T) { onEach(t, checkPruneByAge) }

func checkPruneByAge(t *testing.T, open opener) {
	r := open(t, RecordsOptions{})
	ctx := context.Background()
	entries := crawl(2000, 5, 10*24*time.Hour)
	entries[0] = withFile(t, entries[0], "news", []byte("# old\n"))
	last := len(entries) - 1
	entries[last] = withFile(t, entries[last], "news", []byte("# new\n"))
	writeAll(t, r, entries)
	before := firstDay.Add(6*24*time.Hour + 30*time.Minute)
	dry, err := r.Prune(ctx, PruneOptions{Before: before, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Prune(ctx, PruneOptions{Before: before, Why: "age"})
	if err != nil {
		t.Fatal(err)
	}
	var kept []audit.Entry
	for _, e := range entries {
		if !e.Time.Before(before.Truncate(time.Hour)) {
			kept = append(kept, e)
		}
	}
	if want := int64(len(entries) - len(kept)); p.Records != want || dry.Records != want {
		t.Errorf("%d records were removed, the dry run says %d; want %d", p.Records, dry.Records, want)
	}
	checkTotals(t, r, audit.Filter{}, kept, func(*audit.Record) bool { return true })
	if got := ids(t, r, audit.Filter{}); len(got) != len(kept) {
		t.Errorf("%d records are left, want %d", len(got), len(kept))
	}
	if _, err := r.Body(ctx, entries[0].RobotsSHA256); !errors.Is(err, audit.ErrNoFile) {
		t.Errorf("the body of a removed record: %v, want ErrNoFile", err)
	}
	if _, err := r.Body(ctx, entries[last].RobotsSHA256); err != nil {
		t.Errorf("the body of a record: %v", err)
	}
	info, err := r.Info(ctx)
	if err != nil || len(info.Prunes) != 1 || info.Prunes[0].Why != "age" || info.First != kept[0].ID || info.Last != entries[last].ID {
		t.Errorf("Info = %+v, %v", info, err)
	}
	// Rows that were removed are added again.
	again := entries[:20]
	writeRecords(t, r, again...)
	for _, e := range again {
		if _, err := r.Record(ctx, e.ID); err != nil {
			t.Errorf("a record after the prune: %v", err)
		}
	}
	if _, err := r.Body(ctx, entries[0].RobotsSHA256); err != nil {
		t.Errorf("the body of a record after the prune: %v", err)
	}
}

func TestPruneKeepsTextsUntilNextDayEnds(t *testing.T) {
	onEach(t, checkPruneKeepsTextsUntilNextDayEnds)
}

// checkPruneKeepsTextsUntilNextDayEnds checks how long a robots.txt stays after its last record, as docs/audit.md
// describes.
func checkPruneKeepsTextsUntilNextDayEnds(t *testing.T, open opener) {
	r := open(t, RecordsOptions{})
	ctx := context.Background()
	const day = 24 * time.Hour
	entries := crawl(48, 1, 2*day) // one each hour: a prune without records removes no texts
	entries[0] = withFile(t, entries[0], "news", []byte("# old\n"))
	writeAll(t, r, entries)
	for _, tt := range []struct {
		before time.Time
		want   error
	}{{firstDay.Add(2*day - time.Hour), nil}, {firstDay.Add(2 * day), audit.ErrNoFile}} {
		if _, err := r.Prune(ctx, PruneOptions{Before: tt.before, Why: "age"}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Record(ctx, entries[0].ID); !errors.Is(err, audit.ErrNoRecord) {
			t.Errorf("the record after a prune before %v: %v, want ErrNoRecord", tt.before, err)
		}
		if _, err := r.Body(ctx, entries[0].RobotsSHA256); !errors.Is(err, tt.want) {
			t.Errorf("the body after a prune before %v: %v, want %v", tt.before, err, tt.want)
		}
	}
}

func TestPruneBySize(t *testing.T) {
	Long(t)
	r := openRecords(t, RecordsOptions{})
	ctx := context.Background()
	entries := crawl(20_000, 5, 48*time.Hour)
	writeAll(t, r, entries)
	if _, err := r.write.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	size, err := r.usedBytes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Prune(ctx, PruneOptions{MaxSize: size / 2, Why: "size"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.write.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(r.path)
	if err != nil {
		t.Fatal(err)
	}
	if p.Records == 0 || info.Size() > size/2 || p.Records > int64(len(entries))*3/4 {
		t.Errorf("%d of %d records were removed; the file has %d bytes of %d", p.Records, len(entries), info.Size(), size)
	}
	if got := len(ids(t, r, audit.Filter{})); int64(got) != int64(len(entries))-p.Records {
		t.Errorf("%d records are left", got)
	}
}

// The bodies of one client do not displace those of another.
func TestBodiesAreBudgeted(t *testing.T) { onEach(t, checkBodiesAreBudgeted) }

func checkBodiesAreBudgeted(t *testing.T, open opener) {
	const most = 4 << 20
	r := open(t, RecordsOptions{MaxSize: most})
	ctx := context.Background()
	random := rand.New(rand.NewPCG(3, 4))
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	entries := crawl(60, 1, time.Hour)
	quiet := entries[0]
	quiet.Host = "quiet.example"
	quiet = withFile(t, quiet, "quiet", noise(50<<10))
	writeRecords(t, r, quiet)
	for i, e := range entries[1:] {
		e.Host = fmt.Sprintf("flood-%d.example", i)
		writeRecords(t, r, withFile(t, e, "flood", noise(100<<10)))
	}
	if _, err := r.Body(ctx, quiet.RobotsSHA256); err != nil {
		t.Errorf("the body of the quiet client: %v", err)
	}
	var size int64
	if err := r.read.QueryRow("SELECT sum(length(body)) FROM bodies").Scan(&size); err != nil || size > most/bodyShare || size < most/bodyShare/2 {
		t.Errorf("bodies take %d bytes, %v; want nearly %d", size, err, most/bodyShare)
	}
	info, err := r.Info(ctx)
	if err != nil || info.BodiesDropped < 40 {
		t.Errorf("%d bodies were dropped, %v", info.BodiesDropped, err)
	}
}

// A file that another process writes, a copy without a log, and one in a folder that cannot be written can be read.
func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	r := openRecords(t, RecordsOptions{Path: filepath.Join(dir, "audit.db")})
	writeRecords(t, r, crawl(10, 2, time.Hour)...)
	read := func(path string) {
		t.Helper()
		reader, err := OpenRecords(RecordsOptions{Path: path, ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		if got := len(ids(t, reader, audit.Filter{})); got != 10 {
			t.Errorf("%d records, want 10", got)
		}
		if err := reader.Write(context.Background(), crawl(1, 1, time.Hour)); !errors.Is(err, errReadOnly) {
			t.Errorf("Write = %v, want an error", err)
		}
	}
	read(r.path)
	if err := r.write.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.read.Close(); err != nil {
		t.Fatal(err)
	}
	r.write, r.read = nil, nil
	body, err := os.ReadFile(r.path)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.MkdirAll(copied, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(copied, "audit.db")
	if err := os.WriteFile(path, body, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(copied, 0o500); err != nil {
		t.Fatal(err)
	}
	read(path)
	if _, err := OpenRecords(RecordsOptions{Path: filepath.Join(dir, "none.db"), ReadOnly: true}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
}

func TestRecordsRefuseOtherFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	s, err := Open(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, readOnly := range []bool{false, true} {
		_, err := OpenRecords(RecordsOptions{Path: path, ReadOnly: readOnly})
		if err == nil || !strings.Contains(err.Error(), "another program") {
			t.Errorf("state.db as records (read only: %v): %v", readOnly, err)
		}
	}
	newer := filepath.Join(dir, "audit.db")
	r, err := OpenRecords(RecordsOptions{Path: newer})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.write.Exec("PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for _, readOnly := range []bool{false, true} {
		_, err := OpenRecords(RecordsOptions{Path: newer, ReadOnly: readOnly})
		if err == nil || !strings.Contains(err.Error(), "a newer robotsproxy wrote it (version 99") {
			t.Errorf("a newer file (read only: %v): %v", readOnly, err)
		}
	}
}

func TestLosses(t *testing.T) { onEach(t, checkLosses) }

func checkLosses(t *testing.T, open opener) {
	r := open(t, RecordsOptions{})
	l := Loss{Began: firstDay, Ended: firstDay.Add(time.Second), Records: 3}
	if err := r.AddLoss(context.Background(), l); err != nil {
		t.Fatal(err)
	}
	info, err := r.Info(context.Background())
	if err != nil || len(info.Losses) != 1 || info.Losses[0] != l {
		t.Errorf("Info = %+v, %v", info, err)
	}
}

// Records that arrive after a prune count, even if its time lies in the future.
func TestPruneOfTheFuture(t *testing.T) {
	r := openRecords(t, RecordsOptions{})
	now := time.Now()
	entries := crawl(20, 2, time.Second)
	for i := range entries {
		entries[i].ID, entries[i].Time = audit.IDAt(now.Add(time.Duration(i)*time.Millisecond)), now
	}
	writeRecords(t, r, entries[:10]...)
	if _, err := r.Prune(context.Background(), PruneOptions{Before: now.AddDate(1, 0, 0), Why: "test"}); err != nil {
		t.Fatal(err)
	}
	writeRecords(t, r, entries[10:]...)
	if got := len(ids(t, r, audit.Filter{})); got != 20 {
		t.Errorf("%d records, want 20", got)
	}
	checkTotals(t, r, audit.Filter{}, entries, func(*audit.Record) bool { return true })
}

// Records of one hour are pruned by size, and those that stay and come are counted.
func TestPruneBySizeWithinAnHour(t *testing.T) {
	Long(t)
	r := openRecords(t, RecordsOptions{})
	ctx := context.Background()
	entries := crawl(60_000, 5, 50*time.Minute)
	writeAll(t, r, entries[:50_000])
	size, err := r.usedBytes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Prune(ctx, PruneOptions{MaxSize: size / 2, Why: "size"})
	if err != nil {
		t.Fatal(err)
	}
	if used, err := r.usedBytes(ctx); err != nil || used > size/2 || p.Records > 45_000 {
		t.Errorf("%d bytes are in use, %v; want %d at most; %d records were removed", used, err, size/2, p.Records)
	}
	writeAll(t, r, entries[50_000:])
	left := entries[p.Records:]
	if got := len(ids(t, r, audit.Filter{})); got != len(left) {
		t.Errorf("%d records are left, want %d", got, len(left))
	}
	sums, err := r.Sums(ctx, audit.Filter{})
	if err != nil || len(sums) != 1 || sums[0].Requests != int64(len(left)) {
		t.Errorf("Sums = %+v, %v; want %d requests", sums, err, len(left))
	}
	if info, err := r.Info(ctx); err != nil || len(info.Prunes) != 1 || info.Prunes[0].Records != p.Records {
		t.Errorf("Info = %+v, %v; want one prune of %d", info, err, p.Records)
	}
}
