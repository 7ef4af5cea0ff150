package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	pointers "unsafe" // a test of this package has the other name

	"golang.org/x/sys/unix"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// sealedRun runs programs with robotsproxy run, in a folder of its own.
type sealedRun struct {
	site   *robotstest.Site
	config string
	dir    string
}

func newSealedRun(t *testing.T) *sealedRun {
	t.Helper()
	if err := tryNamespaces(); err != nil {
		missing(t, "a user and network namespace")
	}
	r := &sealedRun{site: robotstest.New(t), dir: t.TempDir()}
	r.config = filepath.Join(r.dir, "config.yaml")
	text := siteConfig(r.site) + "data_dir: " + filepath.Join(r.dir, "data") + "\n"
	if err := os.WriteFile(r.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// command returns the command that runs args with the flags of run.
func (r *sealedRun) command(flags []string, args ...string) *exec.Cmd {
	all := append([]string{"run", "--config", r.config}, flags...)
	cmd := exec.Command(binaryPath, append(append(all, "--"), args...)...)
	cmd.Dir = r.dir
	return cmd
}

// came returns the paths that the site received since the last call.
func (r *sealedRun) came() (paths []string) {
	for _, request := range r.site.Requests() {
		if request.Target != "/robots.txt" {
			paths = append(paths, request.Target)
		}
	}
	r.site.Reset()
	return paths
}

// These clients do not heed the variables of the proxy, or not for all URLs. Without --sealed they reach the site
// directly. With it they reach nothing, and the same client reaches the site if its own setting names the proxy.
func TestSealedClients(t *testing.T) {
	long(t)
	r := newSealedRun(t)
	direct := fmt.Sprintf("http://127.0.0.1:%d", r.site.Port())
	secure := fmt.Sprintf("https://127.0.0.1:%d", r.site.TLSPort())
	named := fmt.Sprintf("http://a.example:%d", r.site.Port())
	const node = `fetch(process.argv[1]).then(r => r.text(), e => { console.error(e.cause.code); process.exit(1) })`
	const nodeProxy = `const {hostname, port} = new URL(process.env.http_proxy)
require("http").get({hostname, port, path: process.argv[1]}, r => r.resume())`
	for _, row := range []struct {
		name    string
		program string
		past    []string // reaches /page/1 without the proxy
		through []string // reaches /page/1 through it
	}{
		{
			"curl", "curl",
			[]string{"curl", "-fsS", "--noproxy", "*", direct + "/page/1"},
			[]string{"curl", "-fsS", named + "/page/1"},
		},
		{
			"node", "node",
			[]string{"node", "-e", node, direct + "/page/1"},
			[]string{"node", "-e", nodeProxy, named + "/page/1"},
		},
		{
			"httrack http", "httrack",
			httrack("", direct), httrack(`-P "${http_proxy#http://}"`, named),
		},
		{
			"httrack -P https", "httrack",
			httrack(`-P "${http_proxy#http://}"`, secure), nil,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			program(row.program)(t)
			out, err := r.command(nil, row.past...).CombinedOutput()
			if got := r.came(); !slices.Contains(got, "/page/1") || !strings.Contains(string(out), "WARNING: not one request") {
				t.Errorf("without --sealed the site received %q (%v), want a direct request and the warning: %s", got, err, out)
			}
			out, _ = r.command([]string{"--sealed"}, row.past...).CombinedOutput()
			if got := r.came(); len(got) > 0 || !strings.Contains(string(out), "WARNING: not one request") {
				t.Errorf("with --sealed the site received %q, want nothing and the warning: %s", got, out)
			}
			if row.through == nil {
				return
			}
			out, err = r.command([]string{"--sealed"}, row.through...).CombinedOutput()
			if got := r.came(); err != nil || !slices.Contains(got, "/page/1") || !strings.Contains(string(out), "1 request to 1 host: 1 forwarded") {
				t.Errorf("through the proxy the site received %q (%v): %s", got, err, out)
			}
		})
	}
}

// httrack returns the command that fetches /page/1 of site into a new folder, whatever its robots.txt says.
func httrack(proxy, site string) []string {
	return []string{"sh", "-c", `httrack "$1/page/1" ` + proxy + ` -O "$(mktemp -d ./httrack.XXXXXX)" -q -r1 -s0 -R0 -T5`, "sh", site}
}

// The namespaces need no privileges, and the program keeps its user and its group. It gets no capability.
func TestSealedWithoutPrivileges(t *testing.T) {
	newSealedRun(t)
	u := newOtherUser(t)
	out, messages, err := u.run(u.program, "run", "--sealed", "--", "sh", "-c", `id -u; id -g; grep CapEff /proc/self/status
curl -sS --noproxy '*' --max-time 5 http://192.0.2.1/ || echo no way`)
	want := fmt.Sprintf("%d\n%d\nCapEff:\t0000000000000000\nno way\n", otherUID, otherUID)
	if err != nil || out != want {
		t.Errorf("%v: %q, want %q: %s", err, out, want, messages)
	}
}

// Signals reach the program as without --sealed, and its status comes back.
func TestSealedSignals(t *testing.T) {
	r := newSealedRun(t)
	for _, sent := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		for _, row := range []struct {
			name, script string
			status       int
		}{
			{"not handled", `echo ready; exec sleep 60`, 128 + int(sent)},
			{"handled", `trap 'kill $!; exit 9' INT TERM; sleep 60 & echo ready; wait`, 9},
		} {
			t.Run(sent.String()+", "+row.name, func(t *testing.T) {
				cmd := r.command([]string{"--sealed"}, "sh", "-c", row.script)
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				limit := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
				defer limit.Stop()
				if _, err := out.Read(make([]byte, 1)); err != nil {
					t.Error(err)
				}
				cmd.Process.Signal(sent)
				_ = cmd.Wait()
				if got := cmd.ProcessState.ExitCode(); got != row.status {
					t.Errorf("status %d, want %d", got, row.status)
				}
			})
		}
	}
}

