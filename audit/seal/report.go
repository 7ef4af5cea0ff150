package seal

import (
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
)

// FaultKind says what is wrong.
type FaultKind string

// The kinds of faults, in the order in which Verify finds them.
const (
	BadSignature      FaultKind = "signature"          // a checkpoint is not signed by the key, or damaged
	BadTree           FaultKind = "tree"               // hashes between two checkpoints were changed, removed or inserted
	BadCheckpoint     FaultKind = "checkpoint"         // the tree does not contain a checkpoint that was given away
	RemovedCheckpoint FaultKind = "checkpoint-removed" // the log does not keep a checkpoint that it had
	BadErasure        FaultKind = "erasure"            // an erasure was changed, removed, or made up
	BadPrune          FaultKind = "prune"              // records are marked as pruned, and no pruning is recorded
	Changed           FaultKind = "changed"
	Swapped           FaultKind = "swapped" // two records have exchanged their contents
	Removed           FaultKind = "removed"
	Inserted          FaultKind = "inserted" // a record ended before a checkpoint that does not cover it
	BadText           FaultKind = "text"     // a body of a robots.txt or a policy does not have its SHA-256
)

// Fault is one finding of Verify.
type Fault struct {
	Kind   FaultKind     `json:"kind"`
	ID     audit.ID      `json:"id,omitzero"`
	Other  audit.ID      `json:"other,omitzero"`    // of Swapped: the other record
	Before audit.ID      `json:"previous,omitzero"` // of Removed: the records that remain before it and after it
	After  audit.ID      `json:"next,omitzero"`
	Record *audit.Record `json:"record,omitempty"` // as it is now
	Detail string        `json:"detail,omitempty"`
}

// Report is the result of Verify.
type Report struct {
	Checkpoints int       `json:"checkpoints"`
	Keys        []string  `json:"keys"`
	Last        time.Time `json:"last_seal,omitzero"` // records that ended before it are sealed
	Sealed      int64     `json:"sealed"`             // records that are kept and agree with their leaves
	Unsealed    int64     `json:"not_yet_sealed"`     // kept, and newer than the last checkpoint
	Unsigned    int64     `json:"hashes_not_signed"`  // leaves after the last checkpoint
	Pruned      int64     `json:"pruned"`             // leaves of records that were pruned
	Erased      int64     `json:"erased"`             // leaves of records that were erased
	Late        int64     `json:"late"`               // sealed by a later checkpoint than the one that should cover them
	FirstLate   audit.ID  `json:"first_late,omitzero"`
	Texts       int64     `json:"texts"` // bodies and policies that have their SHA-256
	Missing     Missing   `json:"missing"`

	PrunedBefore     time.Time `json:"pruned_before,omitzero"`
	Prunes           []Prune   `json:"prunes_not_yet_sealed"`   // that are newer than the last checkpoint
	PrunedUnsealed   bool      `json:"pruned_not_yet_sealed"`   // the last pruning is newer than the last checkpoint
	ErasuresUnsealed int       `json:"erasures_not_yet_sealed"` // erasures that are newer than the last checkpoint

	Faults []Fault             `json:"faults"` // the first of each kind, in order of their IDs
	Counts map[FaultKind]int64 `json:"fault_counts"`
}

// Sound reports whether nothing is wrong.
func (r *Report) Sound() bool { return len(r.Counts) == 0 }

// keptFaults is the number of faults of one kind that a Report has.
const keptFaults = 20

func (r *Report) add(f Fault) {
	r.Counts[f.Kind]++
	if r.Counts[f.Kind] <= keptFaults {
		r.Faults = append(r.Faults, f)
	}
}

func (f *Fault) isRecord() bool {
	return f.Kind == Changed || f.Kind == Swapped || f.Kind == Removed || f.Kind == Inserted
}
