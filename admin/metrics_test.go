package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// records are four requests: forwarded after a wait, refused by a rule twice, and reckoned in mode report.
func records() []*audit.Record {
	came := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	denied := &audit.Record{
		Time: came, EndedAt: came.Add(time.Millisecond), Host: "secret.example", Path: "/private", UserAgent: "NewsBot/1.0",
		Client: "news", Decision: policy.Deny, Reason: policy.ReasonRobots, Bytes: 100,
	}
	return []*audit.Record{
		{Time: came, EndedAt: came.Add(12 * time.Second), Host: "secret.example", Decision: policy.Allow, Bytes: 5000, PacingMode: "local", Waited: audit.Millis(8 * time.Second)},
		denied,
		denied,
		{Time: came, EndedAt: came.Add(time.Second), Decision: policy.WouldDeny, Reason: policy.ReasonReport, Bytes: 1, Waited: audit.Millis(time.Hour)},
	}
}

// TestObserveFetches counts our own requests for robots.txt apart from those of clients.
func TestObserveFetches(t *testing.T) {
	m := NewMetrics()
	for _, r := range records() {
		r.Via = audit.Robots
		m.Observe(r)
	}
	want := `
# HELP robotsproxy_response_bytes_total Bytes of response bodies sent to clients.
# TYPE robotsproxy_response_bytes_total counter
robotsproxy_response_bytes_total 0
# HELP robotsproxy_robots_requests_total The proxy's own requests for robots.txt files, redirects included, by decision and reason.
# TYPE robotsproxy_robots_requests_total counter
robotsproxy_robots_requests_total{decision="allow",reason=""} 1
robotsproxy_robots_requests_total{decision="deny",reason="robots"} 2
robotsproxy_robots_requests_total{decision="would_deny",reason="report"} 1
`
	err := testutil.GatherAndCompare(m.registry, strings.NewReader(want),
		"robotsproxy_requests_total", "robotsproxy_robots_requests_total", "robotsproxy_response_bytes_total", "robotsproxy_request_duration_seconds")
	if err != nil {
		t.Error(err)
	}
}

func TestObserve(t *testing.T) {
	m := NewMetrics()
	for _, r := range records() {
		m.Observe(r)
	}
	want := `
# HELP robotsproxy_requests_total Completed requests, by decision and reason.
# TYPE robotsproxy_requests_total counter
robotsproxy_requests_total{decision="allow",reason=""} 1
robotsproxy_requests_total{decision="deny",reason="robots"} 2
robotsproxy_requests_total{decision="would_deny",reason="report"} 1
# HELP robotsproxy_response_bytes_total Bytes of response bodies sent to clients.
# TYPE robotsproxy_response_bytes_total counter
robotsproxy_response_bytes_total 5201
# HELP robotsproxy_wait_seconds Time that requests were held until their host's pace let them go.
# TYPE robotsproxy_wait_seconds histogram
robotsproxy_wait_seconds_bucket{le="0.01"} 0
robotsproxy_wait_seconds_bucket{le="0.1"} 0
robotsproxy_wait_seconds_bucket{le="0.5"} 0
robotsproxy_wait_seconds_bucket{le="1"} 0
robotsproxy_wait_seconds_bucket{le="2.5"} 0
robotsproxy_wait_seconds_bucket{le="5"} 0
robotsproxy_wait_seconds_bucket{le="10"} 1
robotsproxy_wait_seconds_bucket{le="20"} 1
robotsproxy_wait_seconds_bucket{le="30"} 1
robotsproxy_wait_seconds_bucket{le="60"} 1
robotsproxy_wait_seconds_bucket{le="150"} 1
robotsproxy_wait_seconds_bucket{le="300"} 1
robotsproxy_wait_seconds_bucket{le="600"} 1
robotsproxy_wait_seconds_bucket{le="+Inf"} 1
robotsproxy_wait_seconds_sum 8
robotsproxy_wait_seconds_count 1
`
	if err := testutil.GatherAndCompare(m.registry, strings.NewReader(want),
		"robotsproxy_requests_total", "robotsproxy_response_bytes_total", "robotsproxy_wait_seconds"); err != nil {
		t.Error(err)
	}
}

