package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// programPath returns the path by which this program was started. At an upgrade it may name another file.
func programPath() (string, error) {
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return os.Executable()
	}
	return filepath.Abs(path)
}

// successor is the process that replaces this one.
type successor struct {
	process *os.Process
	path    string
	version string
	control *upgradeControl
	lanes   net.Conn
	exited  chan struct{} // closed when the process has ended
	state   *os.ProcessState
}

// startSuccessor starts the program at path with the arguments of this process, and passes the sockets on.
func startSuccessor(path, pace string, sockets *sockets) (*successor, error) {
	i := inheritance{Pace: pace, Managed: sockets.managed}
	fds := newPassed()
	defer fds.close()
	control, err := fds.pair()
	if err != nil {
		return nil, err
	}
	lanes, err := fds.pair()
	if err != nil {
		control.Close()
		return nil, err
	}
	for _, s := range sockets.open {
		if err = fds.add(s.listener); err != nil {
			break
		}
		i.Sockets = append(i.Sockets, s.name)
	}
	c := &successor{path: path, control: newUpgradeControl(control), lanes: lanes, exited: make(chan struct{})}
	if err == nil {
		c.process, err = fds.start(path, successorEnv(i))
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	go c.wait()
	return c, nil
}

// successorEnv returns the environment of a process that inherits i.
func successorEnv(i inheritance) []string {
	text, _ := json.Marshal(i) // it has only strings
	env := []string{inheritanceVar + "=" + string(text)}
	for _, v := range os.Environ() {
		// The watchdog watches the process that serves, under whatever number.
		if !strings.HasPrefix(v, "WATCHDOG_PID=") {
			env = append(env, v)
		}
	}
	return env
}

func (c *successor) wait() {
	c.state, _ = c.process.Wait() // an error leaves it nil
	close(c.exited)
}

func (c *successor) close() {
	c.control.Close()
	c.lanes.Close()
}

// readyTime is how long a new process may take until it can take over.
const readyTime = 30 * time.Second

// awaitReady waits until the new process can take over.
func (c *successor) awaitReady() error {
	_ = c.control.SetReadDeadline(time.Now().Add(readyTime))
	m, err := c.control.receive()
	_ = c.control.SetReadDeadline(time.Time{})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s was not ready to take over within %v; it was killed", c.path, readyTime)
	case err != nil:
		return c.endedEarly()
	case !m.Ready:
		return fmt.Errorf("%s cannot take over: %s", c.path, m.Error)
	}
	c.version = m.Version
	return nil
}

// endedEarly returns the error for a process that has closed the control connection.
func (c *successor) endedEarly() error {
	select {
	case <-c.exited:
		return fmt.Errorf("%s has ended before it could take over: %v; its messages are in the log", c.path, c.state)
	case <-time.After(time.Second):
		return fmt.Errorf("%s does not take over; it was killed", c.path)
	}
}

// kill ends the process, which may have ended already.
func (c *successor) kill() {
	_ = c.process.Kill()
	<-c.exited
	c.close()
}
