package robots_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// fakeWeb is a transport to sites that do not exist, so that tests can run without a network and in no real time. Each
// answer takes a second.
type fakeWeb struct {
	mu      sync.Mutex
	answers map[string]string // of URLs: a body, or "-> URL"; others are 404
	seen    []string
	running map[string]int // by host
	most    map[string]int
}

func newFakeWeb(answers map[string]string) *fakeWeb {
	return &fakeWeb{answers: answers, running: map[string]int{}, most: map[string]int{}}
}

func (w *fakeWeb) set(url, answer string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[url] = answer
}

// count returns how often a URL was asked for.
func (w *fakeWeb) count(url string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, u := range w.seen {
		if u == url {
			n++
		}
	}
	return n
}

func (w *fakeWeb) RoundTrip(r *http.Request) (*http.Response, error) {
	host := r.URL.Hostname()
	w.mu.Lock()
	w.seen = append(w.seen, r.URL.String())
	w.running[host]++
	w.most[host] = max(w.most[host], w.running[host])
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running[host]--
	}()
	select {
	case <-time.After(time.Second):
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	w.mu.Lock()
	answer, ok := w.answers[r.URL.String()]
	w.mu.Unlock()
	resp := &http.Response{StatusCode: 200, Header: http.Header{}, Request: r}
	to, redirects := strings.CutPrefix(answer, "-> ")
	switch {
	case !ok:
		resp.StatusCode = 404
	case redirects:
		resp.StatusCode, answer = 302, ""
		resp.Header.Set("Location", to)
	}
	resp.Body = io.NopCloser(strings.NewReader(answer))
	return resp, nil
}

// judge is an Admit that asks a Cache for the rules of each page, as a proxy does.
type judge struct {
	cache  *robots.Cache
	pace   func(fetch.Hop) error // what Begin comes to; may be nil
	mu     sync.Mutex
	judged []string
}

func (j *judge) admit(ctx context.Context, h fetch.Hop) (fetch.Visit, error) {
	if !h.Page {
		return free{}, nil
	}
	j.mu.Lock()
	j.judged = append(j.judged, h.URL())
	j.mu.Unlock()
	snap, err := j.cache.ToJudge(ctx, h.To, h.Asker)
	if err != nil {
		return nil, err
	}
	if snap.Availability == robots.Unreachable || !snap.Rules.Agent("robotsproxy").Verdict(h.Target).Allowed {
		return nil, &fetch.RefusedError{Why: "its rules disallow that"}
	}
	return paced{j, h}, nil
}

type free struct{}

func (free) Begin(context.Context, http.Header) error { return nil }
func (free) End(fetch.Outcome)                        {}

type paced struct {
	*judge
	hop fetch.Hop
}

func (p paced) Begin(context.Context, http.Header) error {
	if p.pace != nil {
		return p.pace(p.hop)
	}
	return nil
}

func (paced) End(fetch.Outcome) {}

// judging returns a Cache before web whose redirects are judged.
func judging(t *testing.T, web *fakeWeb, o robots.CacheOptions) (*robots.Cache, *judge) {
	t.Helper()
	j := &judge{}
	f := newFetcherOver(t, web, func(o *fetch.Options) { o.Admit, o.Timeout = j.admit, 10*time.Second })
	o.Fetch = f.Fetch
	j.cache = newCache(t, o)
	return j.cache, j
}

// lookUps asks for origins at once, and returns the outline of each, in their order.
func lookUps(t *testing.T, c *robots.Cache, origins ...string) []string {
	t.Helper()
	outlines := make([]string, len(origins))
	var all sync.WaitGroup
	for i, o := range origins {
		all.Go(func() { outlines[i] = outline(lookUp(t, c, mustOrigin(t, o))) })
	}
	all.Wait()
	return outlines
}

