// Package pgtest runs a real PostgreSQL server for a test.
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }
//
//	dsn := pgtest.Database(t)  // an empty database of a server that the tests of this process share
//	server := pgtest.Start(t)  // a server of its own, stopped when the test ends
//	server.Kill()              // without a checkpoint, like a crash
//	server.Restart()           // on the same port, with its data
//
// If PostgreSQL is not installed the test is skipped, or fails if CI is "true". It refuses to run as root, so that a
// test that runs as root starts it as the user postgres.
package pgtest

import (
	"bytes"
	"fmt"
	"net"
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
)

// Password is the password of the user postgres.
const Password = "not/a:secret"

// Server is a PostgreSQL server without fsync, unless an argument enables it.
type Server struct {
	bin, dir string
	port     int
	args     []string
	cmd      *exec.Cmd
	log      *os.File
}

// Start starts a server on a free port of 127.0.0.1. Args are settings such as "max_connections=20"; later ones
// override earlier ones.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	bin := folder(tb)
	s, err := start(bin, args)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		s.Stop()
		os.RemoveAll(s.dir)
	})
	return s
}

var shared struct {
	once   sync.Once
	server *Server
	err    error
	names  atomic.Int64
}

// Database returns the URL of a new, empty database on the server that the tests of this process share. TestMain must
// call Run.
func Database(tb testing.TB) string {
	tb.Helper()
	bin := folder(tb)
	shared.once.Do(func() { shared.server, shared.err = start(bin, []string{"max_connections=300"}) })
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	return shared.server.Database(tb)
}

// Run runs the tests of m and stops the server that they share.
func Run(m *testing.M) int {
	defer Close()
	return m.Run()
}

// Close stops the server that the tests share, if it was started. No test may run after it.
func Close() {
	if s := shared.server; s != nil {
		s.Stop()
		os.RemoveAll(s.dir)
	}
}

// Database returns the URL of a new, empty database. The user of the URL is postgres.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("test%d", shared.names.Add(1))
	s.SQL(tb, "postgres", "CREATE DATABASE "+name)
	return s.URL(name)
}

// URL returns the URL of a database, with the password.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", Password), Host: s.Addr(), Path: "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Addr returns the host and port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// SQL executes text in a database and returns the rows without their header, with tabs between columns. An error fails
// the test.
func (s *Server) SQL(tb testing.TB, database, text string) string {
	tb.Helper()
	return psql(tb, filepath.Join(s.bin, "psql"), s.URL(database), text)
}

// SQL executes text in the database at dsn: see Server.SQL.
func SQL(tb testing.TB, dsn, text string) string {
	tb.Helper()
	return psql(tb, filepath.Join(folder(tb), "psql"), dsn, text)
}

func psql(tb testing.TB, bin, dsn, text string) string {
	tb.Helper()
	cmd := exec.Command(bin, "-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-d", dsn, "-c", text)
	var out, fault bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &fault
	if err := cmd.Run(); err != nil {
		tb.Fatalf("psql: %s: %v\n%s", text, err, fault.String())
	}
	return strings.TrimSpace(out.String())
}

// Restart starts a server that was stopped or killed, and waits until it answers.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	if err := s.run(); err != nil {
		tb.Fatal(err)
	}
}

// Stop ends all connections and stops the server, if it runs.
func (s *Server) Stop() { s.end(syscall.SIGINT) }

// Kill ends the server without a checkpoint, so that Restart recovers from its log as after a crash.
func (s *Server) Kill() { s.end(syscall.SIGQUIT) }

func (s *Server) end(sig syscall.Signal) {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(sig)
	_ = s.cmd.Wait()
	s.cmd = nil
	s.log.Close()
}

// folder returns the folder of PostgreSQL's programs: the latest version of Debian's, or that of the PATH.
func folder(tb testing.TB) string {
	tb.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) > 0 {
		return filepath.Dir(slices.MaxFunc(found, func(a, b string) int {
			if len(a) != len(b) {
				return len(a) - len(b) // 9 before 15
			}
			return strings.Compare(a, b)
		}))
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path)
	}
	if os.Getenv("CI") == "true" {
		tb.Fatal("PostgreSQL is not here, and CI needs it")
	}
	tb.Skip("PostgreSQL is not here")
	return ""
}

func start(bin string, args []string) (*Server, error) {
	dir, err := os.MkdirTemp("", "pgtest")
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir, args: args}
	if err := s.create(); err != nil {
		return nil, err
	}
	return s, s.run()
}

// create makes the data of a new server.
func (s *Server) create() error {
	secret := filepath.Join(s.dir, "password")
	if err := os.WriteFile(secret, []byte(Password+"\n"), 0o600); err != nil {
		return err
	}
	if err := give(s.dir, secret); err != nil {
		return err
	}
	cmd := s.command("initdb", "-D", filepath.Join(s.dir, "data"), "-N", "-U", "postgres", "-E", "UTF8", "--locale=C",
		"-A", "scram-sha-256", "--pwfile", secret)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	port, err := freePort()
	s.port = port
	return err
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, attributes()
	return cmd
}

// run starts the server and waits until it answers.
func (s *Server) run() (err error) {
	args := []string{"-D", filepath.Join(s.dir, "data")}
	for _, setting := range append([]string{
		"fsync=off", "listen_addresses=127.0.0.1", fmt.Sprintf("port=%d", s.port), "unix_socket_directories=",
	}, s.args...) {
		args = append(args, "-c", setting)
	}
	log := filepath.Join(s.dir, "log")
	if s.log, err = os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return err
	}
	s.cmd = s.command("postgres", args...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for range 600 {
		ready := exec.Command(filepath.Join(s.bin, "pg_isready"), "-q", "-h", "127.0.0.1", "-p", fmt.Sprint(s.port))
		if ready.Run() == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	text, _ := os.ReadFile(log)
	s.Kill()
	return fmt.Errorf("PostgreSQL does not answer:\n%s", text)
}

// freePort returns a free port. The server keeps it over a Restart, unless another program takes it meanwhile.
func freePort() (int, error) {
	for port := 22_300 + os.Getpid()%5000; port < 32_000; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("no port is free")
}
