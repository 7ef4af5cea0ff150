package seal

import (
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

// FaultKind says what is wrong.
type FaultKind string

// The kinds of faults, in the order in which Verify finds them.
const (
	BadSignature  FaultKind = "signature"  // a checkpoint is not signed by the key, or damaged
	BadTree       FaultKind = "tree"       // hashes between two checkpoints were changed, removed or inserted
	BadCheckpoint FaultKind = "checkpoint" // the tree does not contain a checkpoint that was given away
	BadErasure    FaultKind = "erasure"    // an erasure was changed, removed, or made up
	Changed       FaultKind = "changed"
	Swapped       FaultKind = "swapped" // two records have exchanged their contents
	Removed       FaultKind = "removed"
	Inserted      FaultKind = "inserted" // a record ended before a checkpoint that does not cover it
	BadText       FaultKind = "text"     // a body of a robots.txt or a policy does not have its SHA-256
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
	Pruned      int64     `json:"pruned"`             // leaves of records that were pruned
	Erased      int64     `json:"erased"`             // leaves of records that were erased
	Late        int64     `json:"late"`               // sealed by a later checkpoint than the one that should cover them
	FirstLate   audit.ID  `json:"first_late,omitzero"`
	Texts       int64     `json:"texts"` // bodies and policies that have their SHA-256

	PrunedBefore     time.Time `json:"pruned_before,omitzero"`
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
	if r.Counts == nil {
		r.Counts = make(map[FaultKind]int64)
	}
	r.Counts[f.Kind]++
	if r.Counts[f.Kind] <= keptFaults {
		r.Faults = append(r.Faults, f)
	}
}

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
	v := &verifier{log: log, options: o, report: &Report{}}
	for _, k := range o.Keys {
		v.report.Keys = append(v.report.Keys, k.Name())
	}
	for _, step := range []func(context.Context) error{v.checkpoints, v.given, v.checkTree, v.loadErasures, v.records, v.hidden, v.texts} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	v.findSwaps()
	v.sort()
	return v.report, nil
}

type verifier struct {
	log     Log
	options VerifyOptions
	report  *Report

	seals    []*Checkpoint // that are well signed, in order of their sizes
	aside    []*Checkpoint // that were given away
	size     int64         // leaves that the last of seals covers
	erasures map[int64]tlog.Hash
	pruned   audit.ID
	erased   []audit.ID // in order
	changed  []mismatch // for findSwaps
}

func (v *verifier) last() *Checkpoint { return v.seals[len(v.seals)-1] }

// checkpoints checks the signatures.
func (v *verifier) checkpoints(ctx context.Context) error {
	notes, err := v.log.Checkpoints(ctx)
	if err != nil {
		return err
	}
	if len(notes) == 0 && len(v.options.Checkpoints) == 0 {
		return ErrNothingSealed
	}
	for i, text := range notes {
		c, err := OpenCheckpoint(text, v.options.Keys...)
		if err != nil {
			v.report.add(Fault{Kind: BadSignature, Detail: fmt.Sprintf("checkpoint %d of %d: %v", i+1, len(notes), err)})
			continue
		}
		v.seals = append(v.seals, c)
	}
	sort.SliceStable(v.seals, func(i, j int) bool { return v.seals[i].Size < v.seals[j].Size })
	v.report.Checkpoints = len(v.seals)
	if len(v.seals) > 0 {
		v.size, v.report.Last = v.last().Size, v.last().Ended
	}
	return nil
}

// given reads the checkpoints that were given away.
func (v *verifier) given(context.Context) error {
	for _, text := range v.options.Checkpoints {
		c, err := OpenCheckpoint(text, v.options.Keys...)
		if err != nil {
			return fmt.Errorf("the checkpoint that was given: %w", err)
		}
		v.aside = append(v.aside, c)
	}
	return nil
}

// point is a size of the tree at which its root must be that of a checkpoint.
type point struct {
	*Checkpoint
	aside bool
}