// TestJudgedHops has hosts redirect to pages of one another, through a Cache with room for one fetch: nobody waits for
// ever.
func TestJudgedHops(t *testing.T) {
	const refused, found = "unreachable 302 http_request_denied", "found 200 /open"
	for _, row := range []struct {
		name    string
		answers map[string]string
		ask     []string
		want    []string
		judged  int
		most    time.Duration
	}{
		{"an allowed page", map[string]string{
			"http://a.example/robots.txt": "-> http://b.example/x", "http://b.example/x": file,
		}, []string{"http://a.example"}, []string{found}, 1, 3 * time.Second},
		{"a disallowed page", map[string]string{
			"http://a.example/robots.txt": "-> http://b.example/private", "http://b.example/robots.txt": file, "http://b.example/private": file,
		}, []string{"http://a.example"}, []string{refused}, 1, 2 * time.Second},
		{"http and https of one host", map[string]string{
			"http://a.example/robots.txt": "-> https://a.example/robots.txt", "https://a.example/robots.txt": file,
		}, []string{"http://a.example", "https://a.example"}, []string{found, found}, 0, 3 * time.Second},
		{"http and https of one host, to the same page", map[string]string{
			"http://a.example/robots.txt": "-> https://b.example/x", "https://a.example/robots.txt": "-> http://b.example/x",
			"http://b.example/x": file, "https://b.example/x": file,
		}, []string{"http://a.example", "https://a.example"}, []string{found, found}, 2, 6 * time.Second},
		{"http to a page of https, of one host", map[string]string{
			"http://a.example/robots.txt": "-> https://a.example/x", "https://a.example/robots.txt": "-> http://a.example/x",
			"http://a.example/x": file, "https://a.example/x": file,
		}, []string{"http://a.example", "https://a.example"}, []string{found, found}, 0, 4 * time.Second},
		{"crosswise", map[string]string{
			"http://a.example/robots.txt": "-> http://b.example/x", "http://b.example/robots.txt": "-> http://a.example/x",
			"http://a.example/x": file, "http://b.example/x": file,
		}, []string{"http://a.example", "http://b.example"}, []string{refused, refused}, 2, 4 * time.Second},
		{"in a ring", map[string]string{
			"http://a.example/robots.txt": "-> http://b.example/x", "http://b.example/robots.txt": "-> http://c.example/x", "http://c.example/robots.txt": "-> http://a.example/x",
		}, []string{"http://a.example", "http://b.example", "http://c.example"}, []string{refused, refused, refused}, 3, 6 * time.Second},
		{"to each other's robots.txt", map[string]string{
			"http://a.example/robots.txt": "-> http://b.example/robots.txt", "http://b.example/robots.txt": "-> http://a.example/robots.txt",
		}, []string{"http://a.example", "http://b.example"}, []string{"unavailable 302 /open /private", "unavailable 302 /open /private"}, 0, 4 * time.Second},
		{"to a robots.txt that is elsewhere on its host", map[string]string{
			"http://a.example/robots.txt": "-> http://b.example/robots.txt", "http://b.example/robots.txt": "-> http://b.example/x", "http://b.example/x": file,
		}, []string{"http://a.example"}, []string{found}, 0, 3 * time.Second},
		{"from a page to another of its host", map[string]string{
			"http://a.example/robots.txt": "-> http://b.example/x", "http://b.example/x": "-> http://b.example/private",
			"http://b.example/robots.txt": file, "http://b.example/private": file,
		}, []string{"http://a.example"}, []string{refused}, 2, 4 * time.Second},
		{"from a page back home", map[string]string{
			"http://a.example/robots.txt": "-> http://b.example/x", "http://b.example/x": "-> http://a.example/y", "http://a.example/y": file,
		}, []string{"http://a.example"}, []string{refused}, 2, 5 * time.Second},
		{"sent back home by another host", map[string]string{
			"http://a.example/robots.txt": "-> http://b.example/robots.txt", "http://b.example/robots.txt": "-> http://a.example/private", "http://a.example/private": file,
		}, []string{"http://a.example"}, []string{refused}, 1, 5 * time.Second},
		{"to a host that is sent back home", map[string]string{
			"http://c.example/robots.txt": "-> http://a.example/robots.txt", "http://a.example/robots.txt": "-> http://b.example/robots.txt",
			"http://b.example/robots.txt": "-> http://a.example/private", "http://a.example/private": file,
		}, []string{"http://c.example"}, []string{refused}, 1, 7 * time.Second},
		{"back to where it was judged", map[string]string{
			"http://a.example/robots.txt": "-> http://b.example/x", "http://b.example/x": "-> http://a.example/y", "http://a.example/y": "-> http://b.example/private",
			"http://b.example/robots.txt": file, "http://b.example/private": file,
		}, []string{"http://a.example"}, []string{refused}, 2, 6 * time.Second},
		{"the rules of the page's host are elsewhere", map[string]string{
			"http://a.example/robots.txt": "-> http://b.example/x", "http://b.example/robots.txt": "-> http://c.example/robots.txt", "http://c.example/robots.txt": "User-agent: *\nDisallow: /x\n",
		}, []string{"http://a.example"}, []string{refused}, 1, 4 * time.Second},
	} {
		hold := func(t *testing.T, o robots.CacheOptions, most time.Duration) {
			synctest.Test(t, func(t *testing.T) {
				web := newFakeWeb(row.answers)
				c, j := judging(t, web, o)
				begin := time.Now()
				if got := lookUps(t, c, row.ask...); !slices.Equal(got, row.want) {
					t.Errorf("%v = %q, want %q", row.ask, got, row.want)
				}
				if took := time.Since(begin); took > most {
					t.Errorf("it took %v, want %v: somebody waited for a place that was not given back", took, most)
				}
				if len(j.judged) != row.judged {
					t.Errorf("judged %v, want %d", j.judged, row.judged)
				}
				for host, n := range web.most {
					if n != 1 {
						t.Errorf("%d requests to %s at once", n, host)
					}
				}
				if got := c.Stats(); got.Fetching != 0 || got.Waiting != 0 {
					t.Errorf("at the end: %+v, want nobody", got)
				}
			})
		}
		t.Run(row.name, func(t *testing.T) { hold(t, robots.CacheOptions{MaxFetches: 1}, row.most) })
		t.Run(row.name+", spaced", func(t *testing.T) {
			hold(t, robots.CacheOptions{MaxFetches: 1, Spacing: every(time.Second)}, row.most+2*time.Second)
		})
	}
}

