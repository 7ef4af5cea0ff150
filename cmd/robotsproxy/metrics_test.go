package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// scrapeAll returns the metrics of a proxy that has judged requests, and has a Redis server that does not answer.
func scrapeAll(t *testing.T) string {
	t.Helper()
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Body: disallowsPrivate})
	s := serveFor(t, site, []string{"a.example"}, "clients: [{name: news, cidr: [127.0.0.1]}]\nredis: {url: redis://127.0.0.1:1}\n")
	s.get(t, fmt.Sprintf("http://a.example:%d/page/1", site.Port()))
	s.get(t, fmt.Sprintf("http://a.example:%d/private/1", site.Port()))
	s.waitFor(t, "robotsproxy_audit_waiting 0")
	resp, err := http.Get("http://" + s.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The metrics of the program have names and units as Prometheus advises, and docs/metrics.md describes each of them.
func TestMetricsOfTheProgram(t *testing.T) {
	text := scrapeAll(t)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, want := range []string{
		`robotsproxy_client_requests_total{client="news",decision="allow"} 1`,
		`robotsproxy_client_requests_total{client="news",decision="deny"} 1`,
		`robotsproxy_robots_fetch_duration_seconds_count{result="found"} 1`,
		`robotsproxy_mode{mode="enforce"} 1`, `robotsproxy_mode{mode="off"} 0`, `robotsproxy_interventions{kind="bypass"} 0`,
		`robotsproxy_certificates_issued_total 0`, `robotsproxy_redis_up 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("the metrics have no line %s", want)
		}
	}
	if !regexp.MustCompile(`robotsproxy_audit_write_duration_seconds_count{result="ok"} [1-9]`).MatchString(text) {
		t.Error("no write of records is counted")
	}
	m := regexp.MustCompile(`(?m)^robotsproxy_config_last_reload_success_timestamp_seconds (\S+)$`).FindStringSubmatch(text)
	var at float64
	if m != nil {
		fmt.Sscan(m[1], &at)
	}
	if age := time.Since(time.Unix(int64(at), 0)); age < 0 || age > time.Minute {
		t.Errorf("the configuration is in force for %v", age)
	}

	document, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := make(map[string]string)
	for _, m := range regexp.MustCompile("(?m)^\\| `(robotsproxy_\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(document), -1) {
		kinds[m[1]] = m[2]
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (robotsproxy_\w+) (\w+)$`).FindAllStringSubmatch(text, -1) {
		if kinds[m[1]] != m[2] {
			t.Errorf("docs/metrics.md says of %s that it is a %q, and it is a %s", m[1], kinds[m[1]], m[2])
		}
		delete(kinds, m[1])
	}
	for name := range kinds {
		t.Errorf("docs/metrics.md describes %s, which is not there", name)
	}
}

// A client that a reload adds is a label from then on.
func TestClientsAfterAReload(t *testing.T) {
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Body: disallowsPrivate})
	s := serveFor(t, site, []string{"a.example"}, "")
	path := filepath.Join(filepath.Dir(s.dir), "config.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := fmt.Sprintf("http://a.example:%d/page/1", site.Port())
	s.get(t, page)
	s.waitFor(t, `robotsproxy_client_requests_total{client="local",decision="allow"} 1`)
	text = append(text, "clients: [{name: added, cidr: [127.0.0.1]}]\n"...)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(binaryPath, "reload", "--data-dir", s.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.get(t, page)
	s.waitFor(t, `robotsproxy_client_requests_total{client="added",decision="allow"} 1`)
}
