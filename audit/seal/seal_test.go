package seal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/robotsproxy/robotsproxy/audit"
)

// TestTree compares the roots with those of package tlog.
func TestTree(t *testing.T) {
	var hashes []tlog.Hash
	stored := tlog.HashReaderFunc(func(indexes []int64) (list []tlog.Hash, err error) {
		for _, i := range indexes {
			list = append(list, hashes[i])
		}
		return list, nil
	})
	var ours tree
	for i := range int64(1000) {
		leaf := tlog.RecordHash([]byte{byte(i), byte(i >> 8)})
		more, err := tlog.StoredHashesForRecordHash(i, leaf, stored)
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, more...)
		ours.add(leaf)
		if want, err := tlog.TreeHash(i+1, stored); err != nil || ours.root() != want {
			t.Fatalf("the root of %d leaves is %v, want %v, %v", i+1, ours.root(), want, err)
		}
	}
}

// TestSealAndVerify seals in several steps, with sizes around that of a tile.
func TestSealAndVerify(t *testing.T) {
	for _, steps := range [][]int{{1}, {255, 1, 1}, {256, 256}, {300, 1, 500}, {40 * tileSize, 7}} {
		m, key := &memory{}, newKey(t)
		total := 0
		for _, n := range steps {
			m.fill(n)
			total += n
			if c := m.seal(t, key); c.Size != int64(total) || c.Origin != key.Name() {
				t.Errorf("%v: the checkpoint has %d leaves of %s, want %d of %s", steps, c.Size, c.Origin, total, key.Name())
			}
		}
		m.fill(2)
		r := m.verify(t, key)
		if !r.Sound() || r.Sealed != int64(total) || r.Unsealed != 2 || r.Checkpoints != len(steps) {
			t.Errorf("%v: %+v", steps, r)
		}
	}
}

func TestNothingNewMakesNoCheckpoint(t *testing.T) {
	m, key := &memory{}, newKey(t)
	if c := m.seal(t, key); c != nil {
		t.Errorf("a checkpoint of nothing: %+v", c)
	}
	if _, err := Verify(context.Background(), m, VerifyOptions{Keys: []Verifier{key.Public()}}); !errors.Is(err, ErrNothingSealed) {
		t.Errorf("Verify: %v, want ErrNothingSealed", err)
	}
	m.fill(3)
	first := m.seal(t, key)
	if again := m.seal(t, key); again.Note != first.Note || len(m.checkpoints) != 1 {
		t.Errorf("a second seal without records made %d checkpoints", len(m.checkpoints))
	}
}

// TestOpenRecords: a record that has not ended comes with a later seal, and OpenFor after its arrival as it is.
func TestOpenRecords(t *testing.T) {
	m, key := &memory{}, newKey(t)
	m.fill(5)
	at := m.records[1].EndedAt
	m.records[1].EndedAt, m.records[3].EndedAt = time.Time{}, time.Time{}
	m.seal(t, key)
	m.records[1].EndedAt = at.Add(time.Minute)
	m.fill(100)
	m.seal(t, key)
	if r := m.verify(t, key); !r.Sound() || r.Sealed != 104 || r.Unsealed != 1 || r.Late != 0 {
		t.Errorf("one record open: %+v", r)
	}
	later := func() time.Time { return m.after().Add(OpenFor) }
	if _, err := Seal(context.Background(), m, key, Options{Now: later, Wait: -1}); err != nil {
		t.Fatal(err)
	}
	if r := m.verify(t, key); !r.Sound() || r.Sealed != 105 {
		t.Errorf("after a day: %+v", r)
	}
	m.records[3].EndedAt = later().Add(time.Hour)
	if r := m.verify(t, key); !r.Sound() || r.Sealed != 104 || r.Unsealed != 1 {
		t.Errorf("it ended after all: %+v", r)
	}
	last := func() time.Time { return later().Add(2 * time.Hour) }
	if _, err := Seal(context.Background(), m, key, Options{Now: last, Wait: -1, Late: true}); err != nil {
		t.Fatal(err)
	}
	if r := m.verify(t, key); !r.Sound() || r.Sealed != 105 {
		t.Errorf("sealed once more: %+v", r)
	}
}

