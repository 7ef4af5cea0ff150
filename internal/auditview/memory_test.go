package auditview

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// memory is a Reader of a few records.
type memory struct {
	mu      sync.Mutex // guards records
	records []audit.Record
	file    *audit.File
	policy  []byte
}

func (m *memory) Record(_ context.Context, id audit.ID) (*audit.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.records {
		if r.ID == id {
			return &r, nil
		}
	}
	return nil, audit.ErrNoRecord
}

func (m *memory) put(r audit.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = slices.DeleteFunc(m.records, func(old audit.Record) bool { return old.ID == r.ID })
	m.records = append(m.records, r)
	slices.SortFunc(m.records, func(a, b audit.Record) int { return cmp.Compare(a.ID, b.ID) })
}

func (m *memory) selected(f audit.Filter) (found []audit.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.records {
		if r.Time.Before(f.Since) || f.Decisions != nil && !slices.Contains(f.Decisions, r.Decision) || !f.Newest && r.ID <= f.After && f.After != 0 {
			continue
		}
		found = append(found, r)
	}
	if f.Newest {
		slices.Reverse(found)
	}
	return found
}

func (m *memory) Records(_ context.Context, f audit.Filter) iter.Seq2[*audit.Record, error] {
	return func(yield func(*audit.Record, error) bool) {
		for i, r := range m.selected(f) {
			if f.Limit > 0 && i >= f.Limit || !yield(&r, nil) {
				return
			}
		}
	}
}

func dimensionOf(r audit.Record, by audit.Dimension) string {
	switch by {
	case audit.ByHost:
		return r.Host
	case audit.ByPath:
		return r.Path
	case audit.ByClient:
		return r.Client
	case audit.ByAgent:
		return r.Agent
	case audit.ByRule:
		return audit.RuleText(r.RuleLine, r.Rule)
	case audit.ByReason:
		return string(r.Reason)
	}
	return string(r.Decision)
}

func (m *memory) Uses(context.Context, audit.Filter) iter.Seq2[audit.Use, error] { return nil }

func (m *memory) Sums(_ context.Context, f audit.Filter, by ...audit.Dimension) ([]audit.Sum, error) {
	limit := f.Limit
	f.Limit = 0
	sums := make(map[string]*audit.Sum)
	if len(by) == 0 {
		sums[""] = new(audit.Sum)
	}
	for _, r := range m.selected(f) {
		var values []string
		for _, d := range by {
			values = append(values, dimensionOf(r, d))
		}
		key := strings.Join(values, "\x00")
		s := sums[key]
		if s == nil {
			s = &audit.Sum{Values: values}
			sums[key] = s
		}
		s.Requests++
		s.Waited += time.Duration(r.Waited)
		switch r.Decision {
		case policy.Deny:
			s.Blocked++
		case policy.WouldDeny:
			s.WouldDeny++
		case policy.Error:
			s.Failed++
		}
		if r.Deviation != "" {
			s.Deviating++
		}
	}
	var all []audit.Sum
	for _, s := range sums {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b audit.Sum) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), slices.Compare(a.Values, b.Values))
	})
	if limit > 0 {
		all = all[:min(limit, len(all))]
	}
	return all, nil
}

func (m *memory) Timeline(context.Context, audit.Filter, time.Duration) ([]audit.Point, error) {
	return nil, nil
}

func (m *memory) File(context.Context, *audit.Record) (*audit.File, error) {
	if m.file == nil {
		return nil, audit.ErrNoFile
	}
	return m.file, nil
}

func (m *memory) Files(context.Context, string) ([]audit.File, error) { return nil, nil }

func (m *memory) Body(context.Context, string) ([]byte, error) { return nil, audit.ErrNoFile }

func (m *memory) Policy(context.Context, string) ([]byte, error) {
	if m.policy == nil {
		return nil, audit.ErrNoPolicy
	}
	return m.policy, nil
}

// lockedBuffer may be read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex // guards buf
	buf strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// expect waits until b contains text.
func (b *lockedBuffer) expect(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(b.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s is not in\n%s", text, b)
		}
	}
}
