package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/fields"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

const disallow = "User-agent: *\nDisallow: /private/\n"

// ways are how a request can come: in clear, and through a tunnel over HTTP/1.1 and HTTP/2.
var ways = []struct {
	name, scheme string
	http1        bool
	major        int
	via          audit.Via
}{
	{"plain", "http", true, 1, audit.Plain},
	{"tunnel HTTP/1.1", "https", true, 1, audit.Intercepted},
	{"tunnel HTTP/2", "https", false, 2, audit.Intercepted},
}

func TestBothWaysAreOne(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, nil)
			r.site.SetRobots("a.example", robotstest.Robots{Body: disallow})
			c := r.client(way.http1)

			resp, body := r.get(c, r.url(way.scheme, "/bytes/100000"))
			if resp.StatusCode != 200 || resp.ProtoMajor != way.major || !bytes.Equal(body, robotstest.Bytes(100000)) || resp.ContentLength != 100000 {
				t.Errorf("allowed: %s, HTTP/%d, %d octets, Content-Length %d", resp.Status, resp.ProtoMajor, len(body), resp.ContentLength)
			}
			resp, body = r.get(c, r.url(way.scheme, "/private/x"))
			if resp.StatusCode != 403 || resp.Header.Get("Robotsproxy-Rule") != "line 2: Disallow: /private/" {
				t.Errorf("disallowed: %s %v\n%s", resp.Status, resp.Header, body)
			}
			if slices.Contains(r.site.Paths("a.example"), "/private/x") {
				t.Error("the origin was asked for the disallowed page")
			}
			allowed, denied := r.last(1), r.last(2)
			if allowed.Decision != policy.Allow || allowed.Via != way.via || allowed.Bytes != 100000 || allowed.Status != 200 || allowed.UpstreamAddr == "" {
				t.Errorf("record of the allowed request: %+v", allowed)
			}
			if denied.Decision != policy.Deny || denied.RuleLine != 2 || denied.Status != 403 || !denied.SentAt.IsZero() {
				t.Errorf("record of the refusal: %+v", denied)
			}
		})
	}
}

// What the origin sends arrives as it was sent.
func TestFaithful(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, nil)
			c := r.client(way.http1)
			if resp, body := r.get(c, r.url(way.scheme, "/gzip")); resp.Header.Get("Content-Encoding") != "gzip" || !bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
				t.Errorf("gzip: %v, %x...", resp.Header, body[:min(4, len(body))])
			}
			if resp, _ := r.get(c, r.url(way.scheme, "/cookies")); fmt.Sprint(resp.Header["Set-Cookie"]) != "[first=1; Path=/ second=2; Path=/; HttpOnly]" {
				t.Errorf("cookies: %q", resp.Header["Set-Cookie"])
			}
			if resp, _ := r.get(c, r.url(way.scheme, "/trailers")); resp.Trailer.Get("Checksum") == "" {
				t.Errorf("trailers: %v", resp.Trailer)
			}
			if resp, _ := r.get(c, r.url(way.scheme, "/redirect?to=/page/1")); resp.StatusCode != 302 || resp.Header.Get("Location") != "/page/1" {
				t.Errorf("redirect: %s, %q", resp.Status, resp.Header.Get("Location"))
			}
			resp, err := c.Head(r.url(way.scheme, "/bytes/4321"))
			if err != nil {
				t.Fatal(err)
			}
			if resp.Body.Close(); resp.ContentLength != 4321 {
				t.Errorf("HEAD: Content-Length %d, want 4321", resp.ContentLength)
			}
			checkHints(t, c, r.url(way.scheme, "/hints"))
		})
	}
}

func checkHints(t *testing.T, c *http.Client, url string) {
	t.Helper()
	var links []string
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		links = append(links, fmt.Sprint(code, " ", h.Get("Link")))
		return nil
	}})
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if len(links) != 1 || !strings.HasPrefix(links[0], "103 <") || resp.StatusCode != 200 {
		t.Errorf("early hints: %q, then %s", links, resp.Status)
	}
}