// TestFaults changes a sealed log in many ways. Verify names each.
func TestFaults(t *testing.T) {
	const n = 700
	for _, row := range []struct {
		name   string
		tamper func(m *memory)
		kind   FaultKind
		id     int    // index of the record before the change; -1: it is not named
		detail string // part of the text
	}{
		{"changed", func(m *memory) { m.records[300].Status = 403 }, Changed, 300, ""},
		{"hidden", func(m *memory) { m.hidden = []audit.ID{m.records[300].ID} }, Changed, 300, "leave it out"},
		{"removed", func(m *memory) { m.records = append(m.records[:300:300], m.records[301:]...) }, Removed, 300, ""},
		{"first removed", func(m *memory) { m.records = m.records[1:] }, Removed, 0, ""},
		{"last removed", func(m *memory) { m.records = m.records[:n-1] }, Removed, n - 1, ""},
		{"all removed", func(m *memory) { m.records = nil }, Removed, 0, ""},
		{"swapped", func(m *memory) {
			a, b := *m.records[300], *m.records[301]
			a.ID, b.ID = b.ID, a.ID
			m.records[300], m.records[301] = &b, &a
		}, Swapped, 300, ""},
		{"inserted", func(m *memory) {
			r := *m.records[300]
			r.ID++
			m.records = append(m.records[:301:301], append([]*audit.Record{&r}, m.records[301:]...)...)
		}, Inserted, -1, ""},
		{"leaf recomputed", func(m *memory) {
			m.records[300].Status = 403
			m.rehash(300)
		}, BadTree, -1, "at least one of the 401 from"},
		{"id of a leaf changed", func(m *memory) { m.tiles[1].Data[100*leafSize+8] ^= 1 }, BadTree, -1, "ids beside the hashes"},
		{"tile removed", func(m *memory) { m.tiles = append(m.tiles[:1:1], m.tiles[2:]...) }, BadTree, -1, "from number 257 to 512 are missing"},
		{"tile cut", func(m *memory) { m.tiles[2].Data = m.tiles[2].Data[:leafSize] }, BadTree, -1, "the last ones were removed"},
		{"tile damaged", func(m *memory) { m.tiles[0].Data = m.tiles[0].Data[1:] }, BadTree, -1, "are damaged"},
		{"root kept only", func(m *memory) { m.tiles[1].Data = nil }, BadTree, -1, "cannot be compared"},
		{"checkpoint edited", func(m *memory) { m.checkpoints[0] = strings.Replace(m.checkpoints[0], "\n300\n", "\n301\n", 1) }, BadSignature, -1, "signature is wrong"},
		{"checkpoint truncated", func(m *memory) { m.checkpoints[1] = m.checkpoints[1][:20] }, BadSignature, -1, "not a signed note"},
		{"erasure changed", func(m *memory) {
			m.erasures[0].Text = []byte(strings.Replace(string(m.erasures[0].Text), "asked", "forced", 1))
		}, BadErasure, -1, "erasure 1"},
		{"erasure names more", func(m *memory) { m.erasures[0].IDs = appendID(m.erasures[0].IDs, int64(m.records[5].ID)) }, BadErasure, -1, "erasure 1"},
		{"erasure removed", func(m *memory) { m.erasures = nil }, BadErasure, -1, "erasure 1 was removed"},
		{"erasure made up", func(m *memory) {
			e, _ := NewErasure(2, begin, "root", "asked", []audit.ID{m.records[300].ID})
			m.erasures = append(m.erasures, e)
		}, BadErasure, -1, "made up later"},
		{"body changed", func(m *memory) { m.texts[0].Data[0]++ }, BadText, -1, "body"},
	} {
		t.Run(row.name, func(t *testing.T) {
			m, key := sealedLog(t, n)
			ids := make([]audit.ID, n)
			for i, r := range m.records {
				ids[i] = r.ID
			}
			row.tamper(m)
			r := m.verify(t, key)
			if r.Counts[row.kind] == 0 {
				t.Fatalf("it found %v, want %s", r.Counts, row.kind)
			}
			var f Fault
			for i := len(r.Faults) - 1; i >= 0; i-- {
				if r.Faults[i].Kind == row.kind {
					f = r.Faults[i]
				}
			}
			if row.id >= 0 && f.ID != ids[row.id] || !strings.Contains(f.Detail, row.detail) {
				t.Errorf("it named %s, %q; want %q", f.ID, f.Detail, row.detail)
			}
		})
	}
}

