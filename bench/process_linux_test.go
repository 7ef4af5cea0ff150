package bench

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/bench/internal/lab"
)

// process is a proxy that runs beside this process.
type process struct {
	cmd  *exec.Cmd
	addr string         // where it takes requests
	ca   *x509.CertPool // its own CA, which clients must trust
	data string         // robotsproxy's data directory
}

// startRobotsproxy starts the proxy with everything on, as it is by default, but for what a site on this machine needs
// and for the limit on requests at once, which is below the number of crawlers. more are other lines of its configuration.
func startRobotsproxy(tb testing.TB, o *origins, more ...string) *process {
	tb.Helper()
	dir := tb.TempDir()
	config := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf(`egress:
  allow_addresses: [127.0.0.0/8]
  ca_file: %s
  resolve: {%s: 127.0.0.1}
pacing:
  max_concurrent: 0
%s`, o.site.CAFile(), host, strings.Join(more, "\n"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	p := start(tb, nil, binary, "serve", "--config", config, "--data-dir", data, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	p.data = data
	p.trust(tb, filepath.Join(data, "ca.pem"))
	return p
}

var greeting = regexp.MustCompile(`(?m)^  proxy    http://(\S+)$`)

// start runs a command on the proxies' processor until the test ends, and returns when it has said where it listens.
func start(tb testing.TB, env []string, name string, args ...string) *process {
	tb.Helper()
	said := &transcript{written: make(chan struct{}, 1)}
	p := &process{cmd: exec.Command(name, args...)}
	p.cmd.Env = append(os.Environ(), append(env, "GOMAXPROCS=1")...)
	p.cmd.Stderr = said
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := lab.StartOn(proxyCPU, p.cmd); err != nil {
		tb.Fatalf("starting %s: %v", name, err)
	}
	tb.Cleanup(p.stop)
	deadline := time.After(30 * time.Second)
	for {
		if m := greeting.FindStringSubmatch(said.String()); m != nil {
			p.addr = m[1]
			return p
		}
		select {
		case <-said.written:
		case <-deadline:
			tb.Fatalf("%s did not say where it listens; it said:\n%s", name, said)
		}
	}
}

// stop ends the process in good order, so that all its records are written.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails where it has ended already
	_ = p.cmd.Wait()
}

func (p *process) trust(tb testing.TB, file string) {
	tb.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	p.ca = x509.NewCertPool()
	if !p.ca.AppendCertsFromPEM(data) {
		tb.Fatalf("%s holds no certificate", file)
	}
}

// cpu returns the processor time that the process has used, in user and in kernel mode.
func (p *process) cpu(tb testing.TB) time.Duration {
	tb.Helper()
	used, err := lab.CPU(p.cmd.Process.Pid)
	if err != nil {
		tb.Fatal(err)
	}
	return used
}

// transcript gathers what a process says.
type transcript struct {
	mu      sync.Mutex // guards text
	text    bytes.Buffer
	written chan struct{}
}

func (t *transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case t.written <- struct{}{}:
	default: // the reader will find this too
	}
	return t.text.Write(b)
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
