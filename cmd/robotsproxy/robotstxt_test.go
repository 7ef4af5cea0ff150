package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// fetchRow is a response of a site for its robots.txt, and the outcome of two requests to the site.
type fetchRow struct {
	section string // of RFC 9309
	at      string // its origin, if not that of the site; HTTP and HTTPS are the ports of the site
	robots  robotstest.Robots
	status  int    // of the response for /private, which most of the files disallow
	open    int    // and for /open; if zero, 200
	state   string // in the record
}

const disallowsPrivate = "User-agent: *\nDisallow: /private\n"

// fetches has rows for section 2.3 of RFC 9309, and for 2.4 and 2.5 as far as they need no clock.
var fetches = []fetchRow{
	{section: "2.3 not at the root: only /robots.txt counts", robots: robotstest.Robots{Body: disallowsPrivate}, status: 403, state: "found"},
	{section: "2.3.1.1 204 is an empty file", robots: robotstest.Robots{Status: 204}, status: 200, state: "empty"},
	{section: "2.3.1.1 200 without a body", robots: robotstest.Robots{}, status: 200, state: "empty"},
	{section: "2.3.1.1 served as HTML", robots: robotstest.Robots{Body: disallowsPrivate, Header: http.Header{"Content-Type": {"text/html"}}}, status: 403, state: "found"},
	{section: "2.3.1.2 one redirect", robots: robotstest.Robots{Redirect: "/moved"}, status: 403, state: "found"},
	{section: "2.3.1.2 five redirects, over other authorities", robots: robotstest.Robots{Redirect: "http://hop-1.example:HTTP/robots.txt"}, status: 403, state: "found"},
	{section: "2.3.1.2 six redirects are unavailable", robots: robotstest.Robots{Redirect: "http://hop-0.example:HTTP/robots.txt"}, status: 200, state: "unavailable"},
	{section: "2.3.1.2 a loop is unavailable", robots: robotstest.Robots{Redirect: "/robots.txt"}, status: 200, state: "unavailable"},
	{section: "2.3.1.2 a redirect to a forbidden address", robots: robotstest.Robots{Redirect: "http://169.254.169.254/robots.txt"}, status: 503, open: 503, state: "unreachable"},
	{section: "2.3.1.2 a redirect to another scheme", robots: robotstest.Robots{Redirect: "ftp://hop-5.example/robots.txt"}, status: 503, open: 503, state: "unreachable"},
	{section: "2.3.1.2 a redirect to no port", robots: robotstest.Robots{Redirect: "http://hop-5.example:0/robots.txt"}, status: 503, open: 503, state: "unreachable"},
	{section: "2.3.1.2 a redirect without Location", robots: robotstest.Robots{Status: 301}, status: 200, state: "unavailable"},
	{section: "2.3.1.3 400", robots: robotstest.Robots{Status: 400, Body: disallowsPrivate}, status: 200, state: "unavailable"},
	{section: "2.3.1.3 401", robots: robotstest.Robots{Status: 401}, status: 200, state: "unavailable"},
	{section: "2.3.1.3 403", robots: robotstest.Robots{Status: 403}, status: 200, state: "unavailable"},
	{section: "2.3.1.3 404", robots: robotstest.Robots{Status: 404}, status: 200, state: "unavailable"},
	{section: "2.3.1.3 410", robots: robotstest.Robots{Status: 410}, status: 200, state: "unavailable"},
	{section: "2.3.1.3 departure: 429 is unreachable", robots: robotstest.Robots{Status: 429}, status: 503, open: 503, state: "unreachable"},
	{section: "2.3.1.4 500", robots: robotstest.Robots{Status: 500}, status: 503, open: 503, state: "unreachable"},
	{section: "2.3.1.4 503", robots: robotstest.Robots{Status: 503}, status: 503, open: 503, state: "unreachable"},
	{section: "2.3.1.4 reset", robots: robotstest.Robots{Handler: robotstest.Reset}, status: 503, open: 503, state: "unreachable"},
	{section: "2.3.1.4 a body that breaks off", robots: robotstest.Robots{Handler: robotstest.Truncate}, status: 503, open: 503, state: "unreachable"},
	{section: "2.3.1.4 no DNS", at: "http://no-such-name.example", status: 503, open: 503, state: "unreachable"},
	{section: "2.3.1.4 nobody listens", at: "http://refuses.example:REFUSES", status: 503, open: 503, state: "unreachable"},
	{section: "2.3.1.4 a certificate that has expired", at: "https://expired.example:HTTPS", robots: robotstest.Robots{Body: disallowsPrivate}, status: 503, open: 503, state: "unreachable"},
	{section: "2.3.1.4 no answer in time", robots: robotstest.Robots{Handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }}, status: 503, open: 503, state: "unreachable"},
	{section: "2.3.1.4 304 that nobody asked for", robots: robotstest.Robots{Status: 304}, status: 503, open: 503, state: "unreachable"},
	{section: "2.3.1.5 rules among rubbish", robots: robotstest.Robots{Body: "<<<\x00\xff\n" + disallowsPrivate + ">>>"}, status: 403, state: "found"},
	{section: "2.5 500 KiB count, what is beyond does not", robots: robotstest.Robots{Body: disallowsPrivate + strings.Repeat("# 16 octets long\n", 40_000) + "Disallow: /open/\n"}, status: 403, state: "oversize"},
	{section: "a web page in its place", robots: robotstest.Robots{Body: "<!doctype html>\n<title>Are you human?</title>"}, status: 200, state: "html"},
}

