//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// manager is a service manager: it receives notifications.
type manager struct {
	conn *net.UnixConn
	path string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &manager{conn, path}
}

// expect returns the next notification that contains want.
func (m *manager) expect(t *testing.T, want string) string {
	t.Helper()
	m.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	var seen []string
	for buf := make([]byte, 4096); ; {
		n, err := m.conn.Read(buf)
		if err != nil {
			t.Fatalf("no notification %q came, but %q: %v", want, seen, err)
		}
		if seen = append(seen, string(buf[:n])); slices.Contains(strings.Split(string(buf[:n]), "\n"), want) {
			return string(buf[:n])
		}
	}
}

// The service manager learns of the start, a reload and the stop, and that the proxy answers its own check.
func TestNotifications(t *testing.T) {
	m := newManager(t)
	s, err := startServer(filepath.Join(t.TempDir(), "data"), append(os.Environ(), "NOTIFY_SOCKET="+m.path, "WATCHDOG_USEC=300000"))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.expect(t, "READY=1"); !strings.Contains(got, "\nSTATUS=listening at "+s.proxy) {
		t.Errorf("the notification at the start is %q", got)
	}
	for range 3 {
		m.expect(t, "WATCHDOG=1")
	}
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if got := m.expect(t, "RELOADING=1"); !strings.Contains(got, "\nMONOTONIC_USEC=") {
		t.Errorf("the notification of a reload is %q", got)
	}
	m.expect(t, "READY=1")
	if err := s.stop(); err != nil {
		t.Errorf("the proxy ended with %v: %s", err, s.log)
	}
	if data, err := os.ReadFile(filepath.Join(s.dir, "audit.jsonl")); err != nil || len(data) > 0 {
		t.Errorf("the checks are recorded: %v, %s", err, data)
	}
	if got := m.expect(t, "STOPPING=1"); !strings.Contains(got, "\nSTATUS=0 requests and 0 tunnels, at most 30 s") {
		t.Errorf("the notification of the stop is %q", got)
	}
}

