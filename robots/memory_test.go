package robots_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
)

// fiveRules is a file of a common kind, of which two rules are the host's own.
func fiveRules(o origin.Origin) string {
	return "User-agent: *\nDisallow: /" + o.Host() + "$\nDisallow: /search?\nDisallow: /cart/\nAllow: /cart/" + o.Host() + "\nDisallow: /*.pdf$\n"
}

// fiveRulesEach answers for each origin with its own file and fields, whose octets nothing else shares.
type fiveRulesEach struct{}

func (fiveRulesEach) RoundTrip(r *http.Request) (*http.Response, error) {
	o, err := origin.FromURL(r.URL)
	if err != nil {
		return nil, err
	}
	h := http.Header{"Content-Type": {strings.Clone("text/plain; charset=utf-8")}}
	return &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(strings.NewReader(fiveRules(o))), Request: r}, nil
}

func checkFiveRules(t *testing.T, snap *robots.Snapshot, o origin.Origin) {
	t.Helper()
	agent := snap.Rules.Agent("TestBot")
	for _, row := range []struct {
		path    string
		allowed bool
	}{
		{"/" + o.Host(), false}, {"/" + o.Host() + "x", true}, {"/search?q", false}, {"/cart/x", false}, {"/cart/" + o.Host(), true}, {"/a.pdf", false},
	} {
		if agent.Verdict(row.path).Allowed != row.allowed {
			t.Errorf("%s: %s is allowed: %v, want %v", o, row.path, !row.allowed, row.allowed)
		}
	}
}

// regenerating is a Store that takes little memory: it knows which origins it keeps, and makes their files anew.
type regenerating struct {
	robots.Store // nil: what is not said here is not called

	mu    sync.Mutex
	saved map[origin.Origin]time.Time
}

func (s *regenerating) Save(_ context.Context, snap *robots.Snapshot, _ *robots.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved[snap.Origin] = snap.Expires
	return nil
}

func (s *regenerating) Load(_ context.Context, o origin.Origin) (*robots.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	expires, ok := s.saved[o]
	if !ok {
		return nil, robots.ErrNoSnapshot
	}
	return &robots.Snapshot{
		Answer: robots.Answer{
			Origin: o, Availability: robots.Found, Status: 200, Fetched: time.Now(), Expires: expires,
			Body: []byte(fiveRules(o)),
		},
	}, nil
}

// TestManyOrigins has 100,000 origins, whose Snapshots fit the memory at first, and then do not.
func TestManyOrigins(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("it measures memory, and takes some seconds")
	}
	const origins = 100_000
	all := make([]origin.Origin, origins)
	for i := range all {
		all[i] = mustOrigin(t, fmt.Sprintf("https://www.host-%d.example", i))
	}
	for _, row := range []struct {
		name     string
		maxBytes int64
		most     int64 // octets of heap
		store    robots.Store
	}{
		{"all fit", 150 << 20, 150e6, nil},
		{"few fit", 16 << 20, 18 << 20, &regenerating{saved: make(map[origin.Origin]time.Time, origins)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := heap()
			f := newFetcherOver(t, fiveRulesEach{}, nil)
			c := newCache(t, robots.CacheOptions{MaxBytes: row.maxBytes, Store: row.store, Fetch: f.Fetch})
			for range 2 {
				for _, o := range all {
					checkFiveRules(t, lookUp(t, c, o), o)
				}
			}
			got := heap() - before
			t.Logf("%d octets of heap for a limit of %d; %+v", got, row.maxBytes, c.Stats())
			if got > row.most {
				t.Errorf("%d origins take %d octets of heap, want %d at most", origins, got, row.most)
			}
			if got := c.Stats().Fetches; got != origins {
				t.Errorf("%d fetches for %d origins, each asked for twice", got, origins)
			}
			runtime.KeepAlive(c)
			runtime.KeepAlive(row.store)
		})
	}
}