// TestHopsTakeTurns has many hosts redirect to one robots.txt: it is asked for by one after the other, for more of them
// than may wait for the ports of a host.
func TestHopsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := newFakeWeb(map[string]string{"http://victim.example/robots.txt": file})
		c, _ := judging(t, web, robots.CacheOptions{})
		var asked []string
		for i := range 40 {
			web.set(fmt.Sprintf("http://evil-%d.example/robots.txt", i), "-> http://victim.example/robots.txt")
			asked = append(asked, fmt.Sprintf("http://evil-%d.example", i))
		}
		begin := time.Now()
		for i, got := range lookUps(t, c, asked...) {
			if got != "found 200 /open" {
				t.Errorf("%s: %s", asked[i], got)
			}
		}
		if got := web.most["victim.example"]; got != 1 {
			t.Errorf("%d requests at once to the host that all redirect to", got)
		}
		if got := time.Since(begin); got != 41*time.Second {
			t.Errorf("it took %v, want a second for each, since a wait for a turn takes no time of the fetch", got)
		}
	})
}

// TestToJudge looks up rules beside a fetch to the same origin, and has what is found kept for all.
func TestToJudge(t *testing.T) {
	o := mustOrigin(t, "http://b.example")
	synctest.Test(t, func(t *testing.T) {
		web := newFakeWeb(map[string]string{"http://b.example/robots.txt": file})
		store := newShelf()
		c, _ := judging(t, web, robots.CacheOptions{Store: store})
		for range 2 {
			if snap, err := c.ToJudge(t.Context(), o, robots.Asker{Client: "x"}); err != nil || outline(snap) != "found 200 /open" {
				t.Errorf("ToJudge = %v, %v", snap, err)
			}
		}
		if got := outline(lookUp(t, c, o)); got != "found 200 /open" || web.count("http://b.example/robots.txt") != 1 {
			t.Errorf("afterwards: %s after %d requests, want what was kept after 1", got, web.count("http://b.example/robots.txt"))
		}
		synctest.Wait()
		if _, err := store.Load(t.Context(), o); err != nil {
			t.Errorf("the Store has nothing: %v", err)
		}
	})
}

