//go:build unix

package main

import (
	"net"
	"os"
	"syscall"
)

// passed are the descriptors that another process gets, as copies.
type passed struct{ fds []int }

func newPassed() *passed { return &passed{} }

func (d *passed) close() {
	for _, fd := range d.fds {
		_ = syscall.Close(fd)
	}
}

// pair adds one end of a connection and returns the other.
func (d *passed) pair() (net.Conn, error) {
	syscall.ForkLock.RLock()
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(ends[0])
		syscall.CloseOnExec(ends[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	d.fds = append(d.fds, ends[1])
	f := os.NewFile(uintptr(ends[0]), "connection to the new process")
	defer f.Close()
	return net.FileConn(f)
}

// add adds a copy of the descriptor of l.
func (d *passed) add(l *net.TCPListener) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		var own int
		if own, failed = syscall.Dup(int(fd)); failed == nil {
			syscall.CloseOnExec(own)
			d.fds = append(d.fds, own)
		}
	})
	if err != nil {
		return err
	}
	return os.NewSyscallError("dup", failed)
}

// start starts the program at path with the arguments of this process. Its descriptors from 3 are those in d. Package
// os/exec would make the listeners blocking, in this process too.
func (d *passed) start(path string, env []string) (*os.Process, error) {
	files := []uintptr{0, 1, 2}
	for _, fd := range d.fds {
		files = append(files, uintptr(fd))
	}
	pid, _, err := syscall.StartProcess(path, os.Args, &syscall.ProcAttr{Env: env, Files: files})
	if err != nil {
		return nil, err
	}
	return os.FindProcess(pid)
}
