package robots_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// crowd is a Cache that a hostile client, "one", and an innocent one, "other", ask. Hosts below tarpit.example answer
// nothing for 10 s; others answer after a second.
type crowd struct {
	*testing.T
	*robots.Cache
	asking sync.WaitGroup
}

func newCrowd(t *testing.T, o robots.CacheOptions) *crowd {
	o.Fetch = func(ctx context.Context, r fetch.Request) (*robots.Answer, error) {
		if !strings.HasSuffix(r.Origin.Host(), ".tarpit.example") {
			return slowly(ctx, r)
		}
		select {
		case <-time.After(10 * time.Second):
			return failed(r.Origin, time.Minute), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &crowd{T: t, Cache: newCache(t, o)}
}

// attack has client ask for n tarpits at once. Stop makes it leave and waits until it has.
func (c *crowd) attack(client string, n int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	for i := range n {
		o := mustOrigin(c, fmt.Sprintf("http://%d.%s.tarpit.example", i, client))
		c.asking.Go(func() { _, _ = c.Snapshot(ctx, o, robots.Asker{Client: client}) })
	}
	synctest.Wait()
	return func() {
		cancel()
		synctest.Wait()
	}
}

// visit looks up o for client and returns how long that took.
func (c *crowd) visit(client string, o origin.Origin) time.Duration {
	c.Helper()
	start := time.Now()
	if _, err := c.Snapshot(context.Background(), o, robots.Asker{Client: client}); err != nil {
		c.Errorf("Snapshot(%s) for %s: %v", o, client, err)
	}
	return time.Since(start)
}

// TestHostileClient has a client that asks for tarpits take no place that another client needs, while it asks and after
// it has left.
func TestHostileClient(t *testing.T) {
	for _, tarpits := range []int{70, 1100, 30_000} {
		t.Run(fmt.Sprint(tarpits), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, robots.CacheOptions{})
				stop := c.attack("one", tarpits)
				for i := range 20 {
					if got := c.visit("other", mustOrigin(t, fmt.Sprintf("http://during-%d.example", i))); got != time.Second {
						t.Errorf("the first visit to a host took %v, want 1s", got)
					}
				}
				stop()
				var visits sync.WaitGroup
				for i := range 100 {
					visits.Go(func() {
						if got := c.visit("other", mustOrigin(t, fmt.Sprintf("http://after-%d.example", i))); got != time.Second {
							t.Errorf("after the hostile client has left, a visit took %v, want 1s", got)
						}
					})
				}
				visits.Wait()
			})
		})
	}
}

// TestBusyIsPerClient has one client fill the queue: it is refused, and another is not.
func TestBusyIsPerClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, robots.CacheOptions{MaxFetches: 4, MaxQueue: 10})
		stop := c.attack("one", 20)
		if got := c.Stats(); got.Waiting != 10 || got.Busy != 6 {
			t.Errorf("%+v, want 10 waiting and 6 refused", got)
		}
		for i := range 3 {
			c.asking.Go(func() { c.visit("other", mustOrigin(t, fmt.Sprintf("http://%d.example", i))) })
		}
		synctest.Wait()
		if got := c.Stats(); got.Waiting != 10 || got.Busy != 9 {
			t.Errorf("%+v, want 10 waiting and 9 of the hostile client refused", got)
		}
		if _, err := c.Snapshot(t.Context(), mustOrigin(t, "http://x.tarpit.example"), robots.Asker{Client: "one"}); !errors.Is(err, robots.ErrBusy) {
			t.Errorf("Snapshot for the client that fills the queue: %v, want %v", err, robots.ErrBusy)
		}
		stop()
	})
}

// web is a RoundTripper that answers in virtual time, and counts requests by host.
type web struct {
	mu    sync.Mutex
	asked map[string]int
	most  int // bodies read at once
	read  int
}

func (w *web) requests(host string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[host]
}

func (w *web) reading(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read += n
	w.most = max(w.most, w.read)
}