// TestToJudgeJoinsNoFetch has a fetch to the origin wait for something that lasts: it is not waited for.
func TestToJudgeJoinsNoFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := newFakeWeb(map[string]string{"http://b.example/robots.txt": "-> http://c.example/x", "http://c.example/x": file})
		c, j := judging(t, web, robots.CacheOptions{})
		j.pace = func(fetch.Hop) error { time.Sleep(6 * time.Second); return nil }
		b := mustOrigin(t, "http://b.example")
		var all sync.WaitGroup
		all.Go(func() {
			if got := outline(lookUp(t, c, b)); got != "found 200 /open" {
				t.Errorf("the fetch: %s", got)
			}
		})
		time.Sleep(3 * time.Second) // it waits for its turn at c.example
		begin := time.Now()
		snap, err := c.ToJudge(t.Context(), b, robots.Asker{})
		if err != nil || outline(snap) != "unreachable 302 http_request_denied" || time.Since(begin) != time.Second {
			t.Errorf("ToJudge = %v, %v after %v, want unreachable after 1s", snap, err, time.Since(begin))
		}
		all.Wait()
		if got := outline(lookUp(t, c, b)); got != "found 200 /open" {
			t.Errorf("what was found to judge another is kept in the place of what counts: %s", got)
		}
	})
}

// TestToJudgeWaitsForTheTurn has what it asks for arrive while it waits for its turn at the host.
func TestToJudgeWaitsForTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := newFakeWeb(map[string]string{"http://b.example/robots.txt": file})
		c, _ := judging(t, web, robots.CacheOptions{})
		b := mustOrigin(t, "http://b.example")
		var all sync.WaitGroup
		all.Go(func() { lookUp(t, c, b) })
		synctest.Wait()
		all.Go(func() {
			if snap, err := c.ToJudge(t.Context(), b, robots.Asker{}); err != nil || outline(snap) != "found 200 /open" {
				t.Errorf("ToJudge = %v, %v", snap, err)
			}
		})
		all.Wait()
		if got := web.count("http://b.example/robots.txt"); got != 1 {
			t.Errorf("%d requests, want 1", got)
		}
	})
}

// TestToJudgeIsOfOneOrigin keeps no distance from a fetch for the very origin.
func TestToJudgeIsOfOneOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := newFakeWeb(map[string]string{"http://b.example/robots.txt": file})
		c, _ := judging(t, web, robots.CacheOptions{Spacing: every(time.Hour)})
		b := mustOrigin(t, "http://b.example")
		var all sync.WaitGroup
		all.Go(func() { lookUp(t, c, b) })
		synctest.Wait()
		begin := time.Now()
		if snap, err := c.ToJudge(t.Context(), b, robots.Asker{}); err != nil || outline(snap) != "found 200 /open" || time.Since(begin) != time.Second {
			t.Errorf("ToJudge = %v, %v after %v, want what the other fetch brings after 1s", snap, err, time.Since(begin))
		}
		all.Wait()
		if _, err := c.Refresh(t.Context(), b); err != nil || time.Since(begin) != 2*time.Second {
			t.Errorf("Refresh: %v after %v, want at once", err, time.Since(begin))
		}
	})
}

