package seal

import (
	"context"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
)

// memory is a Log in memory.
type memory struct {
	mu          sync.Mutex
	records     []*audit.Record // in order
	state       State
	tiles       []Tile
	checkpoints []string
	covered     int64 // by the last of them
	erasures    []*StoredErasure
	prunes      []Prune
	texts       []*Text
	hidden      []audit.ID
	fail        func(what string) error // before a write; nil: it succeeds
}

func (m *memory) Record(_ context.Context, id audit.ID) (*audit.Record, error) {
	if i := m.index(id); i >= 0 {
		return m.records[i], nil
	}
	return nil, audit.ErrNoRecord
}

func (m *memory) index(id audit.ID) int {
	return slices.IndexFunc(m.records, func(r *audit.Record) bool { return r.ID == id })
}

func (m *memory) Records(_ context.Context, f audit.Filter) iter.Seq2[*audit.Record, error] {
	return func(yield func(*audit.Record, error) bool) {
		n := 0
		for _, r := range m.records {
			if r.ID <= f.After {
				continue
			}
			if n++; n > f.Limit || !yield(r, nil) {
				return
			}
		}
	}
}

func (m *memory) SealState(context.Context) (State, error) { return m.state, nil }

func (m *memory) Tiles(_ context.Context, q TileQuery) iter.Seq2[*Tile, error] {
	return func(yield func(*Tile, error) bool) {
		for _, t := range m.tiles {
			if t.N < q.From || q.To > 0 && t.N >= q.To || q.Roots && q.To == 0 || q.High > 0 && (t.Low > q.High || t.High < q.Low) {
				continue
			}
			if !yield(&t, nil) {
				return
			}
		}
	}
}

func (m *memory) try(what string) error {
	if m.fail == nil {
		return nil
	}
	return m.fail(what)
}

func (m *memory) AppendTiles(_ context.Context, tiles []Tile, from, to int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.try("tiles"); err != nil {
		return err
	}
	if m.state.Size != from {
		return ErrMoved
	}
	for _, t := range tiles {
		t.Data = slices.Clone(t.Data)
		m.tiles = append(m.tiles[:t.N], t)
	}
	m.state.Size = to
	return nil
}

func (m *memory) Checkpoints(context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.checkpoints), nil
}

func (m *memory) AppendCheckpoint(_ context.Context, c *Checkpoint, last int64, next audit.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.try("checkpoint"); err != nil {
		return err
	}
	if m.state.Size != c.Size || m.covered != last {
		return ErrMoved
	}
	m.covered = c.Size
	m.checkpoints, m.state.Next = append(m.checkpoints, c.Note), next
	return nil
}

func (m *memory) Prunes(_ context.Context, from audit.ID) (list []Prune, err error) {
	for _, p := range m.prunes {
		if audit.IDAt(p.Before) > from {
			list = append(list, p)
		}
	}
	return list, nil
}

func (m *memory) Erasures(_ context.Context, after int64) iter.Seq2[*StoredErasure, error] {
	return func(yield func(*StoredErasure, error) bool) {
		for _, e := range m.erasures {
			if e.N > after && !yield(e, nil) {
				return
			}
		}
	}
}

func (m *memory) Hidden(context.Context) ([]audit.ID, error) { return m.hidden, nil }

func (m *memory) Texts(context.Context) iter.Seq2[*Text, error] {
	return func(yield func(*Text, error) bool) {
		for _, t := range m.texts {
			if !yield(t, nil) {
				return
			}
		}
	}
}

func (m *memory) Missing(context.Context) (Missing, error) { return Missing{}, nil }

// begin is when the first record of a test arrives.
var begin = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// fill adds n records, each a second after the one before.
func (m *memory) fill(n int) {
	for range n {
		at := begin.Add(time.Duration(len(m.records)) * time.Second)
		m.records = append(m.records, &audit.Record{
			ID: audit.IDAt(at), Time: at, EndedAt: at.Add(300 * time.Millisecond), Client: "news", Host: "a.example",
			Path: "/page/" + at.Format("150405"), Decision: "allow", Status: 200,
		})
	}
}

// after returns the time after all records.
func (m *memory) after() time.Time { return begin.Add(time.Duration(len(m.records)) * time.Second) }

// seal seals all records of m.
func (m *memory) seal(t *testing.T, key *Key) *Checkpoint {
	t.Helper()
	c, err := Seal(context.Background(), m, key, Options{Now: m.after, Wait: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (m *memory) verify(t *testing.T, key *Key, given ...string) *Report {
	t.Helper()
	r, err := Verify(context.Background(), m, VerifyOptions{Keys: []Verifier{key.Public()}, Checkpoints: given})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newKey(t *testing.T) *Key {
	t.Helper()
	key, _, err := OpenKey(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	return key
}