func TestRequestHeaderAsTheOriginSeesIt(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, nil)
			req, err := http.NewRequest("GET", r.url(way.scheme, "/page/1"), nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header = http.Header{"User-Agent": {""}, "X-Twice": {"1", "2"}, "Robotsproxy-Tag": {"batch 7"}, "Robotsproxy-Reason": {"forged"}}
			resp, err := r.client(way.http1).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			all := r.site.Requests()
			got := all[len(all)-1].Header
			if _, ok := got["User-Agent"]; ok {
				t.Errorf("a User-Agent was invented: %q", got["User-Agent"])
			}
			if fmt.Sprint(got["X-Twice"]) != "[1 2]" || got.Get("Via") == "" || got.Get("X-Forwarded-For") != "" {
				t.Errorf("header at the origin: %v", got)
			}
			for name := range got {
				if strings.HasPrefix(name, fields.OwnPrefix) {
					t.Errorf("our own field %s reached the origin", name)
				}
			}
			if rec := r.last(1); rec.Tag != "batch 7" || rec.UserAgent != "" {
				t.Errorf("record: tag %q, user agent %q", rec.Tag, rec.UserAgent)
			}
		})
	}
}

func TestStreamsArriveAsTheyAreSent(t *testing.T) {
	for _, way := range ways {
		for _, path := range []string{"/sse?n=3&every=1h", "/ndjson?n=3&every=1h"} {
			t.Run(way.name+path, func(t *testing.T) {
				r := newRig(t, nil)
				resp, err := r.client(way.http1).Get(r.url(way.scheme, path))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				all := r.site.Requests()
				if last := all[len(all)-1]; !last.End.IsZero() {
					t.Error("the first line arrived after the origin had sent the last")
				}
			})
		}
	}
}

func TestTruncationIsSeen(t *testing.T) {
	for _, way := range ways {
		for _, path := range []string{"/truncate", "/truncate-length"} {
			t.Run(way.name+path, func(t *testing.T) {
				r := newRig(t, nil)
				resp, err := r.client(way.http1).Get(r.url(way.scheme, path))
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				if err == nil {
					t.Error("a body that broke off looked whole")
				}
				if rec := r.last(1); rec.Error == "" {
					t.Errorf("the record does not say so: %+v", rec)
				}
			})
		}
	}
}

// Bodies of any size pass in flat memory, both ways.
func TestFlatMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it passes on a gigabyte")
	}
	const size = 256 << 20
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, nil)
			r.site.SetPage("a.example", "/sink", func(w http.ResponseWriter, req *http.Request) {
				n, _ := io.Copy(io.Discard, req.Body)
				fmt.Fprint(w, n)
			})
			c := r.client(way.http1)
			before := heap()
			resp, err := c.Post(r.url(way.scheme, "/sink"), "application/octet-stream", io.LimitReader(zeros{}, size))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(body) != fmt.Sprint(size) {
				t.Errorf("the origin got %s octets, want %d", body, size)
			}
			resp, err = c.Get(r.url(way.scheme, "/endless"))
			if err != nil {
				t.Fatal(err)
			}
			if n, err := io.CopyN(io.Discard, resp.Body, size); err != nil {
				t.Errorf("%d octets of an endless body: %v", n, err)
			}
			resp.Body.Close()
			if grown := heap() - before; grown > 64<<20 {
				t.Errorf("the heap grew by %d MiB while %d MiB passed each way", grown>>20, size>>20)
			}
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestWebSocket(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			r := newRig(t, nil)
			r.site.SetRobots("a.example", robotstest.Robots{Body: disallow})
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			o := &websocket.DialOptions{HTTPClient: r.client(true)}
			conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(r.url(scheme, "/ws"), "http"), o)
			if err != nil {
				t.Fatal(err)
			}
			if err := conn.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
				t.Fatal(err)
			}
			if _, got, err := conn.Read(ctx); err != nil || string(got) != "hello" {
				t.Errorf("echo = %q, %v", got, err)
			}
			conn.Close(websocket.StatusNormalClosure, "")
			if rec := r.last(1); rec.Status != 101 || rec.Decision != policy.Allow {
				t.Errorf("record: %+v", rec)
			}
			_, resp, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(r.url(scheme, "/private/ws"), "http"), o)
			if err == nil || resp == nil || resp.StatusCode != 403 {
				t.Errorf("a WebSocket to a disallowed path: %v, %v", resp, err)
			}
		})
	}
}