// points returns the sizes at which the tree is compared, in order.
func (v *verifier) points() []point {
	var points []point
	for _, c := range v.seals {
		points = append(points, point{c, false})
	}
	for _, c := range v.aside {
		points = append(points, point{c, true})
	}
	sort.SliceStable(points, func(i, j int) bool { return points[i].Size < points[j].Size })
	return points
}

// checkTree computes the root of the tree at the size of each checkpoint. All come from the same leaves, so a checkpoint
// with the computed root extends each one before. One with another root is reported with its range, and the next is not,
// since it covers the same leaves.
func (v *verifier) checkTree(ctx context.Context) error {
	w := walk{v: v, points: v.points(), erasures: make(map[int64]tlog.Hash)}
	for tile, err := range v.log.Tiles(ctx, TileQuery{}) {
		if err != nil {
			return err
		}
		if !w.tile(tile) {
			break
		}
	}
	w.end()
	v.erasures = w.erasures
	return nil
}

// walk goes over all leaves in order.
type walk struct {
	v        *verifier
	points   []point // not yet reached
	tree     tree
	erasures map[int64]tlog.Hash

	since   idHash
	partial bool  // since lacks leaves that were removed
	begin   int64 // size of the checkpoint before
	low     audit.ID
	high    audit.ID
	broken  bool // a root was wrong
}

// tile adds a tile. It reports false after a gap, or if there is nothing left to compare.
func (w *walk) tile(t *Tile) bool {
	if t.N*tileSize != w.tree.size {
		w.fault(fmt.Sprintf("the hashes from number %d to %d are missing", w.tree.size+1, t.N*tileSize))
		return false
	}
	if t.Data == nil && len(t.Root) == tlog.HashSize {
		w.v.report.Pruned += tileSize
		w.skip(t)
		return len(w.points) > 0
	}
	leaves, err := t.Leaves()
	if err != nil {
		w.fault(fmt.Sprintf("the hashes from number %d on are damaged", w.tree.size+1))
		return false
	}
	for _, leaf := range leaves {
		if len(w.points) == 0 {
			return false
		}
		w.leaf(leaf)
	}
	return true
}

// skip adds a tile of which only the root is kept.
func (w *walk) skip(t *Tile) {
	w.partial = true
	w.tree.addTile(tlog.Hash(t.Root))
	for len(w.points) > 0 && w.points[0].Size < w.tree.size {
		p := w.points[0]
		w.points = w.points[1:]
		w.v.report.add(Fault{Kind: BadTree, Detail: fmt.Sprintf(
			"the checkpoint of %s cannot be compared: its hashes were removed after their records were pruned", stamp(p.Ended))})
	}
	w.compare()
}

func (w *walk) leaf(leaf Leaf) {
	w.tree.add(leaf.Hash)
	w.since.add(leaf)
	if leaf.Kind == erasureKind {
		w.erasures[leaf.ID] = leaf.Hash
	} else {
		id := audit.ID(leaf.ID)
		if w.low == 0 {
			w.low = id
		}
		w.low, w.high = min(w.low, id), max(w.high, id)
	}
	w.compare()
}

// compare compares the tree with the checkpoints of its size.
func (w *walk) compare() {
	for len(w.points) > 0 && w.points[0].Size == w.tree.size {
		p := w.points[0]
		w.points = w.points[1:]
		switch {
		case w.broken:
		case p.Root != w.tree.root() && p.aside:
			w.broken = true
			w.v.report.add(Fault{Kind: BadCheckpoint, Detail: fmt.Sprintf(
				"the checkpoint of %s that was given away is of another tree: %s", stamp(p.Ended), w.rangeText())})
		case p.Root != w.tree.root():
			w.fault("hashes were changed with their records: " + w.rangeText())
		case !p.aside && !w.partial && p.IDs != w.since.sum():
			w.fault("the ids beside the hashes were changed: " + w.rangeText())
		}
		if !p.aside {
			w.since, w.partial, w.begin, w.low, w.high = idHash{}, false, w.tree.size, 0, 0
		}
	}
}

