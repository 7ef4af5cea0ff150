package robots_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
	"github.com/robotsproxy/robotsproxy/rules"
)

// shelf is a Store in memory. Before each call it does what its test says.
type shelf struct {
	mu      sync.Mutex
	before  func(ctx context.Context, call string) error
	kept    map[origin.Origin]*robots.Snapshot
	changes []robots.Change
	client  string // of the last Save
	calls   map[string]int
}

func newShelf() *shelf {
	return &shelf{kept: map[origin.Origin]*robots.Snapshot{}, calls: map[string]int{}}
}

func (s *shelf) call(ctx context.Context, name string) error {
	s.mu.Lock()
	s.calls[name]++
	before := s.before
	s.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(ctx, name)
}

// setBefore sets before. A write of the Cache may be under way.
func (s *shelf) setBefore(before func(ctx context.Context, call string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

func (s *shelf) called(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[name]
}

func (s *shelf) Load(ctx context.Context, o origin.Origin) (*robots.Snapshot, error) {
	if err := s.call(ctx, "Load"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if snap := s.kept[o]; snap != nil {
		return onPaper(snap), nil
	}
	return nil, robots.ErrNoSnapshot
}

func (s *shelf) Save(ctx context.Context, snap *robots.Snapshot, c *robots.Change) error {
	if err := s.call(ctx, "Save"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[snap.Origin] = onPaper(snap)
	s.client = snap.Client
	if c != nil {
		s.changes = append(s.changes, *c)
	}
	return nil
}

func (s *shelf) Delete(ctx context.Context, o origin.Origin) error {
	if err := s.call(ctx, "Delete"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, o)
	return nil
}

// TestStoreHearsOfTheClient has a client ask first, and another one when the file has expired: each answer is its own.
func TestStoreHearsOfTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newShelf()
		c := newCache(t, robots.CacheOptions{Fetch: slowly, Store: store})
		o := mustOrigin(t, "http://a.example")
		for _, client := range []string{"one", "other"} {
			for range 2 {
				if _, err := c.Snapshot(t.Context(), o, robots.Asker{Client: client}); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if got := store.client; got != client {
				t.Errorf("the Store was told of the client %q, want %q", got, client)
			}
			time.Sleep(time.Hour)
		}
	})
}

// TestUsed says what has answered a look-up since it was asked last.
func TestUsed(t *testing.T) {
	c := newCache(t, robots.CacheOptions{Fetch: finds})
	a, b := mustOrigin(t, "http://a.example"), mustOrigin(t, "http://b.example")
	lookUp(t, c, a)
	if c.Used(a) || c.Used(b) {
		t.Errorf("what was fetched, or is not known, is in use: %t, %t", c.Used(a), c.Used(b))
	}
	lookUp(t, c, a)
	lookUp(t, c, a)
	if first, second := c.Used(a), c.Used(a); !first || second {
		t.Errorf("after two look-ups, Used = %t and then %t, want true and then false", first, second)
	}
}

// onPaper is snap as it comes out of a file: without rules, with times of the wall, and an error that is a text.
func onPaper(snap *robots.Snapshot) *robots.Snapshot {
	var err error
	if snap.Err != nil {
		err = errors.New(snap.Err.Error())
	}
	return &robots.Snapshot{
		Answer: robots.Answer{
			Origin: snap.Origin, Availability: snap.Availability, Status: snap.Status, Redirects: snap.Redirects,
			Fetched: snap.Fetched.Round(0), Expires: snap.Expires.Round(0), SHA256: snap.SHA256, Body: snap.Body,
			Truncated: snap.Truncated, ContentType: snap.ContentType, ETag: snap.ETag,
			LastModified: snap.LastModified, Fields: snap.Fields, Flags: snap.Flags, Cause: snap.Cause, Err: err,
		},
		Stale: snap.Stale, Since: snap.Since.Round(0), Failures: snap.Failures,
	}
}

// TestRestart closes a Cache and opens another, again and again: the origin is asked as if there was one for ever.
func TestRestart(t *testing.T) {
	for _, row := range []struct {
		name  string
		say   func(*robots.Answer)
		hours int
		every time.Duration
		want  string
		asked int
	}{
		{"found", has(file), 5, time.Minute, "found 200 /open", 5},
		{"unavailable", missing, 5, time.Minute, "unavailable 404 /open /private", 5},
		{"html", page, 5, time.Minute, "html 200 /open /private", 5},
		{"unreachable: 1, 2, 4, 8, 16, 30 minutes and so on", down, 5, time.Minute, "unreachable 0 connection_refused", 14},
		{"unreachable for 30 days", down, 31 * 24, 30 * time.Minute, "unavailable 0 connection_refused /open /private", 31 * 48},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site, store := &scripted{say: row.say}, newShelf()
				o := mustOrigin(t, "http://a.example")
				var got string
				for end := time.Now().Add(time.Duration(row.hours) * time.Hour); time.Now().Before(end); time.Sleep(row.every) {
					c, err := robots.NewCache(robots.CacheOptions{Fetch: site.fetch, Store: store, UnreachableAllows: true, MaxBytes: 1 << 10})
					if err != nil {
						t.Fatal(err)
					}
					got = outline(lookUp(t, c, o))
					c.Close()
				}
				if got != row.want {
					t.Errorf("at the end %s, want %s", got, row.want)
				}
				if site.asked < row.asked || site.asked > row.asked+row.asked/10+1 { // renewals come a little earlier
					t.Errorf("the origin was asked %d times, want %d or a few more", site.asked, row.asked)
				}
			})
		})
	}
}