// A WebSocket goes on for hours; the host's lane must not wait for it.
func TestWebSocketGivesTheLaneBack(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("User-agent: *\nCrawl-delay: 0.01\n") })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(r.url("http", "/ws"), "http"), &websocket.DialOptions{HTTPClient: r.client(true)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if resp, _ := r.get(r.client(true), r.url("http", "/page/1")); resp.StatusCode != 200 {
		t.Errorf("a page beside an open WebSocket: %s", resp.Status)
	}
}

func TestUnaskedProtocolChangeIsRefused(t *testing.T) {
	r := newRig(t, nil)
	r.site.SetPage("a.example", "/switch", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: telnet\r\n\r\nraw")
	})
	if resp, _ := r.get(r.client(true), r.url("http", "/switch")); resp.StatusCode != 502 || resp.Header.Get("Robotsproxy-Reason") != "upstream" {
		t.Errorf("an unasked 101: %s %v", resp.Status, resp.Header)
	}
}

// The client may send its first TLS record in the segment of the CONNECT itself.
func TestClientHelloBehindConnect(t *testing.T) {
	r := newRig(t, nil)
	authority := fmt.Sprintf("a.example:%d", r.site.TLSPort())
	conn := r.raw("")
	early := &earlyConn{Conn: conn, prefix: "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n"}
	c := tls.Client(early, &tls.Config{ServerName: "a.example", RootCAs: r.ca})
	if _, err := io.WriteString(c, "GET /page/1 HTTP/1.1\r\nHost: "+authority+"\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("answer: %v, %v", resp, err)
	}
}

// earlyConn sends prefix in front of the first octets, in one segment, and skips the answer to it.
type earlyConn struct {
	net.Conn
	prefix string
	answer *bufio.Reader
}

func (c *earlyConn) Write(p []byte) (int, error) {
	prefix := c.prefix
	c.prefix = ""
	n, err := c.Conn.Write(append([]byte(prefix), p...))
	return max(0, n-len(prefix)), err
}

func (c *earlyConn) Read(p []byte) (int, error) {
	if c.answer == nil {
		c.answer = bufio.NewReader(c.Conn)
		if resp, err := http.ReadResponse(c.answer, &http.Request{Method: "CONNECT"}); err != nil || resp.StatusCode != 200 {
			return 0, fmt.Errorf("CONNECT: %v, %w", resp, err)
		}
	}
	return c.answer.Read(p)
}

func TestPlainHTTPInsideATunnelIsJudged(t *testing.T) {
	r := newRig(t, nil)
	r.site.SetRobots("a.example", robotstest.Robots{Body: disallow})
	authority := fmt.Sprintf("a.example:%d", r.site.Port())
	conn := r.raw("CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n")
	in := bufio.NewReader(conn)
	if resp, err := http.ReadResponse(in, &http.Request{Method: "CONNECT"}); err != nil || resp.StatusCode != 200 {
		t.Fatalf("CONNECT: %v, %v", resp, err)
	}
	for path, want := range map[string]int{"/page/1": 200, "/private/x": 403} {
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, authority)
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != want {
			t.Fatalf("GET %s inside the tunnel: %v, %v; want %d", path, resp, err, want)
		}
		io.Copy(io.Discard, resp.Body)
	}
}

