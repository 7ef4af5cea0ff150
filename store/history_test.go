package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/store"
)

var sameOrigin = cmp.Comparer(func(a, b origin.Origin) bool { return a == b })

// versions are those of o in a line each, the latest first, with hours after dawn.
func versions(t *testing.T, s *store.State, o origin.Origin) []string {
	t.Helper()
	all, err := s.Versions(context.Background(), o, 100)
	if err != nil {
		t.Fatalf("Versions(%s): %v", o, err)
	}
	var lines []string
	for _, v := range all {
		body, err := s.Body(context.Background(), v.SHA256)
		if err != nil || len(body) != v.Size || v.Origin != o {
			t.Errorf("Body(%s) = %d octets, %v; want %d of %s", v.SHA256, len(body), err, v.Size, o)
		}
		lines = append(lines, fmt.Sprintf("%s %d %v-%v %v", body, v.Status, v.FirstSeen.Sub(dawn).Hours(), v.LastSeen.Sub(dawn).Hours(), v.Redirects))
	}
	return lines
}

func TestVersions(t *testing.T) {
	s := fresh(t)
	a, b := mustOrigin(t, "https://a.example"), mustOrigin(t, "https://b.example")
	hour := func(n int) time.Time { return dawn.Add(time.Duration(n) * time.Hour) }
	stale := func(n int) *robots.Snapshot {
		snap := found(a, "# 1", hour(n))
		snap.Stale, snap.Status = true, 503
		return snap
	}
	confirmed := found(a, "# 2", hour(6))
	confirmed.Status = 304
	moved := found(a, "# 2", hour(7))
	moved.Redirects = []string{"https://www.a.example/robots.txt"}
	forbidden := found(a, "# 2", hour(8))
	forbidden.Availability, forbidden.Status, forbidden.Redirects = robots.Unavailable, 403, []string{"https://c.example/x"}
	for _, snap := range []*robots.Snapshot{
		found(a, "# 1", hour(0)), found(a, "# 1", hour(1)), unreachable(a, hour(2)), stale(3), found(a, "# 1", hour(4)),
		found(a, "# 2", hour(5)), confirmed, moved, found(b, "# 2", hour(7)), forbidden,
		found(a, "# 1", hour(9)), found(a, "# 1", hour(-5)), // a clock that was stepped back
	} {
		save(t, s, snap, nil)
	}
	want := []string{"# 1 200 9-9 []", "# 2 403 8-8 [https://c.example/x]", "# 2 200 5-7 []", "# 1 200 0-4 []"}
	if diff := cmp.Diff(want, versions(t, s, a)); diff != "" {
		t.Errorf("Versions(%s) (-want +got):\n%s", a, diff)
	}
	if diff := cmp.Diff([]string{"# 2 200 7-7 []"}, versions(t, s, b)); diff != "" {
		t.Errorf("Versions(%s) (-want +got):\n%s", b, diff)
	}
	if some, err := s.Versions(context.Background(), a, 2); len(some) != 2 || err != nil {
		t.Errorf("Versions(%s, 2) = %d of them, %v", a, len(some), err)
	}
	if _, err := s.Body(context.Background(), hashOf("never seen")); !errors.Is(err, store.ErrNoBody) {
		t.Errorf("Body(never seen) = %v, want %v", err, store.ErrNoBody)
	}
}

// A site that has another text at every fetch keeps the newest 50, and a web page is no text.
func TestVersionsOfAnOriginAreFew(t *testing.T) {
	s := fresh(t)
	a, b := mustOrigin(t, "http://a.example"), mustOrigin(t, "http://b.example")
	save(t, s, found(b, "# b", dawn), nil)
	for i := range 60 {
		at := dawn.Add(time.Duration(i) * time.Minute)
		save(t, s, found(a, fmt.Sprintf("# %d", i), at), nil)
		page := found(b, fmt.Sprintf("<html>%d", i), at)
		page.Flags = robots.WebPage
		save(t, s, page, nil)
	}
	got := versions(t, s, a)
	if len(got) != 50 || !strings.HasPrefix(got[0], "# 59 ") || !strings.HasPrefix(got[len(got)-1], "# 10 ") {
		t.Errorf("Versions(%s) = %d, %q, want 50, from # 59 to # 10", a, len(got), got)
	}
	if got, want := versions(t, s, b), []string{"# b 200 0-0 []"}; !cmp.Equal(got, want) {
		t.Errorf("Versions(%s) = %q, want %q", b, got, want)
	}
	if got := count(t, s, "bodies"); got != 52 {
		t.Errorf("%d bodies are kept, want those of 51 versions and of the last web page", got)
	}
}

