package robots_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// slowly has the file everywhere, after a second.
func slowly(_ context.Context, r fetch.Request) (*robots.Answer, error) {
	time.Sleep(time.Second)
	return found(r.Origin, file, time.Hour), nil
}

// TestOneAtATime asks for many origins of one host at once, and for those of others.
func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := map[string]int{}, map[string]int{}
		c := newCache(t, robots.CacheOptions{Fetch: func(ctx context.Context, r fetch.Request) (*robots.Answer, error) {
			host := r.Origin.Host()
			mu.Lock()
			running[host]++
			most[host] = max(most[host], running[host])
			mu.Unlock()
			defer func() {
				mu.Lock()
				running[host]--
				mu.Unlock()
			}()
			return slowly(ctx, r)
		}})
		begin := time.Now()
		var all sync.WaitGroup
		for host := range 20 {
			for _, form := range []string{"http://host-%d.example", "https://host-%d.example", "http://host-%d.example:8080"} {
				all.Go(func() { lookUp(t, c, mustOrigin(t, fmt.Sprintf(form, host))) })
			}
		}
		all.Wait()
		for host, n := range most {
			if n != 1 {
				t.Errorf("%d fetches at once from %s", n, host)
			}
		}
		if got := time.Since(begin); got != 3*time.Second {
			t.Errorf("three fetches from each of 20 hosts took %v, want 3s", got)
		}
	})
}

// TestHangingPorts has one host hang at a thousand ports: those who want another do not notice.
func TestHangingPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, robots.CacheOptions{MaxFetches: 2, MaxQueue: 100, Fetch: func(ctx context.Context, r fetch.Request) (*robots.Answer, error) {
			if r.Origin.Host() == "hangs.example" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return slowly(ctx, r)
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var refused atomic.Int32
		var hanging sync.WaitGroup
		for port := range 1000 {
			o := mustOrigin(t, fmt.Sprintf("http://hangs.example:%d", 1000+port))
			hanging.Go(func() {
				if _, err := c.Snapshot(ctx, o, robots.Asker{}); errors.Is(err, robots.ErrBusy) {
					refused.Add(1)
				}
			})
		}
		synctest.Wait()
		begin := time.Now()
		lookUp(t, c, mustOrigin(t, "http://answers.example"))
		if got := time.Since(begin); got != time.Second {
			t.Errorf("a look-up of another host took %v, want 1s", got)
		}
		stats := c.Stats()
		if refused.Load() < 900 || stats.Waiting != 16 || stats.Fetching != 1 || stats.Busy != uint64(refused.Load()) {
			t.Errorf("%d refused, %+v; want most refused, and 16 that wait", refused.Load(), stats)
		}
		cancel()
		hanging.Wait()
	})
}

// TestBusy has more hosts hang than may be fetched from and wait. What is in memory is served all the same.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hanging := make(chan struct{})
		c := newCache(t, robots.CacheOptions{MaxFetches: 4, MaxQueue: 10, Fetch: func(ctx context.Context, r fetch.Request) (*robots.Answer, error) {
			if r.Origin.Host() != "kept.example" {
				<-hanging
			}
			return found(r.Origin, file, time.Hour), nil
		}})
		kept := mustOrigin(t, "http://kept.example")
		lookUp(t, c, kept)
		var busy, answered atomic.Int32
		var all sync.WaitGroup
		for i := range 100 {
			o := mustOrigin(t, fmt.Sprintf("http://host-%d.example", i))
			all.Go(func() {
				switch _, err := c.Snapshot(t.Context(), o, robots.Asker{}); {
				case errors.Is(err, robots.ErrBusy):
					busy.Add(1)
				case err == nil:
					answered.Add(1)
				default:
					t.Errorf("Snapshot(%s): %v", o, err)
				}
			})
		}
		synctest.Wait()
		if got := c.Stats(); got.Fetching != 4 || got.Waiting != 10 || busy.Load() != 86 {
			t.Errorf("%+v, %d told that we are busy; want 4 fetching, 10 waiting, 86 told", got, busy.Load())
		}
		lookUp(t, c, kept)
		close(hanging)
		all.Wait()
		if answered.Load() != 14 {
			t.Errorf("%d answered, want 14", answered.Load())
		}
		if snap := lookUp(t, c, mustOrigin(t, "http://host-99.example")); allowed(snap, "/private") {
			t.Error("afterwards: somebody slipped through")
		}
		if got := c.Stats(); got.Fetching != 0 || got.Waiting != 0 {
			t.Errorf("at the end: %+v, want nobody", got)
		}
	})
}

// TestManyRedirectsToOneHost has more sites redirect to one host than it answers for within the longest wait. The requests
// for the others wait no longer than that.
func TestManyRedirectsToOneHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFetcherOver(t, parked{}, nil)
		c := newCache(t, robots.CacheOptions{Fetch: f.Fetch, MaxWait: 20 * time.Second})
		var busy, answered atomic.Int32
		var all sync.WaitGroup
		begin := time.Now()
		for i := range 60 {
			o := mustOrigin(t, fmt.Sprintf("http://host-%d.example", i))
			all.Go(func() {
				switch _, err := c.Snapshot(t.Context(), o, robots.Asker{Client: "one"}); {
				case errors.Is(err, robots.ErrBusy):
					busy.Add(1)
				case err == nil:
					answered.Add(1)
				default:
					t.Errorf("Snapshot(%s): %v", o, err)
				}
			})
		}
		all.Wait()
		if took := time.Since(begin); took > 21*time.Second || answered.Load() < 19 || answered.Load()+busy.Load() != 60 {
			t.Errorf("%d were answered and %d refused within %v; want 20 or so, and the others after 20s", answered.Load(), busy.Load(), took)
		}
		synctest.Wait()
		if got := c.Stats(); got.Fetching != 0 || got.Waiting != 0 {
			t.Errorf("at the end: %+v, want no fetch", got)
		}
	})
}

// parked redirects the robots.txt of every host to parking.example, which has it after a second.
type parked struct{}

func (parked) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r, Body: io.NopCloser(strings.NewReader(file))}
	if r.URL.Hostname() != "parking.example" {
		resp.StatusCode = http.StatusMovedPermanently
		resp.Header.Set("Location", "http://parking.example/robots.txt")
		return resp, nil
	}
	time.Sleep(time.Second)
	return resp, nil
}
