//go:build linux

package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

const (
	slowClients = 1000
	idleTunnels = 2000
	mostMemory  = 150 << 20
)

// A thousand clients that never complete their header and two thousand idle tunnels use little memory, do not slow
// other clients, and leave no resources in use.
func TestIdleLoad(t *testing.T) {
	long(t)
	if n, _ := descriptors(); n < 4*(slowClients+idleTunnels) {
		skipUnlessCI(t, fmt.Sprintf("%d descriptors are granted here, and the test needs %d", n, 4*(slowClients+idleTunnels)))
	}
	site := robotstest.New(t)
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := siteConfig(site) + "limits: {header_timeout: 5m, idle_timeout: 5m}\npacing: {max_concurrent: 0}\n" // so that all last during the measurement
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := startServer(filepath.Join(t.TempDir(), "data"), append(os.Environ(), "HOME="+t.TempDir()), "--config", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.cmd.Process.Kill(); s.cmd.Wait() })
	l := &load{t: t, site: site, server: s}

	ordinary := l.median(400)
	memory, files, goroutines := l.memory(), l.files(), l.goroutines()
	l.openTunnels(idleTunnels)
	tunnels := l.memory()
	l.openSlow(slowClients)
	all, during := l.memory(), l.median(400)
	t.Logf("memory: %d MiB at the start, %d MiB with %d idle tunnels (%d KiB each), %d MiB with %d slow clients too",
		memory>>20, tunnels>>20, idleTunnels, (tunnels-memory)/idleTunnels>>10, all>>20, slowClients)
	t.Logf("median of ordinary requests: %v before, %v meanwhile", ordinary, during)
	if all > mostMemory && !raceEnabled {
		t.Errorf("%d MiB are held, want no more than %d MiB", all>>20, mostMemory>>20)
	}
	if during > 5*ordinary {
		t.Errorf("an ordinary request takes %v, and took %v before", during, ordinary)
	}
	l.closeAll()
	l.eventually(func() error {
		if n, now := l.files(), l.goroutines(); n > files+10 || now > goroutines+10 {
			return fmt.Errorf("%d descriptors and %d goroutines are left of the %d and %d at the start", n, now, files, goroutines)
		}
		return nil
	})
	t.Logf("descriptors: %d at the start, %d at the end; goroutines: %d and %d", files, l.files(), goroutines, l.goroutines())
}

// skipUnlessCI skips a test that this machine cannot run, or fails it if the machine must be able to.
func skipUnlessCI(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// load are the idle clients of a running proxy.
type load struct {
	t      *testing.T
	site   *robotstest.Site
	server *server

	mu    sync.Mutex // guards close
	close []func()
}

func (l *load) held(closeIt func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.close = append(l.close, closeIt)
}

func (l *load) closeAll() {
	for _, closeIt := range l.close {
		closeIt()
	}
}

// parallel calls f n times, some at once.
func parallel(n int, f func(i int) error) error {
	var wg sync.WaitGroup
	failed := make(chan error, 16)
	for w := range cap(failed) {
		wg.Go(func() {
			for i := w; i < n; i += cap(failed) {
				if err := f(i); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(failed)
	return <-failed
}

// openTunnels opens n intercepted tunnels, half of them over HTTP/2, and sends one request in each.
func (l *load) openTunnels(n int) {
	l.t.Helper()
	pem, err := os.ReadFile(l.server.ca)
	if err != nil {
		l.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	err = parallel(n, func(i int) error {
		transport := &http.Transport{
			Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: l.server.proxy}), TLSClientConfig: &tls.Config{RootCAs: roots},
			ForceAttemptHTTP2: i%2 == 0, ReadBufferSize: 512, WriteBufferSize: 512,
		}
		l.held(transport.CloseIdleConnections)
		return get(&http.Client{Transport: transport}, fmt.Sprintf("https://a.example:%d/page/1", l.site.TLSPort()))
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// openSlow opens n connections and sends half a header on each.
func (l *load) openSlow(n int) {
	l.t.Helper()
	err := parallel(n, func(int) error {
		conn, err := net.Dial("tcp", l.server.proxy)
		if err != nil {
			return err
		}
		l.held(func() { conn.Close() })
		_, err = io.WriteString(conn, "GET http://a.example/ HTTP/1.1\r\nHost: a.exa")
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.eventually(func() error {
		if n := l.metric("robotsproxy_connections"); n < slowClients+idleTunnels {
			return fmt.Errorf("the proxy has %d connections", n)
		}
		return nil
	})
}

func get(c *http.Client, url string) error {
	resp, err := c.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s, %w", url, resp.Status, err)
	}
	return nil
}

// median returns the median time of n requests on one connection.
func (l *load) median(n int) time.Duration {
	l.t.Helper()
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: l.server.proxy})}
	defer transport.CloseIdleConnections()
	took := make([]time.Duration, n)
	for i := range took {
		start := time.Now()
		if err := get(&http.Client{Transport: transport}, fmt.Sprintf("http://a.example:%d/page/1", l.site.Port())); err != nil {
			l.t.Fatal(err)
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[n/2]
}

func (l *load) proc(name string) string {
	return filepath.Join("/proc", strconv.Itoa(l.server.cmd.Process.Pid), name)
}

// memory returns the resident set size of the proxy.
func (l *load) memory() (octets int) {
	l.t.Helper()
	status, err := os.ReadFile(l.proc("status"))
	if err != nil {
		l.t.Fatal(err)
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		l.t.Fatalf("no VmRSS in %s", status)
	}
	kib, _ := strconv.Atoi(string(m[1]))
	return kib << 10
}

func (l *load) files() int {
	l.t.Helper()
	entries, err := os.ReadDir(l.proc("fd"))
	if err != nil {
		l.t.Fatal(err)
	}
	return len(entries)
}

func (l *load) goroutines() int { return l.metric("go_goroutines") }

// metric reads a metric from the admin listener.
func (l *load) metric(name string) int {
	l.t.Helper()
	resp, err := http.Get("http://" + l.server.admin + "/metrics")
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			n, _ := strconv.ParseFloat(value, 64)
			return int(n)
		}
	}
	l.t.Fatalf("no metric %s", name)
	return 0
}

func (l *load) eventually(ok func() error) {
	l.t.Helper()
	err := ok()
	for deadline := time.Now().Add(20 * time.Second); err != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			l.t.Fatal(err)
		}
		err = ok()
	}
}