// RoundTrip answers never for hosts below silent.example, sends a byte a second of an endless file for those below
// drip.example, a file that takes 10 ms for those below slow.example, and a short file for all others.
func (w *web) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	if w.asked == nil {
		w.asked = make(map[string]int)
	}
	w.asked[r.URL.Hostname()]++
	w.mu.Unlock()
	resp := &http.Response{StatusCode: 200, Header: http.Header{}, Request: r}
	switch host := r.URL.Hostname(); {
	case strings.HasSuffix(host, ".silent.example"):
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	case strings.HasSuffix(host, ".drip.example"):
		resp.Body = &drip{ctx: r.Context(), web: w, every: time.Second}
	case strings.HasSuffix(host, ".slow.example"):
		resp.Body = &drip{ctx: r.Context(), web: w, every: time.Millisecond, left: 10}
	default:
		resp.Body = io.NopCloser(strings.NewReader(file))
	}
	return resp, nil
}

// drip is a body of lines that come one after another: left of them, or without end if left is zero at first.
type drip struct {
	ctx   context.Context
	web   *web
	every time.Duration
	left  int
	begun bool
}

func (d *drip) Read(p []byte) (int, error) {
	if !d.begun {
		d.begun = true
		d.web.reading(1)
	}
	select {
	case <-time.After(d.every):
	case <-d.ctx.Done():
		return 0, context.Cause(d.ctx)
	}
	if d.left--; d.left == 0 {
		return 0, io.EOF
	}
	return copy(p, "\n"), nil
}

func (d *drip) Close() error {
	if d.begun {
		d.begun = false
		d.web.reading(-1)
	}
	return nil
}

// newWeb returns a Cache that fetches from a web.
func newWeb(t *testing.T, o robots.CacheOptions) (*crowd, *web) {
	w := &web{}
	f := newFetcherOver(t, w, func(o *fetch.Options) { o.Timeout = 10 * time.Second })
	o.Fetch = f.Fetch
	return &crowd{T: t, Cache: newCache(t, o)}, w
}

// askAll has client ask for n hosts of one form, and returns a function that makes it leave.
func (c *crowd) askAll(client, form string, n int) (leave func()) {
	ctx, cancel := context.WithCancel(context.Background())
	for i := range n {
		o := mustOrigin(c, "http://"+fmt.Sprintf(form, i))
		c.asking.Go(func() { _, _ = c.Snapshot(ctx, o, robots.Asker{Client: client}) })
	}
	synctest.Wait()
	return func() {
		cancel()
		synctest.Wait()
	}
}

// TestAskAndLeave has a client ask and leave again and again. A fetch without waiting requests goes on until its place
// is wanted. Then it is a failure for that client, for as long as other failures are, and for no other client.
func TestAskAndLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, web := newWeb(t, robots.CacheOptions{MaxFetches: 2})
		const host = "a.silent.example"
		ask := func() { c.askAll("one", "a.silent.example%.0d", 1)() }
		ask()
		ask()
		if got := c.Stats(); got.Fetching != 1 || web.requests(host) != 1 {
			t.Fatalf("%d fetches, %d requests, want the first to go on", got.Fetching, web.requests(host))
		}
		leave := c.askAll("one", "%d.silent.example", 1)
		if got := c.Stats(); got.Fetching != 2 {
			t.Fatalf("%d fetches, want 2: no other client wants the places", got.Fetching)
		}
		leave()
		if got := c.visit("other", mustOrigin(t, "http://b.example")); got != 0 {
			t.Errorf("a visit took %v while no request waits for the fetches that hold the places, want 0s", got)
		}
		for range 20 {
			c.askAll("one", "%d.silent.example", 2)()
			c.askAll("one", "b%d.silent.example", 2)()
		}
		for _, host := range []string{"0.silent.example", "1.silent.example", "b0.silent.example", "b1.silent.example"} {
			if got := web.requests(host); got > 1 {
				t.Errorf("a client that asked and left 20 times caused %d requests to %s within error_ttl, want 1", got, host)
			}
		}
		time.Sleep(time.Minute)
		ask()
		if got := web.requests(host); got > 2 {
			t.Errorf("%d requests to %s, want one for each error_ttl", got, host)
		}
	})
}

