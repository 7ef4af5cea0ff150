package store

import (
	"context"
	"database/sql"
	"strings"
)

// Migrations is how many versions of the tables there are.
func Migrations() int {
	files, _ := migrations.ReadDir("migrations")
	return len(files)
}

// Texts are all that is asked and done.
var Texts = append([]string{
	loadSQL, hasBodySQL, addBodySQL, replaceSQL, prolongSQL, addVersionSQL, dropVersionsSQL, addChangeSQL, deleteSQL,
	originsSQL, hostOriginsSQL, versionsSQL, changesSQL, bodySQL,
}, pruneSQL...)

// Plan says how SQLite goes about text, a step in a line.
func (s *State) Plan(ctx context.Context, text string) (steps []string, err error) {
	return list(ctx, s.read, func(rows *sql.Rows) (step string, err error) {
		var ignored int
		return step, rows.Scan(&ignored, &ignored, &ignored, &step)
	}, "EXPLAIN QUERY PLAN "+text, make([]any, strings.Count(text, "?"))...)
}

// Exec runs text where it can write, as nobody but a test does.
func (s *State) Exec(ctx context.Context, text string, args ...any) error {
	_, err := s.write.ExecContext(ctx, text, args...)
	return err
}

// Ask returns the one value that text asks for, from the pool that cannot write.
func (s *State) Ask(ctx context.Context, text string) (value string, err error) {
	err = s.read.QueryRowContext(ctx, text).Scan(&value)
	return value, err
}
