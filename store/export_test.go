package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Migrations is how many versions of the tables there are.
func Migrations() int {
	files, _ := migrations.ReadDir("migrations")
	return len(files)
}

// MakeOld makes a database at path as the program of that version of the tables made it, and runs texts on it.
func MakeOld(path string, version int, texts ...string) error {
	db, err := connect(path, time.Second, 1)
	if err != nil {
		return err
	}
	defer db.Close()
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		return err
	}
	var tables []string
	for _, file := range files[:version] {
		text, err := migrations.ReadFile("migrations/" + file.Name())
		if err != nil {
			return err
		}
		tables = append(tables, string(text))
	}
	texts = append(tables, texts...)
	texts = append(texts, fmt.Sprintf("PRAGMA application_id = %d", stateTables.applicationID), fmt.Sprintf("PRAGMA user_version = %d", version))
	for _, text := range texts {
		if _, err := db.Exec(text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

// Texts are all that is asked and done.
var Texts = append([]string{
	loadSQL, findOriginSQL, addOriginSQL, findBodySQL, addBodySQL, replaceSQL, prolongSQL, addVersionSQL, dropVersionsSQL, addChangeSQL, deleteSQL,
	originsSQL, hostOriginsSQL, versionsSQL, changesSQL, bodySQL,
	shareSQL, largestSQL, oldestSQL, spareSQL, passSQL, dropSnapshotSQL, dropTextsSQL, dropChangesSQL, dropOldestSQL,
}, pruneSQL...)

// Plan says how SQLite goes about text, a step in a line.
func (s *State) Plan(ctx context.Context, text string) (steps []string, err error) {
	return list(ctx, s.read, func(rows *sql.Rows) (step string, err error) {
		var ignored int
		return step, rows.Scan(&ignored, &ignored, &ignored, &step)
	}, "EXPLAIN QUERY PLAN "+text, make([]any, strings.Count(text, "?"))...)
}

// Exec runs text on the connection that writes.
func (s *State) Exec(ctx context.Context, text string, args ...any) error {
	_, err := s.write.ExecContext(ctx, text, args...)
	return err
}

// Ask returns the one value that text asks for, from the pool that cannot write.
func (s *State) Ask(ctx context.Context, text string) (value string, err error) {
	err = s.read.QueryRowContext(ctx, text).Scan(&value)
	return value, err
}

// HoldWriter takes the connection that writes, as a long write of this process does, until release is called.
func (s *State) HoldWriter(tb testing.TB) (release func()) {
	tb.Helper()
	conn, err := s.write.Conn(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	return func() { conn.Close() }
}

// SetSkew makes f take the clock of PostgreSQL to be ahead by skew for a minute.
func (s *SharedFiles) SetSkew(skew time.Duration) {
	s.clock.last.Store(&measuredSkew{skew, time.Now()})
}