// TestPurgeOvertakesToJudge has an origin purged while its file is fetched to judge another: it stays purged.
func TestPurgeOvertakesToJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := newFakeWeb(map[string]string{"http://b.example/robots.txt": file})
		store := newShelf()
		c, _ := judging(t, web, robots.CacheOptions{Store: store})
		b := mustOrigin(t, "http://b.example")
		var all sync.WaitGroup
		all.Go(func() {
			if snap, err := c.ToJudge(t.Context(), b, robots.Asker{}); err != nil || outline(snap) != "found 200 /open" {
				t.Errorf("ToJudge = %v, %v, want what was fetched all the same", snap, err)
			}
		})
		synctest.Wait()
		if err := c.Purge(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if snap, err := c.Peek(t.Context(), b); !errors.Is(err, robots.ErrNoSnapshot) {
			t.Errorf("Peek after Purge = %v, %v, want nothing", snap, err)
		}
	})
}

// TestToJudgeByAnOlderCopy judges by a good older copy while the host is down.
func TestToJudgeByAnOlderCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := &scripted{say: has(file)}
		c := newCache(t, robots.CacheOptions{Fetch: site.fetch})
		o := mustOrigin(t, "http://a.example")
		lookUp(t, c, o)
		site.say = down
		time.Sleep(2 * time.Hour)
		snap, err := c.ToJudge(t.Context(), o, robots.Asker{})
		if err != nil || outline(snap) != "stale 0 connection_refused /open" {
			t.Errorf("ToJudge = %v, %v, want the older copy", snap, err)
		}
	})
}

// TestNoTurnForAHop has one client told when to come back: nothing is kept, the host is not asked again before that for
// that client, and another client may ask.
func TestNoTurnForAHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := newFakeWeb(map[string]string{"http://a.example/robots.txt": "-> http://b.example/x", "http://b.example/x": file})
		store := newShelf()
		c, j := judging(t, web, robots.CacheOptions{Store: store})
		j.pace = func(h fetch.Hop) error {
			if h.Asker.Client == "free" {
				return nil
			}
			return &fetch.LaterError{At: time.Now().Add(20 * time.Second), Err: errors.New("no free place")}
		}
		a := mustOrigin(t, "http://a.example")
		ask := func(client string) error {
			_, err := c.Snapshot(t.Context(), a, robots.Asker{Client: client})
			return err
		}
		for range 3 {
			var later *fetch.LaterError
			if err := ask("busy"); !errors.As(err, &later) {
				t.Errorf("Snapshot: %v, want when to come back", err)
			}
		}
		if got := web.count("http://a.example/robots.txt"); got != 1 {
			t.Errorf("%d requests for a client that was told when to come back, want 1", got)
		}
		if _, err := c.Peek(t.Context(), a); !errors.Is(err, robots.ErrNoSnapshot) {
			t.Errorf("something is kept: %v", err)
		}
		time.Sleep(20 * time.Second)
		if err := ask("busy"); err == nil || web.count("http://a.example/robots.txt") != 2 {
			t.Errorf("after that: %v, %d requests; want it tried again", err, web.count("http://a.example/robots.txt"))
		}
		if err := ask("free"); err != nil {
			t.Errorf("another client: %v", err)
		}
		if err := ask("busy"); err != nil {
			t.Errorf("what another client has had fetched: %v", err)
		}
	})
}

// TestOlderCopyUntilTheTurn has the copy that has expired count until the redirect has its turn.
func TestOlderCopyUntilTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := newFakeWeb(map[string]string{"http://a.example/robots.txt": "-> http://b.example/x", "http://b.example/x": file})
		c, j := judging(t, web, robots.CacheOptions{})
		a := mustOrigin(t, "http://a.example")
		lookUp(t, c, a)
		free := time.Now().Add(25*time.Hour + 20*time.Second)
		j.pace = func(fetch.Hop) error {
			if time.Now().Before(free) {
				return &fetch.LaterError{At: free, Err: errors.New("no free place")}
			}
			return nil
		}
		time.Sleep(25 * time.Hour)
		for range 3 {
			if snap := lookUp(t, c, a); outline(snap) != "stale 200 destination_unavailable /open" || snap.Err.Error() != "no free place" {
				t.Errorf("without a turn: %s, %v", outline(snap), snap.Err)
			}
		}
		if _, err := c.Refresh(t.Context(), a); !errors.As(err, new(*fetch.LaterError)) {
			t.Errorf("Refresh: %v, want when to ask again", err)
		}
		time.Sleep(20 * time.Second)
		lookUp(t, c, a)
		time.Sleep(5 * time.Second) // the renewal
		if got := outline(lookUp(t, c, a)); got != "found 200 /open" {
			t.Errorf("after its turn: %s", got)
		}
	})
}

