package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// A long request through one way does not keep the other from draining: a tunnel takes no new requests meanwhile.
func TestShutdownDrainsTunnelsAtOnce(t *testing.T) {
	r := newRig(t, nil)
	release := r.heldPage()
	long := make(chan struct{})
	go func() {
		defer close(long)
		resp, err := r.client(true).Get(r.url("http", "/held"))
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("the request under way: %v, %v", resp, err)
		}
	}()
	r.eventually("the long request", func() bool { return r.server.Active() == 1 })
	authority := fmt.Sprintf("a.example:%d", r.site.Port())
	conn := r.raw("CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n")
	in := bufio.NewReader(conn)
	if _, err := http.ReadResponse(in, &http.Request{Method: "CONNECT"}); err != nil {
		t.Fatal(err)
	}
	get := func() (*http.Response, error) {
		fmt.Fprintf(conn, "GET /page/1 HTTP/1.1\r\nHost: %s\r\n\r\n", authority)
		resp, err := http.ReadResponse(in, nil)
		if err == nil {
			io.Copy(io.Discard, resp.Body)
		}
		return resp, err
	}
	if resp, err := get(); err != nil || resp.Close {
		t.Fatalf("before the drain: %v, %v", resp, err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- r.server.Shutdown(context.Background()) }()
	// The tunnel is idle: it is closed, or its next answer is its last.
	answers := 0
	for {
		resp, err := get()
		if err != nil {
			break
		}
		if answers++; resp.Close || answers > 100 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if answers > 100 {
		t.Error("the tunnel went on serving while the proxy drained")
	}
	release()
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	<-long
}

// A tunnel whose CONNECT was answered before Shutdown serves its first request, and no other.
func TestShutdownServesTunnelsThatOpen(t *testing.T) {
	r := newRig(t, nil)
	authority := fmt.Sprintf("a.example:%d", r.site.TLSPort())
	conn := r.raw("CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: "CONNECT"}); err != nil || resp.StatusCode != 200 {
		t.Fatalf("CONNECT: %v, %v", resp, err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- r.server.Shutdown(context.Background()) }()
	r.eventually("the stop", r.refuses)
	time.Sleep(100 * time.Millisecond) // longer than Shutdown takes without tunnels
	secure := tls.Client(conn, &tls.Config{RootCAs: r.ca, ServerName: "a.example"})
	fmt.Fprintf(secure, "GET /page/1 HTTP/1.1\r\nHost: %s\r\n\r\n", authority)
	resp, err := http.ReadResponse(bufio.NewReader(secure), nil)
	if err != nil || resp.StatusCode != 200 || !resp.Close {
		t.Errorf("the first request in the tunnel: %+v, %v", resp, err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if rec := r.last(1); rec.Status != 200 || rec.Error != "" {
		t.Errorf("record: %+v", rec)
	}
}

// A tunnel whose client says nothing delays Shutdown by the grace of tunnels that open, and not longer.
func TestShutdownEndsSilentTunnels(t *testing.T) {
	r := newRig(t, nil)
	conn := r.raw("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n")
	in := bufio.NewReader(conn)
	if _, err := http.ReadResponse(in, &http.Request{Method: "CONNECT"}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := r.server.Shutdown(context.Background()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if took := time.Since(began); took > openingGrace+closeGrace+time.Second {
		t.Errorf("Shutdown took %v, want about %v", took, openingGrace)
	}
	if _, err := in.ReadByte(); err == nil {
		t.Error("the tunnel is still open")
	}
}

// A connection of HTTP/2 ends with a GOAWAY frame, after the answers to the requests that were sent before it.
func TestShutdownDrainsHTTP2(t *testing.T) {
	r := newRig(t, nil)
	release := r.heldPage()
	c := r.client(false)
	r.get(c, r.url("https", "/page/1"))
	const streams = 5
	answers := make(chan error, streams)
	for range streams {
		go func() {
			resp, err := c.Get(r.url("https", "/held"))
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			if err == nil && (resp.StatusCode != 200 || resp.ProtoMajor != 2) {
				err = fmt.Errorf("%s, %s", resp.Proto, resp.Status)
			}
			answers <- err
		}()
	}
	r.eventually("the streams", func() bool { return r.server.Active() == streams })
	stopped := make(chan error, 1)
	go func() { stopped <- r.server.Shutdown(context.Background()) }()
	r.eventually("the stop", r.refuses)
	r.eventually("the GOAWAY", func() bool { // the client dials again, which the proxy refuses
		_, err := c.Get(r.url("https", "/page/2"))
		return err != nil
	})
	release()
	for range streams {
		if err := <-answers; err != nil {
			t.Errorf("a stream that was open: %v", err)
		}
	}
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	for _, rec := range r.records.all() {
		if rec.Status != 200 || rec.Error != "" {
			t.Errorf("record: %+v", rec)
		}
	}
}

// Who waits when the grace ends is told so; nothing of it is sent, and every record is complete when Shutdown returns.
func TestShutdownTellsWhoWaits(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("User-agent: *\nCrawl-delay: 100\n") })
			c := r.client(way.http1)
			r.get(c, r.url(way.scheme, "/page/1"))
			answered := make(chan *http.Response, 1)
			go func() {
				resp, err := c.Get(r.url(way.scheme, "/page/2"))
				if err != nil {
					t.Error(err)
				} else {
					resp.Body.Close()
				}
				answered <- resp
			}()
			r.eventually("the wait", func() bool { return r.limiter.Stats().Waiting == 1 })
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			if err := r.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Shutdown = %v, want a DeadlineExceeded", err)
			}
			if n := len(r.records.all()); n != 2 || r.records.begun != 2 {
				t.Errorf("%d records of 2 requests are complete, %d begun", n, r.records.begun)
			}
			if resp := <-answered; resp != nil && (resp.StatusCode != 503 || resp.Header.Get("Robotsproxy-Reason") != string(policy.ReasonOverload) || resp.Header.Get("Retry-After") == "") {
				t.Errorf("who waited got %s %v", resp.Status, resp.Header)
			}
			if len(r.site.Requests()) != 1 {
				t.Errorf("the origin was asked for more: %v", r.site.Requests())
			}
		})
	}
}