// walls are refused if configured.
var walls = []fetchRow{
	{section: "2.3.1.3 401", robots: robotstest.Robots{Status: 401}, status: 503, open: 503, state: "unreachable"},
	{section: "2.3.1.3 403", robots: robotstest.Robots{Status: 403}, status: 503, open: 503, state: "unreachable"},
	{section: "2.3.1.3 404 is none", robots: robotstest.Robots{Status: 404}, status: 200, state: "unavailable"},
	{section: "a web page in its place", robots: robotstest.Robots{Body: "<?xml version='1.0'?>\n<html>Are you human?</html>"}, status: 503, open: 503, state: "html"},
}

// TestFetches runs the rows with the built program, each with a different host.
func TestFetches(t *testing.T) { checkFetches(t, fetches, "robots: {timeout: 4s}\n") }

func TestFetchesWithWallsRefused(t *testing.T) {
	checkFetches(t, walls, "robots: {on_html: refuse, on_unauthorized: refuse}\n")
}

func checkFetches(t *testing.T, rows []fetchRow, config string) {
	site := robotstest.New(t)
	names := []string{"hop-0.example", "hop-1.example", "hop-2.example", "hop-3.example", "hop-4.example", "hop-5.example", "refuses.example", "expired.example"}
	_, refuses, _ := net.SplitHostPort(robotstest.Refusing(t))
	port := fmt.Sprint(site.Port())
	ports := strings.NewReplacer("HTTPS", fmt.Sprint(site.TLSPort()), "HTTP", port, "REFUSES", refuses)
	for i, f := range rows {
		f.robots.Redirect = ports.Replace(f.robots.Redirect)
		site.SetRobots(rowHost(i), f.robots)
		names = append(names, rowHost(i))
	}
	for i := range 5 {
		site.SetRobots(names[i], robotstest.Robots{Redirect: fmt.Sprintf("http://%s:%s/robots.txt", names[i+1], port)})
	}
	site.SetRobots("hop-5.example", robotstest.Robots{Body: disallowsPrivate})
	site.SetPage("", "", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "a page") })
	site.SetPage("", "/moved", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, disallowsPrivate) })
	site.SetPage("", "/open/robots.txt", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "User-agent: *\nDisallow: /\n") })
	s := serveFor(t, site, names, config)
	for i, f := range rows {
		t.Run(f.section, func(t *testing.T) {
			base, host := ports.Replace(f.at), rowHost(i)
			if base == "" {
				base = fmt.Sprintf("http://%s:%s", host, port)
			}
			if u, err := url.Parse(base); err == nil {
				host = u.Hostname()
			}
			if got := s.get(t, base+"/private"); got != f.status {
				t.Errorf("GET /private: got %d, want %d", got, f.status)
			}
			want := f.open
			if want == 0 {
				want = http.StatusOK
			}
			if got := s.get(t, base+"/open/1"); got != want {
				t.Errorf("GET /open/1: got %d, want %d", got, want)
			}
			if n := asked(site, host, "/robots.txt"); f.at == "" && n != 1 {
				t.Errorf("the origin was asked for /robots.txt %d times, want once", n)
			}
			if n := asked(site, host, "/open/robots.txt"); n != 0 {
				t.Errorf("the origin was asked for a robots.txt that is not at the root %d times", n)
			}
			if n := asked(site, host, "/private"); f.status != 200 && n != 0 {
				t.Errorf("the origin saw %d requests for /private, want none", n)
			}
			if state := s.state(t, host, 2); state != f.state {
				t.Errorf("the records say %q, want %q", state, f.state)
			}
		})
	}
}

