package store

import (
	"context"
	"time"
)

// pruneStep is the number of rows deleted in one transaction, with their bodies. Other writers run between
// transactions.
const pruneStep = 200

// pruneSQL deletes snapshots first, so that the texts of a pruned origin can go with them. Triggers delete a body with
// the last row that refers to it.
var pruneSQL = []string{
	"DELETE FROM snapshots WHERE origin IN (SELECT origin FROM snapshots WHERE fetched < ? LIMIT ?)",
	"DELETE FROM versions WHERE (origin, id) IN (SELECT origin, id FROM versions WHERE last_seen < ? LIMIT ?)",
	"DELETE FROM changes WHERE id IN (SELECT id FROM changes WHERE time < ? LIMIT ?)",
}

// Prune deletes snapshots fetched, versions last seen and changes made before the given time, and returns their number.
// A body is deleted with the last row that refers to it, so a remaining snapshot keeps its body. Prune works in small
// transactions: if ctx ends, those that are done remain. The file does not shrink; SQLite reuses its free
// pages.
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