func TestScrape(t *testing.T) {
	m := NewMetrics()
	queued := 3.0
	h := newHandler(t, Options{Metrics: m, Version: "1.2.3", Gauges: []Gauge{
		{Name: "robotsproxy_queued_requests", Help: "Requests that wait.", Value: func() float64 { return queued }},
		{Name: "robotsproxy_robots_fetches_total", Help: "Fetches.", Value: func() float64 { return 7 }, Counter: true},
	}})
	for _, r := range records() {
		m.Observe(r)
	}
	queued = 4
	text := ask(h, "GET", "/metrics").Body.String()
	for _, want := range []string{
		`robotsproxy_build_info\{goversion="go[^"]+",version="1\.2\.3"\} 1`,
		`# TYPE robotsproxy_queued_requests gauge`,
		`robotsproxy_queued_requests 4`,
		`# TYPE robotsproxy_robots_fetches_total counter`,
		`robotsproxy_robots_fetches_total 7`,
		`robotsproxy_requests_total\{decision="deny",reason="robots"\} 2`,
		`robotsproxy_request_duration_seconds_sum\{decision="allow"\} 12`,
		`robotsproxy_request_duration_seconds_count\{decision="deny"\} 2`,
		`go_goroutines \d+`,
	} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(text) {
			t.Errorf("GET /metrics has no line %s:\n%s", want, text)
		}
	}
	for _, secret := range []string{"secret.example", "/private", "NewsBot", "news", testToken} {
		if strings.Contains(text, secret) {
			t.Errorf("GET /metrics names %q", secret)
		}
	}
}

func TestNamesOfMetrics(t *testing.T) {
	m := NewMetrics()
	newHandler(t, Options{Metrics: m})
	for _, r := range records() {
		m.Observe(r)
	}
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// A clock that was set back, or a record that is not complete, must not stop the count.
func TestObserveOddRecords(t *testing.T) {
	m := NewMetrics()
	came := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	m.Observe(&audit.Record{Time: came, EndedAt: came.Add(-time.Hour), Decision: policy.Allow, Bytes: -1})
	m.Observe(&audit.Record{Decision: policy.Error, Reason: policy.ReasonInternal})
	if n := testutil.CollectAndCount(m.requests); n != 2 {
		t.Errorf("%d series of requests, want 2", n)
	}
	if n := testutil.CollectAndCount(m.duration); n != 1 {
		t.Errorf("%d series of durations, want 1", n)
	}
	if got := testutil.ToFloat64(m.bytes); got != 0 {
		t.Errorf("%v octets, want 0", got)
	}
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		m := NewMetrics()
		h := newHandler(t, Options{Metrics: m, Version: "1.2.3", Ready: func() error { return cause }})
		want := Status{Version: "1.2.3", PID: os.Getpid(), Started: time.Now().UTC(), Ready: true, Counts: []Count{}}
		checkStatus(t, h, want)

		for _, r := range records() {
			m.Observe(r)
		}
		time.Sleep(90*time.Minute + 250*time.Millisecond)
		cause = errors.New("draining")
		want.Uptime, want.Ready, want.NotReady = 5400.25, false, "draining"
		want.Counts = []Count{{"allow", "", 1}, {"deny", "robots", 2}, {"would_deny", "report", 1}}
		checkStatus(t, h, want)
	})
}

func checkStatus(t *testing.T, h *Handler, want Status) {
	t.Helper()
	w := ask(h, "GET", "/api/status", "Authorization", "Bearer "+testToken)
	if kind := w.Header().Get("Content-Type"); w.Code != 200 || kind != "application/json" {
		t.Fatalf("GET /api/status = %d, %s; want 200, application/json", w.Code, kind)
	}
	var got Status
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatalf("GET /api/status: %v in %s", err, w.Body)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("GET /api/status (-want +got):\n%s", diff)
	}
}