// TestJoinersOfAHopWithoutATurn has another client wait for the fetch of one that finds no turn: it asks for itself.
func TestJoinersOfAHopWithoutATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := newFakeWeb(map[string]string{"http://a.example/robots.txt": "-> http://b.example/x", "http://b.example/x": file})
		c, j := judging(t, web, robots.CacheOptions{})
		j.pace = func(h fetch.Hop) error {
			if h.Asker.Client == "free" {
				return nil
			}
			return &fetch.LaterError{At: time.Now().Add(time.Minute), Err: errors.New("no free place")}
		}
		a := mustOrigin(t, "http://a.example")
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := c.Snapshot(t.Context(), a, robots.Asker{Client: "busy"}); err == nil {
				t.Error("who finds no turn has a Snapshot")
			}
		})
		synctest.Wait()
		all.Go(func() {
			if _, err := c.Snapshot(t.Context(), a, robots.Asker{Client: "free"}); err != nil {
				t.Errorf("who joined: %v", err)
			}
		})
		all.Wait()
	})
}

// TestHopIsLeft has the caller leave while the redirect waits for its turn: the wait ends with it.
func TestHopIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := newFakeWeb(map[string]string{"http://a.example/robots.txt": "-> http://b.example/x"})
		ended := make(chan error, 1)
		j := &waits{ended: ended}
		f := newFetcherOver(t, web, func(o *fetch.Options) { o.Admit = j.admit })
		c := newCache(t, robots.CacheOptions{Fetch: f.Fetch})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := c.Snapshot(ctx, mustOrigin(t, "http://a.example"), robots.Asker{}); !errors.Is(err, context.Canceled) {
				t.Errorf("Snapshot: %v", err)
			}
		})
		time.Sleep(2 * time.Second)
		cancel()
		all.Wait()
		begin := time.Now()
		if err := <-ended; err == nil || time.Since(begin) != 0 {
			t.Errorf("Admit ended with %v after %v, want at once", err, time.Since(begin))
		}
	})
}

// waits is an Admit that has pages wait for as long as they may.
type waits struct{ ended chan error }

func (w *waits) admit(ctx context.Context, h fetch.Hop) (fetch.Visit, error) {
	if !h.Page {
		return free{}, nil
	}
	<-ctx.Done()
	w.ended <- ctx.Err()
	return nil, ctx.Err()
}

// TestRefusedUntil has a refusal that is over at a known time tried again then, and not before.
func TestRefusedUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := newFakeWeb(map[string]string{"http://a.example/robots.txt": "-> http://b.example/x", "http://b.example/x": file})
		until := time.Now().Add(2 * time.Hour)
		l := logbook{refuse: func(h fetch.Hop) error {
			if h.Page && time.Now().Before(until) {
				return &fetch.RefusedError{Why: "that host is left alone", Until: until}
			}
			return nil
		}}
		f := newFetcherOver(t, web, func(o *fetch.Options) { o.Admit = l.admit })
		c := newCache(t, robots.CacheOptions{Fetch: f.Fetch})
		a := mustOrigin(t, "http://a.example")
		snap := lookUp(t, c, a)
		if outline(snap) != "unreachable 302 http_request_denied" || !snap.Expires.Equal(until) || snap.Flags != robots.RedirectRefused {
			t.Errorf("%s, marks %v, expires %v, want %v", outline(snap), snap.Flags, snap.Expires, until)
		}
		if got, want := snap.Err.Error(), "it redirects to http://b.example/x, and that host is left alone"; got != want {
			t.Errorf("Err = %q, want %q", got, want)
		}
		time.Sleep(time.Hour)
		lookUp(t, c, a)
		if got := web.count("http://a.example/robots.txt"); got != 1 {
			t.Errorf("%d requests within the time, want 1", got)
		}
		time.Sleep(time.Hour)
		if got := outline(lookUp(t, c, a)); got != "found 200 /open" {
			t.Errorf("after that: %s", got)
		}
	})
}

