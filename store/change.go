package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/robotsproxy/robotsproxy/robots"
)

var errReadOnly = errors.New("it is opened to read only")

// change calls steps in one transaction.
func (f *file) change(ctx context.Context, steps func(*sql.Tx) error) error {
	if f.write == nil {
		return errReadOnly
	}
	if f.postgres != nil {
		return f.postgres.changeRecords(ctx, func(_ *sql.Conn, tx *sql.Tx) error { return steps(tx) })
	}
	conn, err := f.write.Conn(ctx)
	if err != nil {
		if ctx.Err() != nil { // the only connection is in use
			err = fmt.Errorf("%w: %w", robots.ErrStoreBusy, err)
		}
		return err
	}
	defer conn.Close()
	tx, err := f.begin(ctx, conn)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if err := steps(tx); err != nil {
		if gone := ctx.Err(); gone != nil {
			return gone // the error of steps would only say that the transaction has ended
		}
		return err
	}
	return tx.Commit()
}

// begin waits while another process writes, for as long as the file's wait and ctx allow. SQLite's own wait ignores
// ctx.
func (f *file) begin(ctx context.Context, conn *sql.Conn) (*sql.Tx, error) {
	var busy error
	for end := time.Now().Add(f.wait); ; {
		tx, err := conn.BeginTx(ctx, nil)
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

// exec executes text in a transaction and returns the number of rows that it changed, without those that triggers
// removed (sqlite3_changes).
func (f *file) exec(ctx context.Context, text string, args ...any) (rows int64, err error) {
	err = f.change(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, text, args...)
		if err != nil {
			return err
		}
		rows, err = result.RowsAffected()
		return err
	})
	return rows, err
}
