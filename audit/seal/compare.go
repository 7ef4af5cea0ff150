package seal

import (
	"context"
	"errors"
	"slices"
	"sort"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/robotsproxy/robotsproxy/audit"
)

// kept is a record in a window of records.
type kept struct {
	id    audit.ID
	hash  tlog.Hash
	ended time.Time
	leaf  Leaf  // its last one that a checkpoint covers; the kind is zero if it has none
	n     int64 // number of leaf
	other Leaf  // its last one that no checkpoint covers
}

// records compares all records with their leaves, in windows.
func (v *verifier) records(ctx context.Context) error {
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
			if id := audit.ID(leaf.ID); leaf.Kind == erasureKind || id <= after || id > last || n >= v.leaves {
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
	switch {
	case found && n < v.size:
		window[i].leaf, window[i].n = leaf, n
		return nil
	case found:
		window[i].other = leaf
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

// judge compares a record with its leaves. One that no checkpoint covers was written by a seal that did not end, or its
// checkpoint was removed: it proves a change, and nothing else.
func (v *verifier) judge(ctx context.Context, k *kept) error {
	changed := k.leaf.Kind != 0 && k.hash != k.leaf.Hash
	switch {
	case k.other.Kind == recordKind && k.hash != k.other.Hash:
		return v.fault(ctx, Changed, k, k.other)
	case k.leaf.Kind == 0 && (k.ended.IsZero() || k.ended.After(v.cut)),
		k.leaf.Kind == openKind && changed && k.ended.After(v.sealed(k.n).Ended):
		v.report.Unsealed++
		return nil
	case k.leaf.Kind == 0:
		return v.fault(ctx, Inserted, k, k.leaf)
	case changed:
		return v.fault(ctx, Changed, k, k.leaf)
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

// sealed returns the checkpoint that covers leaf n, which is less than v.size.
func (v *verifier) sealed(n int64) covering {
	i := sort.Search(len(v.seals), func(i int) bool { return v.seals[i].Size > n })
	if i == 0 {
		return covering{v.seals[0].Checkpoint, nil}
	}
	return covering{v.seals[i].Checkpoint, v.seals[i-1].Checkpoint}
}

func (v *verifier) fault(ctx context.Context, kind FaultKind, k *kept, leaf Leaf) error {
	f := Fault{Kind: kind, ID: k.id}
	if kind == Changed {
		v.known[k.id] = true
	}
	if v.report.Counts[kind] < keptFaults {
		r, err := v.log.Record(ctx, k.id)
		if err != nil && !errors.Is(err, audit.ErrNoRecord) {
			return err
		}
		f.Record = r
		if kind == Changed && r != nil {
			v.changed = append(v.changed, mismatch{len(v.report.Faults), r, leaf.Hash})
		}
	}
	v.report.add(f)
	return nil
}