// TestPages says which redirects must be judged, what is sent there, and which files are pages of another host.
func TestPages(t *testing.T) {
	for _, row := range []struct {
		to   string
		page bool
	}{
		{"http://b.example/robots.txt", false},
		{"https://b.example:8443/robots.txt", false},
		{"http://b.example/robots.txt?", false},
		{"http://b.example/robots.txt#x", false},
		{"http://u:p@b.example/robots.txt", false},
		{"http://b.example/x/../robots.txt", false},
		{"http://B.EXAMPLE./robots.txt", false},
		{"/x", false},
		{"//a.example/x", false},
		{"https://a.example/x?y", false},
		{"http://a.example:8080/x", false},
		{"http://A.Example.:8080/x", false},
		{"http://b.example/robots.txt?x", true},
		{"http://b.example/robots.txt/", true},
		{"http://b.example//robots.txt", true},
		{"http://b.example/%72obots.txt", true},
		{"http://b.example/robots.txt%00", true},
		{"http://b.example/robots.txt;x", true},
		{"http://b.example/Robots.txt", true},
		{"http://b.example/x/robots.txt", true},
		{"http://b.example", true},
		{"http://www.a.example/x", true},
		{"//b.example/x", true},
	} {
		t.Run(row.to, func(t *testing.T) {
			var seen []*http.Request
			web := roundTripper(func(r *http.Request) (*http.Response, error) {
				seen = append(seen, r)
				resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(file)), Request: r}
				if r.URL.String() == "http://a.example/robots.txt" {
					resp.StatusCode = 302
					resp.Header.Set("Location", row.to)
				}
				return resp, nil
			})
			var hops []fetch.Hop
			f := newFetcherOver(t, web, func(o *fetch.Options) {
				o.Admit = func(_ context.Context, h fetch.Hop) (fetch.Visit, error) {
					hops = append(hops, h)
					return free{}, nil
				}
			})
			snap, err := f.Fetch(t.Context(), fetch.Request{Origin: mustOrigin(t, "http://a.example"), Asker: robots.Asker{Token: "NewsBot"}})
			if err != nil || len(hops) != 2 {
				t.Fatalf("Fetch = %v, %v with %v, want two requests", snap, err, hops)
			}
			if hops[0].Page || hops[1].Page != row.page || snap.FromPage() != row.page {
				t.Errorf("the second is a page: %t, and so is what was found: %t; want %t", hops[1].Page, snap.FromPage(), row.page)
			}
			if target := seen[1].URL.RequestURI(); target != hops[1].Target || seen[1].UserAgent() != hops[1].UserAgent {
				t.Errorf("%s as %q was sent, and %s as %q was judged", target, seen[1].UserAgent(), hops[1].Target, hops[1].UserAgent)
			}
			if strings.Contains(hops[1].UserAgent, "NewsBot") == row.page {
				t.Errorf("the second was sent as %q", hops[1].UserAgent)
			}
			again, err := f.Fetch(t.Context(), fetch.Request{Origin: mustOrigin(t, "http://a.example"), NoPages: true})
			if refused := err == nil && again.Flags&robots.RedirectRefused != 0; refused != row.page {
				t.Errorf("without pages: %v, %v; want it refused: %t", again, err, row.page)
			}
		})
	}
}