// sealedLog returns a log with two checkpoints, the first of 300 records, an erasure of none of them, and a body.
func sealedLog(t *testing.T, n int) (*memory, *Key) {
	t.Helper()
	m, key := &memory{}, newKey(t)
	body := []byte("User-agent: *\nDisallow: /\n")
	sum := sha256.Sum256(body)
	m.texts = []*Text{{"body", hex.EncodeToString(sum[:]), body}}
	m.fill(300)
	m.seal(t, key)
	m.fill(n - 300)
	e, err := NewErasure(1, m.after(), "root", "asked", []audit.ID{1})
	if err != nil {
		t.Fatal(err)
	}
	m.erasures = append(m.erasures, e)
	m.seal(t, key)
	if r := m.verify(t, key); !r.Sound() || r.Sealed != int64(n) || r.Texts != 1 || r.ErasuresUnsealed != 0 {
		t.Fatalf("before the change: %+v", r)
	}
	return m, key
}

// rehash writes the hash of record i into its leaf.
func (m *memory) rehash(i int) {
	hash := tlog.RecordHash(audit.AppendCanonical(nil, m.records[i]))
	copy(m.tiles[i/tileSize].Data[i%tileSize*leafSize+9:], hash[:])
}

// TestRewrittenLog: a person with the key seals a changed log again. A checkpoint that was given away shows that.
func TestRewrittenLog(t *testing.T) {
	m, key := sealedLog(t, 700)
	given := m.checkpoints[0]
	if r := m.verify(t, key, given); !r.Sound() {
		t.Fatalf("%+v", r)
	}
	forged := &memory{records: m.records}
	forged.records[10].Status = 403
	forged.seal(t, key)
	if r := forged.verify(t, key); !r.Sound() {
		t.Fatalf("the forged log: %+v", r)
	}
	if r := forged.verify(t, key, given); r.Counts[BadCheckpoint] != 1 {
		t.Errorf("the forged log agrees with the checkpoint that was given away: %+v", r)
	}
	short := &memory{records: m.records[:100]}
	short.seal(t, key)
	if r := short.verify(t, key, given); r.Counts[BadCheckpoint] != 1 || !strings.Contains(r.Faults[0].Detail, "100 hashes are kept") {
		t.Errorf("the short log: %+v", r)
	}
}