func TestChanges(t *testing.T) {
	s, ctx := fresh(t), context.Background()
	a, tls, b := mustOrigin(t, "http://a.example"), mustOrigin(t, "https://a.example"), mustOrigin(t, "http://b.example")
	change := func(o origin.Origin, after time.Duration, state string) robots.Change {
		return robots.Change{Origin: o, Time: dawn.Add(after), OldState: "unreachable", NewState: state, NewSHA256: hashOf(state)}
	}
	all := []robots.Change{change(a, 0, "found"), change(tls, 1, "empty"), change(a, 2*time.Hour, "html"), change(b, 3*time.Hour, "found"), change(tls, time.Hour, foreign)}
	all[1].Time = dawn // as the first, and later all the same
	for _, c := range all {
		save(t, s, unreachable(c.Origin, dawn), &c)
	}
	save(t, s, unreachable(a, dawn), nil)
	for _, tt := range []struct {
		name string
		ask  func() ([]robots.Change, error)
		want []robots.Change
	}{
		{"an origin", func() ([]robots.Change, error) { return s.Changes(ctx, a, 9) }, []robots.Change{all[2], all[0]}},
		{"the latest", func() ([]robots.Change, error) { return s.Changes(ctx, tls, 1) }, []robots.Change{all[4]}},
		{"no such origin", func() ([]robots.Change, error) { return s.Changes(ctx, mustOrigin(t, "http://example"), 9) }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.ask()
			if diff := cmp.Diff(tt.want, got, sameOrigin); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestOrigins(t *testing.T) {
	s, ctx := fresh(t), context.Background()
	for _, name := range []string{"https://b.example", "http://c.example", "https://a.example:8443", "http://b.example", "https://a.example"} {
		save(t, s, found(mustOrigin(t, name), file, dawn), nil)
	}
	for _, tt := range []struct {
		host  string
		limit int
		want  string
	}{
		{"", 99, "[https://a.example https://a.example:8443 http://b.example https://b.example http://c.example]"},
		{"", 2, "[https://a.example https://a.example:8443]"},
		{"b.example", 99, "[http://b.example https://b.example]"},
		{"b.example", 1, "[http://b.example]"},
		{"example", 99, "[]"},
	} {
		got, err := s.Origins(ctx, tt.host, tt.limit)
		if fmt.Sprint(got) != tt.want || err != nil {
			t.Errorf("Origins(%q, %d) = %v, %v; want %s", tt.host, tt.limit, got, err, tt.want)
		}
	}
}

// 300 origins with the same file keep it once.
func TestABodyIsKeptOnce(t *testing.T) {
	s, ctx := fresh(t), context.Background()
	for i := range 300 {
		save(t, s, found(mustOrigin(t, fmt.Sprintf("http://h%d.example", i)), file, dawn), nil)
	}
	if n := count(t, s, "bodies"); n != 1 {
		t.Errorf("%d bodies are kept, want 1", n)
	}
	for i := range 300 { // the last that goes takes it along
		if body, err := s.Body(ctx, hashOf(file)); string(body) != file || err != nil {
			t.Fatalf("Body with %d origins left = %q, %v", 300-i, body, err)
		}
		o := mustOrigin(t, fmt.Sprintf("http://h%d.example", i))
		save(t, s, unreachable(o, dawn.Add(time.Hour)), nil)
	}
	if _, err := s.Prune(ctx, dawn.Add(time.Minute)); err != nil {
		t.Fatalf("Prune: %v", err)
	}
	if _, err := s.Body(ctx, hashOf(file)); !errors.Is(err, store.ErrNoBody) {
		t.Errorf("Body that nobody has = %v, want %v", err, store.ErrNoBody)
	}
}

func TestPrune(t *testing.T) {
	s, ctx := fresh(t), context.Background()
	const n = 450 // more than two steps
	day := func(d int) time.Time { return dawn.AddDate(0, 0, d) }
	for i := range n {
		o := mustOrigin(t, fmt.Sprintf("http://old%d.example", i))
		save(t, s, found(o, fmt.Sprintf("# old %d", i), dawn), &robots.Change{Origin: o, Time: dawn, NewState: "found"})
	}
	a := mustOrigin(t, "http://a.example")
	save(t, s, found(a, "# first", day(0)), nil)
	save(t, s, found(a, "# second", day(1)), &robots.Change{Origin: a, Time: day(1), OldState: "found", NewState: "found"})
	save(t, s, found(a, "# old 1", day(20)), nil)
	stale := found(a, "# second", day(30)) // the version was seen long ago, and is in force
	stale.Stale, stale.Fields = true, ""
	save(t, s, stale, nil)

	gone, err := s.Prune(ctx, day(10))
	if want := int64(3*n + 3); gone != want || err != nil { // of a two versions and one change
		t.Errorf("Prune = %d, %v; want %d", gone, err, want)
	}
	for table, want := range map[string]int{"snapshots": 1, "versions": 1, "changes": 0, "bodies": 2} {
		if got := count(t, s, table); got != want {
			t.Errorf("%s after Prune: %d, want %d", table, got, want)
		}
	}
	if got := string(load(t, s, a).Body); got != "# second" {
		t.Errorf("what is in force after Prune: %q, want %q", got, "# second")
	}
	if got, want := versions(t, s, a), []string{"# old 1 200 480-480 []"}; !cmp.Equal(got, want) {
		t.Errorf("Versions after Prune = %q, want %q", got, want)
	}
	if gone, err := s.Prune(ctx, day(10)); gone != 0 || err != nil {
		t.Errorf("Prune once more = %d, %v; want nothing", gone, err)
	}
}

// A file that has not changed is not written again: what the log grows by has no room for it.
func TestAnUnchangedBodyIsNotWrittenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	snap := found(mustOrigin(t, "http://a.example"), strings.Repeat("#", 500<<10), dawn)
	grown := func() int64 {
		before, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		save(t, s, snap, nil)
		after, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return after.Size() - before.Size()
	}
	if n := grown(); n < 500<<10 {
		t.Errorf("the log has grown by %d octets with a new file, want all of it", n)
	}
	snap.Fetched = dawn.Add(time.Hour)
	if n := grown(); n > 100<<10 {
		t.Errorf("the log has grown by %d octets with an unchanged file of 500 KiB", n)
	}
}
