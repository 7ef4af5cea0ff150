package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

// pinned starts a rig that copies tunnels to a.example unread.
func pinned(t *testing.T, p policy.Options, change func(*Options)) *rig {
	p.TunnelHosts = append(p.TunnelHosts, "a.example")
	return newRig(t, func(o *Options) {
		o.Policy, _ = policy.New(p)
		if change != nil {
			change(o)
		}
	})
}

// pinnedClient returns a client that trusts only the site's own certificate.
func (r *rig) pinnedClient() *http.Client {
	proxyURL := &url.URL{Scheme: "http", Host: r.addr}
	t := &http.Transport{Proxy: http.ProxyURL(proxyURL), TLSClientConfig: &tls.Config{RootCAs: r.site.CAPool()}, ForceAttemptHTTP2: true}
	r.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

// connect sends a CONNECT and the bytes after it, and returns the answer and the connection.
func (r *rig) connect(port int, header, behind string) (*http.Response, net.Conn, *bufio.Reader) {
	r.t.Helper()
	authority := fmt.Sprintf("a.example:%d", port)
	conn := r.raw("CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n" + header + "\r\n" + behind)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, &http.Request{Method: "CONNECT"})
	if err != nil {
		r.t.Fatal(err)
	}
	return resp, conn, in
}

func TestPinnedClient(t *testing.T) {
	r := pinned(t, policy.Options{}, nil)
	r.site.SetRobots("a.example", robotstest.Robots{Body: disallow})
	c := r.pinnedClient()
	resp, body := r.get(c, r.url("https", "/bytes/100000"))
	if resp.StatusCode != 200 || !bytes.Equal(body, robotstest.Bytes(100000)) {
		t.Fatalf("%s, %d octets", resp.Status, len(body))
	}
	if n := r.server.Tunnels(); n != 1 {
		t.Errorf("%d tunnels are counted", n)
	}
	c.CloseIdleConnections()
	rec := r.last(1)
	if rec.Via != audit.Tunnel || rec.Method != "CONNECT" || rec.Path != "" || rec.Host != "a.example" || int(rec.Port) != r.site.TLSPort() ||
		rec.Decision != policy.Allow || rec.Status != 200 || rec.Bytes < 100000 || rec.Error != "" || rec.RobotsSHA256 == "" {
		t.Errorf("record: %+v", rec)
	}
	if rec.UpstreamAddr == "" || rec.SentAt.IsZero() || rec.EndedAt.Before(rec.SentAt) {
		t.Errorf("the record's times: %+v", rec)
	}
	r.eventually("the end", func() bool { return r.server.Tunnels() == 0 && r.server.tunnelLimit.InUse() == 0 })
}

// A refused CONNECT is answered with the reason in the status line, and the origin gets no request.
func TestRefusedRawTunnel(t *testing.T) {
	closed := fixed("User-agent: *\nDisallow: /\n\nUser-agent: NewsBot\nAllow: /\n")
	refuse := policy.NoTunnel
	for _, row := range []struct {
		name   string
		policy policy.Options
		change func(*Options)
		header string
		line   string // the first of the answer
		reason policy.Reason
	}{
		{"every path is disallowed", policy.Options{}, func(o *Options) { o.Snapshots = closed }, "", "403 intercept: robots.txt line 2: Disallow: /", policy.ReasonIntercept},
		{"to who is named too", policy.Options{}, func(o *Options) { o.Snapshots = closed }, "User-Agent: curl/8\r\n", "403 intercept: robots.txt line 2: Disallow: /", policy.ReasonIntercept},
		{"robots.txt is not known", policy.Options{}, func(o *Options) { o.Snapshots = unreachable }, "", "503 robots-unreachable: ", policy.ReasonRobotsUnreachable},
		{"no tunnels", policy.Options{Hosts: []policy.Host{{Pattern: "a.example", Interception: &refuse}}}, nil, "", "403 intercept: The operator", policy.ReasonIntercept},
		{"no tunnels in mode off either", policy.Options{Mode: policy.Off, Hosts: []policy.Host{{Pattern: "*", Interception: &refuse}}}, nil, "", "403 intercept: The operator", policy.ReasonIntercept},
		{"the guard", policy.Options{Mode: policy.Off}, func(o *Options) {
			o.Guard = egress.New(egress.Options{Resolve: map[string]netip.Addr{"a.example": netip.MustParseAddr("127.0.0.1")}})
		}, "", "403 egress: ", policy.ReasonEgress},
		{"an unknown client", policy.Options{}, func(o *Options) { o.Clients = []Client{{Client: policy.Client{Name: "lab"}}} }, "", "403 identity: ", policy.ReasonIdentity},
		{"unrecorded", policy.Options{}, func(o *Options) { o.Snapshots, o.Recorder.(*recorder).refuse = fixed(""), true }, "", "503 audit-unavailable: ", policy.ReasonAuditUnavailable},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := pinned(t, row.policy, row.change)
			resp, conn, in := r.connect(r.site.TLSPort(), row.header, "")
			if !strings.HasPrefix(resp.Status, row.line) || resp.Header.Get("Robotsproxy-Reason") != string(row.reason) || resp.Header.Get("Proxy-Status") == "" {
				t.Errorf("%s %v; want %s", resp.Status, resp.Header, row.line)
			}
			if _, err := io.Copy(io.Discard, in); err != nil {
				t.Errorf("the connection did not end in good order: %v", err)
			}
			conn.Close()
			if got := r.site.Requests(); len(got) > 0 || r.limiter.Stats().Granted != r.limiter.Stats().Cancelled {
				t.Errorf("the origin was asked, or a place was taken: %v", got)
			}
			if row.reason == policy.ReasonAuditUnavailable {
				return
			}
			if rec := r.last(1); rec.Reason != row.reason || rec.Via != audit.Tunnel || rec.Status != resp.StatusCode || !rec.SentAt.IsZero() {
				t.Errorf("record: %+v", rec)
			}
			r.eventually("all slots", func() bool { return r.server.tunnelLimit.InUse() == 0 && r.server.Connections() == 0 })
		})
	}
}

