package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/seal"
	"github.com/robotsproxy/robotsproxy/policy"
)

// sealed is a file of sealed records.
type sealed struct {
	records *Records
	path    string
	key     *seal.Key
	ids     []audit.ID
}

// crawl writes n records that arrived a second apart, the last one a minute ago.
func (s *sealed) crawl(t testing.TB, n int) {
	t.Helper()
	begin := time.Now().Add(-time.Minute - time.Duration(n)*time.Second)
	var entries []audit.Entry
	for i := range n {
		at := begin.Add(time.Duration(i) * time.Second)
		r := audit.Record{
			ID: audit.IDAt(at), Time: at, EndedAt: at.Add(time.Duration(i%7) * time.Millisecond), Via: audit.Plain,
			Client: "news", ClientAddr: fmt.Sprintf("192.0.2.%d:50000", i%3), UserAgent: "NewsBot/1.0 (secret-agent)", Agent: "NewsBot",
			Method: "GET", Scheme: "http", Host: fmt.Sprintf("h%d.example", i%5), Port: 80, Path: fmt.Sprintf("/page/%d", i),
			Decision: policy.Allow, Status: 200, Bytes: int64(i),
		}
		if i%4 == 0 {
			r.Client, r.Tag, r.Decision, r.Reason, r.Status = "lab-client", "lab-secret-tag", policy.Deny, policy.ReasonRobots, 403
		}
		s.ids = append(s.ids, r.ID)
		entries = append(entries, audit.Entry{Record: r})
	}
	writeRecords(t, s.records, entries...)
}

