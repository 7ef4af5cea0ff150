//go:build linux

package main

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/robotsproxy/robotsproxy/bench/internal/lab"
)

// process is a proxy that runs beside this process.
type process struct {
	cmd   *exec.Cmd
	said  transcript
	addr  string
	admin string         // of robotsproxy
	roots *x509.CertPool // with the CA of the proxy
	ended chan struct{}  // closed after the end
}

// start starts a proxy on its processor, and returns when it accepts connections.
func start(cpu int, cmd *exec.Cmd, addr string) (*process, error) {
	p := &process{cmd: cmd, addr: addr, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.said, &p.said
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := lab.StartOn(cpu, cmd); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // its status reports the signal
		close(p.ended)
	}()
	if err := p.await(); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *process) await() error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		c, err := net.Dial("tcp", p.addr)
		if err == nil {
			return c.Close()
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended; it said:\n%s", p.cmd.Path, p.said.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s does not accept connections; it said:\n%s", p.cmd.Path, p.said.String())
}

// stop ends the process in good order, and kills it after ten seconds.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended already
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// trust reads the CA of the proxy.
func (p *process) trust(file string) error {
	ca, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	p.roots = x509.NewCertPool()
	if !p.roots.AppendCertsFromPEM(ca) {
		return fmt.Errorf("%s contains no certificate", file)
	}
	return nil
}

// cpu returns the processor time that the process and its descendants have used.
func (p *process) cpu() (time.Duration, error) { return total(p, lab.CPU) }

// memory returns the resident memory of them all, in bytes.
func (p *process) memory() (int64, error) { return total(p, lab.Memory) }

// peakMemory returns the sum of the most that each of them has had.
func (p *process) peakMemory() (int64, error) { return total(p, lab.PeakMemory) }

func total[N ~int64](p *process, of func(pid int) (N, error)) (sum N, err error) {
	tree, err := lab.Tree(p.cmd.Process.Pid)
	for _, pid := range tree {
		n, failure := of(pid)
		sum += n
		err = errors.Join(err, failure)
	}
	return sum, err
}

// freeAddr returns an address on which nothing listens.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// transcript keeps the first 16 KiB that a process says.
type transcript struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (t *transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text.Len() < 16<<10 {
		t.text.Write(b)
	}
	return len(b), nil
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