var unreachable = snapshots(func(context.Context, origin.Origin) (*robots.Snapshot, error) {
	return &robots.Snapshot{Answer: robots.Answer{Availability: robots.Unreachable, Cause: "connection_refused"}, Rules: rules.Parse(nil, rules.Options{})}, nil
})

// The CONNECT is judged for the agent in its User-Agent.
func TestRawTunnelOfANamedAgent(t *testing.T) {
	r := pinned(t, policy.Options{}, func(o *Options) {
		o.Snapshots = fixed("User-agent: *\nDisallow: /\n\nUser-agent: NewsBot\nDisallow: /x\n")
	})
	resp, conn, _ := r.connect(r.site.TLSPort(), "User-Agent: NewsBot/1.0\r\n", "")
	if resp.StatusCode != 200 {
		t.Fatalf("%s", resp.Status)
	}
	conn.Close()
	if rec := r.last(1); rec.ProductToken != "newsbot" || rec.UserAgent != "NewsBot/1.0" {
		t.Errorf("record: %+v", rec)
	}
}

// Each tunnel takes a place in the host's pace, and gives the lane back while it lasts.
func TestRawTunnelIsPaced(t *testing.T) {
	r := pinned(t, policy.Options{}, func(o *Options) {
		o.Snapshots, o.MaxWait = fixed("User-agent: *\nCrawl-delay: 0.3\n"), 10*time.Second
	})
	for range 2 {
		if resp, _, _ := r.connect(r.site.TLSPort(), "", ""); resp.StatusCode != 200 { // and stays open
			t.Fatalf("%s", resp.Status)
		}
	}
	if err := r.limiter.SetFloor("a.example", time.Hour); err != nil { // so that no stop of this machine is long enough
		t.Fatal(err)
	}
	resp, _, _ := r.connect(r.site.TLSPort(), "Prefer: wait=0\r\n", "")
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" || !strings.HasPrefix(resp.Status, "429 pace: ") {
		t.Errorf("a third at once: %s %v", resp.Status, resp.Header)
	}
	r.server.Close()
	var gap audit.Millis
	for _, rec := range r.records.all() {
		gap = max(gap, rec.Gap)
	}
	if time.Duration(gap) < 300*time.Millisecond {
		t.Errorf("the second followed after %v", time.Duration(gap))
	}
}

// echo starts a server that sends hello, then the bytes that it receives, then goodbye: it speaks first and ends last.
func echo(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.WriteString(conn, "hello ")
				io.Copy(conn, conn)
				io.WriteString(conn, " goodbye")
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// A raw tunnel need not carry TLS: it copies another protocol on another port, bytes after the CONNECT, and the end of
// each side.
func TestRawTunnelIsTransparent(t *testing.T) {
	r := pinned(t, policy.Options{Mode: policy.Off}, nil)
	resp, conn, in := r.connect(echo(t), "", "early ")
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	big := strings.Repeat("0123456789abcdef", 1<<14)
	go func() {
		io.WriteString(conn, big)
		conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(in)
	if err != nil || string(got) != "hello early "+big+" goodbye" {
		t.Errorf("%d octets, %v", len(got), err)
	}
	if rec := r.last(1); rec.Bytes != int64(len(got)) || rec.Error != "" || rec.Reason != policy.ReasonOff {
		t.Errorf("record: %+v", rec)
	}
}

// A raw tunnel ends when nothing moves in either direction.
func TestIdleRawTunnel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, client := net.Pipe()
		theirs, origin := net.Pipe()
		ex := &exchange{server: &Server{}}
		p := &rawTunnel{ex: ex, client: ours, origin: theirs, idle: time.Minute, began: time.Now()}
		began := time.Now()
		go io.Copy(io.Discard, origin)
		go func() {
			for range 8 { // longer than the time-out in all
				time.Sleep(59 * time.Second)
				io.WriteString(client, ".")
			}
		}()
		p.run(t.Context())
		if took, want := time.Since(began), 8*59*time.Second+time.Minute; took != want || ex.rec.Error != errIdle.Error() {
			t.Errorf("it ended after %v with %q, want %v", took, ex.rec.Error, want)
		}
	})
}