// TestRestartStale has the copy, and its age, outlive the process too.
func TestRestartStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site, store := &scripted{say: has(file)}, newShelf()
		o := mustOrigin(t, "http://a.example")
		var met []string
		for day := range 35 {
			c, err := robots.NewCache(robots.CacheOptions{Fetch: site.fetch, Store: store})
			if err != nil {
				t.Fatal(err)
			}
			snap := lookUp(t, c, o)
			if snap.Stale && snap.Failures != day {
				t.Errorf("on day %d: %d failures, want one a day", day, snap.Failures)
			}
			met = append(met, outline(snap))
			c.Close()
			site.say = down
			time.Sleep(24 * time.Hour)
		}
		for day, got := range met {
			want := "stale 0 connection_refused /open"
			if day == 0 {
				want = "found 200 /open"
			} else if day > 30 {
				want = "unreachable 0 connection_refused"
			}
			if got != want {
				t.Errorf("on day %d: %s, want %s", day, got, want)
			}
		}
		if diff := cmp.Diff([]string{"found -> stale", "stale -> unreachable"}, transitions(store.changes)); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
	})
}

func transitions(changes []robots.Change) (list []string) {
	for _, c := range changes {
		list = append(list, c.OldState+" -> "+c.NewState)
	}
	return list
}

// TestDeclined has a memory that takes nothing: what it costs are reads of the Store.
func TestDeclined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newShelf()
		c := newCache(t, robots.CacheOptions{Fetch: finds, Store: store, MaxBytes: 1})
		a, b := mustOrigin(t, "http://a.example"), mustOrigin(t, "http://b.example")
		for range 50 {
			for _, o := range []origin.Origin{a, b} { // by turns, since the newest is kept however small the memory is
				if snap := lookUp(t, c, o); allowed(snap, "/private") {
					t.Fatalf("%s: %s", o, outline(snap))
				}
				synctest.Wait()
			}
		}
		if got := c.Stats(); got.Fetches != 2 || got.StoreHits != 98 {
			t.Errorf("%+v, want 2 fetches and 98 answers of the Store", got)
		}
	})
}

// TestStoreFails has each call fail, or take for ever, or bring another's file.
func TestStoreFails(t *testing.T) {
	broken := errors.New("the disk is full")
	for _, row := range []struct {
		name   string
		before func(context.Context, string) error
		lasts  time.Duration // of a look-up
	}{
		{"it returns errors", func(context.Context, string) error { return broken }, 0},
		{"it hangs", func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }, 5500 * time.Millisecond},
		{"it cannot save", func(_ context.Context, call string) error {
			if call == "Save" {
				return broken
			}
			return nil
		}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []error
				store := newShelf()
				store.setBefore(row.before)
				c := newCache(t, robots.CacheOptions{Fetch: finds, Store: store, StoreFailed: func(err error) { told = append(told, err) }})
				o := mustOrigin(t, "http://a.example")
				for range 3 {
					begin := time.Now()
					if snap := lookUp(t, c, o); allowed(snap, "/private") || !allowed(snap, "/open") {
						t.Errorf("Snapshot = %s", outline(snap))
					}
					if got := time.Since(begin); got > row.lasts {
						t.Errorf("a look-up took %v, want %v at most", got, row.lasts)
					}
				}
				synctest.Wait()
				if got := c.Stats(); got.Fetches != 1 || got.StoreErrors != uint64(len(told)) || len(told) == 0 {
					t.Errorf("%+v, and told of %v; want one fetch, and each error told", got, told)
				}
				if row.name == "it returns errors" && !errors.Is(told[0], broken) {
					t.Errorf("told of %v, want %v", told[0], broken)
				}
			})
		})
	}
}