// A process that outlives the run reaches nothing, not even the proxy, which has ended.
func TestSealedSurvivor(t *testing.T) {
	program("curl")(t)
	r := newSealedRun(t)
	page := fmt.Sprintf(":%d/page/1", r.site.Port())
	const script = `(while kill -0 $PPID 2>&-; do sleep 0.05; done
curl -sS "http://a.example$1"; echo $? >>statuses
curl -sS --noproxy "*" "http://127.0.0.1$1"; echo $? >>statuses
mv statuses ended) >survivor.log 2>&1 </dev/null &`
	if out, err := r.command([]string{"--sealed"}, "sh", "-c", script, "sh", page).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ended := filepath.Join(r.dir, "ended")
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		statuses, err := os.ReadFile(ended)
		if err == nil {
			const refused = "7\n7\n" // the statuses of curl
			if got := r.came(); string(statuses) != refused || len(got) > 0 {
				t.Errorf("statuses %q and requests %q, want %q and none", statuses, got, refused)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the process did not end")
		}
	}
}

// If robotsproxy is killed before the program starts, the program never starts.
func TestSealedStageNeedsItsCaller(t *testing.T) {
	newSealedRun(t)
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	inner := os.NewFile(uintptr(ends[1]), "inner")
	started := filepath.Join(t.TempDir(), "started")
	cmd := exec.Command(binaryPath, sealedStage, "3", "/usr/bin/touch", "touch", started)
	cmd.ExtraFiles = []*os.File{inner}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inner.Close()
	unix.Close(ends[0])
	if err := cmd.Wait(); err == nil {
		t.Error("the stage succeeded without a caller")
	}
	if _, err := os.Stat(started); err == nil {
		t.Error("the program was started without a caller")
	}
}

// A seccomp filter that forbids user namespaces, as that of containers, is named as the cause.
func TestSealedUnderSeccomp(t *testing.T) {
	r := newSealedRun(t)
	cmd := r.command([]string{"--sealed"}, "touch", "started")
	var messages bytes.Buffer
	cmd.Stderr = &messages
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the filter stays on the thread, which ends with the goroutine
		if err := forbidUserNamespaces(); err != nil {
			failed <- err
			return
		}
		failed <- cmd.Run()
	}()
	err := <-failed
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitFailed || !strings.Contains(messages.String(), "seccomp filter") {
		t.Errorf("%v, want status %d and the cause: %s", err, exitFailed, &messages)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "started")); err == nil {
		t.Error("the program was started")
	}
}

// forbidUserNamespaces makes clone fail with EPERM for a new user namespace, on this thread and in its processes.
func forbidUserNamespaces() error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16}, // its first argument
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.CLONE_NEWUSER, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(pointers.Pointer(&program)), 0, 0)
}
