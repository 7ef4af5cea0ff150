package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// An operator stops a host in the middle of a crawl: the origin gets no request after the command has returned. After
// resume the crawl works.
func TestStopOfACrawl(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			python("scrapy")(t)
			site := robotstest.New(t)
			site.SetRobots("a.example", robotstest.Robots{Body: clientRobots})
			s, c := startCrawl(t, site, scheme, "")
			order := func(args ...string) string {
				t.Helper()
				args = append(args, "--data-dir", s.dir, "--admin-listen", s.admin)
				out, err := exec.Command(binaryPath, args...).CombinedOutput()
				if err != nil {
					t.Errorf("%v: %v\n%s", args, err, out)
				}
				return string(out)
			}
			crawled := make(chan []fetched)
			go func() { crawled <- script("scrapy_crawl.py")(t, c) }()
			for deadline := time.Now().Add(time.Minute); len(site.Paths("a.example")) < 5; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the crawl does not begin")
				}
			}
			said := order("stop", "a.example", "--reason", "owner asked, ticket 812", "--by", "ops")
			returned := time.Now()
			if !strings.HasPrefix(said, "a.example is stopped on 1 of 1 instances. ") {
				t.Errorf("stop printed %q", said)
			}
			pages, refused := 0, 0
			for _, f := range <-crawled {
				switch {
				case f.Status == 200:
					pages++
				case f.Status == 503 && f.Reason == "stopped":
					refused++
				case f.Status != 403:
					t.Errorf("%+v", f)
				}
			}
			if pages == 0 || refused == 0 {
				t.Errorf("%d pages and %d refusals by the stop", pages, refused)
			}
			for _, r := range site.Requests() {
				if late := r.Start.Sub(returned); late > 100*time.Millisecond { // which it may lie in buffers
					t.Errorf("%s arrived %v after the stop", r, late)
				}
			}
			site.Reset()
			if said := order("resume", "a.example"); said != "a.example is no longer stopped on 1 of 1 instances.\n" {
				t.Errorf("resume printed %q", said)
			}
			checkCrawl(t, site, strings.TrimSuffix(c.start, "/"), script("scrapy_crawl.py")(t, c))
		})
	}
}