// TestErasedAndPruned: records that were erased or pruned are not removed ones.
func TestErasedAndPruned(t *testing.T) {
	m, key := sealedLog(t, 700)
	e, err := NewErasure(2, m.after().Add(time.Second), "root", "asked", []audit.ID{m.records[600].ID, m.records[650].ID})
	if err != nil {
		t.Fatal(err)
	}
	m.erasures = append(m.erasures, e)
	m.records = append(append(m.records[:600:600], m.records[601:650]...), m.records[651:]...)
	m.state.Pruned = m.records[100].ID
	m.prunes = []Prune{{Time: m.after(), Before: m.records[100].ID.Time(), Records: 100, Why: "test"}}
	m.records = m.records[100:]
	r := m.verify(t, key)
	if !r.Sound() || r.Erased != 2 || r.Pruned != 100 || r.Sealed != 598 || r.ErasuresUnsealed != 1 || !r.PrunedUnsealed {
		t.Errorf("%+v", r)
	}
	now := func() time.Time { return begin.Add(time.Hour) }
	if _, err := Seal(context.Background(), m, key, Options{Now: now, Wait: -1}); err != nil {
		t.Fatal(err)
	}
	if r = m.verify(t, key); !r.Sound() || r.Erased != 2 || r.ErasuresUnsealed != 0 || r.PrunedUnsealed {
		t.Errorf("after the next seal: %+v", r)
	}
}

// TestLate: a record that was written late is a fault until a seal covers it, and counted then.
func TestLate(t *testing.T) {
	m, key := sealedLog(t, 700)
	r := *m.records[400]
	r.ID++
	m.records = append(m.records[:401:401], append([]*audit.Record{&r}, m.records[401:]...)...)
	if r := m.verify(t, key); r.Counts[Inserted] != 1 {
		t.Errorf("before the seal: %+v", r)
	}
	m.seal(t, key)
	if rep := m.verify(t, key); !rep.Sound() || rep.Late != 1 || rep.FirstLate != r.ID {
		t.Errorf("after the seal: %+v", rep)
	}
}

// TestKilledSeal ends a seal at each of its writes. The log is sound, and the next seal continues.
func TestKilledSeal(t *testing.T) {
	for step := range 5 {
		m, key := sealedLog(t, 700)
		m.fill(100 * tileSize)
		writes := 0
		m.fail = func(string) error {
			if writes++; writes > step {
				return errors.New("killed")
			}
			return nil
		}
		if _, err := Seal(context.Background(), m, key, Options{Now: m.after, Wait: -1}); err == nil {
			t.Fatalf("step %d: the seal was not ended", step)
		}
		m.fail = nil
		if r := m.verify(t, key); !r.Sound() || r.Sealed != 700 {
			t.Errorf("step %d: %+v", step, r)
		}
		m.seal(t, key)
		if r := m.verify(t, key); !r.Sound() || r.Sealed != 700+100*tileSize || r.Unsealed != 0 {
			t.Errorf("step %d: %+v", step, r)
		}
	}
}

