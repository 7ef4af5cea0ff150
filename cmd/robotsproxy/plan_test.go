package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// planSite is a site for plans, with a configuration in which every name leads to it.
type planSite struct {
	*robotstest.Site
	dir string
}

func newPlanSite(t *testing.T) *planSite {
	t.Helper()
	site, err := robotstest.Start(robotstest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(site.Close)
	s := &planSite{site, t.TempDir()}
	config := "egress: {allow_addresses: [127.0.0.0/8], resolve: {\"*\": 127.0.0.1}}\n"
	if err := os.WriteFile(filepath.Join(s.dir, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// command returns a plan of some URLs, or of standard input without URLs.
func (s *planSite) command(t *testing.T, urls ...string) (cmd *exec.Cmd, out *bytes.Buffer) {
	t.Helper()
	list := "-"
	if urls != nil {
		list = filepath.Join(s.dir, "urls.txt")
		if err := os.WriteFile(list, []byte(strings.Join(urls, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd = exec.Command(binaryPath, "plan", list, "--config", filepath.Join(s.dir, "config.yaml"), "--data-dir", filepath.Join(s.dir, "data"),
		"--format", "csv")
	out = &bytes.Buffer{}
	cmd.Stdout = out
	return cmd, out
}

// A plan asks many hosts at once, and each once. The hosts on a port without a server do not keep it from the others.
func TestPlanAsksHostsAtOnce(t *testing.T) {
	s := newPlanSite(t)
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	const hosts = 20
	var mu sync.Mutex
	asked := make(map[string]int)
	all := make(chan struct{})
	s.SetRobots("", robotstest.Robots{Handler: func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.Host]++
		if len(asked) == hosts {
			close(all)
		}
		mu.Unlock()
		select {
		case <-all: // only if all are asked before the first is answered
			fmt.Fprint(w, "User-agent: *\nDisallow: /no\n")
		case <-r.Context().Done():
		}
	}})
	var urls []string
	for page := range 3 {
		for i := range hosts {
			urls = append(urls, fmt.Sprintf("http://h%d.example:%d/yes/%d", i, s.Port(), page),
				fmt.Sprintf("http://h%d.example:%d/yes/%d", i+hosts, dead.Addr().(*net.TCPAddr).Port, page))
		}
	}
	cmd, out := s.command(t, urls...)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	for host, n := range asked {
		if n != 1 {
			t.Errorf("%s was asked %d times", host, n)
		}
	}
	if n := strings.Count(out.String(), ",found,3,3,0,0,"); n != hosts {
		t.Errorf("%d hosts were judged, want %d:\n%s", n, hosts, out)
	}
	if n := strings.Count(out.String(), ",,3,0,0,3,") + strings.Count(out.String(), ",unreachable,3,0,0,3,"); n != hosts {
		t.Errorf("%d hosts are unknown, want %d:\n%s", n, hosts, out)
	}
}

// Many ports of one host are asked one after the other, and none is left out.
func TestPlanOfManyPorts(t *testing.T) {
	s := newPlanSite(t)
	file, err := os.OpenFile(filepath.Join(s.dir, "config.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(file, "pacing: {default_delay: 10ms}")
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	const ports = 40
	var urls []string
	for range ports {
		site, err := robotstest.Start(robotstest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(site.Close)
		urls = append(urls, fmt.Sprintf("http://a.example:%d/1", site.Port()))
	}
	cmd, out := s.command(t, urls...)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), ",1,1,0,0,"); n != ports {
		t.Errorf("%d of %d ports were judged:\n%s", n, ports, out)
	}
}

// The requests of a plan have the product token of the client and the operator's signature, like those of the proxy.
func TestPlanAsksAsTheProxyDoes(t *testing.T) {
	s := newPlanSite(t)
	keys := filepath.Join(s.dir, "keys.json")
	if out, err := exec.Command(binaryPath, "key", "new", "--key-file", keys).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	file, err := os.OpenFile(filepath.Join(s.dir, "config.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(file, "sign: {agent: \"https://crawler.example.org\", key_file: %q}\n", keys)
	fmt.Fprintln(file, "clients: [{name: news, cidr: [127.0.0.0/8], product_token: NewsBot}]")
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	asked := make(chan http.Header, 1)
	s.SetRobots("a.example", robotstest.Robots{Handler: func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header }})
	cmd, _ := s.command(t, fmt.Sprintf("http://a.example:%d/1", s.Port()))
	cmd.Args = append(cmd.Args, "--as", "news")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	h := <-asked
	if got := h.Get("User-Agent"); !strings.HasPrefix(got, "NewsBot robotsproxy/") {
		t.Errorf("User-Agent is %q", got)
	}
	if h.Get("Signature") == "" || !strings.Contains(h.Get("Signature-Agent"), "https://crawler.example.org") {
		t.Errorf("the request is not signed: %v", h)
	}
}

// An interrupt ends a plan at once, without half a result.
func TestInterruptedPlan(t *testing.T) {
	s := newPlanSite(t)
	arrived := make(chan struct{})
	s.SetRobots("slow.example", robotstest.Robots{Handler: func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}})
	url := fmt.Sprintf("http://slow.example:%d/1", s.Port())
	cmd, out := s.command(t, fmt.Sprintf("http://a.example:%d/1", s.Port()), url)
	interrupted(t, cmd, out, func() { <-arrived })

	cmd, out = s.command(t)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	interrupted(t, cmd, out, func() {
		for range 2000 { // more than a pipe holds: the program has read some when this returns
			if _, err := fmt.Fprintln(in, url+strings.Repeat("x", 100)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// interrupted interrupts cmd when meanwhile returns, and checks that it ends soon.
func interrupted(t *testing.T, cmd *exec.Cmd, out *bytes.Buffer, meanwhile func()) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	meanwhile()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Errorf("the plan ended with %v, want exit status %d", err, exitInterrupted)
	}
	if out.Len() > 0 {
		t.Errorf("it printed\n%s", out)
	}
}

func TestPlanProgress(t *testing.T) {
	var p planProgress
	check := func(passed time.Duration, want string) {
		t.Helper()
		if got := p.textAt(passed); got != want {
			t.Errorf("after %v: %q, want %q", passed, got, want)
		}
	}
	p.urls.Store(1200)
	check(time.Second, "")
	check(3*time.Second, "reading the list  1,200 URLs")
	p.hosts.Store(10_000)
	check(3*time.Second, "reading robots.txt  [····················]  0 of 10,000 hosts")
	p.done.Store(7204)
	check(5*time.Minute, "reading robots.txt  [##############······]  7,204 of 10,000 hosts   1 m 57 s left")
}
