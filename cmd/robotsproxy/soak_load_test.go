//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// soakTime is how long TestSoakLoad lasts, unless SOAK_TIME says otherwise.
const soakTime = 10 * time.Minute

// TestSoakLoad keeps both processors busy with requests of every kind, while an operator reloads the configuration,
// stops and resumes a host, and rotates the records. Memory, goroutines and descriptors must not grow.
func TestSoakLoad(t *testing.T) {
	soak(t)
	last := soakTime
	if text := os.Getenv("SOAK_TIME"); text != "" {
		var err error
		if last, err = time.ParseDuration(text); err != nil {
			t.Fatalf("SOAK_TIME: %v", err)
		}
	}
	l, config := newSoakLoad(t)
	before := l.sample()
	ctx, cancel := context.WithTimeout(t.Context(), last)
	defer cancel()
	var all sync.WaitGroup
	for _, kind := range l.kinds() {
		for range kind.workers {
			all.Go(func() { kind.run(ctx) })
		}
	}
	all.Go(func() { l.operate(ctx, config) })

	samples := l.watch(ctx, last/60)
	all.Wait()
	for kind, n := range map[string]*atomic.Int64{"answered": &l.answered, "refused": &l.refused, "abandoned": &l.abandoned} {
		t.Logf("%s: %d in %v", kind, n.Load(), last)
		if n.Load() == 0 {
			t.Errorf("not one request was %s", kind)
		}
	}
	if n := l.wrong.Load(); n > 0 {
		t.Errorf("%d requests had another result than expected; the last: %s", n, *l.lastWrong.Load())
	}
	l.checkFlat(samples)
	l.site.Close() // with it the idle connections to the origin
	l.eventually(func() error {
		if now := l.sample(); now.goroutines > before.goroutines+10 || now.files > before.files+10 {
			return fmt.Errorf("after the load: %v; before it: %v", now, before)
		}
		return nil
	})
	t.Logf("before: %v; after: %v", before, l.sample())
}

// soakLoad is the load on a running proxy, and its results.
type soakLoad struct {
	load
	roots *x509.CertPool

	answered, refused, abandoned, wrong atomic.Int64
	lastWrong                           atomic.Pointer[string]
}

func newSoakLoad(t *testing.T) (*soakLoad, string) {
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private/\n"})
	site.SetRobots("b.example", robotstest.Robots{Body: "User-agent: *\nCrawl-delay: 0.05\n"})
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := siteConfig(site) + "limits: {idle_timeout: 5s}\npacing: {max_wait: 5s}\nlog: {level: error}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := startServer(filepath.Join(t.TempDir(), "data"), append(os.Environ(), "HOME="+t.TempDir()), "--config", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.cmd.Process.Kill(); s.cmd.Wait() })
	pem, err := os.ReadFile(s.ca)
	if err != nil {
		t.Fatal(err)
	}
	l := &soakLoad{load: load{t: t, site: site, server: s}, roots: x509.NewCertPool()}
	l.roots.AppendCertsFromPEM(pem)
	return l, config
}

// soakKind is one kind of client.
type soakKind struct {
	workers int
	run     func(ctx context.Context)
}

func (l *soakLoad) kinds() []soakKind {
	plain := fmt.Sprintf("http://a.example:%d", l.site.Port())
	slow := fmt.Sprintf("http://b.example:%d", l.site.Port())
	stopped := fmt.Sprintf("http://c.example:%d", l.site.Port())
	secure := fmt.Sprintf("https://a.example:%d", l.site.TLSPort())
	return []soakKind{
		{8, l.client(false, plain+"/page/1", 200)},
		{2, l.client(false, plain+"/private/1", 403)},
		{4, l.client(false, secure+"/page/1", 200)},
		{2, l.client(false, secure+"/private/1", 403)},
		{2, l.client(true, secure+"/page/1", 200)}, // a new tunnel for each request
		{2, l.client(false, stopped+"/page/1", 200, 503)},
		{4, l.leaver(slow + "/page/1")},
		{2, l.webSocket},
	}
}

func (l *soakLoad) transport(closes bool) *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: l.server.proxy}), DisableKeepAlives: closes,
		TLSClientConfig: &tls.Config{RootCAs: l.roots},
	}
}

// client returns a client that sends one request after the other, and expects one of the statuses.
func (l *soakLoad) client(closes bool, target string, statuses ...int) func(context.Context) {
	return func(ctx context.Context) {
		transport := l.transport(closes)
		defer transport.CloseIdleConnections()
		for ctx.Err() == nil {
			status, err := l.ask(ctx, transport, target)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				l.fail(fmt.Sprintf("%s: %v", target, err))
			case status == statuses[0] && status == http.StatusOK:
				l.answered.Add(1)
			case status == statuses[0] || len(statuses) > 1 && status == statuses[1]:
				l.refused.Add(1)
			default:
				l.fail(fmt.Sprintf("%s: status %d", target, status))
			}
		}
	}
}

