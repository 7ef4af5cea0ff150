package robotstest_test

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

func TestRequests(t *testing.T) {
	site, client := start(t)
	req, err := http.NewRequest("PURGE", "http://a.example:80/status/410?b=%2f&a", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"User-Agent": {"Bot/1"}, "X-Two": {"1", "2"}}
	before := time.Now()
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	want := []robotstest.Request{{
		Proto: "HTTP/1.1", Method: "PURGE", Host: "a.example:80", Target: "/status/410?b=%2f&a", UserAgent: "Bot/1",
		Header: http.Header{"User-Agent": {"Bot/1"}, "X-Two": {"1", "2"}, "Accept-Encoding": {"gzip"}}, Status: 410,
	}}
	got := site.Requests()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(robotstest.Request{}, "Start", "End")); diff != "" {
		t.Fatalf("Requests() (-want +got):\n%s", diff)
	}
	if r := got[0]; r.Start.Before(before) || r.End.Before(r.Start) || r.End.After(time.Now()) {
		t.Errorf("Start %v, End %v: want both in this order since %v", r.Start, r.End, before)
	}
	site.Reset()
	if got := site.Requests(); len(got) != 0 {
		t.Errorf("Requests() after Reset = %v, want none", got)
	}
}

// TestArrival reads the record while the handler runs: the request is there, and has not ended.
func TestArrival(t *testing.T) {
	site, client := start(t)
	var during []robotstest.Request
	site.SetPage("a.example", "/look", func(w http.ResponseWriter, _ *http.Request) {
		during = site.Requests()
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusAccepted)
	})
	get(t, client, "http://a.example/look")
	if len(during) != 1 || !during[0].End.IsZero() || during[0].Status != 0 {
		t.Errorf("Requests() in the handler = %+v, want one without end and status", during)
	}
	if got := site.Requests()[0].Status; got != http.StatusAccepted {
		t.Errorf("Status = %d, want 202", got)
	}
}

// TestEndBeforeNext fetches one after the other as fast as it goes. A client that has read a body to its end may send
// the next request at once, and the record must not show the two as one upon the other.
func TestEndBeforeNext(t *testing.T) {
	for _, path := range []string{"/", "/bytes/0", "/bytes/200000", "/stream/3", "/drip?n=3&every=0s", "/status/204", "/gzip"} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(scheme+path, func(t *testing.T) {
				site, client := start(t)
				const n = 50
				for range n {
					get(t, client, scheme+"://a.example"+path)
				}
				gaps := site.Gaps("a.example")
				if len(gaps) != n-1 || slices.Min(gaps) < 0 {
					t.Errorf("Gaps() = %v, want %d that are not negative", gaps, n-1)
				}
				if first, second, found := site.Overlap("a.example"); found {
					t.Errorf("Overlap() = %+v, %+v, want none", first, second)
				}
			})
		}
	}
}

func TestGaps(t *testing.T) {
	site, client := start(t)
	const rest = 5 * time.Millisecond
	for _, url := range []string{"http://a.example/", "http://a.example/robots.txt", "http://b.example/", "https://A.example/page/1"} {
		get(t, client, url)
		time.Sleep(rest)
	}
	// The only rest of a.example has three of ours in it: neither robots.txt nor another host ends it.
	if gaps := site.Gaps("a.example"); len(gaps) != 1 || gaps[0] < 3*rest {
		t.Errorf("Gaps(a.example) = %v, want one of %v at least", gaps, 3*rest)
	}
	if gaps := site.Gaps("b.example"); len(gaps) != 0 {
		t.Errorf("Gaps(b.example) = %v, want none for one request", gaps)
	}
}

func TestOverlap(t *testing.T) {
	site, client := start(t)
	var both sync.WaitGroup
	both.Add(2)
	site.SetPage("", "/together", func(http.ResponseWriter, *http.Request) {
		both.Done()
		both.Wait()
	})
	var clients sync.WaitGroup
	for _, url := range []string{"http://a.example/together", "https://a.example/together"} {
		clients.Go(func() { get(t, client, url) })
	}
	clients.Wait()
	first, second, found := site.Overlap("a.example")
	if !found || first.TLS == second.TLS {
		t.Errorf("Overlap() = %v, %v, %v, want the two requests", first, second, found)
	}
	if gaps := site.Gaps("a.example"); len(gaps) != 1 || gaps[0] >= 0 {
		t.Errorf("Gaps() = %v, want one that is negative", gaps)
	}
	if first, second, found := site.Overlap("b.example"); found {
		t.Errorf("Overlap(b.example) = %v, %v, want none", first, second)
	}
}

// TestOverlapUnfinished counts a request that is still being answered as there until now.
func TestOverlapUnfinished(t *testing.T) {
	site, client := start(t)
	res, err := client.Get("http://a.example/endless")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	get(t, client, "http://a.example/page/1")
	if first, second, found := site.Overlap("a.example"); !found || first.Target != "/endless" || second.Target != "/page/1" {
		t.Errorf("Overlap() = %v, %v, %v, want /endless and /page/1", first, second, found)
	}
}

func TestPaths(t *testing.T) {
	site, client := start(t)
	for _, url := range []string{"http://a.example/page/2", "https://a.example/page/1?q", "http://a.example./page/2", "http://b.example/", "http://a.example/robots.txt"} {
		get(t, client, url)
	}
	if diff := cmp.Diff([]string{"/page/1?q", "/page/2", "/robots.txt"}, site.Paths("a.example")); diff != "" {
		t.Errorf("Paths(a.example) (-want +got):\n%s", diff)
	}
}

// TestOptionsStar records a request that net/http would otherwise answer without the site.
func TestOptionsStar(t *testing.T) {
	site, _ := start(t)
	conn := dial(t, site)
	io.WriteString(conn, "OPTIONS * HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
	io.Copy(io.Discard, conn)
	if diff := cmp.Diff([]string{"*"}, site.Paths("a.example")); diff != "" {
		t.Errorf("Paths(a.example) (-want +got):\n%s", diff)
	}
}
