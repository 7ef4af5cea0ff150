package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/pgtest"
)

// opener opens an empty database of records.
type opener func(testing.TB, RecordsOptions) *Records

// onEach runs a test on both databases.
func onEach(t *testing.T, test func(*testing.T, opener)) {
	t.Run("sqlite", func(t *testing.T) { test(t, openRecords) })
	t.Run("postgres", func(t *testing.T) { test(t, openPostgresRecords) })
}

func openPostgresRecords(tb testing.TB, o RecordsOptions) *Records {
	tb.Helper()
	p, err := OpenPostgres(context.Background(), pgtest.Database(tb))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Error(err)
		}
	})
	r, err := p.Records(context.Background(), o)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// TestTablesAreTheSame compares the columns of the records in both databases.
func TestTablesAreTheSame(t *testing.T) {
	sqlite, postgres := openRecords(t, RecordsOptions{}), openPostgresRecords(t, RecordsOptions{})
	tables, err := list(context.Background(), sqlite.read, scanText, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		want, err := list(context.Background(), sqlite.read, scanText, fmt.Sprintf("SELECT name FROM pragma_table_info('%s')", table))
		if err != nil {
			t.Fatal(err)
		}
		got, err := list(context.Background(), postgres.read, scanText,
			"SELECT column_name::text FROM information_schema.columns WHERE table_name = ? AND column_name <> 'rowid'", table)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s has the columns %s in PostgreSQL, and %s in SQLite", table, strings.Join(got, " "), strings.Join(want, " "))
		}
	}
}

func scanText(rows *sql.Rows) (text string, err error) {
	return text, rows.Scan(&text)
}
