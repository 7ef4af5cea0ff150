package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// A proxy under load reads good and broken configurations, by all three ways. No request is lost, no connection of a
// client is closed, no place in a lane is, and no gap is too short.
func TestReloadUnderLoad(t *testing.T) {
	const workers, waiting, delay = 40, 12, 150 * time.Millisecond
	site := robotstest.New(t)
	site.SetRobots("b.example", robotstest.Robots{Body: "User-agent: *\nCrawl-delay: 0.15\n"})
	dir := t.TempDir()
	path := writeFile(t, dir, "config.yaml", siteConfig(site))
	s, err := startServer(filepath.Join(dir, "data"), append(os.Environ(), "HOME="+dir), "--config", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		if t.Failed() {
			t.Logf("the log:\n%s", s.log)
		}
	})

	l := &reloadLoad{t: t, server: s, done: make(chan struct{})}
	for range workers {
		l.running.Go(func() { l.crawl(fmt.Sprintf("http://a.example:%d/page/1", site.Port())) })
	}
	for range waiting { // requests of one client in the lane of b.example
		l.running.Go(func() { l.crawl(fmt.Sprintf("http://b.example:%d/page/1", site.Port())) })
	}
	for i := range 40 {
		text := siteConfig(site) + fmt.Sprintf("pacing: {max_wait: %ds}\nhosts: [{host: c.example, delay: %ds}]\n", 100+i, i+1)
		if i%4 == 3 {
			text = "mode: enfroce\n" + text
		}
		switch i % 3 {
		case 0: // replaced, and seen by the watch
			fresh := writeFile(t, dir, "fresh.yaml", text)
			if err := os.Rename(fresh, path); err != nil {
				t.Fatal(err)
			}
		case 1:
			writeFile(t, dir, "config.yaml", text)
			if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		case 2:
			writeFile(t, dir, "config.yaml", text)
			out, err := exec.Command(binaryPath, "reload", "--data-dir", s.dir, "--admin", "http://"+s.admin).CombinedOutput()
			if broken := i%4 == 3; (err != nil) != broken {
				t.Errorf("reload %d: %v: %s", i, err, out)
			}
		}
		time.Sleep(75 * time.Millisecond)
	}
	close(l.done)
	l.running.Wait()
	records := int64(len(s.records(t))) // ends the proxy
	if n := l.failed.Load(); n > 0 {
		t.Errorf("%d of %d requests failed", n, l.sent.Load())
	}
	if n := l.dialled.Load(); n != workers+waiting {
		t.Errorf("%d connections were opened for %d clients", n, workers+waiting)
	}
	if sent := l.sent.Load(); records != sent {
		t.Errorf("%d requests are recorded, and %d were sent", records, sent)
	}
	for _, gap := range site.Gaps("b.example") {
		if gap < delay {
			t.Errorf("a gap of %v, want %v", gap, delay)
		}
	}
	if n := asked(site, "a.example", "/robots.txt") + asked(site, "b.example", "/robots.txt"); n != 2 {
		t.Errorf("the robots.txt files were fetched %d times", n)
	}
	t.Logf("%d requests during 40 reloads", l.sent.Load())
}

// reloadLoad are crawlers, each with one connection to a proxy.
type reloadLoad struct {
	t       *testing.T
	server  *server
	done    chan struct{}
	running sync.WaitGroup
	sent    atomic.Int64
	failed  atomic.Int64
	dialled atomic.Int64
}

// crawl requests a page until done.
func (l *reloadLoad) crawl(page string) {
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: l.server.proxy})}
	transport.DialContext = countingDialer(&l.dialled)
	defer transport.CloseIdleConnections()
	for {
		select {
		case <-l.done:
			return
		default:
		}
		l.sent.Add(1)
		if err := l.get(transport, page); err != nil {
			l.failed.Add(1)
			l.t.Log(err)
		}
	}
}

func (l *reloadLoad) get(transport *http.Transport, page string) error {
	resp, err := (&http.Client{Transport: transport}).Get(page)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", page, resp.Status)
	}
	return nil
}

// countingDialer counts the connections that are opened.
func countingDialer(n *atomic.Int64) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		n.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
}
