package seal

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/robotsproxy/robotsproxy/audit"
)

// point is a size of the tree at which its root must be that of a checkpoint.
type point struct {
	*Checkpoint
	aside bool // it was given away, and the log does not keep it
}

// checkTree computes the root of the tree at the size of each checkpoint. All come from the same leaves, so a checkpoint
// with the computed root extends each one before. One with another root is reported with its range, and the next is not,
// since it covers the same leaves.
func (v *verifier) checkTree(ctx context.Context) error {
	w := walk{v: v, points: v.seals, erasures: make(map[int64]tlog.Hash)}
	for tile, err := range v.log.Tiles(ctx, TileQuery{}) {
		if err != nil {
			return err
		}
		if tile.Data == nil {
			if w.pruned, err = v.mayDrop(ctx, tile); err != nil {
				return err
			}
		}
		if !w.tile(tile) {
			break
		}
	}
	w.end()
	v.erasures = w.erasures
	v.leaves, v.report.Unsigned = max(v.state.Size, w.tree.size), max(0, w.tree.size-v.size)
	for _, p := range v.seals {
		if p.Size <= v.leaves {
			v.cut = p.Ended
		}
	}
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
	broken  bool   // a root was wrong
	pruned  bool   // a checkpoint lets the log remove the tile that comes next
	lost    string // leaves that are not found by their IDs
}

// tile adds a tile. It reports false after a gap, or leaves that should not have been removed.
func (w *walk) tile(t *Tile) bool {
	if t.N*tileSize != w.tree.size {
		w.fault(fmt.Sprintf("the hashes from number %d to %d are missing", w.tree.size+1, t.N*tileSize))
		return false
	}
	if t.Data == nil && len(t.Root) == tlog.HashSize {
		w.skip(t)
		return w.pruned
	}
	leaves, err := t.Leaves()
	if err != nil {
		w.fault(fmt.Sprintf("the hashes from number %d on are damaged", w.tree.size+1))
		return false
	}
	if low, high := idRange(leaves); w.lost == "" && (low != t.Low || high != t.High) {
		w.lost = fmt.Sprintf("the range of ids by which the hashes from number %d on are found was changed", w.tree.size+1)
	}
	for _, leaf := range leaves {
		w.leaf(leaf)
	}
	return true
}

// skip adds a tile of which only the root is kept.
func (w *walk) skip(t *Tile) {
	w.partial = true
	w.tree.addTile(tlog.Hash(t.Root))
	if w.pruned {
		w.v.report.Pruned += tileSize
	} else {
		w.fault(fmt.Sprintf(
			"the hashes from number %d to %d were removed, and no checkpoint says that their records are pruned",
			w.tree.size-tileSize+1, w.tree.size))
	}
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
	if len(w.points) == 0 {
		return // no checkpoint covers it
	}
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
		case p.aside:
			w.v.report.add(Fault{Kind: RemovedCheckpoint, Detail: fmt.Sprintf(
				"the checkpoint of %s that was given away, of %d hashes, was removed", stamp(p.Ended), p.Size)})
		case !w.partial && p.IDs != w.since.sum():
			w.fault("the ids beside the hashes were changed, or a checkpoint was removed: " + w.rangeText())
		}
		w.since, w.partial, w.begin, w.low, w.high = idHash{}, false, w.tree.size, 0, 0
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
	if !w.broken && w.tree.size < w.v.state.Size {
		w.fault(fmt.Sprintf("%d hashes are kept of %d that were written: the last ones were removed",
			w.tree.size, w.v.state.Size))
	}
	if !w.broken && w.lost != "" {
		w.fault(w.lost)
	}
}

func stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }
