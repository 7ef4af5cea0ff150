package main

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

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

// A port that would have to wait for longer than a request may is answered with the time to come back, and not asked.
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