func TestServerNameMustBeThatOfTheConnect(t *testing.T) {
	r := newRig(t, nil)
	authority := fmt.Sprintf("a.example:%d", r.site.TLSPort())
	conn := r.raw("CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: "CONNECT"}); err != nil || resp.StatusCode != 200 {
		t.Fatalf("CONNECT: %v, %v", resp, err)
	}
	if err := tls.Client(conn, &tls.Config{ServerName: "b.example", RootCAs: r.ca}).Handshake(); err == nil {
		t.Error("a handshake for another host succeeded")
	}
	if rec := r.last(1); rec.Reason != policy.ReasonMisdirected || rec.Via != audit.Tunnel || rec.Host != "a.example" {
		t.Errorf("record: %+v", rec)
	}
}

// TestTunnelOfHTTP10 holds that a client which offers HTTP/1.0 alone by ALPN, as curl -0 does, is served in a tunnel.
func TestTunnelOfHTTP10(t *testing.T) {
	r := newRig(t, nil)
	r.site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private/\n"})
	authority := fmt.Sprintf("a.example:%d", r.site.TLSPort())
	for _, row := range []struct {
		path   string
		status int
	}{{"/page/1", 200}, {"/private/x", 403}} {
		conn := r.secured(r.tunnelTo(authority), "http/1.0")
		fmt.Fprintf(conn, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", row.path, authority)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != row.status || resp.ProtoMinor != 0 {
			t.Errorf("%s: %v, %v", row.path, resp, err)
		}
	}
}

// Requests that cannot be judged, or that name two hosts, reach nobody.
func TestRefusedTargets(t *testing.T) {
	r := newRig(t, nil)
	port := r.site.Port()
	tunnelled := fmt.Sprintf("a.example:%d", port)
	for _, row := range []struct {
		name, connect, request string
		status                 int
	}{
		{"fragment", "", fmt.Sprintf("GET http://a.example:%d/x#y HTTP/1.1\r\nHost: a.example\r\n\r\n", port), 400},
		{"another scheme", "", "GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"no host", "", "GET http:///x HTTP/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"decimal address", "", "GET http://2130706433/ HTTP/1.1\r\nHost: 2130706433\r\n\r\n", 400},
		{"asterisk", "", "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"CONNECT without port", "", "CONNECT a.example HTTP/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"CONNECT to a path", "", "CONNECT a.example:443/x HTTP/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"two Host fields", tunnelled, "GET / HTTP/1.1\r\nHost: " + tunnelled + "\r\nHost: b.example\r\n\r\n", 400},
		{"another Host in the tunnel", tunnelled, "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n", 421},
		{"another port in the tunnel", tunnelled, "GET / HTTP/1.1\r\nHost: a.example:1\r\n\r\n", 421},
		{"absolute target in the tunnel", tunnelled, "GET http://b.example/ HTTP/1.1\r\nHost: " + tunnelled + "\r\n\r\n", 421},
		{"Host with a path", tunnelled, "GET / HTTP/1.1\r\nHost: a.example/private?x\r\n\r\n", 400},
		{"empty Host", tunnelled, "GET / HTTP/1.1\r\nHost:\r\n\r\n", 400},
		{"CONNECT in the tunnel", tunnelled, "CONNECT " + tunnelled + " HTTP/1.1\r\nHost: " + tunnelled + "\r\n\r\n", 400},
	} {
		t.Run(row.name, func(t *testing.T) {
			r.site.Reset()
			conn := r.raw("")
			in := bufio.NewReader(conn)
			if row.connect != "" {
				fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", row.connect, row.connect)
				if _, err := http.ReadResponse(in, &http.Request{Method: "CONNECT"}); err != nil {
					t.Fatal(err)
				}
			}
			io.WriteString(conn, row.request)
			resp, err := http.ReadResponse(in, nil)
			if err != nil || resp.StatusCode != row.status {
				t.Fatalf("%q: %v, %v; want %d", row.request, resp, err, row.status)
			}
			if got := r.site.Requests(); len(got) > 0 {
				t.Errorf("the origin was asked: %v", got)
			}
		})
	}
}

func TestLoop(t *testing.T) {
	r := newRig(t, nil)
	req, _ := http.NewRequest("GET", r.url("http", "/page/1"), nil)
	req.Header.Set("Via", "1.1 other, 1.1 "+r.server.settings.Load().Pseudonym)
	resp, err := r.client(true).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusLoopDetected {
		t.Errorf("our own Via came back: %s, want 508", resp.Status)
	}
}

// A body that is refused is not read, and a client that waits for 100 is answered at once.
func TestRefusedUpload(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed(disallow) })
			sent := &countingReader{r: io.LimitReader(zeros{}, 1<<30)}
			req, _ := http.NewRequest("POST", r.url(way.scheme, "/private/up"), sent)
			req.Header.Set("Expect", "100-continue")
			resp, err := r.client(way.http1).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if resp.Body.Close(); resp.StatusCode != 403 || sent.n > 1<<20 {
				t.Errorf("%s after %d octets of the body", resp.Status, sent.n)
			}
		})
	}
}

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func TestUploadWithContinue(t *testing.T) {
	r := newRig(t, nil)
	req, _ := http.NewRequest("POST", r.url("https", "/echo"), bytes.NewReader(robotstest.Bytes(1<<20)))
	req.Header.Set("Expect", "100-continue")
	resp, err := r.client(true).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 200 || !strings.Contains(string(body), "1048576") {
		t.Errorf("%s: %.300s", resp.Status, body)
	}
}

