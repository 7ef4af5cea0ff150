package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// A fleet is several instances of the program before slow hosts.
type fleet struct {
	t         *testing.T
	site      *robotstest.Site
	hosts     []string // the workers of an instance request pages of these in turn
	instances []*server
	stop      chan struct{}
	workers   sync.WaitGroup

	mu     sync.Mutex
	served []int // by worker
}

// newFleet starts n instances that share their pace, unless redis is empty.
func newFleet(t *testing.T, n int, redis string) *fleet {
	t.Helper()
	f := &fleet{t: t, site: robotstest.New(t), hosts: []string{"a.example"}, stop: make(chan struct{})}
	f.site.SetRobots("a.example", robotstest.Robots{Body: clientRobots})
	for range n {
		f.add(redis)
	}
	return f
}

// add starts one more instance.
func (f *fleet) add(redis string) *server {
	f.t.Helper()
	dir := f.t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(siteConfig(f.site)+redis), 0o600); err != nil {
		f.t.Fatal(err)
	}
	s, err := startServer(filepath.Join(dir, "data"), os.Environ(), "--config", config)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		if f.t.Failed() {
			f.t.Logf("the log of an instance:\n%s", s.log)
		}
	})
	f.instances = append(f.instances, s)
	return s
}

// crawl makes workers request pages through the instances in turn, until halt.
func (f *fleet) crawl(workers int) {
	f.served = make([]int, workers)
	for i := range workers {
		f.workers.Go(func() { f.work(i) })
	}
}

