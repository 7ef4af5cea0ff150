package sealed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain runs the test program as a command too: see commands.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == stageArgument {
		if err := Stage(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	if run, found := commands[os.Args[0]]; found {
		run(os.Args[1:])
		return
	}
	goleak.VerifyTestMain(m)
}

const stageArgument = "stage"

// commands are what the test program does if its first argument has that name.
var commands = map[string]func(args []string){
	"dial":        func(args []string) { fmt.Print(dial(args[0], args[1])) },
	"get":         func(args []string) { fmt.Print(get(os.Getenv("PROXY"), args[0])) },
	"serve":       func(args []string) { fmt.Print(serveLoopback(args[0])) },
	"descriptors": func([]string) { fmt.Print(len(descriptors())) },
	"file":        func(args []string) { fmt.Print(os.WriteFile(args[0], nil, 0o600)) },
	"environment": func([]string) { fmt.Print(strings.Join(os.Environ(), "\n")) },
	"status":      func([]string) { fmt.Print(readFile("/proc/self/status")) },
}

// dial returns the error of sending one byte to address.
func dial(network, address string) error {
	conn, err := net.DialTimeout(network, address, 5*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte{1})
	return err
}

// get fetches target through proxy, and returns its body or the error.
func get(proxy, target string) string {
	proxyURL, err := url.Parse(proxy)
	if err != nil {
		return err.Error()
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxyURL)}, Timeout: 5 * time.Second}
	resp, err := client.Get(target)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}

// serveLoopback lets the command connect to a server of its own.
func serveLoopback(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer l.Close()
	return dial("tcp", l.Addr().String())
}

// descriptors lists the open files, without that of the list.
func descriptors() (names []string) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(to, "anon_inode:") {
			names = append(names, to)
		}
	}
	return names
}

func readFile(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// stderr is the standard error at its own number. With go test -json os.Stderr is os.Stdout, and package exec would move
// it to 2 over another descriptor, perhaps that of the connection.
var stderr = os.NewFile(2, "stderr")

// newCommand returns the test program as the command args. Its output goes to out.
func newCommand(t *testing.T, out io.Writer, args ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Args, cmd.Stdout, cmd.Stderr = args, out, stderr
	return cmd
}

// environment is that of the test, without the second that the race detector waits at the end of a process.
func environment() []string { return append(os.Environ(), "GORACE=atexit_sleep_ms=0") }

// prepare skips the test if this machine permits no namespaces.
func prepare(t *testing.T, cmd *exec.Cmd) *Program {
	t.Helper()
	cmd.Env = environment()
	p, err := Prepare(cmd, stageArgument)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		t.Skip("this machine permits no namespaces:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		p.Listener.Close()
	})
	return p
}

// run returns the output of a sealed command.
func run(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := newCommand(t, &out, args...)
	if err := prepare(t, cmd).Exec(environment()); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %v, %s", args, err, &out)
	}
	return out.String()
}

// The listener is the only way out: no other address of this machine or of another can be reached, over TCP, UDP or
// abstract Unix sockets, and none of the servers here gets anything.
func TestOnlyTheListener(t *testing.T) {
	folder := t.TempDir()
	for _, row := range []struct{ network, address, want string }{
		{"tcp4", "127.0.0.1:0", "connection refused"},
		{"tcp6", "[::1]:0", "connection refused"},
		{"udp4", "127.0.0.1:0", "<nil>"}, // nothing listens there, and UDP does not say so
		{"unix", fmt.Sprintf("@robotsproxy-test-%d", os.Getpid()), "connection refused"},
		{"unix", filepath.Join(folder, "file"), "<nil>"}, // not sealed, as the documentation says
	} {
		t.Run(row.network+" "+row.address, func(t *testing.T) {
			address, received := listenHere(t, row.network, row.address)
			if err := dial(row.network, address); err != nil || !received() {
				t.Fatalf("without a network of its own: %v", err)
			}
			got := run(t, "dial", row.network, address)
			if !strings.HasSuffix(got, row.want) {
				t.Errorf("got %q, want %q", got, row.want)
			}
			if sealed := !strings.HasPrefix(row.address, folder); sealed && received() {
				t.Error("the server outside received something")
			}
		})
	}
	for _, outside := range [][2]string{{"tcp4", "192.0.2.1:80"}, {"tcp6", "[2001:db8::1]:80"}, {"udp4", "192.0.2.1:53"}} {
		if got := run(t, "dial", outside[0], outside[1]); !strings.HasSuffix(got, "network is unreachable") {
			t.Errorf("dialling %v: %q, want no route", outside, got)
		}
	}
	if got := run(t, "dial", "tcp", "a.example:80"); got == "<nil>" || !strings.Contains(got, "lookup a.example") {
		t.Errorf("a name: %q, want none found", got)
	}
}