// A client that leaves while it waits is never sent, and the next one gets its place.
func TestClientLeavesWhileItWaits(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("User-agent: *\nCrawl-delay: 2\n") }) // longer than a busy machine stalls
			c := r.client(way.http1)
			r.get(c, r.url(way.scheme, "/page/1"))
			ctx, cancel := context.WithCancel(context.Background())
			req, _ := http.NewRequestWithContext(ctx, "GET", r.url(way.scheme, "/page/2"), nil)
			left := make(chan error, 1)
			go func() {
				_, err := c.Do(req)
				left <- err
			}()
			r.eventually("the wait", func() bool { return r.limiter.Stats().Waiting == 1 })
			cancel()
			<-left
			r.eventually("the leaving", func() bool { return r.limiter.Stats().Waiting == 0 })
			r.get(c, r.url(way.scheme, "/page/3"))
			if slices.Contains(r.site.Paths("a.example"), "/page/2") {
				t.Error("the request of a client that had left was sent")
			}
			gone := r.last(2)
			if gone.Path != "/page/2" || gone.Error == "" || !gone.SentAt.IsZero() || gone.Status != 499 || gone.Reason != policy.ReasonClientLeft || gone.Decision != policy.Error {
				t.Errorf("record of the client that left: %+v", gone)
			}
		})
	}
}

// A client that leaves before the origin has answered is named as the cause.
func TestClientLeavesBeforeTheAnswer(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			release := r.heldPage()
			defer release()
			ctx, cancel := context.WithCancel(context.Background())
			req, _ := http.NewRequestWithContext(ctx, "GET", r.url(way.scheme, "/held"), nil)
			left := make(chan error, 1)
			go func() {
				_, err := r.client(way.http1).Do(req)
				left <- err
			}()
			r.eventually("the request", func() bool { return len(r.site.Paths("a.example")) == 1 })
			cancel()
			<-left
			if rec := r.last(1); rec.Status != 499 || rec.Reason != policy.ReasonClientLeft || rec.Decision != policy.Error || rec.SentAt.IsZero() {
				t.Errorf("record: %+v", rec)
			}
		})
	}
}

