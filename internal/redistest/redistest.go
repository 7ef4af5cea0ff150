// Package redistest runs a real redis-server for one test.
//
//	server := redistest.Start(t) // killed when the test ends
//	client := connect(server.URL())
//	server.Kill()    // as kill -9 does
//	server.Restart() // on the same port, and without what it knew
//	server.Stop()    // hangs until Continue
//	server.Do("CLIENT KILL TYPE normal")
//
// A Relay stands between a server and its clients, and makes the network between them slow or unreliable.
//
// Where redis-server is not installed the test is skipped, or fails if CI is "true".
package redistest

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Server is a redis-server that keeps nothing on disk.
type Server struct {
	tb   testing.TB
	addr string
	args []string
	cmd  *exec.Cmd
}

// Start starts a redis-server on a free port of 127.0.0.1. Args are further ones for its command line; a later one goes
// before an earlier one.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := New(tb)
	_, port, _ := net.SplitHostPort(s.addr)
	s.Args(append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", tb.TempDir()}, args...)...)
	s.Restart()
	return s
}

// New returns a server that does not run yet, with a free port and no arguments.
func New(tb testing.TB) *Server {
	tb.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" {
			tb.Fatal("redis-server is not here, and CI needs it")
		}
		tb.Skip("redis-server is not here")
	}
	s := &Server{tb: tb, addr: fmt.Sprintf("127.0.0.1:%d", freePort(tb))}
	tb.Cleanup(s.Kill)
	return s
}

var (
	portsMu sync.Mutex
	ports   = make(map[int]bool) // that this process has used
)

// freePort returns a port that nothing listens on. It is below those that the system gives out, since the port of a server
// that was killed must still be free when it is restarted, and so must that of its Cluster bus, which is 10,000 higher.
func freePort(tb testing.TB) int {
	tb.Helper()
	portsMu.Lock()
	defer portsMu.Unlock()
	for range 1000 {
		port := 10_240 + rand.IntN(12_000)
		if ports[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		l.Close()
		ports[port] = true
		return port
	}
	tb.Fatal("no port is free")
	return 0
}

// Args sets the command line for the next Restart.
func (s *Server) Args(args ...string) { s.args = args }

// Addr is host and port.
func (s *Server) Addr() string { return s.addr }

// Port is the port alone.
func (s *Server) Port() string {
	_, port, _ := net.SplitHostPort(s.addr)
	return port
}

// URL is the address as go-redis reads it.
func (s *Server) URL() string { return "redis://" + s.addr }

// Restart starts the server, and waits until it listens.
func (s *Server) Restart() {
	s.tb.Helper()
	s.cmd = exec.Command("redis-server", s.args...)
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
	for range 2000 {
		if c, err := net.Dial("tcp", s.addr); err == nil {
			c.Close()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.tb.Fatalf("redis-server does not listen on %s", s.addr)
}

// Kill ends the server at once, if it runs.
func (s *Server) Kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// Stop stops the process of the server, which then answers nothing until Continue.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Continue ends a Stop.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig os.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatal(err)
	}
}

// Do sends one command, its words separated by spaces, on a connection of its own, and returns the first line of the
// answer. An error that the server answers fails the test.
func (s *Server) Do(command string) string {
	s.tb.Helper()
	conn, err := net.DialTimeout("tcp", s.addr, time.Minute)
	if err != nil {
		s.tb.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		s.tb.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || strings.HasPrefix(line, "-") {
		s.tb.Fatalf("%s: %s %v", command, line, err)
	}
	return strings.TrimSpace(line)
}