// TestStoreIsLocked has every Save wait for another process. The first look-up waits a little, those that follow do
// not, and what is fetched later is kept again.
func TestStoreIsLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locked atomic.Bool
		locked.Store(true)
		store := newShelf()
		store.setBefore(func(ctx context.Context, call string) error {
			if !locked.Load() || call != "Save" {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		c := newCache(t, robots.CacheOptions{Fetch: finds, Store: store})
		begin := time.Now()
		for i := range 100 {
			lookUp(t, c, mustOrigin(t, fmt.Sprintf("http://h%d.example", i)))
		}
		synctest.Wait()
		if got := time.Since(begin); got > 500*time.Millisecond || store.called("Save") != 1 {
			t.Errorf("100 origins took %v and %d calls of Save, want half a second and one", got, store.called("Save"))
		}
		locked.Store(false)
		time.Sleep(5 * time.Second)
		o := mustOrigin(t, "http://a.example")
		lookUp(t, c, o)
		synctest.Wait()
		if len(store.kept) != 101 {
			t.Errorf("%d of 101 are saved after the lock", len(store.kept))
		}
	})
}

// TestErrorsOfSaveAreNoLock has a Save fail at once, after which the next is tried all the same.
func TestErrorsOfSaveAreNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newShelf()
		store.setBefore(func(_ context.Context, call string) error { return map[string]error{"Save": errors.New("no")}[call] })
		c := newCache(t, robots.CacheOptions{Fetch: finds, Store: store})
		for i := range 10 {
			lookUp(t, c, mustOrigin(t, fmt.Sprintf("http://h%d.example", i)))
		}
		synctest.Wait()
		if got := store.called("Save"); got != 10 {
			t.Errorf("%d calls of Save, want 10", got)
		}
	})
}

// TestStoreLies has a Store bring what cannot be: another origin's file, or one that is good for a year.
func TestStoreLies(t *testing.T) {
	a, b := mustOrigin(t, "http://a.example"), mustOrigin(t, "http://b.example")
	t.Run("another origin", func(t *testing.T) {
		store := newShelf()
		store.kept[a] = robots.Parsed(found(b, "", time.Hour))
		c := newCache(t, robots.CacheOptions{Fetch: finds, Store: store})
		if snap := lookUp(t, c, a); allowed(snap, "/private") {
			t.Errorf("Snapshot = %s, want what the origin has", outline(snap))
		}
		if _, err := c.Peek(t.Context(), b); !errors.Is(err, robots.ErrNoSnapshot) {
			t.Errorf("Peek(%s): %v, want %v", b, err, robots.ErrNoSnapshot)
		}
	})
	t.Run("a clock that was wrong", func(t *testing.T) {
		store := newShelf()
		store.kept[a] = robots.Parsed(found(a, "", 365*24*time.Hour))
		c := newCache(t, robots.CacheOptions{Fetch: finds, Store: store})
		if snap := lookUp(t, c, a); allowed(snap, "/private") {
			t.Errorf("Snapshot = %s, want what the origin has", outline(snap))
		}
	})
}

// TestRulesOfStore holds that a file has the same rules before and after a restart, whatever it is.
func TestRulesOfStore(t *testing.T) {
	const size = 200
	long := "User-agent: *\nDisallow: /private\n" + strings.Repeat("#", size-len(file)-len("\nDisallow: /o")) + "\nDisallow: /open\n"
	for name, row := range map[string]struct{ contentType, body, want string }{
		"plain":           {"text/plain", file, "found 200 /open"},
		"another charset": {"text/plain; charset=utf-16le", utf16(file), "found 200 /open"},
		"cut in a rule":   {"text/plain", long, "oversize 200 /open"},
		"cut at its end":  {"text/plain", long[:size] + "\n", "oversize 200 /open"},
		"empty":           {"text/plain", "", "empty 200 /open /private"},
		"a web page":      {"text/html", "<html>\n" + file, "html 200 /open"},
	} {
		t.Run(name, func(t *testing.T) {
			transport := answering{status: 200, header: map[string][]string{"Content-Type": {row.contentType}}, body: row.body}
			f := newFetcherOver(t, transport, func(o *fetch.Options) { o.MaxSize = size })
			store := newShelf()
			o := mustOrigin(t, "http://a.example")
			for _, life := range []string{"first", "second"} {
				c, err := robots.NewCache(robots.CacheOptions{Fetch: f.Fetch, Store: store})
				if err != nil {
					t.Fatal(err)
				}
				snap := lookUp(t, c, o)
				if got := outline(snap); got != row.want {
					t.Errorf("%s life: %s, want %s", life, got, row.want)
				}
				c.Close()
				if stats := c.Stats(); life == "second" && stats.Fetches != 0 {
					t.Errorf("%+v, want what the Store had", stats)
				}
			}
		})
	}
}

