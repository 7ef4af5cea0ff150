//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// process is a proxy that runs beside this process.
type process struct {
	cmd   *exec.Cmd
	said  transcript
	addr  string // of its listener for requests
	admin string // URL of its metrics, or empty
	roots *x509.CertPool

	watch   sync.WaitGroup
	unwatch context.CancelFunc

	mu         sync.Mutex // guards the fields below
	files      int        // the most descriptors that were seen
	goroutines int        // the most that were seen
}

// config is the configuration of robotsproxy in all runs: the defaults, and the keys for hosts on this machine.
const config = `egress:
  allow_addresses: [127.0.0.0/8]
  ca_file: %s
%s`

// startRobotsproxy starts the proxy with its data in dir. more are further lines of its configuration.
func startRobotsproxy(program, dir string, w *web, more string) (*process, error) {
	ca, file := filepath.Join(dir, "web.pem"), filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(ca, w.ca.PEM(), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, config, ca, more), 0o600); err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	cmd := exec.Command(program, "serve", "--config", file, "--data-dir", data,
		"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	return start(cmd, w, filepath.Join(data, "ca.pem"))
}

var (
	greeting      = regexp.MustCompile(`(?m)^  proxy    http://(\S+)$`)
	adminGreeting = regexp.MustCompile(`(?m)^  admin    (http://\S+)`)
)

// start starts a proxy whose CA is in caFile, and returns when it has printed the address on which it listens.
func start(cmd *exec.Cmd, w *web, caFile string) (*process, error) {
	p := &process{cmd: cmd}
	cmd.Env = append(cmd.Environ(), dnsEnv+"="+w.dns.addr())
	cmd.Stdout, cmd.Stderr = io.Discard, &p.said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := p.greet(caFile); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.unwatch = cancel
	p.watch.Go(func() { p.observe(ctx) })
	return p, nil
}

func (p *process) greet(caFile string) error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		m := greeting.FindStringSubmatch(p.said.String())
		if m == nil {
			continue
		}
		p.addr = m[1]
		if m := adminGreeting.FindStringSubmatch(p.said.String()); m != nil {
			p.admin = m[1]
		}
		ca, err := os.ReadFile(caFile)
		p.roots = x509.NewCertPool()
		p.roots.AppendCertsFromPEM(ca)
		return err
	}
	return fmt.Errorf("%s did not say where it listens; it said:\n%s", p.cmd.Path, p.said.String())
}

// stop ends the process in good order, and kills it after half a minute.
func (p *process) stop() error {
	if p.unwatch != nil {
		p.unwatch()
		p.watch.Wait()
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	kill := time.AfterFunc(30*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	_ = p.cmd.Wait() // its status reports the signal
	return nil
}

// observe looks at the descriptors and the goroutines of the process every second.
func (p *process) observe(ctx context.Context) {
	for {
		files, _ := os.ReadDir(p.file("fd"))
		routines := p.countGoroutines()
		p.mu.Lock()
		p.files, p.goroutines = max(p.files, len(files)), max(p.goroutines, routines)
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// seen returns the most descriptors and goroutines that were seen.
func (p *process) seen() (files, routines int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.files, p.goroutines
}

var goroutines = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

// countGoroutines returns 0 if the process does not say.
func (p *process) countGoroutines() int {
	if p.admin == "" {
		return 0
	}
	resp, err := (&http.Client{Timeout: 5 * time.Second}).Get(p.admin + "/metrics")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	m := goroutines.FindSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}

func (p *process) file(name string) string {
	return fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, name)
}

// transcript keeps the first 64 KiB that a process says.
type transcript struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (t *transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text.Len() < 64<<10 {
		t.text.Write(b)
	}
	return len(b), nil
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
