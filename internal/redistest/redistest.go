// Package redistest runs a real redis-server for a test.
//
//	server := redistest.Start(t) // killed when the test ends
//	client := connect(server.URL())
//	server.Kill()    // like kill -9
//	server.Restart() // on the same port, without its data
//	server.Stop()    // hangs until Continue
//	server.Do("CLIENT KILL TYPE normal")
//
// A Relay between a server and its clients makes the network slow or unreliable.
//
// If redis-server is not installed the test is skipped, or fails if CI is "true".
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

// Server is a redis-server without persistence.
type Server struct {
	tb   testing.TB
	addr string
	args []string
	cmd  *exec.Cmd
}

// Start starts a redis-server on a free port of 127.0.0.1. Args are added to its command line; later ones override
// earlier ones.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := New(tb)
	_, port, _ := net.SplitHostPort(s.addr)
	s.Args(append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", tb.TempDir()}, args...)...)
	s.Restart()
	return s
}

// New returns a server that is not running, with a free port and no arguments.
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
	ports   = make(map[int]bool) // used by this process
)

// freePort returns a free port, below the range of ephemeral ports. The port of a killed server must still be free when
// the server restarts, and so must its Cluster bus port, which is 10,000 higher.
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

// Addr returns the host and port.
func (s *Server) Addr() string { return s.addr }

// Port returns the port.
func (s *Server) Port() string {
	_, port, _ := net.SplitHostPort(s.addr)
	return port
}

// URL returns the address in the form of go-redis.
func (s *Server) URL() string { return "redis://" + s.addr }

// Restart starts the server and waits until it listens.
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

// Kill kills the server, if it runs.
func (s *Server) Kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// Stop suspends the server's process, which does not answer until Continue.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Continue ends a Stop.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig os.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatal(err)
	}
}

// Do sends one command, its words separated by spaces, on a new connection, and returns the first line of the reply. An
// error reply fails the test.
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