// TestSealsAtOnce: each record gets one leaf.
func TestSealsAtOnce(t *testing.T) {
	m, key := &memory{}, newKey(t)
	m.fill(50 * tileSize)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			l := &locked{memory: m}
			if _, err := Seal(context.Background(), l, key, Options{Now: m.after, Wait: -1}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if r := m.verify(t, key); !r.Sound() || r.Sealed != 50*tileSize || m.state.Size != 50*tileSize {
		t.Errorf("%d leaves: %+v", m.state.Size, r)
	}
}

// TestRefusesToSignChanges: a seal does not sign a tree that its last checkpoint contradicts.
func TestRefusesToSignChanges(t *testing.T) {
	for _, tile := range []int{0, 2} {
		m, key := sealedLog(t, 700)
		m.records[tile*tileSize].Status = 403
		m.rehash(tile * tileSize)
		root := tileRoot(m.tiles[tile].Data)
		if m.tiles[tile].Root != nil {
			m.tiles[tile].Root = root[:]
		}
		m.fill(1)
		if _, err := Seal(context.Background(), m, key, Options{Now: m.after, Wait: -1}); err == nil || !strings.Contains(err.Error(), "audit verify") {
			t.Errorf("tile %d: %v", tile, err)
		}
	}
}

func TestKeys(t *testing.T) {
	dir := t.TempDir()
	key, made, err := OpenKey(dir, "")
	if err != nil || !made || !strings.HasPrefix(key.Name(), "robotsproxy/") || len(key.Name()) != len("robotsproxy/")+8 {
		t.Fatalf("%+v, %t, %v", key, made, err)
	}
	path := filepath.Join(dir, KeyFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if again, made, err := OpenKey(dir, ""); err != nil || made || again.Public() != key.Public() && again.Public().String() != key.Public().String() {
		t.Errorf("the second time: %v, %t, %v", again, made, err)
	}
	if v, err := OpenVerifier(filepath.Join(dir, PublicFile)); err != nil || v.String() != key.Public().String() {
		t.Errorf("%v, %v", v, err)
	}
	if named, _, err := OpenKey(t.TempDir(), "example.org/audit"); err != nil || named.Name() != "example.org/audit" {
		t.Errorf("%v, %v", named, err)
	}
	for _, row := range []struct{ name, want string }{{"two words", "space"}, {"a+b", "plus"}} {
		if _, _, err := OpenKey(t.TempDir(), row.name); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%q: %v", row.name, err)
		}
	}
	if _, _, err := OpenKey(dir, "other"); err == nil || !strings.Contains(err.Error(), "keeps its name") {
		t.Error(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenKey(dir, ""); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others can read: %v", err)
	}
	if err := os.WriteFile(path, []byte("PRIVATE+KEY+x"), 0o600); err != nil || os.Chmod(path, 0o600) != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenKey(dir, ""); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a truncated key: %v", err)
	}
}

// TestWrongKey: another key can neither verify nor continue, unless that is wanted.
func TestWrongKey(t *testing.T) {
	m, key := sealedLog(t, 700)
	other := newKey(t)
	if r := m.verify(t, other); r.Counts[BadSignature] != 2 || !strings.Contains(r.Faults[0].Detail, key.Name()) {
		t.Errorf("%+v", r)
	}
	m.fill(1)
	o := Options{Now: m.after, Wait: -1}
	if _, err := Seal(context.Background(), m, other, o); err == nil || !strings.Contains(err.Error(), "--new-key") {
		t.Errorf("%v", err)
	}
	o.Rotate = true
	if _, err := Seal(context.Background(), m, other, o); err != nil {
		t.Fatal(err)
	}
	r, err := Verify(context.Background(), m, VerifyOptions{Keys: []Verifier{key.Public(), other.Public()}})
	if err != nil || !r.Sound() || r.Sealed != 701 {
		t.Errorf("%+v, %v", r, err)
	}
}

// locked is a memory for several goroutines.
type locked struct{ *memory }

func (l *locked) SealState(ctx context.Context) (State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.memory.SealState(ctx)
}

func (l *locked) Tiles(ctx context.Context, q TileQuery) iter.Seq2[*Tile, error] {
	l.mu.Lock()
	defer l.mu.Unlock()
	var tiles []Tile
	for t := range l.memory.Tiles(ctx, q) {
		copied := *t
		copied.Data = slices.Clone(t.Data)
		tiles = append(tiles, copied)
	}
	return (&memory{tiles: tiles}).Tiles(ctx, q)
}

// TestPruneOfTheFuture: a pruning cannot remove records that arrive after it.
func TestPruneOfTheFuture(t *testing.T) {
	m, key := sealedLog(t, 700)
	now := m.after()
	m.prunes = append(m.prunes, Prune{Time: now, Before: now.Add(365 * 24 * time.Hour), Records: 1, Why: "time"})
	if r := m.verify(t, key); r.Counts[BadPrune] != 1 {
		t.Errorf("%+v", r)
	}
}

// TestChangedOnce: a record that was changed in two ways is one fault.
func TestChangedOnce(t *testing.T) {
	m, key := sealedLog(t, 700)
	m.records[5].Status = 403
	m.hidden = append(m.hidden, m.records[5].ID, m.records[6].ID)
	if r := m.verify(t, key); r.Counts[Changed] != 2 {
		t.Errorf("%d records were changed, want 2: %+v", r.Counts[Changed], r.Faults)
	}
}
