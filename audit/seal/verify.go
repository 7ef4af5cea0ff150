package seal

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/robotsproxy/robotsproxy/audit"
)

// ErrNothingSealed is returned by Verify if the log has no checkpoint.
var ErrNothingSealed = errors.New("seal: nothing is sealed")

// VerifyOptions say against what Verify compares.
type VerifyOptions struct {
	Keys        []Verifier // the keys that may have signed
	Checkpoints []string   // notes that were given away
	// Progress is called with the number of records that were compared; it may be nil.
	Progress func(records int64)
}

// Verify compares the records with the tree, and the tree with the checkpoints. It needs memory for some 10,000
// records. The proxy may run meanwhile: what it adds is not yet sealed.
func Verify(ctx context.Context, log Log, o VerifyOptions) (*Report, error) {
	v := &verifier{log: log, options: o, known: make(map[audit.ID]bool), report: &Report{
		Keys: []string{}, Faults: []Fault{}, Prunes: []Prune{}, Counts: make(map[FaultKind]int64),
	}}
	for _, k := range o.Keys {
		v.report.Keys = append(v.report.Keys, k.Name())
	}
	for _, step := range []func(context.Context) error{
		v.checkpoints, v.given, v.checkState, v.loadPrunes, v.checkTree, v.loadErasures, v.records, v.hidden, v.texts,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	if len(v.seals) == 0 && v.report.Sound() {
		return nil, ErrNothingSealed
	}
	v.findSwaps()
	v.sort()
	return v.report, nil
}

type verifier struct {
	log     Log
	options VerifyOptions
	report  *Report

	state    State
	seals    []point   // that are well signed, in order of their sizes
	size     int64     // leaves that the last of seals covers
	leaves   int64     // leaves that are compared
	dropped  int64     // leaves, from the first on, that the log may have removed
	cut      time.Time // records that ended before it have leaves
	erasures map[int64]tlog.Hash
	pruned   audit.ID
	erased   []audit.ID        // in order
	changed  []mismatch        // for findSwaps
	known    map[audit.ID]bool // that are reported as changed
}

// checkpoints reads the state and the checkpoints of the log, and checks their signatures.
func (v *verifier) checkpoints(ctx context.Context) (err error) {
	if v.state, err = v.log.SealState(ctx); err != nil { // before the checkpoints, so that they are not older
		return err
	}
	notes, err := v.log.Checkpoints(ctx)
	if err != nil {
		return err
	}
	if len(notes) == 0 && len(v.options.Checkpoints) == 0 && v.state.Size == 0 {
		if sealed, err := v.hasHashes(ctx); !sealed {
			return cmp.Or(err, ErrNothingSealed)
		}
	}
	for i, text := range notes {
		c, err := OpenCheckpoint(text, v.options.Keys...)
		if err != nil {
			v.report.add(Fault{Kind: BadSignature, Detail: fmt.Sprintf("checkpoint %d of %d: %v", i+1, len(notes), err)})
			continue
		}
		v.seals = append(v.seals, point{c, false})
	}
	v.report.Checkpoints = len(v.seals)
	return nil
}

// hasHashes reports whether the log has hashes, which a person may leave who removes all checkpoints.
func (v *verifier) hasHashes(ctx context.Context) (bool, error) {
	for _, err := range v.log.Tiles(ctx, TileQuery{}) {
		return err == nil, err
	}
	return false, nil
}

// mayDrop reports whether a checkpoint lets the log remove the leaves of a tile. It may be newer than v.seals.
func (v *verifier) mayDrop(ctx context.Context, t *Tile) (bool, error) {
	end := (t.N + 1) * tileSize
	if end <= v.dropped {
		return true, nil
	}
	notes, err := v.log.Checkpoints(ctx)
	for _, text := range notes {
		if c, err := OpenCheckpoint(text, v.options.Keys...); err == nil {
			v.dropped = max(v.dropped, c.Dropped)
		}
	}
	return end <= v.dropped, err
}

// given adds the checkpoints that were given away, unless the log has them.
func (v *verifier) given(context.Context) error {
	for _, text := range v.options.Checkpoints {
		c, err := OpenCheckpoint(text, v.options.Keys...)
		if err != nil {
			return fmt.Errorf("the checkpoint that was given: %w", err)
		}
		if !slices.ContainsFunc(v.seals, func(p point) bool { return p.Size == c.Size && p.Root == c.Root }) {
			v.seals = append(v.seals, point{c, true})
		}
	}
	sort.SliceStable(v.seals, func(i, j int) bool { return v.seals[i].Size < v.seals[j].Size })
	if n := len(v.seals); n > 0 {
		v.size, v.report.Last, v.dropped = v.seals[n-1].Size, v.seals[n-1].Ended, v.seals[n-1].Dropped
	}
	return nil
}

// checkState compares the state with the checkpoints. A log writes both in one transaction.
func (v *verifier) checkState(context.Context) error {
	if v.report.Counts[BadSignature] > 0 {
		return nil
	}
	var next audit.ID
	for _, p := range v.seals {
		next = max(next, p.Pruned, audit.IDAt(p.Ended.Add(-late)))
	}
	if v.state.Next > next {
		v.report.add(Fault{
			Kind: RemovedCheckpoint, Detail: "the state of the seals is that of a later checkpoint, which was removed",
		})
	}
	return nil
}

// loadPrunes reads what was pruned and erased, and compares the mark of the pruning with the prunes.
func (v *verifier) loadPrunes(ctx context.Context) error {
	if err := v.refresh(ctx); err != nil {
		return err
	}
	for _, p := range v.report.Prunes {
		if p.Before.After(p.Time.Add(time.Hour)) { // no clock differs so much
			v.report.add(Fault{Kind: BadPrune, Detail: fmt.Sprintf(
				"the pruning of %s claims records that arrived later, before %s", stamp(p.Time), stamp(p.Before))})
		}
	}
	if v.state.Pruned <= v.pruned {
		return nil
	}
	v.report.add(Fault{Kind: BadPrune, Detail: fmt.Sprintf(
		"records before %s are marked as pruned, and no pruning of them is recorded", stamp(v.state.Pruned.Time()))})
	return nil
}

// loadErasures compares the erasures with their leaves.
func (v *verifier) loadErasures(ctx context.Context) error {
	kept := make(map[int64]bool)
	for s, err := range v.log.Erasures(ctx, 0) {
		if err != nil {
			return err
		}
		kept[s.N] = true
		v.checkErasure(s)
	}
	for n := range v.erasures {
		if !kept[n] {
			v.report.add(Fault{Kind: BadErasure, Detail: fmt.Sprintf("erasure %d was removed", n)})
		}
	}
	return nil
}

func (v *verifier) checkErasure(s *StoredErasure) {
	leaf, sealed := v.erasures[s.N]
	e, err := s.Open()
	switch {
	case err != nil:
		v.report.add(Fault{Kind: BadErasure, Detail: fmt.Sprintf("erasure %d was changed", s.N)})
	case sealed && leaf != tlog.RecordHash(s.Text):
		v.report.add(Fault{Kind: BadErasure, Detail: fmt.Sprintf("erasure %d (%s, %q) was changed", s.N, stamp(e.Time), e.Reason)})
	case !sealed && e.Time.Before(v.report.Last):
		v.report.add(Fault{Kind: BadErasure, Detail: fmt.Sprintf(
			"erasure %d (%q) says that it is of %s, and the checkpoint of %s does not cover it: it was made up later",
			s.N, e.Reason, stamp(e.Time), stamp(v.report.Last))})
	case !sealed:
		v.report.ErasuresUnsealed++
	}
}

// refresh reads what was pruned and erased so far. A mark beyond the prunes and the last checkpoint does not count.
func (v *verifier) refresh(ctx context.Context) error {
	state, err := v.log.SealState(ctx)
	if err != nil {
		return err
	}
	v.state.Pruned = state.Pruned
	var confirmed audit.ID
	if n := len(v.seals); n > 0 {
		confirmed = v.seals[n-1].Pruned
	}
	prunes, err := v.log.Prunes(ctx, confirmed)
	if err != nil {
		return err
	}
	v.report.Prunes = append(v.report.Prunes[:0], prunes...)
	v.pruned = min(v.state.Pruned, max(confirmed, recorded(prunes)))
	v.report.PrunedUnsealed = v.pruned > confirmed
	if v.pruned > 0 {
		v.report.PrunedBefore = v.pruned.Time()
	}
	v.erased = nil
	for s, err := range v.log.Erasures(ctx, 0) {
		if err != nil {
			return err
		}
		if _, err := s.Open(); err == nil {
			v.erased = append(v.erased, s.ids()...)
		}
	}
	slices.Sort(v.erased)
	return nil
}

// hidden finds records that were changed beside the contents that their hashes cover.
func (v *verifier) hidden(ctx context.Context) error {
	ids, err := v.log.Hidden(ctx)
	for _, id := range ids {
		if v.known[id] {
			continue
		}
		v.report.add(Fault{Kind: Changed, ID: id, Detail: id.String() + ": its mark in an index was changed, so that lists leave it out"})
	}
	return err
}

// texts compares bodies and policies with their SHA-256, and counts those that are missing.
func (v *verifier) texts(ctx context.Context) (err error) {
	for t, err := range v.log.Texts(ctx) {
		if err != nil {
			return err
		}
		if sum := sha256.Sum256(t.Data); hex.EncodeToString(sum[:]) != t.SHA256 {
			v.report.add(Fault{Kind: BadText, Detail: fmt.Sprintf("the stored %s with the SHA-256 %s was changed", t.Kind, t.SHA256)})
			continue
		}
		v.report.Texts++
	}
	v.report.Missing, err = v.log.Missing(ctx)
	return err
}

// sort orders the faults of records by their IDs, before all others.
func (v *verifier) sort() {
	slices.SortStableFunc(v.report.Faults, func(a, b Fault) int {
		if a.isRecord() != b.isRecord() {
			if a.isRecord() {
				return -1
			}
			return 1
		}
		return compare(a.ID, b.ID)
	})
}
