package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/policy"
)

// order runs a command against an instance, and returns its standard output, its standard error, and its exit code.
func order(t *testing.T, s *server, args ...string) (out, talk string, code int) {
	t.Helper()
	cmd := exec.Command(binaryPath, append(args, "--data-dir", s.dir, "--admin", "http://"+s.admin)...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// A stop that is ordered at one instance holds on both when the command returns, over their restart, and without Redis.
// A lift ends it on both.
func TestStopHoldsOnAllInstances(t *testing.T) {
	redis := redistest.Start(t)
	f := newFleet(t, 2, redisConfig(redis, "spread"))
	first, second := f.through(0), f.through(1)
	f.get(first, "b.example", "/page/1")
	f.get(second, "b.example", "/page/1")
	out, talk, code := order(t, f.instances[0], "stop", "b.example", "--reason", "the owner called")
	if code != 0 || !strings.Contains(out, "b.example is stopped on 2 of 2 instances.") {
		t.Fatalf("stop ends with %d: %s%s", code, out, talk)
	}
	sent := len(f.site.Requests())
	for _, client := range []*http.Client{first, second} {
		if resp := f.get(client, "b.example", "/page/2"); resp.Header.Get("Robotsproxy-Reason") != "stopped" {
			t.Errorf("an instance answers %s %v, want 503 stopped", resp.Status, resp.Header)
		}
	}
	if n := len(f.site.Requests()) - sent; n != 0 {
		t.Errorf("%d requests reached the origin after the command", n)
	}
	if list, _, _ := order(t, f.instances[1], "interventions"); !strings.Contains(list, "the owner called") {
		t.Errorf("the other instance lists %s", list)
	}
	redis.Kill()
	redis.Restart()
	out, talk, code = order(t, f.instances[1], "resume", "b.example")
	if code != 0 || !strings.Contains(out, "b.example is no longer stopped on 2 of 2 instances.") {
		t.Errorf("resume ends with %d: %s%s", code, out, talk)
	}
	settle(t, "both send again", func() bool {
		return f.get(first, "b.example", "/page/3").StatusCode == 200 && f.get(second, "b.example", "/page/3").StatusCode == 200
	})
}

// In the middle of a crawl through both instances, a stop at one of them is the end of it at both.
func TestStopInACrawlThroughTwoInstances(t *testing.T) {
	redis := redistest.Start(t)
	f := newFleet(t, 2, redisConfig(redis, "spread"))
	crawling := make(chan struct{})
	for i := range 16 {
		client := f.through(i % 2)
		f.workers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-crawling:
					return
				default:
				}
				resp, err := client.Get(fmt.Sprintf("http://b.example:%d/page/%d-%d", f.site.Port(), i, n))
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
		})
	}
	settle(t, "the crawl is under way", func() bool { return len(f.site.Requests()) > 200 })
	out, talk, code := order(t, f.instances[0], "stop", "*.example", "--reason", "r")
	time.Sleep(20 * time.Millisecond) // the site notes what it got before
	sent := len(f.site.Requests())
	time.Sleep(time.Second)
	if n := len(f.site.Requests()) - sent; n != 0 || code != 0 {
		t.Errorf("%d requests reached the origin after the command, which ended with %d: %s%s", n, code, out, talk)
	}
	close(crawling)
	f.workers.Wait()
}

// An instance that hangs is named, and the command fails. When the instance continues, it obeys.
func TestHungInstanceIsMissing(t *testing.T) {
	redis := redistest.Start(t)
	f := newFleet(t, 2, redisConfig(redis, "spread"))
	hung := f.instances[1].cmd.Process
	if err := hung.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hung.Signal(syscall.SIGCONT) })
	out, talk, code := order(t, f.instances[0], "stop", "b.example", "--reason", "r")
	host, _ := os.Hostname()
	if code != 1 || !strings.Contains(out, "b.example is stopped on 1 of 2 instances.") ||
		!strings.Contains(talk, fmt.Sprintf("1 instance did not confirm it: %s/%d, last heard ", host, hung.Pid)) {
		t.Errorf("stop ends with %d: %s%s", code, out, talk)
	}
	if err := hung.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if resp := f.get(f.through(1), "b.example", "/page/1"); resp.Header.Get("Robotsproxy-Reason") != "stopped" {
		t.Errorf("the instance that hung answers %s %v at first", resp.Status, resp.Header)
	}
	if sent := fmt.Sprint(f.site.Requests()); strings.Contains(sent, "/page/1") {
		t.Errorf("the origin got %s", sent)
	}
}

