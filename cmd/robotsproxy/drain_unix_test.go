//go:build unix

package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// drained is a proxy that is loaded until it has drained.
type drained struct {
	*server
	t    *testing.T
	site *robotstest.Site
	ca   *x509.CertPool
	done chan struct{} // closed when no more requests are to be sent
	all  sync.WaitGroup

	mu      sync.Mutex
	answers map[string]int // the status of each answer by the query of its request
	errors  map[string]error
}

func startDrained(t *testing.T, more string) *drained {
	t.Helper()
	site := robotstest.New(t)
	site.SetRobots("b.example", robotstest.Robots{Body: "User-agent: *\nCrawl-delay: 1\n"})
	d := &drained{t: t, site: site, done: make(chan struct{}), answers: make(map[string]int), errors: make(map[string]error)}
	d.server = startSite(t, site, "\n  resolve: {a.example: 127.0.0.1, b.example: 127.0.0.1, raw.example: 127.0.0.1}\n"+
		"intercept: {tunnel_hosts: [raw.example]}\npacing: {max_concurrent: 0}\n"+more)
	ca, err := os.ReadFile(d.server.ca)
	if err != nil {
		t.Fatal(err)
	}
	d.ca = x509.NewCertPool()
	d.ca.AppendCertsFromPEM(ca)
	return d
}

func (d *drained) client(http2, keepAlive bool) *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: d.proxy}), TLSClientConfig: &tls.Config{RootCAs: d.ca},
		ForceAttemptHTTP2: http2, DisableKeepAlives: !keepAlive,
	}
}

// get fetches a page of host whole, and notes the result under query.
func (d *drained) get(tr *http.Transport, scheme, host, path, query string) {
	port := d.site.Port()
	if scheme == "https" {
		port = d.site.TLSPort()
	}
	resp, err := (&http.Client{Transport: tr}).Get(fmt.Sprintf("%s://%s:%d%s?%s", scheme, host, port, path, query))
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if err != nil {
		time.Sleep(5 * time.Millisecond) // the proxy refuses connections
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.errors[query] = err
		return
	}
	d.answers[query] = resp.StatusCode
}

// load sends requests with tr, one after the other, until done.
func (d *drained) load(name string, tr *http.Transport, scheme string) {
	d.all.Go(func() {
		defer tr.CloseIdleConnections()
		for i := 0; ; i++ {
			select {
			case <-d.done:
				return
			default:
				d.get(tr, scheme, "a.example", "/delay/20ms", fmt.Sprintf("n=%s.%d", name, i))
			}
		}
	})
}

// count returns the number of answers.
func (d *drained) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.answers)
}

// open sends octets on a connection, and returns it when the header of the answer has come.
func (d *drained) open(octets string, want int) (net.Conn, *bufio.Reader) {
	d.t.Helper()
	conn, err := net.Dial("tcp", d.proxy)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(conn, octets)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, &http.Request{Method: "CONNECT"})
	if err != nil || resp.StatusCode != want {
		d.t.Fatalf("%q: %v, %v; want %d", octets, resp, err, want)
	}
	return conn, in
}

func (d *drained) openWebSocket() (net.Conn, *bufio.Reader) {
	return d.open(fmt.Sprintf("GET http://a.example:%d/ws HTTP/1.1\r\nHost: a.example:%[1]d\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", d.site.Port()), 101)
}

func (d *drained) openRaw() (net.Conn, *bufio.Reader) {
	return d.open(fmt.Sprintf("CONNECT raw.example:%d HTTP/1.1\r\nHost: raw.example:%[1]d\r\n\r\n", d.site.TLSPort()), 200)
}

// SIGTERM under load loses nothing: each request over HTTP/1.1 and HTTP/2, in tunnels and on new connections, is
// answered, or was never begun. What waits is answered in its turn, or with 503 when the grace ends; WebSockets and raw
// tunnels last until then. All have a record.
func TestDrainUnderLoad(t *testing.T) {
	d := startDrained(t, "grace: 3s\n")
	for i := range 3 {
		d.load(fmt.Sprintf("keep%d", i), d.client(false, true), "http")
		d.load(fmt.Sprintf("new%d", i), d.client(false, false), "http")
		d.load(fmt.Sprintf("tls%d", i), d.client(false, true), "https")
		d.load(fmt.Sprintf("connect%d", i), d.client(false, false), "https")
		d.load(fmt.Sprintf("connect2%d", i), d.client(true, false), "https")
	}
	http2 := d.client(true, true)
	for i := range 5 {
		d.load(fmt.Sprintf("stream%d", i), http2, "https")
	}
	_, webSocket := d.openWebSocket()
	_, raw := d.openRaw()
	const waiting = 8 // at one a second
	waiters := d.client(false, true)
	for i := range waiting {
		d.all.Go(func() { d.get(waiters, "http", "b.example", "/page/1", fmt.Sprintf("n=wait.%d", i)) })
	}
	d.all.Go(func() { d.get(d.client(false, true), "http", "a.example", "/delay/2s", "n=slow") })
	settle(t, "under load", func() bool {
		return d.count() > 100 && metric(t, d.server, "robotsproxy_waiting_requests") >= waiting-3
	})

	began := time.Now()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	settle(t, "refused", func() bool { return d.ready() == http.StatusServiceUnavailable })
	for name, in := range map[string]*bufio.Reader{"WebSocket": webSocket, "raw tunnel": raw} {
		if _, err := in.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the %s ended with %v", name, err)
		}
		if took := time.Since(began); took < 2900*time.Millisecond {
			t.Errorf("the %s ended after %v, want the grace of 3 s", name, took)
		}
	}
	close(d.done)
	d.all.Wait()
	waiters.CloseIdleConnections()
	<-d.said
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("the proxy ended with %v:\n%s", err, d.log)
	}
	d.checkRecords(t, waiting)
	if d.answers["n=slow"] != 200 {
		t.Errorf("a slow answer: %d, %v", d.answers["n=slow"], d.errors["n=slow"])
	}
}

