package robots_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// ownFile disallows a path that is the host's own, and is n octets long.
func ownFile(o origin.Origin, n int) string {
	body := "User-agent: *\nDisallow: /" + o.Host() + "$\n#"
	return body + strings.Repeat("-", max(0, n-len(body)))
}

// checkOwn holds that snap is the file of o.
func checkOwn(t *testing.T, snap *robots.Snapshot, o origin.Origin) {
	if allowed(snap, "/"+o.Host()) || !allowed(snap, "/"+o.Host()+"x") {
		t.Errorf("the verdict for %s is that of another file: %q", o, snap.Body[:min(60, len(snap.Body))])
	}
}

// TestEviction asks for far more origins than fit, and for a hot one between all of them, from several goroutines.
func TestEviction(t *testing.T) {
	const origins, size = 4000, 2000
	for _, maxBytes := range []int64{1, 64 << 10, 1 << 20} {
		t.Run(fmt.Sprint(maxBytes), func(t *testing.T) {
			hot := mustOrigin(t, "https://hot.example")
			var hotFetches atomic.Int32
			c := newCache(t, robots.CacheOptions{MaxBytes: maxBytes, Fetch: func(_ context.Context, r fetch.Request) (*robots.Answer, error) {
				if r.Origin == hot {
					hotFetches.Add(1)
				}
				return found(r.Origin, ownFile(r.Origin, size), 24*time.Hour), nil
			}})
			var crawlers sync.WaitGroup
			for crawler := range 4 {
				crawlers.Go(func() {
					for i := crawler; i < origins; i += 4 {
						cold := mustOrigin(t, fmt.Sprintf("http://cold-%d.example", i))
						checkOwn(t, lookUp(t, c, cold), cold)
						checkOwn(t, lookUp(t, c, hot), hot)
					}
				})
			}
			crawlers.Wait()
			got := hotFetches.Load()
			t.Logf("the hot host was fetched %d times in %d look-ups; %+v", got, origins, c.Stats())
			if maxBytes >= 64<<10 && got > origins/20 {
				t.Errorf("the hot host was fetched %d times in %d look-ups, want one in twenty at most", got, origins)
			}
		})
	}
}

// TestMemory holds that what a site sends cannot take more than MaxBytes, wherever it puts its octets.
func TestMemory(t *testing.T) {
	const maxBytes = 16 << 20
	large := strings.Repeat("x", 200<<10)
	for name, inflate := range map[string]func(*robots.Answer){
		"body":      func(s *robots.Answer) { s.Body = []byte(strings.Clone(large)) },
		"redirects": func(s *robots.Answer) { s.Redirects = []string{strings.Clone(large), strings.Clone(large)} },
		"error":     func(s *robots.Answer) { s.Err = fmt.Errorf("malformed HTTP response %q", large) },
		"small":     func(*robots.Answer) {},
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			c := newCache(t, robots.CacheOptions{MaxBytes: maxBytes, Fetch: func(_ context.Context, r fetch.Request) (*robots.Answer, error) {
				snap := found(r.Origin, file, 24*time.Hour)
				inflate(snap)
				return snap, nil
			}})
			n := 400
			if name == "small" {
				n = 40_000
			}
			for i := range n {
				lookUp(t, c, mustOrigin(t, fmt.Sprintf("http://host-%d.example", i)))
			}
			got := heap() - before
			t.Logf("%d KiB", got>>10)
			if got > maxBytes*6/5 {
				t.Errorf("the cache keeps %d KiB, want %d and a fifth at most", got>>10, maxBytes>>10)
			}
			runtime.KeepAlive(c)
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // the first one makes sync.Pool let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