// rangeText describes the leaves since the checkpoint before.
func (w *walk) rangeText() string {
	if w.low == 0 {
		return fmt.Sprintf("hash %d to %d", w.begin+1, w.tree.size)
	}
	return fmt.Sprintf("at least one of the %d from %s (%s) to %s (%s)", w.tree.size-w.begin,
		w.low, stamp(w.low.Time()), w.high, stamp(w.high.Time()))
}

func (w *walk) fault(detail string) {
	w.broken = true
	w.v.report.add(Fault{Kind: BadTree, ID: w.low, Detail: detail})
}

// end reports the checkpoints for which there are too few leaves.
func (w *walk) end() {
	for _, p := range w.points {
		if w.broken {
			return
		}
		w.broken = true
		detail := fmt.Sprintf("%d hashes are kept and the checkpoint of %s covers %d: the last ones were removed",
			w.tree.size, stamp(p.Ended), p.Size)
		kind := BadTree
		if p.aside {
			kind = BadCheckpoint
		}
		w.v.report.add(Fault{Kind: kind, Detail: detail})
	}
}

func stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// loadErasures reads the erasures and the mark of the pruning, and compares the erasures with their leaves.
func (v *verifier) loadErasures(ctx context.Context) error {
	if err := v.refresh(ctx); err != nil {
		return err
	}
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
	case !sealed && len(v.seals) > 0 && e.Time.Before(v.last().Ended):
		v.report.add(Fault{Kind: BadErasure, Detail: fmt.Sprintf(
			"erasure %d (%q) says that it is of %s, and the checkpoint of %s does not cover it: it was made up later",
			s.N, e.Reason, stamp(e.Time), stamp(v.last().Ended))})
	case !sealed:
		v.report.ErasuresUnsealed++
	}
}