// A POST's client is watched too while it waits: its small body is read first.
func TestUploaderLeavesWhileItWaits(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("User-agent: *\nCrawl-delay: 100\n") })
	c := r.client(true)
	r.get(c, r.url("http", "/page/1"))
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", r.url("http", "/echo"), strings.NewReader("small"))
	left := make(chan struct{})
	go func() {
		defer close(left)
		if resp, err := c.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	r.eventually("the wait", func() bool { return r.limiter.Stats().Waiting == 1 })
	time.Sleep(2 * time.Millisecond) // a wait that is worth noting
	cancel()
	<-left
	r.eventually("the leaving", func() bool { return r.limiter.Stats().Waiting == 0 })
	if rec := r.last(2); !rec.SentAt.IsZero() || rec.Reason != policy.ReasonClientLeft || rec.Error == "" || rec.Waited <= 0 {
		t.Errorf("record: %+v", rec)
	}
	if got := r.site.Paths("a.example"); len(got) != 1 {
		t.Errorf("the origin was asked for %v", got)
	}
}

func TestHeaderOfAStreamComesAtOnce(t *testing.T) {
	r := newRig(t, nil)
	release := make(chan struct{})
	r.site.SetPage("a.example", "/slow", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush()
		select {
		case <-release:
		case <-req.Context().Done():
		}
	})
	for _, way := range ways {
		resp, err := r.client(way.http1).Get(r.url(way.scheme, "/slow")) // returns with the header, or never
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	close(release)
}

func TestNothingForgedPasses(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, nil)
			r.site.SetPage("a.example", "/forged", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Trailer", "Robotsproxy-Reason, Checksum")
				w.Header().Add("Proxy-Status", "robotsproxy; error=http_request_denied")
				w.Header().Add("Proxy-Status", "cdn.example; received-status=200")
				io.WriteString(w, "body")
				w.Header().Set("Robotsproxy-Reason", "robots")
				w.Header().Set("Checksum", "1")
			})
			resp, _ := r.get(r.client(way.http1), r.url(way.scheme, "/forged"))
			if resp.Trailer.Get("Robotsproxy-Reason") != "" || resp.Trailer.Get("Checksum") != "1" {
				t.Errorf("trailer: %v", resp.Trailer)
			}
			if got := resp.Header["Proxy-Status"]; len(got) != 1 || !strings.HasPrefix(got[0], "cdn.example") {
				t.Errorf("Proxy-Status: %q", got)
			}
		})
	}
}