func (f *fleet) work(i int) {
	proxy := &url.URL{Scheme: "http", Host: f.instances[i%len(f.instances)].proxy}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy)}}
	defer client.CloseIdleConnections()
	page := fmt.Sprintf("http://%s:%d/delay/5ms", f.hosts[i/len(f.instances)%len(f.hosts)], f.site.Port())
	for {
		select {
		case <-f.stop:
			return
		default:
		}
		resp, err := client.Get(page)
		if err != nil {
			time.Sleep(50 * time.Millisecond) // the instance was killed
			continue
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusOK {
			f.mu.Lock()
			f.served[i]++
			f.mu.Unlock()
		} else {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// counts returns the number of responses to each worker since the last call.
func (f *fleet) counts() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := f.served
	f.served = make([]int, len(counts))
	return counts
}

// serves waits until each worker has been served since the last reset of the counts, and resets them.
func (f *fleet) serves(when string, workers []int) {
	f.t.Helper()
	settle(f.t, "served "+when, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return !slices.ContainsFunc(workers, func(i int) bool { return f.served[i] == 0 })
	})
	f.t.Logf("%s: served %v", when, f.counts())
}

// halt ends the crawl, and returns the gaps between requests at the origin, in ascending order.
func (f *fleet) halt() []time.Duration {
	close(f.stop)
	f.workers.Wait()
	gaps := f.site.Gaps("a.example")
	slices.Sort(gaps)
	return gaps
}

// checkGaps logs the gaps and compares them with the Crawl-delay.
func checkGaps(t *testing.T, what string, gaps []time.Duration) {
	t.Helper()
	if len(gaps) == 0 {
		t.Fatalf("%s: the origin saw no two requests", what)
	}
	at := func(p float64) float64 { return float64(gaps[int(p*float64(len(gaps)-1))]) / 1e6 }
	short := slices.IndexFunc(gaps, func(g time.Duration) bool { return g >= crawlDelay })
	t.Logf("%s: %d gaps at the origin; smallest %.1f ms, p1 %.1f, p50 %.1f, p99 %.1f; %d too short", what, len(gaps), at(0), at(0.01), at(0.5), at(0.99), max(0, short))
	if gaps[0] < crawlDelay {
		t.Errorf("%s: the smallest gap is %v, want %v", what, gaps[0], crawlDelay)
	}
}

func redisConfig(server *redistest.Server, onDown string) string {
	return fmt.Sprintf("redis: {url: %q, on_down: %s}\n", server.URL(), onDown)
}

// Four instances keep the pace of one: while Redis runs, while it is stopped, when it returns, and when an instance is
// killed.
func TestInstancesAreOne(t *testing.T) {
	long(t)
	redis := redistest.Start(t)
	f := newFleet(t, 4, redisConfig(redis, "spread"))
	phase := lasting(4 * time.Second)
	f.crawl(8)
	everybody := []int{0, 1, 2, 3, 4, 5, 6, 7}
	time.Sleep(phase)
	f.serves("with Redis", everybody)
	redis.Kill()
	time.Sleep(2 * phase)
	f.serves("without Redis", everybody)
	redis.Restart()
	time.Sleep(2 * phase)
	f.serves("when Redis is back", everybody)
	if err := f.instances[3].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second) // a lease
	f.counts()
	time.Sleep(phase)
	f.serves("when an instance was killed", []int{0, 1, 2, 4, 5, 6})
	checkGaps(t, "four instances", f.halt())

	modes := map[string]bool{}
	for _, s := range f.instances {
		records, err := os.ReadFile(filepath.Join(s.dir, "audit.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range []string{"redis", "spread", "local"} {
			modes[mode] = modes[mode] || strings.Contains(string(records), fmt.Sprintf("%q:%q", "pacing_mode", mode))
		}
	}
	if !modes["redis"] || !modes["spread"] || modes["local"] {
		t.Errorf("the modes in the records are %v, want redis and spread", modes)
	}
}

// lasting returns the duration of a phase of a test: d, or 30 s with FIGURES=1.
func lasting(d time.Duration) time.Duration {
	if os.Getenv("FIGURES") != "" {
		return 30 * time.Second
	}
	return d
}

// With redis.on_down: refuse nothing is sent while Redis is stopped.
func TestRefuseWithoutRedis(t *testing.T) {
	redis := redistest.Start(t)
	f := newFleet(t, 1, redisConfig(redis, "refuse"))
	proxy := &url.URL{Scheme: "http", Host: f.instances[0].proxy}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy)}}
	defer client.CloseIdleConnections()
	get := func() *http.Response {
		t.Helper()
		resp, err := client.Get(fmt.Sprintf("http://b.example:%d/page/1", f.site.Port()))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	if resp := get(); resp.StatusCode != 200 {
		t.Fatalf("with Redis: %s", resp.Status)
	}
	told := func() (up, instances, downs int) {
		s := f.instances[0]
		return metric(t, s, "robotsproxy_redis_up"), metric(t, s, "robotsproxy_instances"), metric(t, s, "robotsproxy_redis_downs_total")
	}
	if up, instances, downs := told(); up != 1 || instances != 1 || downs != 0 {
		t.Errorf("with Redis the metrics say: up %d, instances %d, downs %d", up, instances, downs)
	}
	redis.Kill()
	sent := len(f.site.Requests())
	resp := get()
	if resp.StatusCode != 503 || resp.Header.Get("Robotsproxy-Reason") != "pacing-unavailable" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("without Redis: %s %v, want 503 pacing-unavailable with Retry-After", resp.Status, resp.Header)
	}
	if got := len(f.site.Requests()); got != sent {
		t.Errorf("%d requests reached the origin without Redis", got-sent)
	}
	if up, instances, downs := told(); up != 0 || instances != 1 || downs != 1 {
		t.Errorf("without Redis the metrics say: up %d, instances %d, downs %d", up, instances, downs)
	}
	redis.Restart()
	for deadline := time.Now().Add(20 * time.Second); get().StatusCode != 200; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Redis is back, and nothing is sent yet")
		}
	}
}

// through returns a client that uses an instance as its proxy.
func (f *fleet) through(i int) *http.Client {
	proxy := &url.URL{Scheme: "http", Host: f.instances[i].proxy}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy)}}
	f.t.Cleanup(client.CloseIdleConnections)
	return client
}

// get requests a target of host, reads the body, and returns the response.
func (f *fleet) get(client *http.Client, host, target string) *http.Response {
	f.t.Helper()
	resp, err := client.Get(fmt.Sprintf("http://%s:%d%s", host, f.site.Port(), target))
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp
}

