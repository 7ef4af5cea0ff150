package main

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// h2specDepartures are the cases of h2spec that fail. A plain http.Server of net/http fails them too. It ends the
// connection if a SETTINGS frame repeats a value (RFC 9113 section 6.5.3 has the last one count), and it answers a
// malformed request with 400 instead of a reset stream, which section 8.1.1 permits.
var h2specDepartures = []string{
	"http2/6.5.3/Sends multiple values of SETTINGS_INITIAL_WINDOW_SIZE",
	"http2/8.1.2.2/Sends a HEADERS frame that contains the connection-specific header field",
	`http2/8.1.2.2/Sends a HEADERS frame that contains the TE header field with any value other than "trailers"`,
}

// h2specPath is answered after a while: a case that ends a stream with a fault needs the stream to be open then.
const h2specPath = "/delay/50ms"

// TestH2spec runs h2spec in strict mode against the HTTP/2 server inside a CONNECT tunnel.
func TestH2spec(t *testing.T) {
	t.Parallel() // mostly waits
	report := runH2spec(t, h2specTunnel(t))
	var failed []string
	total := 0
	for _, suite := range report.Suites {
		for _, c := range suite.Cases {
			if total++; c.Error != "" || c.Failure != "" {
				failed = append(failed, c.Package+"/"+c.Class)
			}
		}
	}
	t.Logf("%d of %d cases pass", total-len(failed), total)
	if total < 140 {
		t.Fatalf("h2spec ran %d cases, want 140 or more", total)
	}
	if !slices.Equal(failed, h2specDepartures) {
		t.Errorf("failed:\n%s\nwant:\n%s", strings.Join(failed, "\n"), strings.Join(h2specDepartures, "\n"))
	}
}

// h2specReport is the part of h2spec's JUnit report that the test reads.
type h2specReport struct {
	Suites []struct {
		Cases []struct {
			Package string `xml:"package,attr"`
			Class   string `xml:"classname,attr"`
			Failure string `xml:"failure"`
			Error   string `xml:"error"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// runH2spec runs h2spec against localhost:port and returns its report.
func runH2spec(t *testing.T, port int) (report h2specReport) {
	t.Helper()
	dir := t.TempDir()
	program, file := filepath.Join(dir, "h2spec"), filepath.Join(dir, "report.xml")
	build := exec.Command("go", "build", "-modfile=../../tools/go.mod", "-o", program, "github.com/summerwind/h2spec/cmd/h2spec")
	if out, err := build.CombinedOutput(); err != nil {
		missing(t, fmt.Sprintf("h2spec (%v: %s)", err, out))
	}
	run := exec.Command(program, "--strict", "--timeout", "5", "--tls", "--insecure", "--host", "localhost", "--port", fmt.Sprint(port), "--path", h2specPath, "--junit-report", file)
	out, runErr := run.CombinedOutput() // an error means that a case failed
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("h2spec left no report: %v, %v:\n%s", runErr, err, out)
	}
	if err := xml.Unmarshal(data, &report); err != nil {
		t.Fatal(err)
	}
	return report
}

// h2specTunnel returns a port of localhost that leads through a CONNECT of the program to a site. H2spec sends the
// name and the port that it dials as :authority, so the program finds the same name and port, at another address, as
// the origin.
func h2specTunnel(t *testing.T) (port int) {
	t.Helper()
	site := robotstest.New(t)
	front, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port = front.Addr().(*net.TCPAddr).Port
	back, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.3:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("egress:\n  allow_addresses: [127.0.0.0/8]\n  ca_file: %s\n  resolve: {localhost: 127.0.0.3}\n", site.CAFile())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := startServer(filepath.Join(t.TempDir(), "data"), os.Environ(), "--config", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		s.cmd.Wait()
	})
	relay(t, front, func() (net.Conn, error) { return s.connect(fmt.Sprintf("localhost:%d", port)) })
	relay(t, back, func() (net.Conn, error) { return net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", site.TLSPort())) })
	return port
}

// connect opens a tunnel to authority.
func (s *server) connect(authority string) (net.Conn, error) {
	conn, err := net.Dial("tcp", s.proxy)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", authority); err != nil {
		conn.Close()
		return nil, err
	}
	// The client sends first inside the tunnel, so the reader has buffered only this response.
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("CONNECT %s: %s", authority, resp.Status)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// relay joins each connection that l accepts with one of dial, until the test ends.
func relay(t *testing.T, l net.Listener, dial func() (net.Conn, error)) {
	t.Cleanup(func() { l.Close() })
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		to.Close()
		from.Close()
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := dial()
			if err != nil {
				in.Close()
				continue
			}
			go pass(in, out)
			go pass(out, in)
		}
	}()
}