func rowHost(i int) string { return fmt.Sprintf("row-%d.example", i) }

// An older copy is used while the site gives no better one. The site is asked again, and crawlers see the state.
func TestStaleCopies(t *testing.T) {
	const bot = "NewsBot"
	site := robotstest.New(t)
	site.SetPage("", "", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "a page") })
	troubles := map[string]robotstest.Robots{
		"unreachable.example":  {Status: 503},
		"reset.example":        {Handler: robotstest.Reset},
		"unauthorized.example": {Status: 401},
		"forbidden.example":    {Status: 403},
		"wall.example":         {Body: "<!doctype html>\n<title>Are you human?</title>"},
	}
	names := slices.Collect(maps.Keys(troubles))
	for _, name := range names {
		site.SetRobots(name, robotstest.Robots{Body: disallowsPrivate})
	}
	s := serveFor(t, site, names, "robots: {ttl: 1s, min_ttl: 0s, error_ttl: 1s}\nclients: [{name: news, cidr: [127.0.0.1], product_token: "+bot+"}]\n")
	base := func(name string) string { return fmt.Sprintf("http://%s:%d", name, site.Port()) }
	for _, name := range names {
		if got := s.get(t, base(name)+"/private"); got != 403 {
			t.Fatalf("%s while the file is good: got %d, want 403", name, got)
		}
		site.SetRobots(name, troubles[name])
	}
	time.Sleep(1500 * time.Millisecond) // the file has expired
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			if got := s.get(t, base(name)+"/private"); got != 403 {
				t.Errorf("GET /private: got %d, want 403 by the older copy", got)
			}
			if got := s.get(t, base(name)+"/open"); got != 200 {
				t.Errorf("GET /open: got %d, want 200 by the older copy", got)
			}
			if n := asked(site, name, "/robots.txt"); n < 2 {
				t.Errorf("the origin was asked %d times, want again after the copy expired", n)
			}
			if state := s.state(t, name, 3); state != "stale" {
				t.Errorf("the records say %q, want stale", state)
			}
		})
	}
	for _, r := range site.Requests() {
		if r.Target == "/robots.txt" && !strings.HasPrefix(r.UserAgent, bot+" robotsproxy/") {
			t.Errorf("robots.txt was asked for as %q, want %s and robotsproxy", r.UserAgent, bot)
		}
	}
}

// One fetch serves all concurrent requests to a new site.
func TestOneFetchForAThousand(t *testing.T) {
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Body: disallowsPrivate, Delay: 300 * time.Millisecond})
	s := serveFor(t, site, []string{"a.example"}, "pacing: {max_concurrent: 0}\n")
	u := fmt.Sprintf("http://a.example:%d/private/1", site.Port())
	var refused atomic.Int64
	var all sync.WaitGroup
	for range 1000 {
		all.Go(func() {
			if s.get(t, u) == 403 {
				refused.Add(1)
			}
		})
	}
	all.Wait()
	if n := asked(site, "a.example", "/robots.txt"); n != 1 || refused.Load() != 1000 {
		t.Errorf("%d of 1000 were refused after %d fetches, want all after one", refused.Load(), n)
	}
}

