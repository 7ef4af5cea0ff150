package store

import (
	"context"
	"database/sql"
)

// CountStart counts a start of a proxy with this database, and returns how many there were before.
func (s *State) CountStart(ctx context.Context) (before int64, err error) {
	err = s.change(ctx, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, "UPDATE starts SET n = n + 1 RETURNING n - 1").Scan(&before)
	})
	return before, s.fail("counting a start", err)
}