// A client that leaves in the middle of an answer frees the lane and ends the origin's work.
func TestClientLeavesInTheMiddle(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("User-agent: *\nCrawl-delay: 0.01\n") })
			ctx, cancel := context.WithCancel(context.Background())
			req, _ := http.NewRequestWithContext(ctx, "GET", r.url(way.scheme, "/endless"), nil)
			resp, err := r.client(way.http1).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			io.CopyN(io.Discard, resp.Body, 1<<20)
			cancel()
			resp.Body.Close()
			if rec := r.last(1); rec.Error == "" || rec.Bytes < 1<<20 {
				t.Errorf("record: %+v", rec)
			}
			r.get(r.client(way.http1), r.url(way.scheme, "/page/1"))
			all := r.site.Requests()
			r.eventually("the end at the origin", func() bool { return !r.site.Requests()[0].End.IsZero() || len(all) == 0 })
		})
	}
}

func TestPaceRefusal(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Snapshots, o.MaxWait = fixed("User-agent: *\nCrawl-delay: 60\n"), time.Second
	})
	c := r.client(true)
	begun := time.Now()
	r.get(c, r.url("http", "/page/1"))
	resp, body := r.get(c, r.url("http", "/page/2"))
	least := 60 - int(time.Since(begun).Seconds())
	if left, err := strconv.Atoi(resp.Header.Get("Retry-After")); resp.StatusCode != 429 || err != nil || left > 60 || left < least {
		t.Errorf("%s, Retry-After %q, want %d to 60\n%s", resp.Status, resp.Header.Get("Retry-After"), least, body)
	}
}

func TestUnknownClient(t *testing.T) {
	lab := Client{Client: policy.Client{Name: "lab"}, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Clients = []Client{lab} })
			resp, _ := r.get(r.client(way.http1), r.url(way.scheme, "/page/1"))
			if resp.StatusCode != 403 || resp.Header.Get("Robotsproxy-Reason") != "identity" {
				t.Errorf("%s %v", resp.Status, resp.Header)
			}
			if got := r.site.Requests(); len(got) > 0 {
				t.Errorf("the origin was asked: %v", got)
			}
		})
	}
}

func TestNothingHappensUnrecorded(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed(disallow) })
	r.records.refuse = true
	for _, path := range []string{"/page/1", "/private/x"} {
		if resp, _ := r.get(r.client(true), r.url("http", path)); resp.StatusCode != 503 || resp.Header.Get("Robotsproxy-Reason") != "audit-unavailable" {
			t.Errorf("%s: %s %v", path, resp.Status, resp.Header)
		}
	}
	if got := r.site.Requests(); len(got) > 0 {
		t.Errorf("the origin was asked: %v", got)
	}
}

func TestPanicIsOneAnswerAndOneRecord(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Snapshots = snapshots(func(context.Context, origin.Origin) (*robots.Snapshot, error) { panic("a fault of ours") })
	})
	for i, way := range ways {
		resp, body := r.get(r.client(way.http1), r.url(way.scheme, "/page/1"))
		if resp.StatusCode != 500 || resp.Header.Get("Robotsproxy-Reason") != "internal" || strings.Contains(string(body), "a fault of ours") {
			t.Errorf("%s: %s %s", way.name, resp.Status, body)
		}
		if rec := r.last(i + 1); rec.Reason != policy.ReasonInternal || !strings.Contains(rec.Error, "a fault of ours") {
			t.Errorf("record: %+v", rec)
		}
	}
	if n := len(r.records.all()); n != len(ways) {
		t.Errorf("%d records of %d requests", n, len(ways))
	}
}

// A certificate that is not right is told for what it is, and the origin stays unreachable.
func TestOriginCertificates(t *testing.T) {
	for host, want := range map[string]string{
		"expired.example": "has expired", "wrong-name.example": "for another host", "untrusted.example": "unknown authority",
	} {
		t.Run(host, func(t *testing.T) {
			r := newRig(t, nil)
			resp, body := r.get(r.client(true), fmt.Sprintf("https://%s:%d/", host, r.site.TLSPort()))
			if resp.StatusCode != 503 || !strings.Contains(resp.Header.Get("Proxy-Status"), "error=tls_certificate_error") || !strings.Contains(string(body), want) {
				t.Errorf("%s %v\n%s", resp.Status, resp.Header, body)
			}
		})
	}
}