// An instance that starts has the list before it serves, and without Redis the one that it had.
func TestStopAtTheStartOfAnInstance(t *testing.T) {
	redis := redistest.Start(t)
	f := newFleet(t, 2, redisConfig(redis, "local"))
	if out, talk, code := order(t, f.instances[0], "stop", "b.example", "--reason", "r"); code != 0 {
		t.Fatalf("stop ends with %d: %s%s", code, out, talk)
	}
	restart := func() *server {
		t.Helper()
		old := f.instances[1]
		if err := old.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = old.cmd.Wait()
		s, err := startServer(old.dir, os.Environ(), "--config", filepath.Join(filepath.Dir(old.dir), "config.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
		f.instances[1] = s
		return s
	}
	for _, when := range []string{"with Redis", "without Redis"} {
		if when == "without Redis" {
			// The first instance knows the second one, which has just started.
			if out, talk, code := order(t, f.instances[0], "slow", "c.example", "1s", "--reason", "r"); code != 0 || !strings.Contains(out, "on 2 of 2 instances") {
				t.Errorf("slow with Redis ends with %d: %s%s", code, out, talk)
			}
			redis.Kill()
		}
		restart()
		if resp := f.get(f.through(1), "b.example", "/page/1"); resp.Header.Get("Robotsproxy-Reason") != "stopped" {
			t.Errorf("%s the instance answers %s at first", when, resp.Status)
		}
	}
	out, talk, code := order(t, f.instances[0], "slow", "b.example", "30s", "--reason", "r")
	if code != 1 || !strings.Contains(out, "on 1 of 2 instances") || !strings.Contains(talk, "Redis is down: ") {
		t.Errorf("slow without Redis ends with %d: %s%s", code, out, talk)
	}
}

// The later of two entries counts in either order, and merging them once more changes nothing.
func TestMergeSharedLists(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Microsecond)
	entry := func(after time.Duration, reason string, lifted bool) sharedEntry {
		i := policy.Intervention{Kind: policy.Stop, Host: "a.example", Reason: reason, By: "b", Since: now.Add(after)}
		return sharedEntry{i, lifted}
	}
	for name, row := range map[string]struct {
		a, b sharedEntry
		want string
	}{
		"a later one":         {entry(0, "old", false), entry(time.Second, "new", false), "new"},
		"a lift":              {entry(0, "old", false), entry(time.Second, "old", true), ""},
		"a stop after a lift": {entry(0, "old", true), entry(time.Second, "new", false), "new"},
		"at one time":         {entry(0, "x", false), entry(0, "y", false), "y"},
		"a lift at one time":  {entry(0, "x", true), entry(0, "x", false), "x"},
		"a lift long ago":     {entry(-2*liftedFor, "x", true), entry(-3*liftedFor, "x", true), ""},
		"of a kind not known": {sharedEntry{policy.Intervention{Kind: "halt", Host: "a.example"}, false}, entry(0, "x", false), "x"},
		"equal":               {entry(0, "x", false), entry(0, "x", false), "x"},
	} {
		encode := func(e sharedEntry) []byte {
			data, err := (&sharedList{[]sharedEntry{e}}).encode(now.Add(-4 * liftedFor))
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
		a, b := encode(row.a), encode(row.b)
		ab, err := mergeSharedLists(a, b)
		ba, err2 := mergeSharedLists(b, a)
		again, err3 := mergeSharedLists(ab, b)
		if err != nil || err2 != nil || err3 != nil || string(ab) != string(ba) || string(ab) != string(again) {
			t.Errorf("%s: merged to %s and %s, and once more to %s; %v %v %v", name, ab, ba, again, err, err2, err3)
		}
		l, err := decodeSharedList(ab)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, i := range l.inForce(now) {
			got += i.Reason
		}
		if got != row.want {
			t.Errorf("%s: %q is in force, want %q", name, got, row.want)
		}
	}
}

// A change counts although the clock of the instance before was ahead.
func TestChangeOfASharedListWithClocksThatDiffer(t *testing.T) {
	now := time.Now().Truncate(time.Microsecond)
	var l sharedList
	stop := policy.Intervention{Kind: policy.Stop, Host: "a.example", Reason: "r", By: "b"}
	put := func(all []policy.Intervention) []policy.Intervention { return append(all, stop) }
	l.change(put, now.Add(time.Hour))
	if got := l.inForce(now); len(got) != 1 {
		t.Fatalf("after the stop %v is in force", got)
	}
	l.change(func([]policy.Intervention) []policy.Intervention { return nil }, now)
	if got := l.inForce(now); len(got) != 0 || len(l.Interventions) != 1 {
		t.Errorf("after the lift %v is in force, and the list is %+v", got, l)
	}
}
