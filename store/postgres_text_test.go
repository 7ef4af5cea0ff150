package store

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// The error of a server that does not answer names its cause once, in one line and without the password.
func TestPostgresIsAway(t *testing.T) {
	_, err := pgconn.Connect(t.Context(), "postgres://u:s3cr3t@127.0.0.1:1/db")
	if err == nil {
		t.Fatal("port 1 has a server")
	}
	got := (&Postgres{name: "db"}).fail("opening it", err).Error()
	if strings.Count(got, "connection refused") != 1 || strings.ContainsAny(got, "\n\t") || strings.Contains(got, "s3cr3t") {
		t.Errorf("%q", got)
	}
}
