package pgtest_test

import (
	"os"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

func TestKilledServerKeepsItsData(t *testing.T) {
	s := pgtest.Start(t, "fsync=on")
	dsn := s.Database(t)
	pgtest.SQL(t, dsn, "CREATE TABLE a (n int); INSERT INTO a VALUES (1), (2)")
	s.Kill()
	s.Restart(t)
	if got := pgtest.SQL(t, dsn, "SELECT n, n + 1 FROM a ORDER BY n"); got != "1\t2\n2\t3" {
		t.Errorf("rows after a crash: %q", got)
	}
}

func TestDatabasesAreEmpty(t *testing.T) {
	for range 2 {
		pgtest.SQL(t, pgtest.Database(t), "CREATE TABLE a (n int)")
	}
}