// A pause that a host asked of one instance holds for another one even after Redis has lost its data.
func TestPauseOutlivesRedis(t *testing.T) {
	redis := redistest.Start(t)
	f := newFleet(t, 2, redisConfig(redis, "spread"))
	told, other := f.through(0), f.through(1)
	f.get(other, "a.example", "/page/1") // its connections are open
	if resp := f.get(told, "b.example", "/status/429?retry_after=600"); resp.StatusCode != 429 {
		t.Fatalf("the host answers %s", resp.Status)
	}
	settle(t, "the pause is in Redis", func() bool {
		return redis.Do("HEXISTS robotsproxy:{lanes}:b.example:lane paused") == ":1"
	})
	redis.Kill()
	redis.Restart()
	for began := time.Now(); time.Since(began) < 5*time.Second; {
		if resp := f.get(other, "b.example", "/page/1"); resp.StatusCode == http.StatusOK {
			t.Fatalf("%v after the restart the other instance sent a request", time.Since(began))
		}
	}
	if resp := f.get(other, "b.example", "/page/1"); resp.StatusCode != 429 || resp.Header.Get("Robotsproxy-Reason") != "backoff" {
		t.Errorf("in the end: %s %v, want 429 backoff", resp.Status, resp.Header)
	}
}

// An instance that is stopped with a request in progress and many waiting releases its lanes.
func TestShutdownFreesTheLanes(t *testing.T) {
	redis := redistest.Start(t)
	f := newFleet(t, 2, redisConfig(redis, "spread")+"grace: 200ms\n")
	leaving, other := f.through(0), f.through(1)
	f.get(leaving, "a.example", "/page/1")
	f.get(other, "a.example", "/page/1")
	for range 30 {
		f.workers.Go(func() {
			resp, err := leaving.Get(fmt.Sprintf("http://a.example:%d/delay/20s", f.site.Port()))
			if err == nil {
				resp.Body.Close()
			}
		})
	}
	settle(t, "a request is under way", func() bool { return strings.Contains(fmt.Sprint(f.site.Requests()), "/delay/20s") })
	if err := f.instances[0].cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := f.instances[0].cmd.Wait(); err != nil {
		t.Errorf("the instance ended with %v", err)
	}
	began := time.Now()
	if resp := f.get(other, "a.example", "/page/2"); resp.StatusCode != http.StatusOK {
		t.Errorf("the other instance answers %s", resp.Status)
	}
	if took := time.Since(began); took > 2500*time.Millisecond { // half the duration of a lease
		t.Errorf("the lane was blocked for %v", took)
	}
	f.workers.Wait()
}

// TestInstanceFigures prints the table of gaps for one instance, and for two and four with Redis, and the lateness of
// the machine: FIGURES=1 go test ./cmd/robotsproxy -run TestInstanceFigures -v
func TestInstanceFigures(t *testing.T) {
	if os.Getenv("FIGURES") == "" {
		t.Skip("FIGURES is not set: it asks for a run of two minutes")
	}
	redis := redistest.Start(t)
	for n, config := range map[int]string{1: "", 2: redisConfig(redis, "spread"), 4: redisConfig(redis, "spread")} {
		f := newFleet(t, n, config)
		f.crawl(16)
		late := lateness(lasting(0))
		counts := f.counts()
		t.Logf("%d instances: a bare time.Sleep was late by %.1f ms at p99", n, float64(late)/1e6)
		checkGaps(t, fmt.Sprintf("%d instances, %d to %d for each of 16 workers", n, slices.Min(counts), slices.Max(counts)), f.halt())
	}
}

// lateness sleeps for d in steps of 10 ms, and returns the 99th percentile of their lateness.
func lateness(d time.Duration) time.Duration {
	const piece = 10 * time.Millisecond
	var late []time.Duration
	for end := time.Now().Add(d); time.Now().Before(end); {
		began := time.Now()
		time.Sleep(piece)
		late = append(late, time.Since(began)-piece)
	}
	slices.Sort(late)
	return late[len(late)*99/100]
}
