package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
)

// The records of the demo show each kind of site with its decision; the proxy and the dashboard serve until the
// interrupt.
func TestDemo(t *testing.T) {
	long(t)
	t.Parallel() // mostly waits
	var said lockedBuffer
	cmd := exec.Command(binaryPath, "demo", "--keep")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "HOME=/nonexistent", "HTTP_PROXY="+deadProxy, "ROBOTSPROXY_MODE=off")
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	for deadline := time.Now().Add(time.Minute); !strings.Contains(said.String(), "^C ends the demo"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the first crawl takes over a minute:\n%s", &said)
		}
	}
	demoServes(t, said.String())
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("an interrupt ends the demo with %v, want status 0", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("the demo goes on after an interrupt:\n%s", &said)
	}
	demoRecords(t, demoWord(t, said.String(), `(?m)^  data +(\S+)`))
}

// demoWord returns what a group of pattern matches in the output of the demo.
func demoWord(t *testing.T, said, pattern string) string {
	t.Helper()
	match := regexp.MustCompile(pattern).FindStringSubmatch(said)
	if match == nil {
		t.Fatalf("nothing matches %s:\n%s", pattern, said)
	}
	return match[1]
}

// demoServes checks the dashboard, and the commands that the demo prints.
func demoServes(t *testing.T, said string) {
	t.Helper()
	resp, err := http.Get(demoWord(t, said, `(?m)^  dashboard +(\S+)`))
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(page, []byte("news.example")) {
		t.Errorf("the dashboard answers %d, %v, want the hosts of the demo:\n%s", resp.StatusCode, err, page)
	}
	for text, want := range map[string]int{"allowed": http.StatusOK, "refused, with the line": http.StatusForbidden} {
		target := demoWord(t, said, `(?m)^  curl -x \S+ (\S+) +`+text+`$`)
		at, err := url.Parse(demoWord(t, said, `(?m)^  curl -x (\S+) `))
		if err != nil {
			t.Fatal(err)
		}
		client := http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(at), DisableKeepAlives: true}}
		resp, err := client.Get(target)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("GET %s through the demo = %d, want %d", target, resp.StatusCode, want)
		}
	}
}

// demoRecords checks that each kind of site has its decision in the records of dir.
func demoRecords(t *testing.T, dir string) {
	t.Helper()
	out, err := exec.Command(binaryPath, "audit", "list", "--data-dir", dir, "--format", "jsonl", "--limit", "0").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for line := range bytes.Lines(out) {
		var r audit.Record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		paced := ""
		if time.Duration(r.Waited) > time.Second && r.DelaySource == "crawl-delay" {
			paced = " after a Crawl-delay"
		}
		seen[fmt.Sprintf("%s %s %s %s %d%s", r.Host, r.Decision, r.Reason, r.RobotsState, r.Status, paced)] = true
		seen[fmt.Sprintf("%s %s %s", r.Agent, r.Host, r.Rule)] = true
	}
	for _, want := range []string{
		"news.example allow  found 200",
		"news.example deny robots found 403",
		"NewsBot news.example Disallow: /private/",
		"NewsBot news.example Allow: /private/press/",
		"PriceWatch news.example Disallow: /",
		"ArchiveBot shop.example Disallow: /*?sort=",
		"shop.example exempt exemption found 200",
		"docs.example allow  found 200 after a Crawl-delay",
		"bank.example allow  found 200",
		"PriceWatch bank.example Disallow: /account/",
		"lab.example would_deny report found 200",
		"NewsBot old.example Disallow: /cgi-bin/",
		"wall.example allow  html 403",
		"slow.example allow  unavailable 200",
		"api.example throttle backoff found 429",
		"wire.example deny robots-unreachable unreachable 503",
	} {
		if !seen[want] {
			t.Errorf("no record is %q:\n%s", want, out)
		}
	}
}

// A terminal that is closed ends the demo, and its folder is removed.
func TestDemoHangup(t *testing.T) {
	long(t)
	dir := t.TempDir()
	var said lockedBuffer
	cmd := exec.Command(binaryPath, "demo")
	cmd.Env, cmd.Stderr = append(os.Environ(), "TMPDIR="+dir), &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(said.String(), "first crawl"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no crawl begins:\n%s", &said)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the signal may decide the status
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the demo leaves %v, %v; want nothing:\n%s", left, err, &said)
	}
}