// TestPlaceOfAbandoned has clients leave while others wait for their places and for their host: those come at once.
func TestPlaceOfAbandoned(t *testing.T) {
	for _, row := range []struct{ name, wanted string }{{"place", "http://b.example"}, {"host", "https://0.silent.example"}} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := newWeb(t, robots.CacheOptions{MaxFetches: 2})
				leave := c.askAll("one", "%d.silent.example", 2)
				start := time.Now()
				var took time.Duration
				c.asking.Go(func() {
					_, _ = c.Snapshot(t.Context(), mustOrigin(t, row.wanted), robots.Asker{Client: "other"})
					took = time.Since(start)
				})
				time.Sleep(time.Second)
				leave()
				c.asking.Wait()
				if row.name == "host" {
					took -= 10 * time.Second // which the host takes to answer nothing
				}
				if took != time.Second {
					t.Errorf("the wait went on for %v after the other client had left", took-time.Second)
				}
			})
		})
	}
	t.Run("host, left before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, web := newWeb(t, robots.CacheOptions{})
			c.askAll("one", "a.silent.example:1%02d", 1)()
			c.askAll("other", "a.silent.example%.0d", 1)()
			if got := web.requests("a.silent.example"); got != 2 {
				t.Errorf("%d requests to the host, want that of the other client too", got)
			}
		})
	})
}

// TestJoinAbandoned has another client ask for a file after the first has left. The fetch is wanted again.
func TestJoinAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, web := newWeb(t, robots.CacheOptions{MaxFetches: 1})
		c.askAll("one", "a.slow.example%.0d", 1)()
		c.asking.Go(func() {
			if got := c.visit("other", mustOrigin(t, "http://a.slow.example")); got != 10*time.Millisecond {
				t.Errorf("the file took %v, want the 10ms of the fetch under way", got)
			}
		})
		synctest.Wait()
		c.visit("third", mustOrigin(t, "http://b.example"))
		c.asking.Wait()
		if got := web.requests("a.slow.example"); got != 1 {
			t.Errorf("%d requests, want 1", got)
		}
	})
}

// TestLeaveShared has one of two clients leave that wait for the same file. Its line gets shorter, and the other waits
// on.
func TestLeaveShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, robots.CacheOptions{MaxFetches: 1})
		stop := c.attack("one", 1)
		leave := c.askAll("one", "a.example%.0d", 1)
		leaveToo := c.askAll("other", "a.example%.0d", 1)
		for _, step := range []struct {
			leave   func()
			waiting int
		}{{func() {}, 2}, {leave, 1}, {leaveToo, 0}, {stop, 0}} {
			if step.leave(); c.Stats().Waiting != step.waiting {
				t.Errorf("%+v, want %d waiting", c.Stats(), step.waiting)
			}
		}
	})
}

// TestTurnComesBack has an origin wait for another of its host. After that it comes before those that asked later.
func TestTurnComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, robots.CacheOptions{MaxFetches: 2})
		start := time.Now()
		leave := c.askAll("one", "a.example:1%02d", 2)
		stop := c.attack("one", 3)
		for _, port := range []string{"100", "101"} {
			c.visit("one", mustOrigin(t, "http://a.example:"+port))
		}
		if got := time.Since(start); got != 2*time.Second {
			t.Errorf("two origins of a host took %v, want 2s", got)
		}
		leave()
		stop()
	})
}

