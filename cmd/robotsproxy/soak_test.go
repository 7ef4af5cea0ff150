package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// soak skips a test that only "make soak" runs, because it measures an otherwise idle machine.
func soak(t *testing.T) {
	t.Helper()
	if os.Getenv("SOAK") == "" {
		t.Skip(`a soak test; "make soak" runs it`)
	}
}

// soaked starts the program in front of a site with a Crawl-delay.
func soaked(t *testing.T, crawlDelay string, pacing string) (*server, *robotstest.Site) {
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nDisallow:\nCrawl-delay: " + crawlDelay + "\n"})
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(siteConfig(site)+"pacing: "+pacing+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := startServer(filepath.Join(dir, "data"), os.Environ(), "--config", config)
	if err != nil {
		t.Fatal(err)
	}
	return s, site
}

// TestSoakWaiting measures the memory of a thousand clients that wait for one host, each on its own connection, and
// checks that it is released after they leave.
func TestSoakWaiting(t *testing.T) {
	soak(t)
	const clients = 1000
	s, site := soaked(t, "80", "{max_wait: 24h, max_queue_per_client: 1000, release_after: 24h}")
	defer s.stop()
	target := fmt.Sprintf("http://a.example:%d/page/1", site.Port())
	ask := func() net.Conn {
		conn, err := net.Dial("tcp", s.proxy)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a.example\r\nUser-Agent: soak\r\n\r\n", target)
		return conn
	}
	first := ask()
	if _, err := first.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	before := resident(t, s)
	var waiting []net.Conn
	for range clients {
		waiting = append(waiting, ask())
	}
	settle(t, "waiting", func() bool { return metric(t, s, "robotsproxy_waiting_requests") == clients })
	during := resident(t, s)
	for _, conn := range append(waiting, first) {
		conn.Close()
	}
	settle(t, "gone", func() bool {
		return metric(t, s, "robotsproxy_waiting_requests") == 0 && metric(t, s, "robotsproxy_active_requests") == 0
	})
	if got := site.Paths("a.example"); !slices.Equal(got, []string{"/page/1", "/robots.txt"}) {
		t.Errorf("the origin was asked for %v, want its robots.txt and one page", got)
	}
	t.Logf("resident: %d KiB before, %d KiB with %d clients waiting", before, during, clients)
	if used := during - before; used > 60<<10 {
		t.Errorf("%d waiting clients cost %d KiB, want 60 MiB at most", clients, used)
	}
}

// TestSoakSpacing measures the spacing in the records of fifty clients that request one host as fast as possible.
func TestSoakSpacing(t *testing.T) {
	soak(t)
	const clients, pages = 50, 300
	s, site := soaked(t, "0.1", "{}")
	proxyURL := &url.URL{Scheme: "http", Host: s.proxy}
	work := make(chan int)
	var all sync.WaitGroup
	begin := time.Now()
	for range clients {
		all.Go(func() {
			transport := &http.Transport{Proxy: http.ProxyURL(proxyURL)}
			defer transport.CloseIdleConnections()
			for i := range work {
				resp, err := (&http.Client{Transport: transport}).Get(fmt.Sprintf("http://a.example:%d/page/%d", site.Port(), i%10))
				if err != nil {
					t.Errorf("page %d: %v", i, err)
					continue
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	for i := range pages {
		work <- i
	}
	close(work)
	all.Wait()
	took := time.Since(begin)
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	over, ideal := overheads(t, filepath.Join(s.dir, "audit.jsonl"))
	t.Logf("%d requests in %v; later than required: p50 %v, p99 %v, most %v; %.4f of the slots used",
		len(over), took, over[len(over)/2], over[len(over)*99/100], over[len(over)-1], ideal.Seconds()/took.Seconds())
	if over[0] < 0 {
		t.Errorf("a request came %v too soon", -over[0])
	}
	if _, _, found := site.Overlap("a.example"); found {
		t.Error("two requests were at the origin at the same time")
	}
}

// overheads returns the sorted excess of the gaps in the records over the required ones, and the time that the
// requests and their Delays take without it.
func overheads(t *testing.T, path string) (over []time.Duration, ideal time.Duration) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(clientRecords(data)) {
		var rec audit.Record
		if err := json.Unmarshal(line, &rec); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		ideal += rec.EndedAt.Sub(rec.SentAt)
		if rec.Gap > 0 {
			over = append(over, time.Duration(rec.Gap-rec.DelayRequired))
			ideal += time.Duration(rec.DelayRequired)
		}
	}
	slices.Sort(over)
	return over, ideal
}

// resident returns the resident set size of the program in KiB.
func resident(t *testing.T, s *server) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Skipf("this system does not tell what a process holds: %v", err)
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	kib, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib
}

// metric reads a metric of the program.
func metric(t *testing.T, s *server, name string) int {
	t.Helper()
	n, err := s.metric(name)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (s *server) metric(name string) (int, error) {
	resp, err := http.Get("http://" + s.admin + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`(?m)^` + name + ` (\d+)$`).FindSubmatch(body)
	if m == nil {
		return 0, fmt.Errorf("the metrics do not tell %s", name)
	}
	return strconv.Atoi(string(m[1]))
}

// settle waits until the effects of a burst are complete.
func settle(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not all are %s after a minute", what)
		}
	}
}