func newSealed(t testing.TB, n int) *sealed {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.db")
	s := &sealed{records: openRecords(t, RecordsOptions{Path: path}), path: path}
	key, _, err := seal.OpenKey(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	s.key = key
	s.crawl(t, n)
	s.seal(t)
	return s
}

func (s *sealed) seal(t testing.TB) {
	t.Helper()
	if _, err := seal.Seal(context.Background(), s.records, s.key, seal.Options{Wait: -1}); err != nil {
		t.Fatal(err)
	}
}

func (s *sealed) verify(t testing.TB) *seal.Report {
	t.Helper()
	r, err := seal.Verify(context.Background(), s.records, seal.VerifyOptions{Keys: []seal.Verifier{s.key.Public()}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSealsOnEach seals, erases and prunes in both databases.
func TestSealsOnEach(t *testing.T) {
	Long(t)
	onEach(t, func(t *testing.T, open opener) {
		ctx := context.Background()
		key, _, err := seal.OpenKey(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		s := &sealed{records: open(t, RecordsOptions{}), key: key}
		s.crawl(t, 10_000)
		s.seal(t)
		s.seal(t)
		if r := s.verify(t); !r.Sound() || r.Sealed != 10_000 || r.Checkpoints != 1 {
			t.Errorf("sealed: %+v", r)
		}
		e, err := s.records.Erase(ctx, EraseOptions{Client: "lab-client", Reason: "asked"})
		if err != nil || e.Records != 2500 || !e.Overwritten {
			t.Fatalf("%+v, %v", e, err)
		}
		sums, err := s.records.Sums(ctx, audit.Filter{Since: s.ids[0].Time().Add(-time.Hour)}, audit.ByClient)
		if err != nil || len(sums) != 1 || sums[0].Requests != 7500 {
			t.Errorf("by client: %+v, %v", sums, err)
		}
		p, err := s.records.Prune(ctx, PruneOptions{Before: time.Now().Add(-time.Hour)})
		if err != nil || p.Records == 0 {
			t.Fatalf("%+v, %v", p, err)
		}
		s.seal(t)
		r := s.verify(t)
		if !r.Sound() || r.Sealed != 7500-p.Records || r.Erased+r.Pruned != 2500+p.Records || r.ErasuresUnsealed != 0 {
			t.Errorf("erased and pruned %d: %+v", p.Records, r)
		}
		if _, err := s.records.write.ExecContext(ctx, "DELETE FROM records WHERE id = ?", int64(s.ids[9999])); err != nil {
			t.Fatal(err)
		}
		if r := s.verify(t); r.Counts[seal.Removed] != 1 || r.Faults[0].ID != s.ids[9999] {
			t.Errorf("removed: %+v", r)
		}
	})
}

// tamper runs SQL in the file as another program would.
func (s *sealed) tamper(t testing.TB, text string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range strings.Split(text, ";") {
		var rest []any
		if strings.Contains(statement, "?") {
			rest = args
		}
		if _, err := db.Exec(statement, rest...); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// TestTampering changes a real file by SQL. Verify names each change.
func TestTampering(t *testing.T) {
	Long(t)
	const n = 600
	for _, row := range []struct {
		name, sql string
		args      func(s *sealed) []any
		want      []seal.FaultKind
		first     int // index of the record that is named first
	}{
		{"changed", "UPDATE records SET path = '/other' WHERE id = ?", one(300), []seal.FaultKind{seal.Changed}, 300},
		{"verdict exchanged", "UPDATE records SET verdict = (SELECT max(id) FROM verdicts) WHERE id = ?", one(300), []seal.FaultKind{seal.Changed}, 300},
		{"dictionary changed", "UPDATE outcomes SET status = 204 WHERE status = 403", none, []seal.FaultKind{seal.Changed}, 0},
		{"hidden from lists", "UPDATE records SET kind = 2 WHERE id = ?", one(300), []seal.FaultKind{seal.Changed}, 300},
		{"removed", "DELETE FROM records WHERE id = ?", one(300), []seal.FaultKind{seal.Removed}, 300},
		{"first removed", "DELETE FROM records WHERE id = ?", one(0), []seal.FaultKind{seal.Removed}, 0},
		{"last removed", "DELETE FROM records WHERE id = ?", one(n - 1), []seal.FaultKind{seal.Removed}, n - 1},
		{
			"swapped", "UPDATE records SET id = 1 WHERE id = ?1; UPDATE records SET id = ?1 WHERE id = ?2; UPDATE records SET id = ?2 WHERE id = 1",
			func(s *sealed) []any { return []any{int64(s.ids[300]), int64(s.ids[305])} },
			[]seal.FaultKind{seal.Swapped},
			300,
		},
		{
			"inserted", "INSERT INTO records SELECT id + 1, " + strings.Join(strings.Fields(rowColumns)[1:], ", ") + " FROM records WHERE id = ?",
			one(300),
			[]seal.FaultKind{seal.Inserted},
			-1,
		},
		{"hashes removed", "DELETE FROM seal_tiles WHERE n = 1", none, []seal.FaultKind{seal.BadTree}, -1},
		{
			"hashes hidden from the comparison", "UPDATE seal_tiles SET low = 0, high = 0 WHERE n = 1; DELETE FROM records WHERE id = ?", one(300),
			[]seal.FaultKind{seal.BadTree},
			-1,
		},
		{"checkpoint changed", "UPDATE seal_checkpoints SET note = replace(note, 'erasures 0', 'erasures 1')", none, []seal.FaultKind{seal.BadSignature}, -1},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSealed(t, n)
			if r := s.verify(t); !r.Sound() || r.Sealed != n {
				t.Fatalf("before: %+v", r)
			}
			s.tamper(t, row.sql, row.args(s)...)
			again, err := OpenRecords(RecordsOptions{Path: s.path, ReadOnly: true}) // its caches are empty
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			r, err := seal.Verify(context.Background(), again, seal.VerifyOptions{Keys: []seal.Verifier{s.key.Public()}})
			if err != nil {
				t.Fatal(err)
			}
			for _, kind := range row.want {
				if r.Counts[kind] == 0 {
					t.Errorf("it found %v, want %s", r.Counts, kind)
				}
			}
			if row.first >= 0 && (len(r.Faults) == 0 || r.Faults[0].ID != s.ids[row.first]) {
				t.Errorf("it named %+v, want record %s first", r.Faults, s.ids[row.first])
			}
		})
	}
}

func none(*sealed) []any { return nil }

func one(i int) func(*sealed) []any {
	return func(s *sealed) []any { return []any{int64(s.ids[i])} }
}

// TestChangedTexts changes a stored robots.txt and a policy.
func TestChangedTexts(t *testing.T) {
	s := newSealed(t, 10)
	s.tamper(t, "INSERT INTO policies VALUES ('"+strings.Repeat("0", 64)+"', 1, X'7B7D');"+
		"INSERT INTO bodies VALUES ('"+strings.Repeat("1", 64)+"', 1, 'news', 0, X'7B7D')")
	if r := s.verify(t); r.Counts[seal.BadText] != 2 {
		t.Errorf("%+v", r)
	}
}

// TestSealsByTwoProcesses: two handles of one file seal at once, beside a writer.
func TestSealsByTwoProcesses(t *testing.T) {
	s := newSealed(t, 5000)
	other := openRecords(t, RecordsOptions{Path: s.path})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			log := s.records
			if i%2 == 1 {
				log = other
			}
			late := audit.Entry{Record: audit.Record{ID: audit.IDAt(time.Now().Add(time.Duration(i) * time.Second)), EndedAt: time.Now()}}
			if err := log.Write(context.Background(), []audit.Entry{late}); err != nil {
				t.Error(err)
			}
			if _, err := seal.Seal(context.Background(), log, s.key, seal.Options{Wait: -1}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if r := s.verify(t); !r.Sound() || r.Sealed+r.Unsealed != 5004 {
		t.Errorf("%+v", r)
	}
}

// TestSealOfATruncatedFile: a damaged file is an error that says so.
func TestSealOfATruncatedFile(t *testing.T) {
	s := newSealed(t, 5000)
	data, err := copyOf(t, s.path)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "audit.db")
	if err := os.WriteFile(path, data[:len(data)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := OpenRecords(RecordsOptions{Path: path, ReadOnly: true})
	if err == nil {
		defer r.Close()
		_, err = seal.Verify(context.Background(), r, seal.VerifyOptions{Keys: []seal.Verifier{s.key.Public()}})
	}
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("%v", err)
	}
}

// copyOf returns the bytes of a database without its log.
func copyOf(t *testing.T, path string) ([]byte, error) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if _, err := db.Exec("VACUUM INTO ?", to); err != nil {
		return nil, err
	}
	return os.ReadFile(to)
}

// TestRemovedCheckpoints removes checkpoints by SQL, to hide what was done to the records that they cover.
func TestRemovedCheckpoints(t *testing.T) {
	Long(t)
	const (
		last       = "DELETE FROM seal_checkpoints WHERE size = (SELECT max(size) FROM seal_checkpoints)"
		all        = "DELETE FROM seal_checkpoints"
		change     = "; UPDATE records SET path = '/other' WHERE id = ?"
		remove     = "; DELETE FROM records WHERE id = ?"
		cutHashes  = "; UPDATE seal_tiles SET data = substr(data, 1, 88 * 41), root = NULL WHERE n = 2; DELETE FROM seal_tiles WHERE n > 2"
		resetState = "; UPDATE seal_state SET size = 600, next = 1"
	)
	for _, row := range []struct {
		name, sql string
		given     bool // compare with the last checkpoint, which was given away
		want      []seal.FaultKind
	}{
		{"last", last, false, []seal.FaultKind{seal.RemovedCheckpoint}},
		{"last, given", last, true, []seal.FaultKind{seal.RemovedCheckpoint}},
		{"last with a change", last + change, false, []seal.FaultKind{seal.RemovedCheckpoint, seal.Changed}},
		{"last with a change, given", last + change, true, []seal.FaultKind{seal.RemovedCheckpoint, seal.Changed}},
		{"last with a removal", last + remove, false, []seal.FaultKind{seal.RemovedCheckpoint, seal.Removed}},
		{"last with a removal, given", last + remove, true, []seal.FaultKind{seal.RemovedCheckpoint, seal.Removed}},
		{"last with its hashes", last + cutHashes, false, []seal.FaultKind{seal.RemovedCheckpoint, seal.BadTree}},
		{"last with its hashes and a removal, given", last + cutHashes + resetState + remove, true, []seal.FaultKind{seal.BadCheckpoint}},
		{"last with a change of the state", last + "; UPDATE seal_state SET next = 1" + change, false, []seal.FaultKind{seal.Changed}},
		{"all", all, false, []seal.FaultKind{seal.RemovedCheckpoint}},
		{"all, given", all, true, []seal.FaultKind{seal.RemovedCheckpoint}},
		{"all with a change", all + change, false, []seal.FaultKind{seal.RemovedCheckpoint, seal.Changed}},
		{"all with a removal, given", all + remove, true, []seal.FaultKind{seal.RemovedCheckpoint, seal.Removed}},
		{"all with a change of the state", all + "; UPDATE seal_state SET next = 0" + change, false, []seal.FaultKind{seal.Changed}},
		{"all with a removal and no state", all + "; UPDATE seal_state SET next = 0, size = 0" + remove, false, []seal.FaultKind{seal.Removed}},
		{"all seals, given", all + "; DELETE FROM seal_tiles; DELETE FROM seal_state" + remove, true, []seal.FaultKind{seal.BadCheckpoint}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSealed(t, 600)
			s.crawl(t, 100)
			c, err := seal.Seal(context.Background(), s.records, s.key, seal.Options{Wait: -1})
			if err != nil || c.Size != 700 {
				t.Fatalf("%+v, %v", c, err)
			}
			if r := s.verify(t); !r.Sound() || r.Sealed != 700 {
				t.Fatalf("before: %+v", r)
			}
			s.tamper(t, row.sql, int64(s.ids[650]))
			again := openRecords(t, RecordsOptions{Path: s.path, ReadOnly: true}) // its caches are empty
			o := seal.VerifyOptions{Keys: []seal.Verifier{s.key.Public()}}
			if row.given {
				o.Checkpoints = []string{c.Note}
			}
			r, err := seal.Verify(context.Background(), again, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, kind := range row.want {
				if r.Counts[kind] != 1 {
					t.Errorf("it found %v %+v, want %s once", r.Counts, r.Faults, kind)
				}
			}
		})
	}
}

// TestPretendedPrunes marks records as pruned by SQL, and removes them. Verify names them, and no seal confirms that.
func TestPretendedPrunes(t *testing.T) {
	Long(t)
	const (
		mark       = "UPDATE seal_state SET pruned = ?"
		remove     = "; DELETE FROM records WHERE id < ?"
		entry      = "; INSERT INTO prunes (id, time, before, records, why) VALUES (1, 1000000, %s, 300, 'audit prune')"
		noTile     = "; UPDATE seal_tiles SET data = NULL WHERE n = 0"
		unrecorded = "no pruning of them is recorded"
		oneTile    = "; DELETE FROM records WHERE id < (SELECT low FROM seal_tiles WHERE n = 1)"
	)
	for _, row := range []struct {
		name, sql string
		want      map[seal.FaultKind]int64
		refusal   string // of the next seal
	}{
		{"mark", mark, map[seal.FaultKind]int64{seal.BadPrune: 1}, unrecorded},
		{"mark and removal", mark + remove, map[seal.FaultKind]int64{seal.BadPrune: 1, seal.Removed: 300}, unrecorded},
		{
			"entry for fewer", mark + remove + fmt.Sprintf(entry, "1000000"),
			map[seal.FaultKind]int64{seal.BadPrune: 1, seal.Removed: 300},
			unrecorded,
		},
		{"hashes and records", noTile[2:] + oneTile, map[seal.FaultKind]int64{seal.BadTree: 1}, "damaged"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSealed(t, 600)
			s.tamper(t, row.sql, int64(s.ids[300]))
			if r := s.verify(t); !maps.Equal(r.Counts, row.want) || r.PrunedUnsealed {
				t.Errorf("it found %v %+v, want %v", r.Counts, r.Faults, row.want)
			}
			s.crawl(t, 1)
			_, err := seal.Seal(context.Background(), s.records, s.key, seal.Options{Wait: -1})
			if err == nil || !strings.Contains(err.Error(), row.refusal) {
				t.Errorf("the next seal: %v", err)
			}
			if r := s.verify(t); r.Sound() {
				t.Errorf("sound after the next seal: %+v", r)
			}
		})
	}
}

// TestPrunesUntilSealed: Verify lists a prune until a checkpoint confirms it, and the checkpoint names it.
func TestPrunesUntilSealed(t *testing.T) {
	ctx := context.Background()
	s := newSealed(t, 10_000) // 2 hours and 46 minutes
	p, err := s.records.Prune(ctx, PruneOptions{Before: time.Now().Add(-time.Hour), Why: "test"})
	if err != nil || p.Records == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	isIt := func(list []seal.Prune) bool {
		return len(list) == 1 && list[0].Before.Equal(p.Before) && list[0].Records == p.Records && list[0].Why == "test"
	}
	if r := s.verify(t); !r.Sound() || !r.PrunedUnsealed || !isIt(r.Prunes) {
		t.Errorf("before the seal: %+v of %+v", r, p)
	}
	s.crawl(t, 1)
	c, err := seal.Seal(ctx, s.records, s.key, seal.Options{Wait: -1})
	if err != nil || !isIt(c.Prunes) {
		t.Fatalf("%+v, %v", c, err)
	}
	if r := s.verify(t); !r.Sound() || r.PrunedUnsealed || len(r.Prunes) != 0 {
		t.Errorf("after the seal: %+v", r)
	}
	s.crawl(t, 1)
	if c, err := seal.Seal(ctx, s.records, s.key, seal.Options{Wait: -1}); err != nil || len(c.Prunes) != 0 {
		t.Errorf("the second seal: %+v, %v", c, err)
	}
}

// A prune that ends early is recorded with what it has removed.
func TestPruneThatEndsEarly(t *testing.T) {
	Long(t)
	s := newSealed(t, 14_000) // 3 hours and 53 minutes: of these at least 6,800 arrived before the last whole hour but one
	ctx := context.Background()
	_, err := s.records.write.ExecContext(ctx, fmt.Sprintf(
		"CREATE TRIGGER stop BEFORE DELETE ON records WHEN old.id > %d BEGIN SELECT RAISE(ABORT, 'stop'); END", s.ids[5500]))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.records.Prune(ctx, PruneOptions{Before: time.Now().Add(-time.Hour), Why: "test"}); err == nil {
		t.Fatal("the prune did not end early")
	}
	if r := s.verify(t); !r.Sound() || r.Pruned != 5000 || len(r.Prunes) != 1 || r.Prunes[0].Records != 5000 {
		t.Errorf("%+v", r)
	}
}

func TestMissingEvidence(t *testing.T) { onEach(t, checkMissingEvidence) }

// Verify counts the files and policies that are missing, and those of removed records not.
func checkMissingEvidence(t *testing.T, open opener) {
	ctx := context.Background()
	r := open(t, RecordsOptions{})
	key, _, err := seal.OpenKey(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	entries := crawl(3, 1, 3*time.Hour)
	for i := range entries {
		p, err := policy.New(policy.Options{Mode: policy.Report, MaxCrawlDelay: time.Duration(i+1) * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		entries[i] = fetchOf(t, entries[i], fmt.Sprintf("# %d", i), nil)
		entries[i].SetPolicy(p)
	}
	writeAll(t, r, entries)
	s := &sealed{records: r, key: key}
	s.seal(t)
	if rep := s.verify(t); !rep.Sound() || rep.Sealed != 3 || rep.Texts != 6 || rep.Missing != (seal.Missing{}) {
		t.Fatalf("%+v", rep)
	}
	for _, text := range []string{
		"DELETE FROM bodies WHERE sha256 IN (SELECT sha256 FROM bodies ORDER BY sha256 LIMIT 2)",
		"DELETE FROM policies WHERE sha256 IN (SELECT sha256 FROM policies ORDER BY sha256 LIMIT 1)",
		"UPDATE files SET sha256 = (SELECT max(sha256) FROM files)",
	} {
		if _, err := r.write.ExecContext(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	want := seal.Missing{Bodies: 2, Versions: 2, Policies: 1}
	if rep := s.verify(t); !rep.Sound() || rep.Texts != 3 || rep.Missing != want {
		t.Errorf("missing: %+v, want %+v", rep, want)
	}
	if _, err := r.write.ExecContext(ctx, "DELETE FROM records"); err != nil {
		t.Fatal(err)
	}
	if rep := s.verify(t); rep.Counts[seal.Removed] != 3 || rep.Missing != (seal.Missing{}) {
		t.Errorf("without records: %+v", rep)
	}
}

// Hashes that go without a checkpoint that says so are a fault, although earlier ones were pruned.
func TestDroppedHashes(t *testing.T) {
	Long(t)
	s := newSealed(t, 10_000) // 2 hours and 46 minutes
	p, err := s.records.Prune(context.Background(), PruneOptions{Before: time.Now().Add(-time.Hour)})
	if err != nil || p.Records == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	s.crawl(t, 1)
	s.seal(t)
	if r := s.verify(t); !r.Sound() || r.Pruned != p.Records {
		t.Fatalf("%+v of %+v", r, p)
	}
	s.tamper(t, "DELETE FROM records WHERE id >= (SELECT low FROM seal_tiles WHERE n = 30) AND id <= (SELECT high FROM seal_tiles WHERE n = 30);"+
		"UPDATE seal_tiles SET data = NULL, low = 1, high = 1 WHERE n = 30")
	if r := s.verify(t); r.Counts[seal.BadTree] != 1 || !strings.Contains(r.Faults[len(r.Faults)-1].Detail, "from number 7681 to 7936 were removed") {
		t.Errorf("%v %+v", r.Counts, r.Faults)
	}
}