// The client's connection is its own: closing it closes none to the origin.
func TestClientsCloseStaysHere(t *testing.T) {
	r := newRig(t, nil)
	for range 2 {
		req, _ := http.NewRequest("GET", r.url("http", "/page/1"), nil)
		req.Close = true
		resp, err := r.client(true).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	first, second := r.last(1), r.last(2)
	for _, req := range r.site.Requests() {
		if req.Header.Get("Connection") != "" {
			t.Errorf("Connection reached the origin: %v", req.Header)
		}
	}
	if first.UpstreamAddr == "" || second.UpstreamAddr == "" {
		t.Errorf("records: %+v, %+v", first, second)
	}
}

func TestTooManyFields(t *testing.T) {
	r := newRig(t, nil)
	var b strings.Builder
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: a.example\r\n", r.url("http", "/page/1"))
	for i := range 201 {
		fmt.Fprintf(&b, "X-%d: 1\r\n", i)
	}
	resp, err := http.ReadResponse(bufio.NewReader(r.raw(b.String()+"\r\n")), nil)
	if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge || len(r.site.Requests()) != 0 {
		t.Errorf("201 fields: %v, %v", resp, err)
	}
}

func TestPasswordsAreNotRepeated(t *testing.T) {
	r := newRig(t, nil)
	for _, request := range []string{
		"CONNECT user:hunter2@a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n",
		fmt.Sprintf("GET http://user:hunter2@a.example:%d/page/1 HTTP/1.1\r\nHost: a.example\r\n\r\n", r.site.Port()),
	} {
		conn := r.raw(request)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(io.LimitReader(resp.Body, resp.ContentLength))
		if text := fmt.Sprint(resp.Header, string(body)); strings.Contains(text, "hunter2") {
			t.Errorf("%q is answered with the password: %s", request, text)
		}
	}
	r.last(2)
	if text := fmt.Sprintf("%+v %s", r.records.all(), r.log); strings.Contains(text, "hunter2") {
		t.Errorf("the password is in a record or in the log: %s", text)
	}
	for _, req := range r.site.Requests() {
		if strings.Contains(fmt.Sprint(req), "hunter2") || req.Header.Get("Authorization") != "" {
			t.Errorf("the password reached the origin: %v", req)
		}
	}
}

// A handler that begins after Close does nothing: the parts of the proxy may be closed by then. net/http starts one if
// it had read the request just before its connection was closed.
func TestNothingBeginsAfterClose(t *testing.T) {
	asked := 0
	r := newRig(t, func(o *Options) {
		o.Snapshots = snapshots(func(context.Context, origin.Origin) (*robots.Snapshot, error) {
			asked++
			return nil, errNotThere
		})
	})
	if err := r.server.Close(); err != nil {
		t.Fatal(err)
	}
	for _, request := range []*http.Request{
		httptest.NewRequest("GET", r.url("http", "/page/1"), nil),
		httptest.NewRequest("CONNECT", r.url("http", ""), nil),
	} {
		func() {
			defer func() { _ = recover() }() // http.ErrAbortHandler is for net/http
			r.server.front.Handler.ServeHTTP(httptest.NewRecorder(), request)
		}()
	}
	if asked > 0 {
		t.Errorf("a robots.txt was asked for after Close")
	}
	if r.records.begun > 0 {
		t.Errorf("%d records were begun after Close", r.records.begun)
	}
}

// A connection that is hijacked while Close runs is closed too: Close may have looked for such connections before.
func TestHijackDuringClose(t *testing.T) {
	r := newRig(t, nil)
	r.server.Close()
	ours, client := net.Pipe()
	r.server.track(ours)
	client.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := client.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the client read %v, want EOF", err)
	}
}