// leaver returns a client that closes its connection while it waits for a place, or just after.
func (l *soakLoad) leaver(target string) func(context.Context) {
	return func(ctx context.Context) {
		transport := l.transport(true)
		for i := 0; ctx.Err() == nil; i++ {
			short, cancel := context.WithTimeout(ctx, time.Duration(i%100)*time.Millisecond)
			if _, err := l.ask(short, transport, target); err != nil {
				l.abandoned.Add(1)
			}
			cancel()
		}
	}
}

// webSocket opens one WebSocket after the other, and leaves each without a close frame.
func (l *soakLoad) webSocket(ctx context.Context) {
	for ctx.Err() == nil {
		if err := l.openWebSocket(ctx); err != nil && ctx.Err() == nil {
			l.fail(fmt.Sprintf("WebSocket: %v", err))
		}
	}
}

func (l *soakLoad) openWebSocket(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.server.proxy)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(conn, "GET http://a.example:%d/ws HTTP/1.1\r\nHost: a.example:%d\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", l.site.Port(), l.site.Port())
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}

func (l *soakLoad) ask(ctx context.Context, transport *http.Transport, target string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return 0, err
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func (l *soakLoad) fail(text string) {
	l.wrong.Add(1)
	l.lastWrong.Store(&text)
}

// operate reloads, stops, resumes and rotates, one of them each second.
func (l *soakLoad) operate(ctx context.Context, config string) {
	records := filepath.Join(l.server.dir, "audit.jsonl")
	command := func(args ...string) {
		args = append(args, "--data-dir", l.server.dir, "--admin", "http://"+l.server.admin)
		if out, err := exec.CommandContext(ctx, binaryPath, args...).CombinedOutput(); err != nil && ctx.Err() == nil {
			l.fail(fmt.Sprintf("%s: %v: %s", strings.Join(args, " "), err, out))
		}
	}
	steps := []func(){
		func() { l.rewrite(config) },
		func() { command("reload") },
		func() { command("stop", "c.example", "--reason", "soak") },
		func() { command("resume", "c.example") },
		func() {
			if err := os.Rename(records, records+".old"); err != nil {
				l.fail(err.Error())
			}
			_ = l.server.cmd.Process.Signal(syscall.SIGUSR1)
		},
	}
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
			steps[i%len(steps)]()
		}
	}
}

// rewrite changes the configuration, which the proxy then reloads.
func (l *soakLoad) rewrite(config string) {
	text, err := os.ReadFile(config)
	if err == nil {
		text = append(text, '\n')
		err = os.WriteFile(config, text, 0o600)
	}
	if err != nil {
		l.fail(err.Error())
	}
}

// soakSample is what the process holds at one moment.
type soakSample struct{ memory, goroutines, files int }

func (s soakSample) String() string {
	return fmt.Sprintf("%d MiB, %d goroutines, %d descriptors", s.memory>>20, s.goroutines, s.files)
}

func (l *soakLoad) sample() soakSample { return soakSample{l.memory(), l.goroutines(), l.files()} }

// watch returns samples, one each interval until ctx ends. It logs every tenth.
func (l *soakLoad) watch(ctx context.Context, interval time.Duration) (samples []soakSample) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return samples
		case <-ticker.C:
		}
		l.site.Reset() // the site notes each request
		samples = append(samples, l.sample())
		if n := len(samples); n%10 == 0 {
			l.t.Logf("%v: %v, %d answered", time.Duration(n)*interval, samples[n-1], l.answered.Load())
		}
	}
}

// checkFlat compares the means of the second and the last third of the samples. The first third is for caches to fill.
func (l *soakLoad) checkFlat(samples []soakSample) {
	if len(samples) < 9 {
		l.t.Fatalf("%d samples are too few", len(samples))
	}
	third := len(samples) / 3
	for _, of := range []struct {
		name  string
		value func(soakSample) int
		slack int
	}{
		{"bytes of memory", func(s soakSample) int { return s.memory }, 4 << 20},
		{"goroutines", func(s soakSample) int { return s.goroutines }, 10},
		{"descriptors", func(s soakSample) int { return s.files }, 10},
	} {
		mean := func(part []soakSample) (sum int) {
			for _, s := range part {
				sum += of.value(s)
			}
			return sum / len(part)
		}
		second, last := mean(samples[third:2*third]), mean(samples[2*third:])
		l.t.Logf("%s: %d on average in the second third, %d in the last", of.name, second, last)
		if last > second+second/10+of.slack {
			l.t.Errorf("%s grew from %d to %d on average", of.name, second, last)
		}
	}
}
