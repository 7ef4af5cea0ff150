package proof_test

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/robotsproxy/robotsproxy/audit"
)

// memory is an audit.Reader of some records. Methods that it does not have panic.
type memory struct {
	audit.Reader
	records  []audit.Record
	files    []audit.File
	bodies   map[string]string
	policies map[string][]byte
}

func (m *memory) Records(_ context.Context, f audit.Filter) iter.Seq2[*audit.Record, error] {
	sorted := slices.SortedFunc(slices.Values(m.records), func(a, b audit.Record) int { return cmp.Compare(a.ID, b.ID) })
	if f.Newest {
		slices.Reverse(sorted)
	}
	return func(yield func(*audit.Record, error) bool) {
		var shared audit.Record
		for i := range sorted {
			if sorted[i].ID <= f.After || !f.Selects(&sorted[i]) {
				continue
			}
			shared = sorted[i]
			if !yield(&shared, nil) {
				return
			}
		}
	}
}

func (m *memory) Files(context.Context, string) ([]audit.File, error) { return m.files, nil }

func (m *memory) Body(_ context.Context, sha string) ([]byte, error) {
	if body, ok := m.bodies[sha]; ok {
		return []byte(body), nil
	}
	return nil, audit.ErrNoFile
}

func (m *memory) Policy(_ context.Context, sha string) ([]byte, error) {
	if text, ok := m.policies[sha]; ok {
		return text, nil
	}
	return nil, audit.ErrNoPolicy
}