// TestAbandonedIsNoFailureForOthers has a fetch end since its client has left. Another client may ask at once.
func TestAbandonedIsNoFailureForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, web := newWeb(t, robots.CacheOptions{MaxFetches: 1})
		o := mustOrigin(t, "http://a.slow.example")
		c.askAll("one", "a.slow.example%.0d", 1)() // is reading its body
		c.visit("one", mustOrigin(t, "http://b.example"))
		start := time.Now()
		snap, err := c.Snapshot(t.Context(), o, robots.Asker{Client: "one"})
		if err != nil || outline(snap) != "unreachable 0 http_response_timeout" || time.Since(start) != 0 {
			t.Errorf("for the client that left: %v, %v; want the failure", snap, err)
		}
		for _, client := range []string{"other", "one"} {
			snap, err := c.Snapshot(t.Context(), o, robots.Asker{Client: client})
			if err != nil || snap.State() != "found" {
				t.Errorf("for the client %s: %v, %v; want the file", client, snap, err)
			}
		}
		if got := web.requests("a.slow.example"); got != 2 {
			t.Errorf("%d requests, want 2", got)
		}
	})
}

// TestSharedFetch has an innocent client wait for a file that the hostile one asked for before, in the middle of a long
// line or as the last that was refused.
func TestSharedFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, robots.CacheOptions{MaxFetches: 16, MaxQueue: 50})
		stop := c.attack("one", 40)
		leave := c.askAll("one", "shared-%d.example", 40)
		for _, i := range []int{0, 39} {
			if got := c.visit("other", mustOrigin(t, fmt.Sprintf("http://shared-%d.example", i))); got != time.Second {
				t.Errorf("a visit to the host %d that the hostile client asked for before took %v, want 1s", i, got)
			}
		}
		leave()
		stop()
	})
}

// TestHostTurns has the hostile client ask for many ports of a host that the innocent one wants: the latter is next.
func TestHostTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, robots.CacheOptions{})
		stop := c.askAll("one", "a.tarpit.example:1%02d", 100)
		c.attack("one", 4000)
		start := time.Now()
		for _, url := range []string{"http://a.tarpit.example", "https://a.tarpit.example"} {
			c.asking.Go(func() {
				_, err := c.Snapshot(t.Context(), mustOrigin(t, url), robots.Asker{Client: "other"})
				if took := time.Since(start); err != nil || took > 30*time.Second {
					t.Errorf("Snapshot(%s): %v after %v; want it after the fetch under way, and one more", url, err, took)
				}
			})
		}
		time.Sleep(31 * time.Second)
		stop()
	})
}

// TestTurnIsNotHeldInLine has the hostile client wait in its line with a port of a host. Other clients can fetch from
// that host.
func TestTurnIsNotHeldInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, robots.CacheOptions{MaxFetches: 16})
		stop := c.attack("one", 40)
		leave := c.askAll("one", "a.example:1%02d", 5)
		if got := c.visit("other", mustOrigin(t, "http://a.example")); got != time.Second {
			t.Errorf("a visit took %v, want 1s", got)
		}
		leave()
		stop()
	})
}

// TestBodies has the hostile client ask for bodies that do not end. Few are read at once, and the other client's at
// once.
func TestBodies(t *testing.T) {
	for _, n := range []int{70, 1100} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, web := newWeb(t, robots.CacheOptions{})
				leave := c.askAll("one", "%d.drip.example", n)
				for i := range 20 {
					if got := c.visit("other", mustOrigin(t, fmt.Sprintf("http://%d.slow.example", i))); got != 10*time.Millisecond {
						t.Errorf("a visit took %v, want 10ms", got)
					}
				}
				leave()
				if web.most > 64 {
					t.Errorf("%d bodies were read at once, want 64 at most", web.most)
				}
				if got := c.visit("other", mustOrigin(t, "http://last.slow.example")); got != 10*time.Millisecond {
					t.Errorf("after the hostile client has left, a visit took %v, want 10ms", got)
				}
			})
		})
	}
}

