package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/store"
)

// TestSizeOfASharedText saves many origins with one text. Each takes 400 bytes of the file at most.
func TestSizeOfASharedText(t *testing.T) {
	const n = 20_000
	store.Long(t)
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	now := time.Now()
	var all []robots.StoreEntry
	for i := range n {
		snap := found(mustOrigin(t, fmt.Sprintf("https://www.host-%d.example", i*7919%n)), file, now.Add(time.Duration(i)*time.Millisecond))
		snap.Client = "news"
		if all = append(all, robots.StoreEntry{Snapshot: snap}); len(all) == 100 {
			if err := s.SaveAll(context.Background(), all); err != nil {
				t.Fatal(err)
			}
			all = nil
		}
	}
	checkSound(t, s)
	charged := ask(t, s, "SELECT size FROM shares")
	if err := s.Exec(context.Background(), "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("an origin takes %d bytes; %s bytes are charged for %d", info.Size()/n, charged, n)
	if per := info.Size() / n; per > 400 {
		t.Errorf("an origin with a shared text takes %d bytes, want 400 at most", per)
	}
}

// TestNamesOfVersion7 opens a file in which rows refer to origins and texts by name. All that is in it is found as before.
func TestNamesOfVersion7(t *testing.T) {
	path, ctx := filepath.Join(t.TempDir(), "state.db"), context.Background()
	names := []string{
		"http://a.example", "http://a.example:8080", "https://a.example", "https://a.example:8443",
		"http://192.0.2.1:81", "http://[2001:db8::1]", "http://[2001:db8::2]:8080",
	}
	var texts []string
	for _, body := range []string{file, "# old"} {
		texts = append(texts, fmt.Sprintf("INSERT INTO bodies VALUES ('%s', CAST('%s' AS BLOB))", hashOf(body), body))
	}
	for i, name := range names {
		snapshot := fmt.Sprintf("INSERT INTO snapshots (origin, host, availability, status, redirects, fetched, expires, sha256, truncated, content_type, "+
			"etag, last_modified, header, marks, cause, err, stale, since, failures, client, saved) VALUES ('%s', '%s', 2, 200, '[\"https://b.example/r\"]', "+
			"%d, %d, '%s', 0, 'text/plain', '\"%d\"', '', 'Age: 7' || char(13, 10), 'downgraded', '', 'fault', 1, 3, 2, 'news', 9)",
			name, mustOrigin(t, name).Host(), 1000+i, 2000+i, hashOf(file), i)
		texts = append(texts, snapshot)
		for j, body := range []string{"# old", file} {
			texts = append(texts, fmt.Sprintf("INSERT INTO versions (origin, sha256, status, redirects, header, first_seen, last_seen) "+
				"VALUES ('%s', '%s', 200, '[]', '', %d, %d)", name, hashOf(body), 10*i+j+1, 10*i+j+2))
		}
		texts = append(texts, fmt.Sprintf("INSERT INTO changes (origin, host, time, old_sha256, new_sha256, old_state, new_state) "+
			"VALUES ('%s', '%s', %d, '%s', '%s', 'empty', 'found')", name, mustOrigin(t, name).Host(), 50+i, hashOf("# old"), hashOf(file)))
	}
	texts = append(texts, "DELETE FROM snapshots WHERE origin = 'http://192.0.2.1:81'", "INSERT INTO pauses VALUES ('a.example', 9000000000000000, '429', 1)")
	if err := store.MakeOld(path, 7, texts...); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	checkSound(t, s)
	all, err := s.Origins(ctx, "", 99)
	var got []string
	for _, o := range all {
		got = append(got, o.String())
	}
	want := []string{"http://[2001:db8::1]", "http://[2001:db8::2]:8080", "http://a.example", "http://a.example:8080", "https://a.example", "https://a.example:8443"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Origins, %v (-want +got):\n%s", err, diff)
	}
	for i, name := range names {
		o := mustOrigin(t, name)
		versions, err := s.Versions(ctx, o, 9)
		changes, err2 := s.Changes(ctx, o, 9)
		if err != nil || err2 != nil || len(versions) != 2 || versions[0].SHA256 != hashOf(file) || versions[1].SHA256 != hashOf("# old") ||
			!versions[0].LastSeen.Equal(time.UnixMicro(int64(10*i+3))) {
			t.Errorf("Versions(%s) = %+v, %v, %v", o, versions, err, err2)
		}
		change := robots.Change{
			Origin: o, Time: time.UnixMicro(int64(50 + i)).UTC(), OldSHA256: hashOf("# old"), NewSHA256: hashOf(file),
			OldState: "empty", NewState: "found",
		}
		if !slices.Equal(changes, []robots.Change{change}) {
			t.Errorf("Changes(%s) = %+v, want %+v", o, changes, change)
		}
		if name == "http://192.0.2.1:81" {
			continue
		}
		snap := load(t, s, o)
		if string(snap.Body) != file || snap.SHA256 != hashOf(file) || snap.ETag != fmt.Sprintf("%q", fmt.Sprint(i)) || len(snap.Redirects) != 1 ||
			!snap.Fetched.Equal(time.UnixMicro(int64(1000+i))) || !snap.Expires.Equal(time.UnixMicro(int64(2000+i))) || snap.Failures != 2 {
			t.Errorf("Load(%s) = %+v", o, snap)
		}
	}
	if pauses, err := s.Kept(); len(pauses) != 1 || err != nil {
		t.Errorf("Kept = %v, %v; want 1", pauses, err)
	}
	save(t, s, found(mustOrigin(t, names[0]), "# new", dawn), nil)
	if got := len(versions(t, s, mustOrigin(t, names[0]))); got != 3 {
		t.Errorf("%d versions after the next Save, want 3", got)
	}
	if _, err := s.Prune(ctx, time.Now().AddDate(1, 0, 0)); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"origins", "shares", "charges", "bodies", "versions", "changes"} {
		if n := count(t, s, table); n != 0 {
			t.Errorf("%d rows are left in %s when nothing is kept", n, table)
		}
	}
}

// TestLostTextOfVersion7 opens a file that has lost a text. The file of that origin is fetched again: it allows nothing.
func TestLostTextOfVersion7(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	texts := []string{
		"PRAGMA foreign_keys = 0",
		fmt.Sprintf("INSERT INTO bodies VALUES ('%s', CAST('%s' AS BLOB))", hashOf(file), file),
	}
	for host, hash := range map[string]string{"kept.example": hashOf(file), "lost.example": hashOf("# lost")} {
		texts = append(texts, fmt.Sprintf("INSERT INTO snapshots (origin, host, availability, status, redirects, fetched, expires, sha256, truncated, "+
			"content_type, etag, last_modified, header, marks, cause, err, stale, since, failures, client, saved) "+
			"VALUES ('http://%s', '%[1]s', 2, 200, '[]', 1, 2, '%s', 0, '', '', '', '', '', '', NULL, 0, 0, 0, 'news', 9)", host, hash))
	}
	if err := store.MakeOld(path, 7, texts...); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	checkSound(t, s)
	if snap := load(t, s, mustOrigin(t, "http://kept.example")); string(snap.Body) != file {
		t.Errorf("the file that was kept is %q", snap.Body)
	}
	if snap, err := s.Load(t.Context(), mustOrigin(t, "http://lost.example")); !errors.Is(err, robots.ErrNoSnapshot) {
		t.Errorf("Load without the text: %+v, %v; want %v", snap, err, robots.ErrNoSnapshot)
	}
}
