package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// rawCases are bytes that a client library would not send. HOST and TLS are the authorities of the site. Each row has
// the statuses of all responses, and the requests that the site receives.
var rawCases = []struct {
	name, octets string
	tls          string // sent inside TLS after it
	statuses     string
	sent         string
}{
	{"as it should be", "GET http://HOST/page/1 HTTP/1.1\r\nHost: HOST\r\n\r\n", "", "200", "/page/1"},
	{"encoded, dots and slashes", "GET http://HOST/x//%2e%2E//%70rivate/1 HTTP/1.1\r\nHost: HOST\r\n\r\n", "", "403", ""},
	{"an encoded slash is no slash", "GET http://HOST/private%2F1 HTTP/1.1\r\nHost: HOST\r\n\r\n", "", "404", "/private%2F1"},
	{"encoded slashes beside dots", "GET http://HOST/x%2f..%2Fprivate/1 HTTP/1.1\r\nHost: HOST\r\n\r\n", "", "403", ""},
	{"path parameters of dots", "GET http://HOST/x/..;a=b/private/1 HTTP/1.1\r\nHost: HOST\r\n\r\n", "", "403", ""},
	{"a field with another path", "GET http://HOST/page/1 HTTP/1.1\r\nHost: HOST\r\nX-Original-URL: /private/1\r\nx_rewrite_url: /private/1\r\n\r\n", "", "200", "/page/1"},
	{"every spelling of the host", "GET http://u:p@A.EXAMPLE.:0PORT/private/1 HTTP/1.1\r\nHost: b.example\r\n\r\n", "", "403", ""},
	{"any method", "PROPFIND http://HOST/private/1 HTTP/1.1\r\nHost: HOST\r\n\r\n", "", "403", ""},
	{"WebSocket", "GET http://HOST/private/1 HTTP/1.1\r\nHost: HOST\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", "", "403", ""},
	{"CL.TE", "POST http://HOST/echo HTTP/1.1\r\nHost: HOST\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET http://HOST/page/1 HTTP/1.1\r\nHost: HOST\r\n\r\n", "", "400", ""},
	{"TE.TE", "POST http://HOST/echo HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding : x\r\n\r\n0\r\n\r\n", "", "400", ""},
	{"bare LF", "GET http://HOST/page/1 HTTP/1.1\nHost: HOST\n\n", "", "400", ""},
	{"a folded line", "GET http://HOST/page/1 HTTP/1.1\r\nHost: HOST\r\nX: y\r\n z\r\n\r\n", "", "400", ""},
	{"pipelined behind a sound one", "GET http://HOST/page/1 HTTP/1.1\r\nHost: HOST\r\n\r\nGET http://HOST/page/2 HTTP/1.1\r\nHost : HOST\r\n\r\n", "", "200 400", "/page/1"},
	{"HTTP/2 in clear", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "", "505", ""},
	{"SSH in a tunnel", "CONNECT HOST HTTP/1.1\r\nHost: HOST\r\n\r\nSSH-2.0-x\r\n", "", "200 400", ""},
	{"a broken chunk in a tunnel", "CONNECT HOST HTTP/1.1\r\nHost: HOST\r\n\r\nPOST /private/1 HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\n", "", "200 403", ""},
	{"in TLS", "CONNECT TLS HTTP/1.1\r\nHost: TLS\r\n\r\n", "GET /page/1 HTTP/1.1\r\nHost: TLS\r\n\r\n", "200", "/page/1"},
	{"two names in TLS, for a later request too", "CONNECT TLS HTTP/1.1\r\nHost: TLS\r\n\r\n", "GET /page/1 HTTP/1.1\r\nHost: TLS\r\n\r\nGET /page/2 HTTP/1.1\r\nHost: b.example\r\n\r\n", "200 421", "/page/1"},
	{"CL.TE in TLS", "CONNECT TLS HTTP/1.1\r\nHost: TLS\r\n\r\n", "POST /echo HTTP/1.1\r\nHost: TLS\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", "400", ""},
	{"two Hosts in TLS", "CONNECT TLS HTTP/1.1\r\nHost: TLS\r\n\r\n", "GET /page/1 HTTP/1.1\r\nHost: TLS\r\nHost: b.example\r\n\r\n", "400", ""},
}