// TestSlowBodyGivesWay has more clients read slow bodies than there are places. One that reads none waits a second at
// most.
func TestSlowBodyGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newWeb(t, robots.CacheOptions{MaxBodies: 4})
		for i := range 4 {
			c.askAll(fmt.Sprint("hostile-", i), fmt.Sprintf("%%d.%d.drip.example", i), 1)
		}
		if got := c.visit("other", mustOrigin(t, "http://a.example")); got != time.Second {
			t.Errorf("a visit took %v, want 1s", got)
		}
		if got := c.visit("other", mustOrigin(t, "http://b.example")); got != 0 {
			t.Errorf("the next visit took %v, want 0s", got)
		}
		c.asking.Wait()
	})
}

// TestOwnLoadIsNoFailure has a client ask for so many slow files that most wait for longer than a fetch may take.
func TestOwnLoadIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, web := newWeb(t, robots.CacheOptions{MaxBodies: 2})
		c.askAll("one", "%d.drip.example", 4)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				snap, err := c.Snapshot(t.Context(), mustOrigin(t, fmt.Sprintf("http://%d.slow.example", i)), robots.Asker{Client: "one"})
				if err != nil || snap.State() != "found" && snap.State() != "oversize" {
					t.Errorf("Snapshot: %v, %v; want the file", snap, err)
				}
			})
		}
		all.Wait()
		if c.asking.Wait(); web.most != 2 {
			t.Errorf("%d bodies were read at once, want 2", web.most)
		}
	})
}

// TestBusyUntil checks when a client with a full line may ask again: after the time in which those that wait begin, by
// the rate of the last seconds, or half as long again.
func TestBusyUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, robots.CacheOptions{MaxFetches: 2, MaxQueue: 30})
		stop := c.askAll("one", "%d.example", 60) // 30 are refused
		time.Sleep(5500 * time.Millisecond)       // 10 were fetched
		c.askAll("one", "again-%d.example", 10)
		retries := make(map[time.Duration]bool)
		for i := range 5 {
			_, err := c.Snapshot(t.Context(), mustOrigin(t, fmt.Sprintf("http://late-%d.example", i)), robots.Asker{Client: "one"})
			var busy *robots.BusyError
			if !errors.As(err, &busy) || busy.RetryAfter < 12*time.Second || busy.RetryAfter > 30*time.Second {
				t.Fatalf("Snapshot: %v (%v); want a BusyError of about 15 s and up to half as much, since 30 wait and two begin in a second", err, busy.RetryAfter)
			}
			retries[busy.RetryAfter] = true
		}
		if len(retries) < 2 {
			t.Errorf("all may ask again after %v, want different times", retries)
		}
		stop()
	})
}

// TestBusyBeforeTheFirst checks when a client may ask again before any fetch has ended.
func TestBusyBeforeTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, robots.CacheOptions{MaxFetches: 1, MaxQueue: 1})
		stop := c.attack("one", 2)
		_, err := c.Snapshot(t.Context(), mustOrigin(t, "http://late.example"), robots.Asker{Client: "one"})
		var busy *robots.BusyError
		if !errors.As(err, &busy) || busy.RetryAfter < 10*time.Second || busy.RetryAfter > 15*time.Second {
			t.Errorf("Snapshot: %v (%+v); want a BusyError of 10 to 15 s", err, busy)
		}
		stop()
	})
}

// TestFirstVisitWaits has a fetch wait for its turn as long as its client waits, and no longer.
func TestFirstVisitWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, robots.CacheOptions{MaxFetches: 1, MaxWait: 20 * time.Second})
		stop := c.askAll("one", "%d.example", 10)
		for _, row := range []struct {
			maxWait, want time.Duration
			err           error
		}{
			{3 * time.Second, 3 * time.Second, robots.ErrBusy},
			{0, 8 * time.Second, nil}, // that of the Cache
		} {
			start := time.Now()
			_, err := c.Snapshot(t.Context(), mustOrigin(t, "http://late.example"), robots.Asker{Client: "one", MaxWait: row.maxWait})
			if got := time.Since(start); !errors.Is(err, row.err) || got != row.want {
				t.Errorf("Snapshot with a wait of %v: %v after %v, want %v after %v", row.maxWait, err, got, row.err, row.want)
			}
		}
		if got := c.Stats().Busy; got != 1 {
			t.Errorf("%d fetches were refused, want 1", got)
		}
		stop()
	})
}

