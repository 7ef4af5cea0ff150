package store_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/store"
)

// differ compares snapshots: an error by its text, and an origin by its name.
func differ(got, want *robots.Snapshot) string {
	return cmp.Diff(want, got, cmpopts.IgnoreUnexported(robots.Snapshot{}), sameOrigin,
		cmp.Comparer(func(a, b error) bool { return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error()) }))
}

// foreign is all that may not stand in a text: NUL, invalid UTF-8, ends of line, quotes, and a BOM.
const foreign = "\x00\xff\xfe'\"\r\n\t\xed\xa0\x80\u00e4\U0001f916\ufeff%00;--"

func TestLoadReturnsWhatWasSaved(t *testing.T) {
	a := mustOrigin(t, "https://a.example:8443")
	stale := found(a, file, dawn)
	stale.Stale, stale.Since, stale.Failures, stale.Cause = true, dawn.Add(time.Hour), 3, "http_response_timeout"
	stale.Err, stale.Flags = errors.New("dial tcp 192.0.2.1:443: i/o timeout"), robots.WebPage|robots.Downgraded
	strange := found(a, "\x00\xff"+file, dawn)
	strange.ContentType, strange.ETag, strange.LastModified, strange.Cause = foreign, foreign, foreign, foreign
	strange.Err, strange.Redirects = errors.New(foreign), []string{"https://b.example/" + foreign, ""}
	strange.Fields = "Cache-Control: \xff\xfe'\"\t\xed\xa0\x80\u00e4\U0001f916\ufeff%00;--, second\r\nDate: \r\n"
	cut := found(a, strings.Repeat("#", 512_000), dawn)
	cut.Truncated, cut.Redirects = true, []string{"https://www.a.example/robots.txt", "https://b.example/r"}
	silent := unreachable(a, dawn)
	silent.Err = errors.New("")
	gone := found(a, "", dawn)
	gone.Availability, gone.Status, gone.Flags = robots.Unavailable, 404, robots.Unauthorized|robots.RedirectLoop|robots.TooManyRedirects
	early := found(a, file, time.Date(1969, 12, 30, 0, 0, 0, 0, time.UTC))

	s := fresh(t)
	for name, snap := range map[string]*robots.Snapshot{
		"found": found(a, file, dawn), "empty file": found(a, "", dawn), "404": gone, "stale": stale, "octets": strange,
		"cut": cut, "no answer": unreachable(a, dawn), "error without words": silent, "nothing but its origin": {Answer: robots.Answer{Origin: a}},
		"before 1970": early,
	} {
		t.Run(name, func(t *testing.T) {
			save(t, s, snap, nil)
			got := load(t, s, a)
			if len(snap.Body) == 0 {
				got.Body, snap.Body = nil, nil
			}
			if diff := differ(got, snap); diff != "" {
				t.Errorf("Load(%s) differs from what was saved (-want +got):\n%s", a, diff)
			}
		})
	}
}