// ready returns the status of /readyz, or 0 if nothing answers.
func (d *drained) ready() int {
	resp, err := http.Get("http://" + d.admin + "/readyz")
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// checkRecords checks that each answer has one record, with its status, and that no other request of clients has one
// but the WebSocket and the raw tunnel.
func (d *drained) checkRecords(t *testing.T, waiting int) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(d.dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	recorded := make(map[string]int)
	for line := range bytes.Lines(clientRecords(data)) {
		var rec audit.Record
		if err := json.Unmarshal(line, &rec); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		key := rec.Query
		if key == "" {
			key = string(rec.Via) + rec.Path
		}
		if _, twice := recorded[key]; twice || rec.EndedAt.IsZero() {
			t.Errorf("%s has two records, or one without an end: %s", key, line)
		}
		recorded[key] = rec.Status
		if err := d.errors[key]; err != nil {
			t.Errorf("a request was begun and lost: %v: %s", err, line)
		}
	}
	for query, status := range d.answers {
		if recorded[query] != status {
			t.Errorf("%s was answered %d, and its record has %d", query, status, recorded[query])
		}
	}
	if recorded["plain/ws"] != 101 || recorded["tunnel"] != 200 {
		t.Errorf("the WebSocket is recorded as %d, the raw tunnel as %d", recorded["plain/ws"], recorded["tunnel"])
	}
	refused := 0
	for query, err := range d.errors { // never begun
		if errors.Is(err, syscall.ECONNREFUSED) {
			refused++
		} else if !strings.Contains(err.Error(), "connection reset") && !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", query, err)
		}
	}
	statuses := make(map[int]int)
	for i := range waiting {
		statuses[d.answers[fmt.Sprintf("n=wait.%d", i)]]++
	}
	if statuses[200] < 3 || statuses[503] < 1 || statuses[200]+statuses[503] != waiting {
		t.Errorf("statuses of requests that waited: %v", statuses)
	}
	t.Logf("%d answers, %d requests never begun, %d of them refused; waiting: %v", len(d.answers), len(d.errors), refused, statuses)
}

// A second signal ends the drain at once, with status 130 and complete records.
func TestSecondSignal(t *testing.T) {
	for _, second := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		d := startDrained(t, "")
		_, raw := d.openRaw()
		d.all.Go(func() { d.get(d.client(false, true), "http", "a.example", "/delay/1h", "n=long") })
		settle(t, "begun", func() bool { return metric(t, d.server, "robotsproxy_active_requests") == 1 })
		for _, sig := range []syscall.Signal{syscall.SIGTERM, second} {
			if err := d.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if sig == syscall.SIGTERM && d.ready() != 0 {
				settle(t, "unready", func() bool { return d.ready() != http.StatusOK })
			}
		}
		began := time.Now()
		if _, err := raw.ReadByte(); err == nil {
			t.Error("the raw tunnel is still open")
		}
		<-d.said
		var exit *exec.ExitError
		if err := d.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted || time.Since(began) > 5*time.Second {
			t.Errorf("%v: the proxy ended with %v after %v:\n%s", second, err, time.Since(began), d.log)
		}
		d.all.Wait()
		data, err := os.ReadFile(filepath.Join(d.dir, "audit.jsonl"))
		if n := bytes.Count(clientRecords(data), []byte("\n")); n != 2 || err != nil {
			t.Errorf("%d records, %v; want 2:\n%s", n, err, data)
		}
	}
}

// POST /api/v1/drain drains as SIGTERM does. During drain_delay the proxy is unready and accepts connections.
func TestDrainByAPI(t *testing.T) {
	d := startDrained(t, "drain_delay: 1s\n")
	token, err := os.ReadFile(filepath.Join(d.dir, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest("POST", "http://"+d.admin+"/api/v1/drain", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 200 || string(body) != `{"active":0,"tunnels":0,"seconds":31}`+"\n" {
		t.Errorf("POST /api/v1/drain: %s %s", resp.Status, body)
	}
	settle(t, "unready", func() bool { return d.ready() == http.StatusServiceUnavailable })
	if d.get(d.client(false, false), "http", "a.example", "/page/1", "n=late"); d.answers["n=late"] != 200 {
		t.Errorf("a request in drain_delay: %v", d.errors["n=late"])
	}
	<-d.said
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("the proxy ended with %v:\n%s", err, d.log)
	}
}
