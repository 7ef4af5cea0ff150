package store

import (
	"context"
	"time"
)

// pruneStep is how many rows go in one transaction, with their bodies. Between two steps others write.
const pruneStep = 200

// pruneSQL is in this order, so that the texts of a forgotten origin go with its snapshot. Bodies go by themselves, with
// the last row that has them.
var pruneSQL = []string{
	"DELETE FROM snapshots WHERE rowid IN (SELECT rowid FROM snapshots WHERE fetched < ? LIMIT ?)",
	"DELETE FROM versions WHERE id IN (SELECT id FROM versions WHERE last_seen < ? LIMIT ?)",
	"DELETE FROM changes WHERE id IN (SELECT id FROM changes WHERE time < ? LIMIT ?)",
}

// Prune forgets snapshots that were not fetched, versions that were not seen and changes that were not made since before,
// and returns how many of them. Bodies go with the last that has them, so that the body of a snapshot that stays does too.
// It works in small steps, and what it did stays done when ctx ends. The file does not shrink: its room is used again.
func (s *State) Prune(ctx context.Context, before time.Time) (gone int64, err error) {
	for _, text := range pruneSQL {
		for {
			n, err := s.exec(ctx, text, micros(before), pruneStep)
			gone += n
			if err != nil {
				return gone, s.fail("pruning", err)
			}
			if n < pruneStep {
				break
			}
		}
	}
	return gone, nil
}
