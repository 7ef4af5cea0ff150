package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/robotsproxy/robotsproxy/internal/pgtest"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// binaryPath is the path of the program, which TestMain builds like a release.
var binaryPath string

// apart is the variable that tells a process of the tests that it has a network of its own. Its value is binaryPath.
const apart = "TEST_PROGRAM_APART"

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

// testMain runs the tests with the built program, and checks that no goroutine is left.
func testMain(m *testing.M) int {
	if binaryPath = os.Getenv(apart); binaryPath != "" { // which another process has built
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "robotsproxy")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binaryPath = filepath.Join(dir, "robotsproxy")
	args := []string{"build", "-o", binaryPath}
	if raceEnabled {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the program: %v\n%s", err, out)
		return 1
	}
	os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	if status := pgtest.Run(m); status != 0 {
		return status
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections() // of the tests
	if err := goleak.Find(
		goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"), // of clients of the tests
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("github.com/chromedp/chromedp.(*subscription).pump"),
	); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// The scripts in testdata/script are sessions with the built program. Besides testscript's own commands they have
// site, serve, halt, crash, records, metric and expect, see below; $HTTP, $HTTPS are the ports of the fake site, $CONFIG a
// configuration that finds a.example, b.example and c.example there.
func TestScripts(t *testing.T) {
	long(t)
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/script",
		Setup: setUp,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"site": scriptSite, "serve": scriptServe, "halt": scriptHalt, "crash": scriptCrash, "records": scriptRecords, "metric": scriptMetric,
			"expect": scriptExpect,
		},
		Condition: scriptCondition,
	})
}

// tryNamespaces returns an error if a process here gets no user and network namespace of its own.
func tryNamespaces() error { return exec.Command("unshare", "--user", "--net", "true").Run() }

