package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// An upgraded is a program that is upgraded while it serves. Its installed program is a link, which a test may change.
type upgraded struct {
	*server
	t       *testing.T
	site    *robotstest.Site
	program string
	pids    []int // of its processes
}

// startUpgraded starts the program under a name of its own.
func startUpgraded(t *testing.T, config string, flags ...string) *upgraded {
	t.Helper()
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Body: clientRobots})
	dir := t.TempDir()
	file, program := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "robotsproxy")
	if err := os.WriteFile(file, []byte(siteConfig(site)+config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binaryPath, program); err != nil {
		t.Fatal(err)
	}
	s, err := startProgram(program, filepath.Join(dir, "data"), os.Environ(), append(flags, "--config", file)...)
	if err != nil {
		t.Fatal(err)
	}
	u := &upgraded{s, t, site, program, []int{s.cmd.Process.Pid}}
	t.Cleanup(u.end)
	return u
}

// end ends all processes.
func (u *upgraded) end() {
	for _, pid := range u.pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = u.cmd.Wait()
	<-u.said
	if u.t.Failed() {
		u.t.Logf("the log:\n%s", u.log)
	}
	if strings.Contains(u.log.String(), "DATA RACE") {
		u.t.Errorf("a data race:\n%s", u.log)
	}
}

// command returns a command that calls the API of the program.
func (u *upgraded) command(args ...string) *exec.Cmd {
	return exec.Command(binaryPath, append(args, "--data-dir", u.dir, "--admin", "http://"+u.admin)...)
}

// upgrade runs the command, and returns its output and its error.
func (u *upgraded) upgrade() (string, error) {
	out, err := u.command("upgrade", "--format", "json").CombinedOutput()
	if err == nil {
		var answer admin.Upgrade
		if err := json.Unmarshal(out, &answer); err != nil {
			u.t.Errorf("the output of upgrade: %v\n%s", err, out)
		}
		u.pids = append(u.pids, answer.PID)
	}
	return string(out), err
}

// mustUpgrade upgrades, and checks that another process serves.
func (u *upgraded) mustUpgrade() {
	u.t.Helper()
	if out, err := u.upgrade(); err != nil {
		u.t.Fatalf("upgrade: %v\n%s", err, out)
	}
	if pid := u.status().PID; pid != u.pids[len(u.pids)-1] {
		u.t.Errorf("process %d answers after the upgrade, want %v", pid, u.pids)
	}
}

func (u *upgraded) status() (s admin.Status) {
	u.t.Helper()
	out, err := u.command("status", "--format", "json").Output()
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		u.t.Fatalf("status: %v\n%s", err, out)
	}
	return s
}

// install makes the installed program a shell script.
func (u *upgraded) install(script string) {
	u.t.Helper()
	if err := os.Remove(u.program); err != nil {
		u.t.Fatal(err)
	}
	if err := os.WriteFile(u.program, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		u.t.Fatal(err)
	}
}

// reinstall installs the program again.
func (u *upgraded) reinstall() {
	u.t.Helper()
	if err := errors.Join(os.Remove(u.program), os.Symlink(binaryPath, u.program)); err != nil {
		u.t.Fatal(err)
	}
}

// client returns a client with connections of its own, of HTTP/2 inside tunnels.
func (u *upgraded) client() *http.Client {
	pem, err := os.ReadFile(u.ca)
	if err != nil {
		u.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: u.proxy}), TLSClientConfig: &tls.Config{RootCAs: roots},
		ForceAttemptHTTP2: true,
	}
	u.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// url returns the URL of a page of the site.
func (u *upgraded) url(scheme, host, path string) string {
	port := u.site.Port()
	if scheme == "https" {
		port = u.site.TLSPort()
	}
	return fmt.Sprintf("%s://%s:%d%s", scheme, host, port, path)
}

// ended waits until a process has ended. A child that was not waited for is a zombie.
func (u *upgraded) ended(pid int) {
	u.t.Helper()
	settle(u.t, fmt.Sprintf("ended (process %d)", pid), func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || bytes.Contains(stat, []byte(") Z "))
	})
}

// records returns how many records each URL path of a client's request has.
func (u *upgraded) records() map[string]int {
	u.t.Helper()
	text, err := os.ReadFile(filepath.Join(u.dir, "audit.jsonl"))
	if err != nil {
		u.t.Fatal(err)
	}
	paths, ids := map[string]int{}, map[string]bool{}
	for line := range bytes.Lines(clientRecords(text)) {
		var r struct{ ID, Path string }
		if err := json.Unmarshal(line, &r); err != nil {
			u.t.Fatalf("a record: %v\n%s", err, line)
		}
		if ids[r.ID] {
			u.t.Errorf("two records have the id %s", r.ID)
		}
		ids[r.ID] = true
		paths[r.Path]++
	}
	return paths
}

