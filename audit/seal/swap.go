package seal

import (
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/robotsproxy/robotsproxy/audit"
)

// mismatch is a changed record, for findSwaps.
type mismatch struct {
	fault int // its index in Report.Faults
	*audit.Record
	leaf tlog.Hash
}

// findSwaps finds the changed records that have the contents of each other.
func (v *verifier) findSwaps() {
	for _, a := range v.changed {
		for _, b := range v.changed {
			if a.ID >= b.ID || !a.isOf(b) || !b.isOf(a) {
				continue
			}
			for i, other := range map[int]audit.ID{a.fault: b.ID, b.fault: a.ID} {
				f := &v.report.Faults[i]
				v.report.Counts[f.Kind]--
				f.Kind, f.Other = Swapped, other
				v.report.Counts[Swapped]++
			}
		}
	}
	if v.report.Counts[Changed] == 0 {
		delete(v.report.Counts, Changed)
	}
}

// isOf reports whether m has the contents that were sealed for other. A store may keep times relative to the ID, so they
// may have moved with it.
func (m mismatch) isOf(other mismatch) bool {
	r := *m.Record
	r.ID = other.ID
	if tlog.RecordHash(audit.AppendCanonical(nil, &r)) == other.leaf {
		return true
	}
	for _, at := range []*time.Time{&r.Time, &r.SentAt, &r.ReleasedAt, &r.EndedAt} {
		if !at.IsZero() {
			*at = at.Add(other.ID.Time().Sub(m.ID.Time()))
		}
	}
	return tlog.RecordHash(audit.AppendCanonical(nil, &r)) == other.leaf
}