// TestLongFetches has fetches that take long leave their places to others, up to as many as there are places.
func TestLongFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, robots.CacheOptions{MaxFetches: 16})
		stop := c.attack("one", 14) // all that one client may have
		time.Sleep(1500 * time.Millisecond)
		all := c.attack("one", 28)
		if got := c.Stats(); got.Fetching != 28 || got.Waiting != 0 {
			t.Errorf("%+v, want 28 fetches under way", got)
		}
		time.Sleep(1500 * time.Millisecond) // now both pools have 14
		if got := c.visit("other", mustOrigin(t, "http://other.example")); got != time.Second {
			t.Errorf("a visit of another client took %v, want 1s", got)
		}
		stop()
		all()
	})
}

// TestFailedHostsApart has dead hosts, when they are asked once more, take no place of hosts that may live.
func TestFailedHostsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, robots.CacheOptions{MaxFetches: 16})
		c.attack("one", 100)
		c.asking.Wait()
		time.Sleep(2 * time.Minute) // until the failures are to be fetched again
		stop := c.attack("one", 100)
		if got := c.Stats(); got.Fetching != 14 || got.Waiting != 86 {
			t.Errorf("%+v, want 14 fetches under way", got)
		}
		var visits sync.WaitGroup
		for i := range 14 {
			visits.Go(func() {
				if got := c.visit("one", mustOrigin(t, fmt.Sprintf("http://living-%d.example", i))); got != time.Second {
					t.Errorf("a visit to a living host took %v, want 1s", got)
				}
			})
		}
		visits.Wait()
		stop()
	})
}

// TestLoadsTakeTurns has the hostile client ask for many files that are in the Store and not in memory. The Store takes
// four at a time, each for 10 ms.
func TestLoadsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newShelf()
		readers := make(chan struct{}, 4)
		store.setBefore(func(ctx context.Context, call string) error {
			if call != "Load" {
				return nil
			}
			select {
			case readers <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			time.Sleep(10 * time.Millisecond)
			<-readers
			return nil
		})
		c, _ := newWeb(t, robots.CacheOptions{Store: store})
		c.askAll("one", "%d.example", 400)
		if got := c.visit("other", mustOrigin(t, "http://a.example")); got > 20*time.Millisecond {
			t.Errorf("a visit took %v, want 10ms for its own look-up and 10ms for those under way", got)
		}
		c.asking.Wait()
	})
}

// TestSavesTakeTurns has many files of the hostile client come in at once, and a Store that takes one at a time, each
// in 10 ms.
func TestSavesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newShelf()
		writer := make(chan struct{}, 1)
		store.setBefore(func(ctx context.Context, call string) error {
			if call != "Save" {
				return nil
			}
			select {
			case writer <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			time.Sleep(10 * time.Millisecond)
			<-writer
			return nil
		})
		c, _ := newWeb(t, robots.CacheOptions{Store: store})
		start := time.Now()
		c.askAll("one", "%d.example", 200)
		if got := c.visit("other", mustOrigin(t, "http://a.example")); got > 20*time.Millisecond {
			t.Errorf("a visit took %v, want 10ms for its own file and 10ms for the one that is being saved", got)
		}
		c.asking.Wait()
		if got := time.Since(start); got > time.Second {
			t.Errorf("the hostile client waited for %v, want half a second for its turn at most", got)
		}
		time.Sleep(10 * time.Second)
		if late := c.Unsaved(); len(late) > 0 {
			t.Errorf("%d files are still not saved", len(late))
		}
	})
}