// asked returns the number of requests for target that host received.
func asked(site *robotstest.Site, host, target string) (n int) {
	for _, r := range site.Requests() {
		if name, _, _ := strings.Cut(r.Host, ":"); name == host && r.Target == target {
			n++
		}
	}
	return n
}

// serveFor starts the program with site as the address of all names and with more configuration, and stops it with the
// test.
func serveFor(t *testing.T, site *robotstest.Site, names []string, more string) *server {
	t.Helper()
	dir := t.TempDir()
	resolve := make([]string, len(names))
	for i, name := range names {
		resolve[i] = name + ": 127.0.0.1"
	}
	config := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf("egress:\n  allow_addresses: [127.0.0.0/8]\n  ca_file: %s\n  resolve: {%s}\n%s", site.CAFile(), strings.Join(resolve, ", "), more)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := startServer(filepath.Join(dir, "data"), append(os.Environ(), "HOME="+dir), "--config", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		s.cmd.Wait()
	})
	return s
}

// get requests a URL through the program.
func (s *server) get(t *testing.T, u string) int {
	t.Helper()
	return s.answer(t, u).StatusCode
}

// answer requests a URL through the program, and returns the response with its body in memory, or one with status 0
// without a response.
func (s *server) answer(t *testing.T, u string) *http.Response {
	t.Helper()
	proxy := &url.URL{Scheme: "http", Host: s.proxy}
	ca, err := os.ReadFile(s.ca)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(u)
	if err != nil {
		t.Error(err)
		return &http.Response{Header: http.Header{}, Body: http.NoBody}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp
}

// state returns the robots state in the n-th record of host, once it is written.
func (s *server) state(t *testing.T, host string, n int) string {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if states := s.states(t, host); len(states) >= n {
			return states[n-1]
		}
	}
	t.Fatalf("no record %d of %s", n, host)
	return ""
}

func (s *server) states(t *testing.T, host string) (states []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(clientRecords(data)) {
		var rec struct {
			Host  string `json:"host"`
			State string `json:"robots_state"`
		}
		if json.Unmarshal(line, &rec) == nil && rec.Host == host {
			states = append(states, rec.State)
		}
	}
	return states
}

// A request that waits in the queue is judged by a robots.txt that was fetched in the meantime.
func TestRulesChangeWhileRequestsWait(t *testing.T) {
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nCrawl-delay: 0.1\n"})
	held, release := make(chan struct{}), make(chan struct{})
	site.SetPage("a.example", "/held", func(http.ResponseWriter, *http.Request) {
		close(held)
		<-release
	})
	s := serveFor(t, site, []string{"a.example"}, "")
	origin := fmt.Sprintf("http://a.example:%d", site.Port())
	var requests sync.WaitGroup
	requests.Go(func() { s.get(t, origin+"/held") })
	<-held
	for range 3 {
		requests.Go(func() {
			if resp := s.answer(t, origin+"/private"); resp.StatusCode != 403 || resp.Header.Get("Robotsproxy-Reason") != "robots" {
				t.Errorf("a request that waited was answered %s %v", resp.Status, resp.Header)
			}
		})
	}
	s.waitFor(t, "robotsproxy_waiting_requests 3")
	site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nCrawl-delay: 0.1\n" + disallowsPrivate})
	cmd := exec.Command(binaryPath, "cache", "refresh", "--data-dir", s.dir, "--admin-listen", s.admin, origin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cache refresh: %v\n%s", err, out)
	}
	close(release)
	requests.Wait()
	if paths := site.Paths("a.example"); slices.Contains(paths, "/private") {
		t.Errorf("the origin was asked for %v", paths)
	}
	checkAllRecorded(t, s.allRecords(t), site)
}

// waitFor waits until the metrics have a line.
func (s *server) waitFor(t *testing.T, line string) {
	t.Helper()
	var metrics string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get("http://" + s.admin + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if metrics = string(body); strings.Contains(metrics, line+"\n") {
			return
		}
	}
	t.Fatalf("the metrics lack %q:\n%s", line, metrics)
}