// If one side vanishes or does not read, both sides are freed.
func TestRawTunnelFreesBothSides(t *testing.T) {
	r := pinned(t, policy.Options{Mode: policy.Off}, func(o *Options) { o.IdleTimeout = time.Second })
	before := runtime.NumGoroutine()
	ends := map[string]func(net.Conn){
		"closed": func(c net.Conn) { c.Close() },
		"reset":  func(c net.Conn) { c.(*net.TCPConn).SetLinger(0); c.Close() },
		"stuck":  func(c net.Conn) { io.Copy(c, zeros{}) }, // what comes back is not read
	}
	port := echo(t)
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			_, conn, _ := r.connect(port, "", "")
			end(conn)
			r.eventually("the end", func() bool { return r.server.Tunnels() == 0 && r.server.Connections() == 0 })
		})
	}
	r.eventually("the goroutines' end", func() bool { return runtime.NumGoroutine() <= before+3 })
}

// The record says which side broke off.
func TestWhoBrokeARawTunnelOff(t *testing.T) {
	reset := func(c net.Conn) { c.(*net.TCPConn).SetLinger(0); c.Close() }
	for want, end := range map[string]func(client, origin net.Conn){
		errClientLeft.Error():    func(client, _ net.Conn) { reset(client) },
		"the origin broke off: ": func(_, origin net.Conn) { reset(origin) },
	} {
		t.Run(want, func(t *testing.T) {
			r := pinned(t, policy.Options{Mode: policy.Off}, nil)
			arrived := make(chan net.Conn, 1)
			_, port, _ := net.SplitHostPort(r.wire(arrived))
			number, _ := strconv.Atoi(port)
			_, client, _ := r.connect(number, "", "")
			end(client, <-arrived)
			if rec := r.last(1); !strings.HasPrefix(rec.Error, want) || rec.Status != 200 {
				t.Errorf("record: %+v", rec)
			}
		})
	}
}

// Shutdown lets raw tunnels continue for its grace, and then ends and records each.
func TestShutdownEndsRawTunnels(t *testing.T) {
	r := pinned(t, policy.Options{Mode: policy.Off}, nil)
	_, conn, in := r.connect(echo(t), "", "")
	if _, err := in.Peek(6); err != nil {
		t.Fatal(err)
	}
	ctx, endGrace := context.WithCancel(context.Background())
	defer endGrace()
	stopped := make(chan error, 1)
	go func() { stopped <- r.server.Shutdown(ctx) }()
	r.eventually("the stop", r.refuses)
	io.WriteString(conn, "still here")
	if got, err := in.Peek(len("hello still here")); err != nil || string(got) != "hello still here" {
		t.Errorf("in the grace: %q, %v", got, err)
	}
	endGrace()
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown = %v", err)
	}
	if rec := r.last(1); rec.Error != errStopping.Error() || r.server.Tunnels() != 0 {
		t.Errorf("%d tunnels are left; record: %+v", r.server.Tunnels(), rec)
	}
}

func TestRawTunnelToADeadOrigin(t *testing.T) {
	r := pinned(t, policy.Options{Mode: policy.Off}, nil)
	_, refuses, _ := net.SplitHostPort(robotstest.Refusing(t))
	port, _ := strconv.Atoi(refuses)
	resp, _, _ := r.connect(port, "", "")
	if resp.StatusCode != 502 || resp.Header.Get("Robotsproxy-Reason") != "upstream" || !strings.Contains(resp.Header.Get("Proxy-Status"), "connection_refused") {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
	if rec := r.last(1); rec.Reason != policy.ReasonUpstream || rec.Status != 502 {
		t.Errorf("record: %+v", rec)
	}
}

func TestPanicAtConnect(t *testing.T) {
	r := pinned(t, policy.Options{}, func(o *Options) {
		o.Snapshots = snapshots(func(context.Context, origin.Origin) (*robots.Snapshot, error) { panic("a fault of ours") })
	})
	resp, _, _ := r.connect(r.site.TLSPort(), "", "")
	if rec := r.last(1); resp.StatusCode != 500 || rec.Reason != policy.ReasonInternal || len(r.records.all()) != 1 {
		t.Errorf("%s; records: %+v", resp.Status, r.records.all())
	}
	r.eventually("all slots", func() bool { return r.server.tunnelLimit.InUse() == 0 })
}