// Three upgrades while crawlers work: no request fails, no gap at the origin is too short, and each request has one
// record.
func TestUpgradeUnderCrawls(t *testing.T) {
	u := startUpgraded(t, "grace: 5s\n")
	stop := make(chan struct{})
	var crawlers sync.WaitGroup
	var mu sync.Mutex
	asked := map[string]int{}
	crawl := func(name string, get func(path string) error) {
		crawlers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				path := fmt.Sprintf("/echo/%s-%d", name, i)
				if err := get(path); err != nil {
					t.Errorf("%s: %v", path, err)
					return
				}
				mu.Lock()
				asked[path]++
				mu.Unlock()
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	for i := range 40 {
		c, scheme, host := u.client(), "http", "a.example"
		if i%2 == 0 {
			scheme = "https"
		}
		if i >= 20 {
			host = "b.example"
		}
		crawl(fmt.Sprint(i), func(path string) error {
			// A POST is not sent again by the client.
			resp, err := c.Post(u.url(scheme, host, path), "text/plain", strings.NewReader("body"))
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if err == nil && resp.StatusCode != http.StatusOK {
				err = errors.New(resp.Status)
			}
			return err
		})
	}
	wget := u.wget()
	for range 3 {
		time.Sleep(2 * time.Second)
		u.mustUpgrade()
	}
	time.Sleep(2 * time.Second)
	close(stop)
	crawlers.Wait()
	if out, err := wget(); err != nil {
		t.Errorf("wget: %v\n%s", err, out)
	}
	for _, pid := range u.pids[:3] {
		u.ended(pid)
	}
	if err := syscall.Kill(u.pids[3], syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	u.ended(u.pids[3])
	gaps := u.site.Gaps("a.example")
	slices.Sort(gaps)
	checkGaps(t, "three upgrades", gaps)
	if first, second, found := u.site.Overlap("a.example"); found {
		t.Errorf("%v and %v overlapped", first, second)
	}
	records := u.records()
	for path, n := range asked {
		if records[path] != n {
			t.Errorf("%s: %d records of %d requests", path, records[path], n)
		}
	}
	t.Logf("%d requests", len(asked))
	if len(asked) < 200 {
		t.Errorf("%d requests, want more", len(asked))
	}
}

// wget crawls c.example in the background. The result waits for its end.
func (u *upgraded) wget() func() ([]byte, error) {
	u.site.SetRobots("c.example", robotstest.Robots{Body: "User-agent: *\nCrawl-delay: 0.3\n"})
	cmd := exec.Command("wget", "-r", "-nv", "-t", "1", u.url("http", "c.example", "/"))
	cmd.Dir = u.t.TempDir()
	cmd.Env = append(os.Environ(), "http_proxy=http://"+u.proxy)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	return func() ([]byte, error) {
		err := cmd.Wait()
		for _, page := range u.site.Pages() {
			if !slices.Contains(u.site.Paths("c.example"), page) {
				err = errors.Join(err, fmt.Errorf("%s is missing", page))
			}
		}
		return out.Bytes(), err
	}
}

// While the program cannot take over, the running process goes on, and the command says why.
func TestFailedUpgrades(t *testing.T) {
	long(t)
	for name, row := range map[string]struct{ script, want string }{
		"it ends at once":      {"exit 1", "has ended before it could take over: exit status 1"},
		"it is killed":         {"kill -9 $$", "has ended before it could take over: signal: killed"},
		"it hangs":             {"exec sleep 100", "was not ready to take over within 30s"},
		"it is not a program":  {"", ""},
		"it takes other flags": {"exec " + binaryPath + " serve --nosuch", "has ended before it could take over: exit status 2"},
		"its config is wrong":  {"exec " + binaryPath + ` "$@" --mode nosuch`, "cannot take over"},
		"its pace differs":     {"ROBOTSPROXY_PACING_KEY=domain exec " + binaryPath + ` "$@"`, "cannot change pacing.key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := startUpgraded(t, "")
			u.install(row.script)
			if row.script == "" {
				if err := os.WriteFile(u.program, []byte("neither"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			c := u.client()
			get := func() {
				t.Helper()
				resp, err := c.Get(u.url("http", "b.example", "/page/1"))
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("a request: %v, %v", resp, err)
				}
				resp.Body.Close()
			}
			get()
			out, err := u.upgrade()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != exitNo || !strings.Contains(out, row.want) {
				t.Errorf("upgrade: %v\n%s\nwant exit status 1 and %q", err, out, row.want)
			}
			get()
			if s := u.status(); s.PID != u.pids[0] || !s.Ready {
				t.Errorf("status: %+v, want process %d", s, u.pids[0])
			}
			u.reinstall()
			u.mustUpgrade()
			get()
		})
	}
}

// Only one upgrade runs at a time.
func TestUpgradesAtOnce(t *testing.T) {
	u := startUpgraded(t, "")
	u.install("sleep 2; exec " + binaryPath + ` "$@"`)
	results := make(chan string, 2)
	var fail int
	for range 2 {
		go func() {
			out, err := u.command("upgrade").CombinedOutput()
			if err != nil {
				out = append([]byte("failed: "), out...)
			}
			results <- string(out)
		}()
	}
	for range 2 {
		out := <-results
		switch {
		case strings.HasPrefix(out, "failed: ") && strings.Contains(out, "an upgrade is in progress"):
			fail++
		case !strings.Contains(out, "serves now"):
			t.Errorf("upgrade: %s", out)
		}
	}
	u.pids = append(u.pids, u.status().PID)
	if fail != 1 || u.pids[0] == u.pids[1] {
		t.Errorf("%d of 2 upgrades at once were refused, processes %v", fail, u.pids)
	}
}

// The old process is killed while its requests wait: the others keep their pace, and the new process goes on.
func TestOldProcessIsKilled(t *testing.T) {
	u := startUpgraded(t, "")
	stop := make(chan struct{})
	var crawlers sync.WaitGroup
	for range 20 {
		c := u.client()
		crawlers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if resp, err := c.Get(u.url("http", "a.example", "/delay/5ms")); err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
		})
	}
	time.Sleep(time.Second)
	u.mustUpgrade()
	if err := syscall.Kill(u.pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	close(stop)
	crawlers.Wait()
	gaps := u.site.Gaps("a.example")
	slices.Sort(gaps)
	checkGaps(t, "the old process was killed", gaps)
	if len(gaps) < 20 {
		t.Errorf("%d requests were sent", len(gaps))
	}
	settle(t, "served", func() bool { return u.status().Waiting == 0 })
}

// A stop that is ordered from the new process holds in the old one: requests that wait there are answered at once.
func TestStopAfterUpgrade(t *testing.T) {
	u := startUpgraded(t, "")
	u.site.SetRobots("c.example", robotstest.Robots{Body: "User-agent: *\nCrawl-delay: 100\n"})
	if resp, err := u.client().Get(u.url("http", "c.example", "/page/1")); err != nil {
		t.Fatal(err)
	} else {
		resp.Body.Close()
	}
	answered := make(chan string, 1)
	go func() {
		resp, err := u.client().Get(u.url("http", "c.example", "/page/2"))
		if err != nil {
			answered <- err.Error()
			return
		}
		resp.Body.Close()
		answered <- resp.Header.Get("Robotsproxy-Reason")
	}()
	settle(t, "waiting", func() bool { return u.status().Waiting == 1 })
	u.mustUpgrade()
	u.mustUpgrade() // through two processes
	out, err := u.command("stop", "c.example", "--reason", "the owner asked").CombinedOutput()
	if err != nil {
		t.Fatalf("stop: %v\n%s", err, out)
	}
	select {
	case reason := <-answered:
		if reason != "stopped" {
			t.Errorf("the request that waited was answered %q, want stopped", reason)
		}
	case <-time.After(5 * time.Second):
		t.Errorf("the request still waits after\n%s", out)
	}
	if !strings.Contains(string(out), "1 waiting request") {
		t.Errorf("stop does not count the request of the old process:\n%s", out)
	}
	if paths := u.site.Paths("c.example"); len(paths) != 2 {
		t.Errorf("the origin was asked for %v", paths)
	}
}

// Upgrades leave no descriptors behind.
func TestUpgradesLeakNothing(t *testing.T) {
	u := startUpgraded(t, "")
	descriptors := func() int {
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", u.pids[len(u.pids)-1]))
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	u.mustUpgrade()
	u.ended(u.pids[0])
	time.Sleep(100 * time.Millisecond)
	first := descriptors()
	for i := range 4 {
		u.mustUpgrade()
		u.ended(u.pids[i+1])
	}
	time.Sleep(100 * time.Millisecond)
	if last := descriptors(); last > first+2 {
		t.Errorf("%d descriptors after five upgrades, %d after one", last, first)
	}
}

// Requests that wait in the old process for longer than the grace get their turn.
func TestWaitOutlivesTheGrace(t *testing.T) {
	u := startUpgraded(t, "grace: 500ms\n")
	u.site.SetRobots("c.example", robotstest.Robots{Body: "User-agent: *\nCrawl-delay: 1\n"})
	const n = 5
	answers := make(chan error, n)
	for i := range n {
		c := u.client()
		go func() {
			resp, err := c.Get(u.url("https", "c.example", fmt.Sprintf("/page/%d", i+1)))
			if err == nil {
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					err = errors.New(resp.Status)
				}
			}
			answers <- err
		}()
	}
	settle(t, "waiting", func() bool { return u.status().Waiting >= n-2 })
	u.mustUpgrade()
	for range n {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	u.ended(u.pids[0])
	for _, gap := range u.site.Gaps("c.example") {
		if gap < time.Second {
			t.Errorf("a gap of %v, want at least 1s", gap)
		}
	}
}

// With Redis, the two processes keep one pace as two instances, and their records differ in the number of the instance.
func TestUpgradeWithRedis(t *testing.T) {
	redis := redistest.Start(t)
	u := startUpgraded(t, redisConfig(redis, "spread"))
	stop := make(chan struct{})
	var crawlers sync.WaitGroup
	for i := range 10 {
		c := u.client()
		crawlers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				path := fmt.Sprintf("/echo/%d-%d", i, n)
				resp, err := c.Post(u.url("http", "a.example", path), "text/plain", strings.NewReader("body"))
				if err != nil {
					t.Errorf("%s: %v", path, err)
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("%s: %s", path, resp.Status)
				}
			}
		})
	}
	for range 2 {
		time.Sleep(2 * time.Second)
		u.mustUpgrade()
	}
	time.Sleep(2 * time.Second)
	close(stop)
	crawlers.Wait()
	gaps := u.site.Gaps("a.example")
	slices.Sort(gaps)
	checkGaps(t, "upgrades with Redis", gaps)
	u.records() // checks the ids
}

