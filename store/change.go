package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// change runs steps in one transaction.
func (s *State) change(ctx context.Context, steps func(*sql.Tx) error) error {
	tx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after Commit there is nothing to take back
	if err := steps(tx); err != nil {
		if gone := ctx.Err(); gone != nil {
			return gone // and what steps says of it is that the transaction is over
		}
		return err
	}
	return tx.Commit()
}

// begin waits while another process is writing, for as long as the State's Wait and ctx allow. SQLite's own wait would not
// end with ctx.
func (s *State) begin(ctx context.Context) (*sql.Tx, error) {
	var busy error
	for end := time.Now().Add(s.wait); ; {
		tx, err := s.write.BeginTx(ctx, nil)
		switch {
		case err == nil:
			return tx, nil
		case busy != nil && ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %w", ctx.Err(), busy)
		case !isBusy(err) || time.Now().After(end):
			return nil, err
		}
		busy = err
	}
}

// exec changes what one text says, and returns how many rows that were, without those that triggers removed
// (sqlite3_changes).
func (s *State) exec(ctx context.Context, text string, args ...any) (rows int64, err error) {
	err = s.change(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, text, args...)
		if err != nil {
			return err
		}
		rows, err = result.RowsAffected()
		return err
	})
	return rows, err
}
