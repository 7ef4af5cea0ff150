package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// The sh and console blocks of each document run in order in one shell, with the built program, and succeed. A network
// namespace has the ports that the documents name, and a site at ports 80 and 443 for every name. These comments before
// a block change that:
//
//	<!-- not run: REASON -->
//	<!-- needs: PROGRAM... -->        the block is left out if one is missing; python3-x is a module of Python
//	<!-- in the background -->        the last command goes on while the next ones run
//	<!-- status: N -->                the last command ends with N
//	<!-- run before: COMMANDS -->     commands that the reader does not see
func TestSessions(t *testing.T) {
	long(t)
	if os.Getenv(apart) != "" {
		testSessions(t)
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.v", "-test.run=^TestSessions$")
	cmd.Env = append(os.Environ(), apart+"="+binaryPath)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if cmd.Process == nil {
		missing(t, fmt.Sprintf("a network namespace (%v)", err))
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, skipped := range regexp.MustCompile(`(?m)^.* is not here$`).FindAll(out, -1) {
		t.Run("left out", func(t *testing.T) { t.Skip(strings.TrimSpace(string(skipped))) })
	}
}

func testSessions(t *testing.T) {
	raiseLoopback(t)
	site := robotstest.New(t)
	for _, host := range []string{"a.example", "b.example"} {
		site.SetRobots(host, robotstest.Robots{Body: clientRobots})
	}
	listenFor(t, 80, site.Port())
	listenFor(t, 443, site.TLSPort())
	for name, text := range documents(t) {
		blocks, _ := readBlocks(text)
		t.Run(name, func(t *testing.T) { runSession(t, site, name, blocks) })
	}
	if paths := site.Paths("a.example"); slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(p, "/private/") }) {
		t.Errorf("a command fetched a disallowed page: %q", paths)
	}
}

// raiseLoopback puts up the interface lo of this network namespace.
func raiseLoopback(t *testing.T) {
	t.Helper()
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
}

// listenFor passes the connections of a port of this machine on to another.
func listenFor(t *testing.T, from, to int) {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", from))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go pass(conn, to)
		}
	}()
}

func pass(conn net.Conn, to int) {
	defer conn.Close()
	site, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", to))
	if err != nil {
		return
	}
	go func() {
		defer site.Close()
		_, _ = io.Copy(site, conn)
	}()
	_, _ = io.Copy(conn, site)
}

// runSession runs the blocks of a document in one shell.
func runSession(t *testing.T, site *robotstest.Site, document string, blocks []block) {
	var script bytes.Buffer
	script.WriteString(`set -eu
ready() {
	proxy=$!
	for i in $(seq 100); do robotsproxy healthcheck 2> /dev/null && return; sleep 0.1; done
	echo the proxy is not ready
	exit 1
}
go() { # without another build
	case "$1 $2" in
	"install ./cmd/robotsproxy") ;;
	"run ./cmd/robotsproxy") shift 2; exec robotsproxy "$@" ;; # in a subshell
	*) command go "$@" ;;
	esac
}
`)
	for _, b := range blocks {
		command := b.commands()
		if _, ok := b.noted("not run:"); ok || command == "" || !hasNeeds(t, b) {
			continue
		}
		fmt.Fprintf(&script, "echo '== %s:%d'\n", document, b.line)
		before, _ := b.noted("run before:")
		script.WriteString(before + "\n")
		if _, ok := b.noted("in the background"); ok {
			command = strings.TrimSuffix(command, "\n") + " &\n"
		}
		if status, ok := b.noted("status:"); ok {
			command = "set +e\n" + command + "status=$?\nset -e\ntest $status =" + status + "\n"
		}
		script.WriteString(command)
		if strings.Contains(command, " serve") && strings.Contains(command, "&\n") {
			script.WriteString("ready\n")
		}
	}
	runScript(t, site, script.String())
}

// hasNeeds reports whether the programs of a block are here. If not, it skips or fails a test of that name.
func hasNeeds(t *testing.T, b block) bool {
	t.Helper()
	needs, _ := b.noted("needs:")
	has := true
	for _, name := range strings.Fields(needs) {
		t.Run(fmt.Sprintf("line %d needs %s", b.line, name), func(t *testing.T) {
			has = false // unless the test goes on
			if module, ok := strings.CutPrefix(name, "python3-"); ok {
				python(module)(t)
			} else {
				program(name)(t)
			}
			has = true
		})
		if !has {
			return false
		}
	}
	return true
}

// runScript runs a script with bash in a new folder, and ends everything that it has started.
func runScript(t *testing.T, site *robotstest.Site, script string) {
	t.Helper()
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir = filepath.Join(dir, "work")
	if err := os.Mkdir(cmd.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binaryPath)+":/usr/bin:"+os.Getenv("PATH"), "HOME="+dir, "XDG_STATE_HOME="+filepath.Join(dir, "state"), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"),
		"ROBOTSPROXY_DATA_DIR="+filepath.Join(dir, "data"), "ROBOTSPROXY_EGRESS_ALLOW_ADDRESSES=127.0.0.0/8",
		"ROBOTSPROXY_EGRESS_RESOLVE=*=127.0.0.1", "ROBOTSPROXY_EGRESS_CA_FILE="+site.CAFile())
	cmd.Stdout, cmd.Stderr = log, log // files: a pipe would stay open in the proxy
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		t.Errorf("a command failed after the last line with ==: %v\n%s", err, said)
	}
}
