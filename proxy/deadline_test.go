package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/robotsproxy/robotsproxy/policy"
)

// A request that takes too long gets 504, or an answer that breaks off, and frees all that it holds.
func TestRequestTimeout(t *testing.T) {
	const timeout = 1500 * time.Millisecond // in which a busy machine begins an answer
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Limits.RequestTimeout, o.Snapshots = timeout, fixed("") })
			release := make(chan struct{})
			defer close(release)
			r.site.SetPage("a.example", "/silent", func(_ http.ResponseWriter, req *http.Request) {
				select {
				case <-release:
				case <-req.Context().Done():
				}
			})
			before := runtime.NumGoroutine()
			c := r.client(way.http1)
			var all sync.WaitGroup
			all.Go(func() {
				resp, err := c.Get(r.url(way.scheme, "/silent"))
				if err != nil {
					t.Error(err)
				} else if resp.Body.Close(); resp.StatusCode != 504 || resp.Header.Get("Robotsproxy-Reason") != "upstream" || !strings.Contains(resp.Header.Get("Proxy-Status"), "http_response_timeout") {
					t.Errorf("a silent origin: %s %v", resp.Status, resp.Header)
				}
			})
			all.Go(func() {
				if resp, err := c.Get(r.url(way.scheme, "/endless")); err != nil {
					t.Error(err)
				} else if n, err := io.Copy(io.Discard, resp.Body); err == nil {
					t.Errorf("an endless answer ended after %d octets as if it were whole", n)
				}
			})
			all.Go(func() {
				upload, _ := http.NewRequest("POST", r.url(way.scheme, "/echo"), drip{})
				if resp, err := c.Do(upload); err == nil {
					if resp.Body.Close(); resp.StatusCode != 504 && resp.StatusCode != 400 {
						t.Errorf("an upload that never ends: %s", resp.Status)
					}
				}
			})
			stuck, err := c.Get(r.url(way.scheme, "/endless"))
			all.Wait()
			if err != nil {
				t.Fatal(err)
			}
			for i := range 4 {
				if rec := r.last(i + 1); rec.Error == "" || rec.Decision != policy.Allow {
					t.Errorf("record: %+v", rec)
				}
			}
			stuck.Body.Close()
			if resp, _ := r.get(c, r.url(way.scheme, "/page/1")); resp.StatusCode != 200 {
				t.Errorf("a quick request behind them: %s", resp.Status)
			}
			c.CloseIdleConnections()
			r.server.settings.Load().Transport.(siteTransport).CloseIdleConnections()
			r.eventually("the end of all", func() bool { return r.server.Active() == 0 && runtime.NumGoroutine() <= before+4 })
		})
	}
}

// drip is an endless body, one byte at a time.
type drip struct{}

func (drip) Read(p []byte) (int, error) {
	time.Sleep(20 * time.Millisecond)
	return copy(p, "x"), nil
}

// The wait for a place in the lane has its own limit and does not count.
func TestRequestTimeoutLeavesTheWaitOut(t *testing.T) {
	const limit = 1500 * time.Millisecond
	r := newRig(t, func(o *Options) {
		o.Limits.RequestTimeout, o.Snapshots = limit, fixed("User-agent: *\nCrawl-delay: 3\n")
	})
	c := r.client(true)
	for range 2 {
		if resp, _ := r.get(c, r.url("http", "/page/1")); resp.StatusCode != 200 {
			t.Errorf("%s", resp.Status)
		}
	}
	if rec := r.last(2); time.Duration(rec.Waited) < limit {
		t.Fatalf("the second waited %v only", time.Duration(rec.Waited))
	}
}

// The limit also holds while a small body is read before the wait.
func TestRequestTimeoutOfASmallBody(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.RequestTimeout, o.Snapshots = 300*time.Millisecond, fixed("") })
	conn := r.raw(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100\r\n\r\nhalf", r.url("http", "/echo")))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != 504 || len(r.site.Requests()) != 0 {
		t.Errorf("%v, %v; %d requests at the origin", resp, err, len(r.site.Requests()))
	}
}

func TestRequestTimeoutOfAWebSocket(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.RequestTimeout, o.Snapshots = 1500*time.Millisecond, fixed("") })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(r.url("http", "/ws"), "http"), &websocket.DialOptions{HTTPClient: r.client(true)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if _, _, err := conn.Read(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("the end: %v", err)
	}
	r.eventually("the end", func() bool { return r.server.Active() == 0 && r.server.Tunnels() == 0 })
	if rec := r.last(1); rec.Error != errTooLong.Error() || rec.Status != 101 {
		t.Errorf("record: %+v", rec)
	}
}
