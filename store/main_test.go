package store_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/robotsproxy/robotsproxy/internal/pgtest"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/store"
)

// childPath names the database for a test binary that is started once more, to be killed; see crash_test.go.
const childPath = "STORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		saveForever(path)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		pgtest.Close()
		os.Exit(code)
	}))
}

// dawn is when the tests begin. It has no nanoseconds, which are not kept.
var dawn = time.Date(2026, 3, 1, 6, 0, 0, 123_456_000, time.UTC)

const file = "User-agent: *\nDisallow: /private\nDisallow: /tmp\nAllow: /tmp/open\nDisallow: /*.pdf$\nCrawl-delay: 2\n"

func open(tb testing.TB, path string) *store.State {
	tb.Helper()
	s, err := store.Open(store.Options{Path: path})
	if err != nil {
		tb.Fatalf("Open(%s): %v", path, err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return s
}

// fresh opens a database of its own.
func fresh(tb testing.TB) *store.State {
	tb.Helper()
	return open(tb, filepath.Join(tb.TempDir(), "state.db"))
}

func mustOrigin(tb testing.TB, s string) origin.Origin {
	tb.Helper()
	o, err := origin.Parse(s)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

func hashOf(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

// found is a Snapshot as a Fetcher makes it of a good answer.
func found(o origin.Origin, body string, fetched time.Time) *robots.Snapshot {
	return &robots.Snapshot{
		Answer: robots.Answer{
			Origin: o, Availability: robots.Found, Status: 200, Fetched: fetched,
			Expires: fetched.Add(24 * time.Hour), SHA256: hashOf(body), Body: []byte(body),
			ContentType: "text/plain; charset=utf-8", ETag: `"abc"`,
			LastModified: "Sun, 01 Mar 2026 05:00:00 GMT",
			Fields:       "Cache-Control: max-age=3600\r\nDate: Sun, 01 Mar 2026 06:00:00 GMT\r\n",
		},
	}
}

// unreachable is a Snapshot as a Fetcher makes it of no answer.
func unreachable(o origin.Origin, fetched time.Time) *robots.Snapshot {
	return &robots.Snapshot{
		Answer: robots.Answer{
			Origin: o, Fetched: fetched, Expires: fetched.Add(time.Minute), Cause: "connection_refused",
		},
		Since: fetched, Failures: 1,
	}
}

func save(tb testing.TB, s *store.State, snap *robots.Snapshot, c *robots.Change) {
	tb.Helper()
	if err := s.Save(context.Background(), snap, c); err != nil {
		tb.Fatalf("Save(%s): %v", snap.Origin, err)
	}
}

func load(tb testing.TB, s *store.State, o origin.Origin) *robots.Snapshot {
	tb.Helper()
	snap, err := s.Load(context.Background(), o)
	if err != nil {
		tb.Fatalf("Load(%s): %v", o, err)
	}
	return snap
}

// ask returns the one value that a question in SQL has.
func ask(tb testing.TB, s *store.State, text string) string {
	tb.Helper()
	value, err := s.Ask(context.Background(), text)
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return value
}

func count(tb testing.TB, s *store.State, table string) int {
	tb.Helper()
	n, err := strconv.Atoi(ask(tb, s, "SELECT count(*) FROM "+table))
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