// TestPageIsValidated asks for a page again by condition, after it was judged again, and knows it as a page still.
func TestPageIsValidated(t *testing.T) {
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Redirect: "http://b.example/x"})
	conditional := false
	site.SetPage("b.example", "/x", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == `"1"` {
			conditional = true
			w.WriteHeader(304)
			return
		}
		w.Header().Set("ETag", `"1"`)
		io.WriteString(w, file)
	})
	var l logbook
	f := newFetcher(t, site, func(o *fetch.Options) { o.Admit = l.admit })
	c := newCache(t, robots.CacheOptions{Fetch: f.Fetch})
	a := mustOrigin(t, "http://a.example")
	lookUp(t, c, a)
	snap, err := c.Refresh(t.Context(), a)
	if err != nil || !conditional || outline(snap) != "found 304 /open" || !snap.FromPage() {
		t.Errorf("Refresh = %v, %v, by condition %t; want the page, validated", snap, err, conditional)
	}
	l.refuse = func(h fetch.Hop) error {
		if h.Page {
			return &fetch.RefusedError{Why: "its rules have changed"}
		}
		return nil
	}
	snap, err = c.Refresh(t.Context(), a)
	if err != nil || outline(snap) != "stale 301 http_request_denied /open" || !snap.FromPage() || snap.Err == nil {
		t.Errorf("Refresh = %v, %v, want the older copy, which is a page", snap, err)
	}
}

// TestOldPages knows pages that were kept before redirects were judged, by the way that they came.
func TestOldPages(t *testing.T) {
	o := mustOrigin(t, "http://a.example")
	for _, row := range []struct {
		origin    origin.Origin
		redirects []string
		want      bool
	}{
		{o, nil, false},
		{origin.Origin{}, nil, false},
		{o, []string{"https://a.example/robots.txt"}, false},
		{o, []string{"http://b.example/robots.txt", "http://b.example/x"}, false},
		{o, []string{"http://b.example/x"}, true},
		{o, []string{"http://b.example/x", "http://a.example/robots.txt"}, true},
		{o, []string{"no URL"}, true},
	} {
		s := &robots.Snapshot{Answer: robots.Answer{Origin: row.origin, Redirects: row.redirects}}
		if got := s.FromPage(); got != row.want {
			t.Errorf("FromPage() of %s by %q = %t, want %t", row.origin, row.redirects, got, row.want)
		}
	}
}

// endlessBody is a body that ends with its request alone.
type endlessBody struct{ ctx context.Context }

func (b endlessBody) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, context.Cause(b.ctx)
}

func (endlessBody) Close() error { return nil }

// TestPacedHopWaitsInItsTime has a redirect to a page wait for the place of its body: the page's host has given it a
// place in its pace, which is not held for longer than the fetch may take.
func TestPacedHopWaitsInItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := roundTripper(func(r *http.Request) (*http.Response, error) {
			resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: endlessBody{r.Context()}, Request: r}
			if r.URL.Host == "a.example" {
				resp.StatusCode = 302
				resp.Header.Set("Location", "http://b.example/x")
			}
			return resp, nil
		})
		ended := make(chan time.Time, 1)
		f := newFetcherOver(t, web, func(o *fetch.Options) {
			o.Timeout = 10 * time.Second
			o.Admit = func(_ context.Context, h fetch.Hop) (fetch.Visit, error) {
				if h.Page {
					return endsAt(ended), nil
				}
				return free{}, nil
			}
		})
		c := newCache(t, robots.CacheOptions{Fetch: f.Fetch, MaxBodies: 1})
		var all sync.WaitGroup
		for i := range 4 { // the first reads, and each of the others begins when the one before has taken too long
			all.Go(func() { lookUp(t, c, mustOrigin(t, fmt.Sprintf("http://slow-%d.example", i))) })
			synctest.Wait()
		}
		begin := time.Now()
		all.Go(func() {
			if _, err := c.Snapshot(t.Context(), mustOrigin(t, "http://a.example"), robots.Asker{}); !errors.As(err, new(*fetch.LaterError)) {
				t.Errorf("Snapshot: %v, want when to ask again, since the load is our own", err)
			}
		})
		if got := (<-ended).Sub(begin); got > 10*time.Second {
			t.Errorf("the place in the pace was held for %v, want 10s at most", got)
		}
		all.Wait()
	})
}

type endsAt chan time.Time

func (endsAt) Begin(context.Context, http.Header) error { return nil }
func (e endsAt) End(fetch.Outcome)                      { e <- time.Now() }
