package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// watchedSite is a site whose robots.txt changes, and a proxy through which a page was crawled.
type watchedSite struct {
	*robotstest.Site
	*server
	t      *testing.T
	origin string
}

func newWatchedSite(t *testing.T) *watchedSite {
	t.Helper()
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private/\n"})
	w := &watchedSite{Site: site, server: serveFor(t, site, []string{"a.example", "b.example"}, ""), t: t}
	w.origin = fmt.Sprintf("http://a.example:%d", site.Port())
	w.get(t, w.origin+"/page/1")
	w.waitMetric(t, "robotsproxy_audit_written_total", 2)
	return w
}

func (w *watchedSite) change(body string) {
	w.SetRobots("a.example", robotstest.Robots{Body: body})
}

// watch runs the command watch, with the configuration of the proxy, and checks its exit status.
func (w *watchedSite) watch(status int, args ...string) string {
	w.t.Helper()
	config := filepath.Join(filepath.Dir(w.dir), "config.yaml")
	out, code := w.command(w.t, append([]string{"watch", "--config", config}, args...)...)
	if code != status {
		w.t.Errorf("watch %v exits with %d, want %d: %s", args, code, status, out)
	}
	return out
}

// A change is printed once, by the running proxy and without one, and the status says whether it matters.
func TestWatchOnce(t *testing.T) {
	w := newWatchedSite(t)
	w.change("# hello\nUser-agent: *\nDisallow: /private/\n")
	if out := w.watch(0, "--once", "a.example"); !strings.Contains(out, "0 of 1 decisions would differ") || !strings.Contains(out, "+# hello\n") {
		t.Errorf("after a comment: %s", out)
	}
	w.change("User-agent: *\nDisallow: /page/\n")
	if out := w.watch(1, "--once", "a.example"); !strings.Contains(out, "1 of 1 would now be refused") || strings.Contains(out, "0 of 1") ||
		!strings.Contains(out, "/page/1  allowed before, refused by line 2  Disallow: /page/ now\n") {
		t.Errorf("after a rule: %s", out)
	}
	if out := w.watch(0, "--once", w.origin); out != "" {
		t.Errorf("without a change: %s", out)
	}
	w.checkOlder(2)
	if out := w.watch(4, "--once", "b.example"); !strings.Contains(out, "https://b.example") {
		t.Errorf("for a host without a site: %s", out)
	}

	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	if out := w.watch(0, "--once", "a.example"); out != "" {
		t.Errorf("without a proxy and a change: %s", out)
	}
	w.change("User-agent: *\nAllow: /\n")
	if out := w.watch(1, "--once", "a.example"); !strings.Contains(out, "1 of 1 would now be allowed") {
		t.Errorf("without a proxy: %s", out)
	}
	w.checkOlder(3)
	w.watch(4, "--once", "b.example")
}

// checkOlder checks the number of changes of the last hour.
func (w *watchedSite) checkOlder(want int) {
	w.t.Helper()
	lines := strings.Split(strings.TrimSpace(w.watch(1, "--once", "--since", "1h", "--format", "jsonl", "a.example")), "\n")
	if len(lines) != want {
		w.t.Errorf("%d changes in the last hour, want %d: %s", len(lines), want, lines)
	}
	var last proof.Effect
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Origin != w.origin || !last.Alters() {
		w.t.Errorf("the last change is %+v, %v", last, err)
	}
}

func TestWatchRejects(t *testing.T) {
	for _, args := range [][]string{
		{"watch"},
		{"watch", "--every", "1m", "a.example"},
		{"watch", "--format", "csv", "a.example"},
		{"watch", "--since", "soon", "a.example"},
		{"watch", "a..b"},
		{"watch", ""},
		{"watch", "a.example:8443"},
	} {
		if err := exec.Command(binaryPath, args...).Run(); err == nil || err.(*exec.ExitError).ExitCode() != 2 {
			t.Errorf("%v: %v, want the exit status 2", args, err)
		}
	}
}

// watch goes on with the changes that others find, until an interrupt.
func TestWatchFollows(t *testing.T) {
	long(t)
	w := newWatchedSite(t)
	var out, messages lockedBuffer
	cmd := exec.Command(binaryPath, "watch", "a.example", "--data-dir", w.dir)
	cmd.Stdout, cmd.Stderr = &out, &messages
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	settle(t, "begun", func() bool { return strings.Contains(messages.String(), "again after 1h") })
	for i, rule := range []string{"/", "/other/"} {
		w.change("User-agent: *\nDisallow: " + rule + "\n")
		if out, code := w.command(t, "cache", "refresh", "a.example"); code != 0 {
			t.Fatal(out)
		}
		settle(t, "printed", func() bool { return strings.Count(out.String(), "1 of 1 would now be") == i+1 })
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("the exit status is %d: %s", code, &messages)
	}
	if n := strings.Count(out.String(), "  changed "); n != 2 {
		t.Errorf("%d changes are printed:\n%s", n, out.String())
	}
}