func TestAnyOctetsAreKept(t *testing.T) {
	s := fresh(t)
	a := mustOrigin(t, "http://a.example")
	octets := rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 40), func(b []byte) string { return string(b) })
	values := rapid.Map(octets, func(s string) string { // as net/http accepts them
		isControl := func(c byte) bool { return c < ' ' && c != '\t' || c == 0x7f }
		return string(slices.DeleteFunc([]byte(s), isControl))
	})
	rapid.Check(t, func(r *rapid.T) {
		snap := found(a, octets.Draw(r, "body"), dawn)
		snap.ContentType, snap.ETag = octets.Draw(r, "type"), octets.Draw(r, "etag")
		snap.Fields = "Cache-Control: " + values.Draw(r, "value") + "\r\n"
		snap.Redirects = []string{octets.Draw(r, "redirect")}
		snap.Err = errors.New(octets.Draw(r, "err"))
		if err := s.Save(context.Background(), snap, nil); err != nil {
			r.Fatalf("Save: %v", err)
		}
		got, err := s.Load(context.Background(), a)
		if err != nil {
			r.Fatalf("Load: %v", err)
		}
		if string(got.Body) != string(snap.Body) {
			r.Fatalf("Body: got %q, want %q", got.Body, snap.Body)
		}
		got.Body, snap.Body = nil, nil
		if diff := differ(got, snap); diff != "" {
			r.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestOriginsAreKeptApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	names := []string{"http://a.example", "https://a.example", "https://a.example:8443", "http://[2001:db8::1]", "http://192.0.2.1:81"}
	for i, name := range names {
		save(t, s, found(mustOrigin(t, name), fmt.Sprintf("# %d", i), dawn), nil)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	s = open(t, path)
	for i, name := range names {
		if got, want := string(load(t, s, mustOrigin(t, name)).Body), fmt.Sprintf("# %d", i); got != want {
			t.Errorf("Load(%s).Body = %q, want %q", name, got, want)
		}
	}
	if _, err := s.Load(context.Background(), mustOrigin(t, "http://a.example:8443")); !errors.Is(err, robots.ErrNoSnapshot) {
		t.Errorf("Load(an origin that was not saved) = %v, want %v", err, robots.ErrNoSnapshot)
	}
}

func TestDelete(t *testing.T) {
	s, ctx := fresh(t), context.Background()
	a := mustOrigin(t, "http://a.example")
	save(t, s, found(a, file, dawn), &robots.Change{Origin: a, Time: dawn, NewSHA256: hashOf(file), NewState: "found"})
	for range 2 { // the second time there is nothing to forget
		if err := s.Delete(ctx, a); err != nil {
			t.Errorf("Delete(%s): %v", a, err)
		}
		if _, err := s.Load(ctx, a); !errors.Is(err, robots.ErrNoSnapshot) {
			t.Errorf("Load after Delete: %v, want %v", err, robots.ErrNoSnapshot)
		}
	}
	if changes, err := s.Changes(ctx, a, 9); len(changes) != 1 || err != nil {
		t.Errorf("Changes after Delete = %v, %v; want the one", changes, err)
	}
	if body, err := s.Body(ctx, hashOf(file)); string(body) != file || err != nil {
		t.Errorf("Body after Delete = %q, %v; want that of the version", body, err)
	}
}

func TestSaveRefusesAFalseHash(t *testing.T) {
	s, ctx := fresh(t), context.Background()
	a := mustOrigin(t, "http://a.example")
	for name, hash := range map[string]string{"another": hashOf("x"), "none": "", "upper case": strings.ToUpper(hashOf(file))} {
		snap := found(a, file, dawn)
		snap.SHA256 = hash
		change := &robots.Change{Origin: a, Time: dawn, NewState: "found"}
		if err := s.Save(ctx, snap, change); err == nil || !strings.Contains(err.Error(), "http://a.example") || !strings.Contains(err.Error(), hashOf(file)) {
			t.Errorf("Save(%s hash) = %v, want an error that names origin and hash", name, err)
		}
	}
	if _, err := s.Load(ctx, a); !errors.Is(err, robots.ErrNoSnapshot) {
		t.Errorf("Load after refused saves: %v, want %v", err, robots.ErrNoSnapshot)
	}
	if changes, err := s.Changes(ctx, a, 9); len(changes) > 0 || err != nil {
		t.Errorf("Changes after refused saves = %v, %v; want none", changes, err)
	}
}

// Many save and load at once, some of the same origin; each load sees one whole snapshot.
func TestConcurrentUse(t *testing.T) {
	s, ctx := fresh(t), context.Background()
	var running sync.WaitGroup
	for worker := range 8 {
		running.Go(func() {
			for i := range 40 {
				o := mustOrigin(t, fmt.Sprintf("http://h%d.example", rand.N(5)))
				if err := s.Save(ctx, found(o, fmt.Sprintf("# %d %d", worker, i), dawn), nil); err != nil {
					t.Errorf("Save: %v", err)
				}
				if snap, err := s.Load(ctx, o); err != nil || snap.SHA256 != hashOf(string(snap.Body)) {
					t.Errorf("Load(%s) = %+v, %v; want a body and its hash", o, snap, err)
				}
			}
		})
	}
	running.Wait()
}

func TestFilesAreForTheOwnerAlone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows keeps rights elsewhere than in the mode")
	}
	dir := filepath.Join(t.TempDir(), "new", "folder")
	s := open(t, filepath.Join(dir, "state.db"))
	save(t, s, found(mustOrigin(t, "http://a.example"), file, dawn), nil)
	for name, want := range map[string]fs.FileMode{".": 0o700, "state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("mode of %s = %04o, want %04o", name, got, want)
		}
	}
}

func TestOpenTakesAnyPath(t *testing.T) {
	a := mustOrigin(t, "http://a.example")
	for _, name := range []string{"with space.db", "q?mode=memory&x=%41#f.db", "%2e.db", "ä'\".db", "-"} {
		path := filepath.Join(t.TempDir(), name)
		s := open(t, path)
		save(t, s, found(a, file, dawn), nil)
		if err := s.Close(); err != nil {
			t.Errorf("Close(%q): %v", name, err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("Stat(%q) = %v, %v; want the database there", name, info, err)
		}
	}
	if _, err := store.Open(store.Options{}); err == nil {
		t.Error("Open without a path succeeded")
	}
}

func TestManyOpenANewFileAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			s, err := store.Open(store.Options{Path: path, Wait: time.Minute})
			if err != nil {
				t.Errorf("Open: %v", err)
				return
			}
			defer s.Close()
			if err := s.Save(context.Background(), found(mustOrigin(t, fmt.Sprintf("http://h%d.example", i)), file, dawn), nil); err != nil {
				t.Errorf("Save: %v", err)
			}
		})
	}
	running.Wait()
	origins, err := open(t, path).Origins(context.Background(), "", 100)
	if len(origins) != 8 || err != nil {
		t.Errorf("Origins = %v, %v; want 8", origins, err)
	}
}