// listenHere serves address in the network of this process. received reports whether something has come since the last
// call.
func listenHere(t *testing.T, network, address string) (at string, received func() bool) {
	t.Helper()
	if strings.HasPrefix(network, "udp") {
		p, err := net.ListenPacket(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p.LocalAddr().String(), func() bool {
			p.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			n, _, _ := p.ReadFrom(make([]byte, 1))
			return n > 0
		}
	}
	l, err := net.Listen(network, address)
	if err != nil {
		if network == "tcp6" {
			t.Skip("there is no IPv6 here:", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String(), func() bool {
		l.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(50 * time.Millisecond))
		conn, err := l.Accept()
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}
}

// The program reaches the caller through the listener, and has the environment of Exec, with the last of two values of
// one name.
func TestListener(t *testing.T) {
	var out bytes.Buffer
	cmd := newCommand(t, &out, "get", "http://a.example/x")
	p := prepare(t, cmd)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "you asked for %s", r.URL) })}
	go server.Serve(p.Listener)
	defer server.Close()
	if err := p.Exec([]string{"PROXY=http://127.0.0.1:1", "PROXY=http://" + p.Listener.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || out.String() != "you asked for http://a.example/x" {
		t.Errorf("%v, %q", err, &out)
	}
}

// Servers of the command on loopback work, in both versions of IP.
func TestLoopback(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "localhost:0", ":0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue // no IPv6 here
		}
		l.Close()
		if got := run(t, "serve", address); got != "<nil>" {
			t.Errorf("%s: %s", address, got)
		}
	}
}

// The program has no descriptor of the stage, no capability that its user would not have, and its own user and group.
func TestNothingElseIsPassed(t *testing.T) {
	dir := t.TempDir()
	var plain bytes.Buffer
	if err := newCommand(t, &plain, "descriptors").Run(); err != nil {
		t.Fatal(err)
	}
	if got := run(t, "descriptors"); got != plain.String() {
		t.Errorf("%s descriptors, want %s", got, &plain)
	}
	status := run(t, "status")
	for _, set := range []string{"CapInh", "CapAmb"} {
		if !strings.Contains(status, set+":\t0000000000000000\n") {
			t.Errorf("%s is not empty:\n%s", set, status)
		}
	}
	if os.Geteuid() != 0 && !strings.Contains(status, "CapPrm:\t0000000000000000\n") {
		t.Errorf("a user has capabilities:\n%s", status)
	}
	own := readFile("/proc/self/status")
	for _, line := range []string{"Uid:", "Gid:", "SigIgn:", "SigBlk:"} {
		if field(own, line) != field(status, line) {
			t.Errorf("%s %s, want %s", line, field(status, line), field(own, line))
		}
	}
	path := filepath.Join(dir, "file")
	if got := run(t, "file", path); got != "<nil>" {
		t.Fatal(got)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		t.Errorf("a file of the command belongs to %d, want %d", owner, os.Geteuid())
	}
}

func field(text, name string) string {
	_, rest, _ := strings.Cut(text, name)
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// Without Exec the program does not run, and nothing is left of the process.
func TestClose(t *testing.T) {
	before := len(descriptors())
	path := filepath.Join(t.TempDir(), "file")
	cmd := newCommand(t, stderr, "file", path)
	p := prepare(t, cmd)
	if err := errors.Join(p.Close(), p.Listener.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err == nil || cmd.ProcessState == nil {
		t.Errorf("the program ran, or its process is left: %v", cmd.ProcessState)
	}
	if after := len(descriptors()); after != before {
		t.Errorf("%d descriptors are open, %d before", after, before)
	}
}

// The program does not run with a part of its environment if the caller ends before it has sent all.
func TestCallerEndsEarly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	cmd := newCommand(t, stderr, "file", path)
	p := prepare(t, cmd)
	if _, err := io.WriteString(p.conn, "PATH=/bin\x00HTTP_PR"); err != nil {
		t.Fatal(err)
	}
	if err := p.conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if _, err := os.Stat(path); err == nil {
		t.Error("the program ran")
	}
}

// The environment may be longer than the buffer of a socket, and need not be UTF-8.
func TestLongEnvironment(t *testing.T) {
	var out bytes.Buffer
	var env []string
	for i := range 10 {
		env = append(env, fmt.Sprintf("V%d=%s\xff", i, strings.Repeat("x", 100_000)))
	}
	cmd := newCommand(t, &out, "environment")
	if err := prepare(t, cmd).Exec(env); err != nil {
		t.Fatal(err)
	}
	want := strings.Join(env, "\n")
	if err := cmd.Wait(); err != nil || out.String() != want {
		t.Errorf("%v; %d bytes of variables, want the same %d", err, out.Len(), len(want))
	}
}

// Root has all the users of its namespace, also on a 32-bit system.
func TestIdentities(t *testing.T) {
	path := filepath.Join(t.TempDir(), "uid_map")
	if err := os.WriteFile(path, []byte("         0          0 4294967295\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := identities(path)
	if err != nil || len(all) != 1 || all[0].ContainerID != 0 || all[0].HostID != 0 || all[0].Size < math.MaxInt32 {
		t.Errorf("identities = %v, %v", all, err)
	}
}
