package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// The robots.txt files of the ports of one host are fetched one after the other, with the Delay in force between them.
func TestPortsOfOneHostAreSpaced(t *testing.T) {
	for _, row := range []struct {
		name, robots, config string
		want                 time.Duration
	}{
		{"a second", "User-agent: *\nDisallow: /private\n", "", time.Second},
		{"Crawl-delay", "User-agent: *\nCrawl-delay: 2\n", "", 2 * time.Second},
		{"Crawl-delay for our own token", "User-agent: TestBot\nCrawl-delay: 2\n\nUser-agent: *\nCrawl-delay: 0.1\n", "identity: {name: TestBot}\n", 2 * time.Second},
		{"the operator's floor", "User-agent: *\nCrawl-delay: 0.1\n", "hosts: [{host: a.example, delay: 2s}]\n", 2 * time.Second},
		{"default_delay", "User-agent: *\n", "pacing: {default_delay: 2s}\n", 2 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			sites := []*robotstest.Site{robotstest.New(t), robotstest.New(t), robotstest.New(t)}
			s := serveFor(t, sites[0], []string{"a.example"}, row.config)
			var all sync.WaitGroup
			for _, site := range sites {
				site.SetRobots("a.example", robotstest.Robots{Body: row.robots, Delay: 50 * time.Millisecond})
				all.Go(func() {
					if got := s.get(t, fmt.Sprintf("http://a.example:%d/robots.txt", site.Port())); got != 200 {
						t.Errorf("GET /robots.txt: got %d, want 200", got)
					}
				})
			}
			all.Wait()
			var fetches []robotstest.Request
			for _, site := range sites {
				fetches = append(fetches, site.Requests()...)
			}
			slices.SortFunc(fetches, func(a, b robotstest.Request) int { return a.Start.Compare(b.Start) })
			if len(fetches) != 3 {
				t.Fatalf("the host saw %v, want 3 fetches of robots.txt", fetches)
			}
			for i := range 2 {
				gap := fetches[i+1].Start.Sub(fetches[i].End)
				if gap < row.want-20*time.Millisecond {
					t.Errorf("gap %d between two fetches is %v, want at least %v", i+1, gap, row.want)
				}
			}
		})
	}
}

// If the fetch for a port would wait longer than a request may, the client gets a time to come back, and nothing is
// fetched.
func TestPortThatWouldWaitTooLong(t *testing.T) {
	first, second := robotstest.New(t), robotstest.New(t)
	first.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nCrawl-delay: 100\n"})
	s := serveFor(t, first, []string{"a.example"}, "pacing: {max_wait: 2s}\nrobots: {timeout: 2s}\n")
	if got := s.get(t, fmt.Sprintf("http://a.example:%d/robots.txt", first.Port())); got != 200 {
		t.Fatalf("the first port: got %d, want 200", got)
	}
	resp := s.answer(t, fmt.Sprintf("http://a.example:%d/page/1", second.Port()))
	if after, err := strconv.Atoi(resp.Header.Get("Retry-After")); resp.StatusCode != 503 || err != nil || after <= 2 || after > 100 {
		t.Errorf("the second port: got %d, Retry-After %d (%v), want 503 and the rest of 100 s", resp.StatusCode, after, err)
	}
	if reason := resp.Header.Get("Robotsproxy-Reason"); reason != "robots-unreachable" {
		t.Errorf("the second port: the reason is %q, want robots-unreachable", reason)
	}
	if n := len(second.Requests()); n != 0 {
		t.Errorf("the second port was asked %d times, want never", n)
	}
}