// TestOtherOptions opens what was stored with other options: what would not count so today is asked for again, and
// nothing else is.
func TestOtherOptions(t *testing.T) {
	refuse := func(o *fetch.Options) { o.UnauthorizedRefuses, o.HTMLRefuses = true, true }
	hour := func(o *fetch.Options) { o.TTL = time.Hour }
	none := func(*fetch.Options) {}
	says := http.Header{"Cache-Control": {"max-age=43200"}}
	day := func(o *fetch.Options) { o.ErrorTTL = 24 * time.Hour }
	for _, row := range []struct {
		name          string
		answer        answering
		before, after func(*fetch.Options)
		later         time.Duration
		want          string
		asked         uint64
	}{
		{"401 is refused from now on", answering{status: 401}, none, refuse, 0, "unreachable 401 destination_unavailable", 1},
		{"403 is allowed from now on", answering{status: 403}, func(o *fetch.Options) { refuse(o); day(o) }, day, 0, "unavailable 403 /open /private", 1},
		{"a web page is refused from now on", answering{status: 200, body: "<html>"}, none, refuse, 0, "html 200 destination_unavailable", 1},
		{"a web page is allowed from now on", answering{status: 200, body: "<html>"}, refuse, none, 0, "html 200 /open /private", 1},
		{"401 is refused as before", answering{status: 401}, refuse, refuse, 0, "unreachable 401 destination_unavailable", 0},
		{"401 is allowed as before", answering{status: 401}, none, none, 0, "unavailable 401 /open /private", 0},
		{"a file is no wall", answering{status: 200, body: file}, none, refuse, 0, "found 200 /open", 0},
		{"503 is no wall", answering{status: 503}, refuse, none, 0, "unreachable 503 destination_unavailable", 0},
		{"2.4/a lower TTL", answering{status: 200, body: file}, none, hour, 2 * time.Hour, "found 200 /open", 1},
		{"2.4/a lower TTL that has not passed", answering{status: 200, body: file}, none, hour, 30 * time.Minute, "found 200 /open", 0},
		{"2.4/a lower TTL, of a file that says more", answering{status: 200, body: file, header: says}, none, hour, 2 * time.Hour, "found 200 /open", 0},
		{"2.4/a higher TTL", answering{status: 200, body: file}, hour, none, 2 * time.Hour, "found 200 /open", 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, store := mustOrigin(t, "http://a.example"), newShelf()
				live := func(edit func(*fetch.Options)) (*robots.Snapshot, uint64) {
					f := newFetcherOver(t, row.answer, edit)
					c, err := robots.NewCache(robots.CacheOptions{Fetch: f.Fetch, Expiry: f.Expiry, Store: store})
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					return lookUp(t, c, o), c.Stats().Fetches
				}
				live(row.before)
				time.Sleep(row.later)
				snap, asked := live(row.after)
				if got := outline(snap); got != row.want || asked != row.asked {
					t.Errorf("after the restart: %s and %d fetches, want %s and %d", got, asked, row.want, row.asked)
				}
			})
		})
	}
}

// TestReload is TestOtherOptions without a restart: the options of a Cache change.
func TestReload(t *testing.T) {
	for _, row := range []struct {
		name   string
		answer answering
		edit   func(*fetch.Options)
		later  time.Duration
		want   string
		asked  uint64
	}{
		{"401 is refused from now on", answering{status: 401}, func(o *fetch.Options) { o.UnauthorizedRefuses = true }, 0, "unreachable 401 destination_unavailable", 2},
		{"a lower TTL", answering{status: 200, body: file}, func(o *fetch.Options) { o.TTL = time.Hour }, 2 * time.Hour, "found 200 /open", 2},
		{"a lower TTL that has not passed", answering{status: 200, body: file}, func(o *fetch.Options) { o.TTL = time.Hour }, 30 * time.Minute, "found 200 /open", 1},
		{"nothing", answering{status: 200, body: file}, func(*fetch.Options) {}, time.Hour, "found 200 /open", 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := mustOrigin(t, "http://a.example")
				before := newFetcherOver(t, row.answer, func(*fetch.Options) {})
				c, err := robots.NewCache(robots.CacheOptions{Fetch: before.Fetch, Expiry: before.Expiry, Store: newShelf()})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				lookUp(t, c, o)
				time.Sleep(row.later + time.Minute) // it is saved by then
				after := newFetcherOver(t, row.answer, row.edit)
				if err := c.Reload(robots.CacheOptions{Fetch: after.Fetch, Expiry: after.Expiry}); err != nil {
					t.Fatal(err)
				}
				if got, asked := outline(lookUp(t, c, o)), c.Stats().Fetches; got != row.want || asked != row.asked {
					t.Errorf("after the reload: %s and %d fetches, want %s and %d", got, asked, row.want, row.asked)
				}
				if err := c.Reload(robots.CacheOptions{}); err == nil {
					t.Error("Reload without a Fetch succeeds")
				}
			})
		})
	}
}