// refresh reads what was pruned and erased so far.
func (v *verifier) refresh(ctx context.Context) error {
	state, err := v.log.SealState(ctx)
	if err != nil {
		return err
	}
	v.pruned = state.Pruned
	if len(v.seals) > 0 && v.pruned > v.last().Pruned {
		v.report.PrunedUnsealed = true
	}
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

// kept is a record in a window of records.
type kept struct {
	id    audit.ID
	hash  tlog.Hash
	ended time.Time
	leaf  Leaf  // its last one; the kind is zero if it has none
	n     int64 // number of leaf
}

// records compares all records with their leaves, in windows.
func (v *verifier) records(ctx context.Context) error {
	if len(v.seals) == 0 {
		return nil
	}
	var done int64
	for after := audit.ID(0); ; {
		window, last, err := v.window(ctx, after)
		if err != nil {
			return err
		}
		end := last
		if last == 0 {
			end = 1<<63 - 1
		}
		if err := v.compare(ctx, window, after, end); err != nil {
			return err
		}
		if last == 0 {
			return nil
		}
		after, done = last, done+int64(len(window))
		if v.options.Progress != nil {
			v.options.Progress(done)
		}
	}
}

func (v *verifier) window(ctx context.Context, after audit.ID) (window []kept, last audit.ID, err error) {
	var text []byte
	for r, err := range v.log.Records(ctx, audit.Filter{After: after, Limit: windowSize, Vias: allVias}) {
		if err != nil {
			return nil, 0, err
		}
		text = audit.AppendCanonical(text[:0], r)
		window = append(window, kept{id: r.ID, hash: tlog.RecordHash(text), ended: r.EndedAt})
		last = r.ID
	}
	return window, last, nil
}

// compare compares the records of a window, which are all in (after, last], with the leaves of that range.
func (v *verifier) compare(ctx context.Context, window []kept, after, last audit.ID) error {
	for tile, err := range v.log.Tiles(ctx, TileQuery{Low: after + 1, High: last}) {
		if err != nil {
			return err
		}
		leaves, err := tile.Leaves()
		if err != nil {
			continue // checkTree has reported it
		}
		for i, leaf := range leaves {
			n := tile.N*tileSize + int64(i)
			if id := audit.ID(leaf.ID); leaf.Kind == erasureKind || id <= after || id > last || n >= v.size {
				continue
			}
			if err := v.match(ctx, window, leaf, n); err != nil {
				return err
			}
		}
	}
	for i := range window {
		if err := v.judge(ctx, &window[i]); err != nil {
			return err
		}
	}
	return nil
}

// match gives a leaf to its record, or finds out why there is none.
func (v *verifier) match(ctx context.Context, window []kept, leaf Leaf, n int64) error {
	id := audit.ID(leaf.ID)
	i, found := sort.Find(len(window), func(i int) int { return compare(id, window[i].id) })
	if found {
		window[i].leaf, window[i].n = leaf, n
		return nil
	}
	if v.gone(id) {
		return nil
	}
	if err := v.refresh(ctx); err != nil || v.gone(id) {
		return err
	}
	f := Fault{Kind: Removed, ID: id}
	if i > 0 {
		f.Before = window[i-1].id
	}
	if i < len(window) {
		f.After = window[i].id
	}
	v.report.add(f)
	return nil
}

// gone counts a leaf of a record that was erased or pruned, and reports whether it was.
func (v *verifier) gone(id audit.ID) bool {
	if _, erased := slices.BinarySearch(v.erased, id); erased {
		v.report.Erased++
		return true
	}
	if id < v.pruned {
		v.report.Pruned++
		return true
	}
	return false
}

// judge compares a record with its leaf.
func (v *verifier) judge(ctx context.Context, k *kept) error {
	cut := v.last().Ended
	switch {
	case k.leaf.Kind == 0 && (k.ended.IsZero() || k.ended.After(cut)),
		k.leaf.Kind == openKind && k.hash != k.leaf.Hash && k.ended.After(v.sealed(k.n).Ended):
		v.report.Unsealed++
		return nil
	case k.leaf.Kind == 0:
		return v.fault(ctx, Inserted, k)
	case k.hash != k.leaf.Hash:
		return v.fault(ctx, Changed, k)
	}
	v.report.Sealed++
	if by := v.sealed(k.n); by.before != nil && !k.ended.IsZero() && k.ended.Before(by.before.Ended) {
		v.report.Late++
		if v.report.FirstLate == 0 {
			v.report.FirstLate = k.id
		}
	}
	return nil
}

// covering is the checkpoint that covers a leaf, with the one before.
type covering struct {
	*Checkpoint
	before *Checkpoint
}

func (v *verifier) sealed(n int64) covering {
	i := sort.Search(len(v.seals), func(i int) bool { return v.seals[i].Size > n })
	if i == 0 {
		return covering{v.seals[0], nil}
	}
	return covering{v.seals[i], v.seals[i-1]}
}

// mismatch is a changed record, for findSwaps.
type mismatch struct {
	fault int // its index in Report.Faults
	*audit.Record
	leaf tlog.Hash
}

func (v *verifier) fault(ctx context.Context, kind FaultKind, k *kept) error {
	f := Fault{Kind: kind, ID: k.id}
	if v.report.Counts[kind] < keptFaults {
		r, err := v.log.Record(ctx, k.id)
		if err != nil && !errors.Is(err, audit.ErrNoRecord) {
			return err
		}
		f.Record = r
		if kind == Changed && r != nil {
			v.changed = append(v.changed, mismatch{len(v.report.Faults), r, k.leaf.Hash})
		}
	}
	v.report.add(f)
	return nil
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

// hidden finds records that were changed beside the contents that their hashes cover.
func (v *verifier) hidden(ctx context.Context) error {
	ids, err := v.log.Hidden(ctx)
	for _, id := range ids {
		v.report.add(Fault{Kind: Changed, ID: id, Detail: id.String() + ": its mark in an index was changed, so that lists leave it out"})
	}
	return err
}

// texts compares bodies and policies with their SHA-256.
func (v *verifier) texts(ctx context.Context) error {
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
	return nil
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

func (f *Fault) isRecord() bool {
	return f.Kind == Changed || f.Kind == Swapped || f.Kind == Removed || f.Kind == Inserted
}