// freePort returns an address that no program listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A second robotsproxy is told of the first one. If that is about to stop, the second one takes its place, and refuses
// no connection meanwhile.
func TestStartBesideAnother(t *testing.T) {
	listen, control := freePort(t), freePort(t)
	// The second one may look more often than it may have connections.
	u := startUpgraded(t, "drain_delay: 0s\nadmin: {connections_per_client: 8}\n", "--listen", listen, "--admin-listen", control)
	start := func() *exec.Cmd {
		cmd := exec.Command(binaryPath, u.cmd.Args[1:]...)
		cmd.Dir = u.cmd.Dir
		return cmd
	}
	if out, err := start().CombinedOutput(); err == nil || !strings.Contains(string(out), "robotsproxy upgrade replaces it") {
		t.Errorf("a second start: %v\n%s", err, out)
	}
	held := make(chan error, 1)
	go func() {
		resp, err := u.client().Get(u.url("http", "b.example", "/delay/3s"))
		if err == nil {
			resp.Body.Close()
		}
		held <- err
	}()
	settle(t, "held", func() bool { return u.status().Active == 1 })
	if err := u.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	settle(t, "draining", func() bool { return !u.status().Ready })
	second := start()
	var log lockedBuffer
	second.Stderr = &log
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	u.pids = append(u.pids, second.Process.Pid)
	settle(t, "waiting", func() bool { return strings.Contains(log.String(), "about to stop") })
	resp, err := u.client().Get(u.url("http", "b.example", "/page/1"))
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("a request meanwhile: %v, %v\n%s", resp, err, &log)
	} else {
		resp.Body.Close()
	}
	if err := <-held; err != nil {
		t.Errorf("the request of the first one: %v", err)
	}
}

// The service manager hears which process is the main one now.
func TestUpgradeTellsTheServiceManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	u := startUpgraded(t, "")
	u.mustUpgrade()
	want := fmt.Sprintf("MAINPID=%d", u.pids[1])
	var heard []string
	for buf := make([]byte, 4096); !slices.Contains(heard, want); {
		manager.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, err := manager.Read(buf)
		if err != nil {
			t.Fatalf("heard %q, want %s: %v", heard, want, err)
		}
		heard = append(heard, strings.Split(string(buf[:n]), "\n")...)
	}
}