func TestLookUpErrorRefuses(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Snapshots = snapshots(func(context.Context, origin.Origin) (*robots.Snapshot, error) { return nil, errNotThere })
	})
	if resp, _ := r.get(r.client(true), r.url("http", "/page/1")); resp.StatusCode != 503 || len(r.site.Requests()) != 0 {
		t.Errorf("%s, and %d requests at the origin", resp.Status, len(r.site.Requests()))
	}
}

func TestReportChangesNothing(t *testing.T) {
	r := newRig(t, nil)
	r.change(func(o *Options) { o.Policy = r.newPolicy(policy.Options{Mode: policy.Report}) })
	r.site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private/\nCrawl-delay: 1000\n"})
	c := r.client(true)
	for i, path := range []string{"/private/1", "/page/1", "/page/2"} {
		if resp, _ := r.get(c, r.url("http", path)); resp.StatusCode != 200 {
			t.Errorf("%s: %s", path, resp.Status)
		}
		r.last(i + 1)
	}
	if got := r.last(1); got.Decision != policy.WouldDeny || got.RuleLine != 2 {
		t.Errorf("record: %+v", got)
	}
	if got := r.last(3); got.Decision != policy.WouldThrottle || got.Deviation != audit.DeviationReported || got.Waited != 0 {
		t.Errorf("record: %+v", got)
	}
}

func TestResponseFields(t *testing.T) {
	r := newRig(t, func(o *Options) { o.ResponseFields = true })
	r.site.SetPage("a.example", "/forged", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Robotsproxy-Reason", "robots")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	resp, _ := r.get(r.client(true), r.url("http", "/forged"))
	if resp.Header.Get("Robotsproxy-Reason") != "" || resp.Header.Get("Proxy-Status") != "robotsproxy; received-status=429" {
		t.Errorf("header: %v", resp.Header)
	}
	if resp.Header.Get("Robotsproxy-Request-Id") != r.last(1).ID.String() || resp.Header.Get("Robotsproxy-Waited") != "0.000" {
		t.Errorf("header: %v", resp.Header)
	}
}

func TestShutdownDrains(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, nil)
			c := r.client(way.http1)
			r.get(c, r.url(way.scheme, "/page/1"))
			release := r.heldPage()
			answered := make(chan error, 1)
			go func() {
				resp, err := c.Get(r.url(way.scheme, "/held"))
				if err == nil {
					_, err = io.ReadAll(resp.Body)
				}
				answered <- err
			}()
			r.eventually("the request", func() bool { return r.server.Active() == 1 })
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			stopped := make(chan error, 1)
			go func() { stopped <- r.server.Shutdown(ctx) }()
			r.eventually("the stop", r.refuses)
			release()
			if err := <-stopped; err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			if err := <-answered; err != nil {
				t.Errorf("the request under way: %v", err)
			}
			if n := r.server.Tunnels(); n != 0 {
				t.Errorf("%d connections are left", n)
			}
		})
	}
}

func TestNewWantsItsParts(t *testing.T) {
	if _, err := New(Options{}); err == nil || !strings.Contains(err.Error(), "needs") {
		t.Errorf("New(Options{}) = %v", err)
	}
}

// TestClientThatEndsItsSide checks that a client that ends its sending side has left, as in net/http: its request is
// cancelled at the origin.
func TestClientThatEndsItsSide(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
	cancelled := make(chan struct{})
	r.site.SetPage("a.example", "/wait", func(_ http.ResponseWriter, req *http.Request) {
		<-req.Context().Done()
		close(cancelled)
	})
	conn := r.raw("GET " + r.url("http", "/wait") + " HTTP/1.1\r\nHost: a.example\r\n\r\n")
	r.eventually("the request at the origin", func() bool { return slices.Contains(r.site.Paths("a.example"), "/wait") })
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	<-cancelled
	if rec := r.last(1); rec.Reason != policy.ReasonClientLeft || rec.Decision != policy.Allow && rec.Decision != policy.Error {
		t.Errorf("record: %+v", rec)
	}
}