func utf16(s string) string {
	var out []byte
	for _, c := range []byte(s) {
		out = append(out, c, 0)
	}
	return string(out)
}

// TestStorePanics has a fault of ours in the Store end no goroutine but its own work.
func TestStorePanics(t *testing.T) {
	o, store := mustOrigin(t, "http://a.example"), newShelf()
	c := newCache(t, robots.CacheOptions{Fetch: finds, Store: store})
	store.setBefore(func(context.Context, string) error { panic("a fault of ours") })
	if err := c.Purge(t.Context(), o); err == nil || !strings.Contains(err.Error(), "a fault of ours") {
		t.Errorf("Purge: %v, want the panic as an error", err)
	}
	if snap, err := c.Snapshot(t.Context(), o, robots.Asker{}); snap != nil || err == nil {
		t.Errorf("Snapshot = %v, %v, want the panic as an error", snap, err)
	}
	store.setBefore(nil)
	lookUp(t, c, o)
}

// TestCallerLeavesStore has a caller of Peek leave, which is no fault of the Store.
func TestCallerLeavesStore(t *testing.T) {
	store := newShelf()
	store.setBefore(func(ctx context.Context, _ string) error { return ctx.Err() })
	c := newCache(t, robots.CacheOptions{Fetch: finds, Store: store})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if snap, err := c.Peek(ctx, mustOrigin(t, "http://a.example")); snap != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("Peek = %v, %v, want %v", snap, err, context.Canceled)
	}
	if got := c.Stats().StoreErrors; got != 0 {
		t.Errorf("%d errors of the Store", got)
	}
}

// TestChange has the hashes and the time of a change, and no change where there was nothing before.
func TestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, site, store := mustOrigin(t, "http://a.example"), &scripted{say: has(file)}, newShelf()
		var told []robots.Change
		c := newCache(t, robots.CacheOptions{Fetch: site.fetch, Store: store, Changed: func(change robots.Change) { told = append(told, change) }})
		for _, body := range []string{file, file, "User-agent: *\nDisallow: /open\n", "User-agent: *\nDisallow: /open\n"} {
			site.say = has(body)
			if _, err := c.Refresh(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		want := []robots.Change{{
			Origin: o, Time: time.Now().Add(-2 * time.Minute), OldSHA256: "of /private", NewSHA256: "of /open", OldState: "found", NewState: "found",
		}}
		same := cmp.Comparer(func(a, b origin.Origin) bool { return a == b })
		if diff := cmp.Diff(want, told, same); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, store.changes, same); diff != "" {
			t.Errorf("saved (-want +got):\n%s", diff)
		}
		if got := c.Stats().Changes; got != 1 {
			t.Errorf("%d changes, want 1", got)
		}
		if store.called("Save") != 4 || len(store.kept) != 1 || rules.Parse(store.kept[o].Body, rules.Options{}).Agent("a").Verdict("/open").Allowed {
			t.Errorf("kept: %v", store.kept)
		}
	})
}

// TestChangeSaysWhy has a good file go bad: whoever is told of it learns of what.
func TestChangeSaysWhy(t *testing.T) {
	refused := func(s *robots.Answer) { down(s); s.Err = errors.New("nobody listens") }
	for want, say := range map[string]func(*robots.Answer){
		"nobody listens": refused,
		"the origin answers 403, where it had a file":  forbidden,
		"a web page stands in the place of robots.txt": page,
		"": missing,
	} {
		synctest.Test(t, func(t *testing.T) {
			o, site := mustOrigin(t, "http://a.example"), &scripted{say: has(file)}
			var told robots.Change
			c := newCache(t, robots.CacheOptions{Fetch: site.fetch, Changed: func(change robots.Change) { told = change }})
			lookUp(t, c, o)
			site.say = say
			snap, err := c.Refresh(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if told.NewState != snap.State() || told.Why != want {
				t.Errorf("told %q because %q, want %q because %q", told.NewState, told.Why, snap.State(), want)
			}
		})
	}
}
