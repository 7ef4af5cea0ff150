package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/store"
)

// What is kept of a million origins is found as fast as of ten: no text goes through a table, or sorts what it found.
func TestEverythingIsFoundByAnIndex(t *testing.T) {
	s := fresh(t)
	for _, text := range store.Texts {
		steps, err := s.Plan(context.Background(), text)
		if err != nil {
			t.Fatalf("Plan(%s): %v", text, err)
		}
		for _, step := range steps {
			ordered := strings.Contains(text, "ORDER BY host, site LIMIT") && strings.Contains(step, "INDEX origins_by_name")
			if strings.Contains(step, "TEMP B-TREE") || strings.HasPrefix(step, "SCAN ") && step != "SCAN CONSTANT ROW" && !ordered {
				t.Errorf("%s\nis answered by %s", text, step)
			}
		}
	}
}

func TestTables(t *testing.T) {
	s, ctx := fresh(t), context.Background()
	for question, want := range map[string]string{
		"SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%' AND NOT strict": "0",
		"PRAGMA journal_mode":   "wal",
		"PRAGMA query_only":     "1",
		"PRAGMA user_version":   fmt.Sprint(store.Migrations()),
		"PRAGMA application_id": fmt.Sprint('R'<<24 | 'P'<<16 | 's'<<8 | 't'),
	} {
		if got := ask(t, s, question); got != want {
			t.Errorf("%s = %s, want %s", question, got, want)
		}
	}
	a := mustOrigin(t, "http://a.example")
	save(t, s, found(a, file, dawn), nil)
	for _, text := range []string{
		"DELETE FROM bodies", "UPDATE snapshots SET body = 1000", "UPDATE snapshots SET fetched = 'noon'",
		"UPDATE snapshots SET availability = 3", "UPDATE origins SET host = ''", "UPDATE bodies SET sha256 = 'text'",
	} {
		if err := s.Exec(ctx, text); err == nil {
			t.Errorf("%s: nothing refuses that", text)
		}
	}
	if _, err := s.Ask(ctx, "DELETE FROM snapshots RETURNING origin"); err == nil {
		t.Error("a question could delete")
	}
	if diff := differ(load(t, s, a), found(a, file, dawn)); diff != "" {
		t.Errorf("after all that (-want +got):\n%s", diff)
	}
}

// refused opens the file at path, which must fail with words, and be left as it is.
func refused(t *testing.T, path string, words ...string) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(store.Options{Path: path})
	if err == nil {
		s.Close()
		t.Errorf("Open(%s) succeeded, want an error with %q", path, words)
		return
	}
	for _, word := range append(words, path, "opening the database") {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("Open: %v\nwant %q in it", err, word)
		}
	}
	after, err := os.ReadFile(path)
	if string(after) != string(before) || err != nil {
		t.Errorf("the file was changed: %d octets, %v; it had %d", len(after), err, len(before))
	}
}

func TestOpenRefusesWhatIsNotItsOwn(t *testing.T) {
	for _, tt := range []struct {
		name, change string
		words        []string
	}{
		{"newer", fmt.Sprintf("PRAGMA user_version = %d", store.Migrations()+1), []string{"newer robotsproxy", fmt.Sprintf("version %d", store.Migrations()+1)}},
		{"another application", "PRAGMA application_id = 1", []string{"another program"}},
		{"no application", "PRAGMA application_id = 0", []string{"another program"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			s := open(t, path)
			save(t, s, found(mustOrigin(t, "http://a.example"), file, dawn), nil)
			if err := s.Exec(context.Background(), tt.change); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			refused(t, path, tt.words...)
		})
	}
}

// TestMigrationsAreNumbered wants one migration for each version: the number of files is the version.
func TestMigrationsAreNumbered(t *testing.T) {
	entries, err := os.ReadDir("migrations")
	if err != nil {
		t.Fatal(err)
	}
	for i, entry := range entries {
		if want := fmt.Sprintf("%04d_", i+1); !strings.HasPrefix(entry.Name(), want) {
			t.Errorf("migration %d is %s, want a name that begins with %s", i+1, entry.Name(), want)
		}
	}
}

// TestHeadersOfVersion4 opens a file whose headers are JSON objects: the fields that say for how long a file may be
// used are read, and a row that is damaged is fetched again.
func TestHeadersOfVersion4(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	row := func(host, redirects, header string) string {
		return fmt.Sprintf("INSERT INTO snapshots (origin, host, availability, status, redirects, fetched, expires, sha256, truncated, content_type, "+
			"etag, last_modified, header, marks, cause, err, stale, since, failures, client, saved) VALUES ('http://%s', '%[1]s', 2, 200, '%s', 5, 6, "+
			"'%s', 0, 'text/plain', '\"v1\"', '', '%s', 'downgraded', '', NULL, 0, 0, 0, 'news', 5)", host, redirects, hashOf(file), header)
	}
	const full = `{"Age":["7"],"Cache-Control":["max-age=60","public"],"Content-Type":["text/plain"],"Date":["Sun, 01 Mar 2026 06:00:00 GMT"],` +
		`"Etag":["\"v1\""],"Expires":["0"],"Server":["nginx"]}`
	texts := []string{
		fmt.Sprintf("INSERT INTO bodies VALUES ('%s', CAST('%s' AS BLOB))", hashOf(file), file),
		row("full.example", `["https://b.example/robots.txt"]`, full),
		row("empty.example", "[]", "{}"),
		row("odd.example", "[]", `{"Age":7,"Date":"x","Expires":["Ã¤"],"Cache-Control":[]}`),
		row("cut.example", "[]", `{"Age":["7`),
		fmt.Sprintf("INSERT INTO versions (origin, sha256, status, redirects, header, first_seen, last_seen) VALUES ('http://full.example', '%s', 200, "+
			"'[]', '%s', 5, 5)", hashOf(file), full),
	}
	if err := store.MakeOld(path, 4, texts...); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	for host, want := range map[string]string{
		"full.example":  "Age: 7\r\nCache-Control: max-age=60\r\nCache-Control: public\r\nDate: Sun, 01 Mar 2026 06:00:00 GMT\r\nExpires: 0\r\n",
		"empty.example": "",
		"odd.example":   "Expires: Ã¤\r\n",
	} {
		snap := load(t, s, mustOrigin(t, "http://"+host))
		if snap.Fields != want || string(snap.Body) != file || snap.ETag != `"v1"` {
			t.Errorf("%s has the fields %q, the ETag %s and the text %q; want %q", host, snap.Fields, snap.ETag, snap.Body, want)
		}
	}
	if _, err := s.Load(t.Context(), mustOrigin(t, "http://cut.example")); !errors.Is(err, robots.ErrNoSnapshot) {
		t.Errorf("Load of a damaged row: %v, want %v", err, robots.ErrNoSnapshot)
	}
	if versions, err := s.Versions(t.Context(), mustOrigin(t, "http://full.example"), 9); len(versions) != 1 || err != nil {
		t.Errorf("Versions = %v, %v; want 1", versions, err)
	}
	checkSound(t, s)
}