// Each client gets every response on its connection, and then ends it.
func TestRawOctets(t *testing.T) {
	site := robotstest.New(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(siteConfig(site)), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := startServer(filepath.Join(dir, "data"), os.Environ(), "--config", config)
	if err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer("HOST", fmt.Sprintf("a.example:%d", site.Port()), "TLS", fmt.Sprintf("a.example:%d", site.TLSPort()), "PORT", fmt.Sprint(site.Port()))
	requests := 0
	for _, row := range rawCases {
		if requests += len(strings.Fields(row.statuses)); row.tls == "" && strings.HasPrefix(row.octets, "CONNECT") {
			requests-- // the 200 for the tunnel
		}
		t.Run(row.name, func(t *testing.T) {
			site.Reset()
			site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private/\n"})
			answer := s.exchangeN(t, names.Replace(row.octets), names.Replace(row.tls), len(strings.Fields(row.statuses)))
			if got := statuses(answer); got != row.statuses {
				t.Errorf("statuses %s, want %s:\n%s", got, row.statuses, answer)
			}
			var sent []string
			for _, target := range site.Paths("a.example") {
				if target != "/robots.txt" {
					sent = append(sent, target)
				}
			}
			for _, req := range site.Requests() {
				if strings.Contains(strings.ToLower(fmt.Sprint(req.Header)), "url:") {
					t.Errorf("the site saw the fields %v", req.Header)
				}
			}
			if got := strings.Join(sent, " "); got != row.sent || len(site.Paths("b.example")) > 0 {
				t.Errorf("the site saw %q and %v of b.example, want %q", got, site.Paths("b.example"), row.sent)
			}
		})
	}
	if err := s.stop(); err != nil {
		t.Errorf("the proxy ended with %v:\n%s", err, s.log)
	}
	if log := s.log.String(); strings.Contains(log, "panic") || strings.Contains(log, "DATA RACE") {
		t.Errorf("the log:\n%s", log)
	}
	records, err := os.ReadFile(filepath.Join(s.dir, "audit.jsonl"))
	if n := bytes.Count(clientRecords(records), []byte("\n")); err != nil || n != requests {
		t.Errorf("%d records of %d requests, %v:\n%s", n, requests, err, records)
	}
}

// exchange is exchangeN for one response.
func (s *server) exchange(t *testing.T, octets, secure string) string {
	t.Helper()
	return s.exchangeN(t, octets, secure, 1)
}

// exchangeN sends bytes on a connection, and secure inside TLS after the response to a CONNECT. After n responses it
// closes the sending side. It returns all bytes that it receives.
func (s *server) exchangeN(t *testing.T, octets, secure string, n int) string {
	t.Helper()
	conn, err := net.Dial("tcp", s.proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, octets); err != nil {
		t.Fatal(err)
	}
	var last interface {
		io.Reader
		CloseWrite() error
	} = conn.(*net.TCPConn)
	if secure != "" {
		last = s.secure(t, conn, secure)
	}
	var answer []byte
	for piece := make([]byte, 4<<10); len(strings.Fields(statuses(string(answer)))) < n; {
		k, err := last.Read(piece)
		answer = append(answer, piece[:k]...)
		if err == io.EOF {
			return string(answer)
		}
		if err != nil {
			t.Fatalf("reading the answer: %v; so far %q", err, answer)
		}
	}
	if err := last.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(last)
	if err != nil {
		t.Fatalf("reading the end: %v; so far %q", err, append(answer, rest...))
	}
	return string(append(answer, rest...))
}

// secure starts TLS after a CONNECT and sends bytes.
func (s *server) secure(t *testing.T, conn net.Conn, octets string) *tls.Conn {
	t.Helper()
	if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n"))); err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(s.ca)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	secure := tls.Client(conn, &tls.Config{ServerName: "a.example", RootCAs: roots})
	if _, err := io.WriteString(secure, octets); err != nil {
		t.Fatal(err)
	}
	return secure
}

var statusLine = regexp.MustCompile(`HTTP/1\.1 (\d{3}) [^\r]*\r\n`)

// statuses returns the statuses in answer, without interim responses.
func statuses(answer string) string {
	var all []string
	for _, m := range statusLine.FindAllStringSubmatch(answer, -1) {
		if m[1] != "100" {
			all = append(all, m[1])
		}
	}
	return strings.Join(all, " ")
}
