package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/internal/pgtest"
	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// receiver is a receiver of webhooks.
type receiver struct {
	*httptest.Server

	mu   sync.Mutex
	got  []proof.Effect
	text string // of the last request
}

// receive starts a receiver that answers its n-th request with status(n).
func receive(t *testing.T, status func(n int) int) *receiver {
	t.Helper()
	r := new(receiver)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(status(r.add(t, body)))
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) add(t *testing.T, body []byte) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e proof.Effect
	if err := json.Unmarshal(body, &e); err != nil {
		t.Errorf("%s: %v", body, err)
	}
	r.got, r.text = append(r.got, e), string(body)
	return len(r.got)
}

// reports returns the requests, those that were not accepted included.
func (r *receiver) reports() []proof.Effect {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got[:len(r.got):len(r.got)]
}

func (r *receiver) config() string { return fmt.Sprintf("watch: {webhook: %s/s3cr3t}\n", r.URL) }

// waitMetric waits until a metric of s is want.
func (s *server) waitMetric(t *testing.T, name string, want int) {
	t.Helper()
	settle(t, fmt.Sprintf("%s %d", name, want), func() bool {
		n, err := s.metric(name)
		return err == nil && n == want
	})
}

// A change that decides requests of the records otherwise is logged and posted, again if the receiver fails. A change
// that decides nothing otherwise is not.
func TestReportOfAChange(t *testing.T) {
	site := robotstest.New(t)
	hook := receive(t, func(n int) int { return map[bool]int{true: 503, false: 204}[n == 1] })
	s := serveFor(t, site, []string{"a.example"}, hook.config())
	base := fmt.Sprintf("http://a.example:%d", site.Port())
	change := func(body string) {
		t.Helper()
		site.SetRobots("a.example", robotstest.Robots{Body: body})
		if out, code := s.command(t, "cache", "refresh", base); code != 0 {
			t.Fatal(out)
		}
	}
	site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private/\n"})
	s.get(t, base+"/page/1?a=1")
	s.get(t, base+"/private/1")
	s.get(t, base+"/private/1")
	s.waitMetric(t, "robotsproxy_audit_written_total", 4) // with that of the robots.txt

	change("# hello\nUser-agent: *\nDisallow: /private/\nDisallow: /other/\n")
	change("User-agent: *\nDisallow: /page/\nCrawl-delay: 2\n")
	s.waitMetric(t, "robotsproxy_webhook_posts_total", 1)
	got := hook.reports()
	if len(got) != 2 {
		t.Fatalf("%d posts, want one that fails and one that does not", len(got))
	}
	e := got[1]
	if e.Host != "a.example" || e.Origin != base || e.Judged != 3 || e.Refused != 1 || e.Allowed != 2 || e.Partial {
		t.Errorf("the report is %+v", e)
	}
	if e.Before.SHA256 == "" || e.Before.SHA256 == e.After.SHA256 || e.After.FirstSeen.Before(e.Before.FirstSeen) || e.Before.FirstSeen.IsZero() {
		t.Errorf("the texts are %+v and %+v", e.Before, e.After)
	}
	if !strings.Contains(e.Diff, "\n-Disallow: /private/\n") || !strings.Contains(e.Diff, "\n+Disallow: /page/\n") {
		t.Errorf("the difference is %s", e.Diff)
	}
	if len(e.Examples) != 2 || e.Examples[1].Path != "/page/1?a=1" || e.Examples[1].After != (proof.Ruling{Line: 2, Rule: "Disallow: /page/"}) {
		t.Errorf("the examples are %+v", e.Examples)
	}
	if len(e.Delays) != 1 || e.Delays[0].Before != 0 || e.Delays[0].After != 2 {
		t.Errorf("the Delays are %+v", e.Delays)
	}
	if n, err := s.metric("robotsproxy_watch_changes_total"); n != 1 || err != nil {
		t.Errorf("%d changes are counted, %v", n, err)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(s.log.String(), "decides recorded requests otherwise"); n != 1 || strings.Contains(s.log.String(), "s3cr3t") {
		t.Errorf("%d changes are logged:\n%s", n, s.log)
	}
}

// A crawl that fetches a file anew finds a change, too. A receiver that hangs delays neither it nor the stop, one that
// refuses is logged and counted, and a reload names another.
func TestReportsToAFaultyReceiver(t *testing.T) {
	site := robotstest.New(t)
	refusing, hanging := receive(t, func(int) int { return 404 }), make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hanging }))
	t.Cleanup(hangs.Close)
	t.Cleanup(func() { close(hanging) })
	const ttl = "robots: {ttl: 1s, min_ttl: 0s}\n"
	s := serveFor(t, site, []string{"a.example"}, ttl+refusing.config())
	page := fmt.Sprintf("http://a.example:%d/page/1", site.Port())
	answers := func(status int) {
		t.Helper()
		settle(t, fmt.Sprintf("answered %d", status), func() bool { return s.get(t, page) == status })
	}
	answers(200)
	site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /\n"})
	answers(403)
	s.waitMetric(t, "robotsproxy_webhook_failures_total", 1)
	if n := len(refusing.reports()); n != 1 {
		t.Errorf("%d posts to a receiver that answers 404", n)
	}

	config := filepath.Join(filepath.Dir(s.dir), "config.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Dir(s.dir), "config.yaml", strings.ReplaceAll(string(text), refusing.URL, hangs.URL))
	if out, code := s.command(t, "reload"); code != 0 {
		t.Fatal(out)
	}
	site.SetRobots("a.example", robotstest.Robots{})
	answers(200)
	s.waitMetric(t, "robotsproxy_watch_changes_total", 2)
	answers(200)
	if err := s.stop(); err != nil {
		t.Errorf("%v:\n%s", err, s.log)
	}
	if log := s.log.String(); !strings.Contains(log, "it answered 404") || strings.Contains(log, "s3cr3t") {
		t.Errorf("the log is %s", log)
	}
}

// Instances that share their files report a change once, also if another one has fetched the file before.
func TestReportOfInstances(t *testing.T) {
	long(t)
	for name, shared := range map[string]func(*testing.T) string{
		"redis":    func(t *testing.T) string { return redisConfig(redistest.Start(t), "spread") },
		"postgres": func(t *testing.T) string { return postgresConfig(t, pgtest.Database(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			hook := receive(t, func(int) int { return 200 })
			f := newFleet(t, 2, shared(t)+hook.config())
			f.site.SetRobots("b.example", robotstest.Robots{})
			f.expectStatus(0, "/page/1", http.StatusOK)
			f.expectStatus(1, "/page/1", http.StatusOK)
			f.expectFetches("for two instances", 1)
			f.instances[1].waitMetric(t, "robotsproxy_audit_written_total", 1)

			f.site.SetRobots("b.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /\n"})
			f.command(1, "cache", "refresh", f.origin())
			f.instances[1].waitMetric(t, "robotsproxy_webhook_posts_total", 1)
			settle(t, "under the new rules", func() bool {
				return f.get(f.through(0), "b.example", "/page/2").StatusCode == http.StatusForbidden
			})
			if n, err := f.instances[0].metric("robotsproxy_watch_changes_total"); n != 0 || err != nil {
				t.Errorf("the other instance has %d reports, %v", n, err)
			}
			if got := hook.reports(); len(got) != 1 || got[0].Refused == 0 {
				t.Errorf("the reports are %+v", got)
			}
		})
	}
}