func TestObserveWhileRead(t *testing.T) {
	m := NewMetrics()
	h := newHandler(t, Options{Metrics: m})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				for _, r := range records() {
					m.Observe(r)
				}
			}
		})
		wg.Go(func() {
			ask(h, "GET", "/metrics")
			ask(h, "GET", "/api/status", "Authorization", "Bearer "+testToken)
		})
	}
	wg.Wait()
	counts, err := m.counts()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Count{{"allow", "", 400}, {"deny", "robots", 800}, {"would_deny", "report", 400}}, counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func BenchmarkObserve(b *testing.B) {
	m := NewMetrics()
	r := records()[0]
	b.ReportAllocs()
	for b.Loop() {
		m.Observe(r)
	}
}

// Only clients that the operator has named are labels, and no more than the limit.
func TestClientsOfRequests(t *testing.T) {
	m := NewMetrics()
	observe := func(client string) {
		m.Observe(&audit.Record{Client: client, Decision: policy.Allow})
	}
	observe("local")
	observe("news") // not named yet
	m.SetClients([]string{"news", "\xff"})
	observe("news")
	observe("192.0.2.7")
	m.SetClients(nil)
	observe("news") // removed
	want := `
# HELP robotsproxy_client_requests_total Completed requests, by client and decision. Clients without a name in the configuration are other.
# TYPE robotsproxy_client_requests_total counter
robotsproxy_client_requests_total{client="local",decision="allow"} 1
robotsproxy_client_requests_total{client="news",decision="allow"} 2
robotsproxy_client_requests_total{client="other",decision="allow"} 2
`
	if err := testutil.GatherAndCompare(m.registry, strings.NewReader(want), "robotsproxy_client_requests_total"); err != nil {
		t.Error(err)
	}
	for i := range 1000 {
		name := fmt.Sprint("client", i)
		m.SetClients([]string{name})
		observe(name)
	}
	if n := testutil.CollectAndCount(m.clients); n != maxNamed {
		t.Errorf("%d series of clients, want %d with local, without ?, and with other", n, maxNamed)
	}
}

func TestObserveFetchesAndWrites(t *testing.T) {
	m := NewMetrics()
	h := newHandler(t, Options{Metrics: m, Gauges: []Gauge{
		{Name: "robotsproxy_mode", Help: "H.", Labels: map[string]string{"mode": "enforce"}, Value: func() float64 { return 1 }},
		{Name: "robotsproxy_mode", Help: "H.", Labels: map[string]string{"mode": "report"}, Value: func() float64 { return 0 }},
	}})
	m.ObserveFetch("found", 200*time.Millisecond)
	m.ObserveFetch("unreachable", time.Minute)
	m.ObserveWrite(3*time.Millisecond, nil)
	m.ObserveWrite(5*time.Second, errors.New("the disk is full"))
	text := ask(h, "GET", "/metrics").Body.String()
	for _, want := range []string{
		`robotsproxy_robots_fetch_duration_seconds_bucket{result="found",le="0.25"} 1`,
		`robotsproxy_robots_fetch_duration_seconds_bucket{result="unreachable",le="30"} 0`,
		`robotsproxy_robots_fetch_duration_seconds_count{result="unreachable"} 1`,
		`robotsproxy_audit_write_duration_seconds_bucket{result="ok",le="0.005"} 1`,
		`robotsproxy_audit_write_duration_seconds_sum{result="error"} 5`,
		`robotsproxy_mode{mode="enforce"} 1`,
		`robotsproxy_mode{mode="report"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("GET /metrics has no line %s", want)
		}
	}
	for _, c := range []prometheus.Collector{m.requests, m.clients, m.fetches, m.duration, m.wait, m.bytes, m.fetched, m.written} {
		problems, err := testutil.CollectAndLint(c)
		if err != nil || len(problems) > 0 {
			t.Errorf("%v %v", problems, err)
		}
	}
}