// Each request of the proxy for a robots.txt, including redirects, has a record, and is not counted as a client's.
func TestFetchesAreRecorded(t *testing.T) {
	site := robotstest.New(t)
	port := site.Port()
	site.SetRobots("a.example", robotstest.Robots{Redirect: fmt.Sprintf("http://www.a.example:%d/robots.txt", port)})
	site.SetRobots("www.a.example", robotstest.Robots{Body: disallowsPrivate})
	site.SetRobots("b.example", robotstest.Robots{Handler: robotstest.Reset})
	s := serveFor(t, site, []string{"a.example", "www.a.example", "b.example"}, "clients: [{name: news, cidr: [127.0.0.1], product_token: NewsBot}]\n")
	s.get(t, fmt.Sprintf("http://a.example:%d/page/1", port))
	s.get(t, fmt.Sprintf("http://a.example:%d/private/1", port))
	s.get(t, fmt.Sprintf("http://b.example:%d/page/1", port))
	for name, want := range map[string]int{
		`robotsproxy_requests_total{decision="allow",reason=""}`:        1,
		`robotsproxy_robots_requests_total{decision="allow",reason=""}`: 3,
	} {
		if got, err := s.metric(name); err != nil || got != want {
			t.Errorf("%s is %d (%v), want %d", name, got, err, want)
		}
	}
	records := s.allRecords(t)
	checkAllRecorded(t, records, site)
	var ours []string
	for _, rec := range records {
		if rec.Via != audit.Robots {
			continue
		}
		ours = append(ours, fmt.Sprintf("%s %s://%s:%d%s?%s %d, %d bytes, %s %s by %q", rec.Method, rec.Scheme, rec.Host, rec.Port, rec.Path, rec.Query, rec.Status, rec.Bytes, rec.Client, rec.Decision, rec.UserAgent))
		if rec.SentAt.IsZero() || rec.EndedAt.Before(rec.SentAt) || rec.SentAt.Before(rec.Time) || rec.Status != 0 && rec.FirstByte <= 0 || rec.UpstreamAddr == "" || (rec.Error == "") == (rec.Status == 0) {
			t.Errorf("a record of ours lacks times, address or error: %+v", rec)
		}
	}
	agent := "NewsBot robotsproxy/" + buildVersion()
	want := []string{
		fmt.Sprintf("GET http://a.example:%d/robots.txt? 301, 0 bytes, news allow by %q", port, agent),
		fmt.Sprintf("GET http://b.example:%d/robots.txt? 0, 0 bytes, news allow by %q", port, agent),
		fmt.Sprintf("GET http://www.a.example:%d/robots.txt? 200, %d bytes, news allow by %q", port, len(disallowsPrivate), agent),
	}
	slices.Sort(ours)
	if diff := cmp.Diff(want, ours); diff != "" {
		t.Errorf("our own records (-want +got):\n%s", diff)
	}
}

// checkAllRecorded checks that each request that the site received has exactly one record.
func checkAllRecorded(t *testing.T, records []audit.Record, sites ...*robotstest.Site) {
	t.Helper()
	sent := map[string]int{}
	for _, rec := range records {
		if !rec.SentAt.IsZero() {
			sent[fmt.Sprintf("%s:%d%s", rec.Host, rec.Port, rec.Path)]++
		}
	}
	for _, site := range sites {
		for _, r := range site.Requests() {
			path, _, _ := strings.Cut(r.Target, "?")
			sent[r.Host+path]--
		}
	}
	for what, n := range sent {
		if n != 0 {
			t.Errorf("%s: %d more records than requests at the origin", what, n)
		}
	}
}

// Fetches for the commands have no client in their records, and the summary of run does not count fetches.
func TestFetchesOfNobody(t *testing.T) {
	site := robotstest.New(t)
	s := serveFor(t, site, []string{"a.example"}, "")
	cmd := exec.Command(binaryPath, "cache", "refresh", "--data-dir", s.dir, "--admin-listen", s.admin, fmt.Sprintf("http://a.example:%d", site.Port()))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cache refresh: %v\n%s", err, out)
	}
	records := s.allRecords(t)
	checkAllRecorded(t, records, site)
	if len(records) != 1 || records[0].Client != "" || records[0].Via != audit.Robots || records[0].Status != 404 {
		t.Errorf("records %+v, want one of ours without a client", records)
	}
}