// scriptCondition implements [missing:PROGRAM] and [missing:namespaces], which fail the test if all programs must be
// installed.
func scriptCondition(name string) (bool, error) {
	program, ok := strings.CutPrefix(name, "missing:")
	if !ok {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	_, err := exec.LookPath(program)
	if program == "namespaces" {
		err = tryNamespaces()
	}
	if err != nil && os.Getenv("CI") == "true" {
		return false, fmt.Errorf("%s is not here, and CI needs it", program)
	}
	return err != nil, nil
}

type (
	siteKey   struct{}
	serverKey struct{}
)

// setUp starts a site for each script.
func setUp(env *testscript.Env) error {
	site, err := robotstest.Start(robotstest.Options{})
	if err != nil {
		return err
	}
	env.Defer(site.Close)
	config := filepath.Join(env.WorkDir, "config.yaml")
	env.Values[siteKey{}] = site
	env.Values[serverKey{}] = new(*server)
	env.Setenv("HTTP", fmt.Sprint(site.Port()))
	env.Setenv("HTTPS", fmt.Sprint(site.TLSPort()))
	env.Setenv("SITE_CA", site.CAFile())
	env.Setenv("CONFIG", config)
	env.Setenv("HOME", env.WorkDir)
	env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
	return os.WriteFile(config, []byte(siteConfig(site)), 0o600)
}

// siteConfig returns a configuration in which all hosts resolve to site.
func siteConfig(site *robotstest.Site) string {
	return fmt.Sprintf(`egress:
  allow_addresses: [127.0.0.0/8]
  ca_file: %s
  resolve: {a.example: 127.0.0.1, b.example: 127.0.0.1, c.example: 127.0.0.1}
`, site.CAFile())
}

// site robots HOST FILE [STATUS] sets a robots.txt; site requests HOST prints how many targets
// the host received, and each on a line; site asked HOST TARGET prints the number of requests for TARGET.
func scriptSite(ts *testscript.TestScript, _ bool, args []string) {
	site := ts.Value(siteKey{}).(*robotstest.Site)
	switch {
	case len(args) >= 3 && args[0] == "robots":
		r := robotstest.Robots{Body: ts.ReadFile(args[2])}
		if len(args) > 3 {
			_, err := fmt.Sscan(args[3], &r.Status)
			ts.Check(err)
		}
		site.SetRobots(args[1], r)
	case len(args) == 4 && args[0] == "page":
		site.SetPage(args[1], args[2], scriptPage(ts.ReadFile(args[3])))
	case len(args) == 2 && args[0] == "requests":
		targets := site.Paths(args[1])
		fmt.Fprintln(ts.Stdout(), len(targets), "targets")
		for _, target := range targets {
			fmt.Fprintln(ts.Stdout(), target)
		}
	case len(args) == 3 && args[0] == "asked":
		fmt.Fprintln(ts.Stdout(), asked(site, args[1], args[2]))
	default:
		ts.Fatalf("usage: site robots HOST FILE [STATUS] | site page HOST PATH FILE | site requests HOST | site asked HOST TARGET")
	}
}

// scriptPage returns a page that answers with a file: a line with the status, the lines of the header, an empty line, and
// the body.
func scriptPage(file string) http.HandlerFunc {
	head, body, _ := strings.Cut(file, "\n\n")
	lines := strings.Split(head, "\n")
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, line := range lines[1:] {
			name, value, _ := strings.Cut(line, ": ")
			w.Header().Add(name, value)
		}
		status, _ := strconv.Atoi(lines[0])
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// server is the program while it serves.
type server struct {
	cmd   *exec.Cmd
	proxy string // address
	admin string
	dir   string // its data directory
	ca    string // path of its CA
	log   *lockedBuffer
	said  chan struct{} // closed when the log is complete
}

var (
	proxyLine = regexp.MustCompile(`(?m)^  proxy +https?://(\S+)$`)
	adminLine = regexp.MustCompile(`(?m)^  admin +http://(\S+) `)
)

// startServer starts the program and waits for its banner.
func startServer(dir string, env []string, args ...string) (*server, error) {
	return startProgram(binaryPath, dir, env, args...)
}

// startProgram is startServer for a program at path.
func startProgram(path, dir string, env []string, args ...string) (*server, error) {
	all := append([]string{"serve", "--data-dir", dir, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)
	s := &server{cmd: exec.Command(path, all...), dir: dir, ca: filepath.Join(dir, "ca.pem"), log: &lockedBuffer{}, said: make(chan struct{})}
	s.cmd.Env, s.cmd.Dir = env, filepath.Dir(dir)
	pipe, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(pipe)
	for {
		line, err := lines.ReadString('\n')
		s.log.WriteString(line)
		if err != nil {
			return nil, fmt.Errorf("serve ended early (%v): %s", s.cmd.Wait(), s.log)
		}
		if strings.Contains(line, "curl --proxy") {
			break
		}
	}
	go func() {
		defer close(s.said)
		io.Copy(s.log, lines)
	}()
	banner := s.log.String()
	s.proxy, s.admin = proxyLine.FindStringSubmatch(banner)[1], adminLine.FindStringSubmatch(banner)[1]
	return s, nil
}

// stop signals the program to end and returns its result. The log is complete then.
func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-s.said // Wait closes the pipe, even if it has unread data
	return s.cmd.Wait()
}

// deadProxy is in the environment of every proxy. Users put the proxy there, and the proxy must ignore it.
const deadProxy = "http://127.0.0.1:9"

// serve [FLAG...] starts the proxy with $CONFIG and sets PROXY, ADMIN, ADMIN_ADDRESS, CA and DATA.
func scriptServe(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs("data")
	if !slices.Contains(args, "--config") {
		args = append([]string{"--config", ts.Getenv("CONFIG")}, args...)
	}
	s, err := startServer(dir, append(os.Environ(), "HOME="+ts.Getenv("HOME"), "HTTP_PROXY="+deadProxy, "HTTPS_PROXY="+deadProxy), args...)
	ts.Check(err)
	ts.Defer(func() {
		s.cmd.Process.Kill()
		s.cmd.Wait()
	})
	ts.Setenv("PROXY", "http://"+s.proxy)
	ts.Setenv("ADMIN", "http://"+s.admin)
	ts.Setenv("ADMIN_ADDRESS", s.admin)
	ts.Setenv("CA", s.ca)
	ts.Setenv("DATA", dir)
	*ts.Value(serverKey{}).(**server) = s
}

// halt ends the proxy of this script (stop is a command of testscript, and ends the script); its log is then the
// output.
func scriptHalt(ts *testscript.TestScript, _ bool, _ []string) {
	s := *ts.Value(serverKey{}).(**server)
	if s == nil {
		ts.Fatalf("nothing was served")
	}
	ts.Check(s.stop())
	fmt.Fprint(ts.Stdout(), s.log)
}

// crash ends the proxy of this script as a power cut would.
func scriptCrash(ts *testscript.TestScript, _ bool, _ []string) {
	s := *ts.Value(serverKey{}).(**server)
	if s == nil {
		ts.Fatalf("nothing was served")
	}
	ts.Check(s.cmd.Process.Kill())
	s.cmd.Wait()
}

// expect waits until a line of the log of this script's proxy matches a regular expression: expect REGEXP.
func scriptExpect(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: expect REGEXP")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	s := *ts.Value(serverKey{}).(**server)
	for deadline := time.Now().Add(10 * time.Second); !pattern.MatchString(s.log.String()); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("no line matches %s:\n%s", pattern, s.log)
		}
	}
}

// records prints the audit of this script's proxy once it has at least N lines about requests of clients, and only
// those: records N.
func scriptRecords(ts *testscript.TestScript, _ bool, args []string) {
	var want int
	if _, err := fmt.Sscan(args[0], &want); err != nil {
		ts.Fatalf("usage: records N")
	}
	path := filepath.Join(ts.Getenv("DATA"), "audit.jsonl")
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		data, _ := os.ReadFile(path)
		data = clientRecords(data)
		if bytes.Count(data, []byte("\n")) >= want {
			fmt.Fprint(ts.Stdout(), string(data))
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%d records wanted, and these are there:\n%s", want, data)
		}
	}
}

// metric waits until a number among the metrics of this script's proxy is N: metric NAME N.
func scriptMetric(ts *testscript.TestScript, _ bool, args []string) {
	var want int
	if len(args) != 2 {
		ts.Fatalf("usage: metric NAME N")
	}
	_, err := fmt.Sscan(args[1], &want)
	ts.Check(err)
	s := *ts.Value(serverKey{}).(**server)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		got, err := s.metric(args[0])
		ts.Check(err)
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s is %d, want %d", args[0], got, want)
		}
	}
}