// A server that accepts connections in the kernel only is stuck. One that answers anything is not.
func TestWatchdogCheck(t *testing.T) {
	stuck, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := probe(ctx, stuck.Addr().String(), ""); err == nil || !strings.Contains(err.Error(), "no answer from "+stuck.Addr().String()) {
		t.Errorf("a server that is stuck: %v", err)
	}
	go func() {
		for {
			conn, err := stuck.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := probe(ctx, stuck.Addr().String(), ""); err != nil {
		t.Errorf("a server that closes connections: %v", err)
	}
}

// startWithSockets starts the program with listeners as its descriptors from 3 on. The shell sets LISTEN_PID, which is
// the process ID of the program.
func startWithSockets(t *testing.T, names string, listeners []net.Listener, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	shell := append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`, binaryPath, "serve", "--data-dir", filepath.Join(t.TempDir(), "data")}, args...)
	cmd := exec.Command("sh", shell...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("LISTEN_FDS=%d", len(listeners)))
	if names != "" {
		cmd.Env = append(cmd.Env, "LISTEN_FDNAMES="+names)
	}
	for _, l := range listeners {
		f, err := l.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd, bufio.NewReader(pipe)
}

func listenTCP(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// Sockets of the service manager replace the configured addresses, by name, or by position if they have no name.
func TestSocketActivation(t *testing.T) {
	for _, row := range []struct {
		names      string
		proxyFirst bool
	}{{"proxy:admin", true}, {"admin:proxy", false}, {"", true}, {"robotsproxy.socket:robotsproxy.socket", true}, {"admin:unknown", false}} {
		t.Run(row.names, func(t *testing.T) {
			first, second := listenTCP(t, "127.0.0.1:0"), listenTCP(t, "127.0.0.1:0")
			_, out := startWithSockets(t, row.names, []net.Listener{first, second}, "--listen", "127.0.0.1:1", "--admin-listen", "127.0.0.1:1")
			first.Close()
			second.Close()
			proxyAddr, adminAddr := first.Addr().String(), second.Addr().String()
			if !row.proxyFirst {
				proxyAddr, adminAddr = adminAddr, proxyAddr
			}
			// A connection that comes before the program serves waits in the socket.
			for url, want := range map[string]string{"http://" + adminAddr + "/readyz": "ok", "http://" + proxyAddr + "/proxy.pac": "PROXY " + proxyAddr} {
				resp, err := http.Get(url)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode != 200 || !strings.Contains(string(body), want) {
					t.Errorf("GET %s: %s %q, want %q", url, resp.Status, body, want)
				}
			}
			banner := ""
			for !strings.Contains(banner, "curl --proxy") {
				line, err := out.ReadString('\n')
				if banner += line; err != nil {
					break
				}
			}
			if !strings.Contains(banner, "proxy    http://"+proxyAddr) || !strings.Contains(banner, "--listen '"+proxyAddr+"'") {
				t.Errorf("the banner does not name the sockets' addresses:\n%s", banner)
			}
		})
	}
}

// Sockets that would make an open proxy, or that have no use, are refused as addresses in the configuration are.
func TestRefusedSockets(t *testing.T) {
	open := listenTCP(t, "0.0.0.0:0")
	loopback := listenTCP(t, "127.0.0.1:0")
	local, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	for _, row := range []struct {
		names     string
		listeners []net.Listener
		want      string
	}{
		{"proxy", []net.Listener{open}, "clients"},
		{"porxy", []net.Listener{loopback}, `no use for the socket "porxy"; FileDescriptorName= must be one of proxy, admin`},
		{"proxy:proxy", []net.Listener{loopback, loopback}, `two sockets have the name "proxy"`},
		{"proxy", []net.Listener{local}, "is not a TCP address"},
	} {
		cmd, out := startWithSockets(t, row.names, row.listeners)
		text, _ := io.ReadAll(out)
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitUsage || !strings.Contains(string(text), row.want) {
			t.Errorf("sockets %s: %v, %q; want status 2 and %q", row.names, err, text, row.want)
		}
	}
}

// No record is lost or torn if the file is renamed under load and the program gets SIGUSR1.
func TestReopenedRecords(t *testing.T) {
	site := robotstest.New(t)
	s := startSite(t, site, "\n  resolve: {a.example: 127.0.0.1}\n")
	proxyURL := &url.URL{Scheme: "http", Host: s.proxy}
	const clients, each = 8, 100
	var done atomic.Int64
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			transport := &http.Transport{Proxy: http.ProxyURL(proxyURL)}
			defer transport.CloseIdleConnections()
			for j := range each {
				resp, err := (&http.Client{Transport: transport}).Get(fmt.Sprintf("http://a.example:%d/page/1?n=%d.%d", site.Port(), i, j))
				if err != nil {
					t.Error(err)
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				done.Add(1)
			}
		})
	}
	path := filepath.Join(s.dir, "audit.jsonl")
	files := 1
	for ; done.Load() < clients*each*3/4 && !t.Failed(); files++ {
		if err := os.Rename(path, fmt.Sprintf("%s.%d", path, files)); err != nil {
			t.Fatal(err)
		}
		if err := s.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		settle(t, "reopened", func() bool { _, err := os.Stat(path); return err == nil })
		time.Sleep(20 * time.Millisecond)
	}
	all.Wait()
	if err := s.stop(); err != nil {
		t.Fatalf("%v: %s", err, s.log)
	}
	names, err := filepath.Glob(path + "*")
	if err != nil || len(names) != files || files < 3 {
		t.Fatalf("%d files, %v; want %d, and 3 at least", len(names), err, files)
	}
	seen := make(map[string]bool)
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(clientRecords(data)) {
			var rec struct{ Query string }
			if err := json.Unmarshal(line, &rec); err != nil || !bytes.HasSuffix(line, []byte("\n")) || seen[rec.Query] {
				t.Errorf("%s: %q: %v, or it is there twice", name, line, err)
			}
			seen[rec.Query] = true
		}
	}
	if len(seen) != clients*each {
		t.Errorf("%d records of %d requests in %d files", len(seen), clients*each, files)
	}
}

// An upgrade keeps the sockets of the service manager, which learns the ID of the process that serves.
func TestUpgradeWithSockets(t *testing.T) {
	m := newManager(t)
	t.Setenv("NOTIFY_SOCKET", m.path)
	proxyAt, adminAt := listenTCP(t, "127.0.0.1:0"), listenTCP(t, "127.0.0.1:0")
	data := filepath.Join(t.TempDir(), "data")
	cmd, out := startWithSockets(t, "proxy:admin", []net.Listener{proxyAt, adminAt}, "--data-dir", data)
	go io.Copy(io.Discard, out)
	m.expect(t, "READY=1")
	upgrade, err := exec.Command(binaryPath, "upgrade", "--data-dir", data, "--admin", "http://"+adminAt.Addr().String(), "--format", "json").CombinedOutput()
	if err != nil {
		t.Fatalf("upgrade: %v: %s", err, upgrade)
	}
	var u struct {
		PID    int `json:"pid"`
		OldPID int `json:"old_pid"`
	}
	if err := json.Unmarshal(upgrade, &u); err != nil || u.OldPID != cmd.Process.Pid {
		t.Fatalf("upgrade: %s, %v", upgrade, err)
	}
	next, err := os.FindProcess(u.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Kill()
	m.expect(t, fmt.Sprintf("MAINPID=%d", u.PID))
	if err := cmd.Wait(); err != nil {
		t.Errorf("the old process ended with %v", err)
	}
	resp, err := http.Get("http://" + proxyAt.Addr().String() + "/proxy.pac")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := next.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	m.expect(t, "STOPPING=1")
}
