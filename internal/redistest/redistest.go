// Package redistest runs a real redis-server for one test.
//
//	server := redistest.Start(t) // killed when the test ends
//	client := connect(server.URL())
//	server.Kill()    // as kill -9 does
//	server.Restart() // on the same port, and without what it knew
//
// Where redis-server is not installed the test is skipped, or fails if CI is "true".
package redistest

import (
	"net"
	"os"
	"os/exec"
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	s := &Server{tb: tb, addr: l.Addr().String()}
	tb.Cleanup(s.Kill)
	return s
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
