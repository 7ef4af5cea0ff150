//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// The exhausted quota of one account does not pause the host for another client.
func TestHostileQuota(t *testing.T) {
	for _, test := range []struct {
		status int
		fields map[string]string
	}{
		{429, map[string]string{"Retry-After": "60"}},
		{200, map[string]string{"RateLimit-Remaining": "0", "RateLimit-Reset": "60"}},
	} {
		t.Run(fmt.Sprint(test.status), func(t *testing.T) {
			site := robotstest.New(t)
			site.SetPage("a.example", "/account", func(w http.ResponseWriter, _ *http.Request) {
				for name, value := range test.fields {
					w.Header().Set(name, value)
				}
				w.WriteHeader(test.status)
			})
			s := newScene(t, site, "pacing: {max_wait: 1s}\n")
			url := func(path string) string { return fmt.Sprintf("http://a.example:%d%s", site.Port(), path) }
			one := &http.Client{Transport: s.transport("one")}
			ask := func(path string) *http.Response {
				req, err := http.NewRequest(http.MethodGet, url(path), nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Cookie", "account=one")
				resp, err := one.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				return resp
			}
			s.unharmed(20, s.get("other", url("/page/1")), func(context.Context) {
				if resp := ask("/account"); resp.StatusCode != test.status {
					t.Errorf("the origin's answer: %s", resp.Status)
				}
			})
			if resp := ask("/page/1"); resp.StatusCode != 429 || resp.Header.Get("Robotsproxy-Reason") != "backoff" {
				t.Errorf("the client itself: %s %v, want 429 and the reason backoff", resp.Status, resp.Header)
			}
		})
	}
}

// hostileHolds are ways to block requests, each on a connection of its own.
var hostileHolds = map[string]func(s *scene, ctx context.Context, url func(string) string){
	"downloads that are not read": func(s *scene, ctx context.Context, url func(string) string) {
		s.begin(ctx, http.MethodGet, url("/endless"), nil)
	},
	"uploads that drip": func(s *scene, ctx context.Context, url func(string) string) {
		s.begin(ctx, http.MethodPost, url("/echo"), drip{ctx})
	},
}

// drip is a body of one byte every 50 ms.
type drip struct{ ctx context.Context }

func (d drip) Read(p []byte) (int, error) {
	select {
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	case <-time.After(50 * time.Millisecond):
		return copy(p, "x"), nil
	}
}

// begin sends a request of the hostile client on a new connection, and does not read the response.
func (s *scene) begin(ctx context.Context, method, url string, body io.Reader) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		s.t.Fatal(err)
	}
	transport := s.transport("one")
	transport.DisableKeepAlives = true
	go func() {
		if resp, err := transport.RoundTrip(req); err == nil {
			<-ctx.Done()
			resp.Body.Close()
		}
	}()
}

// Unread downloads and dripping uploads delay the other client by one second at most, and the overlap is recorded.
func TestHostileHolds(t *testing.T) {
	long(t)
	const hostile = 12
	for _, test := range []struct{ hold, scheme, robots string }{
		{"downloads that are not read", "http", "User-agent: *\nCrawl-delay: 0.2\n"},
		{"downloads that are not read", "https", ""},
		{"uploads that drip", "https", "User-agent: *\nCrawl-delay: 0.2\n"},
		{"uploads that drip", "http", ""},
	} {
		t.Run(fmt.Sprintf("%s, %s, %q", test.hold, test.scheme, test.robots), func(t *testing.T) {
			site := robotstest.New(t)
			site.SetRobots("a.example", robotstest.Robots{Body: test.robots})
			s := newScene(t, site, "")
			port := map[string]int{"http": site.Port(), "https": site.TLSPort()}[test.scheme]
			url := func(path string) string { return fmt.Sprintf("%s://a.example:%d%s", test.scheme, port, path) }
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			s.unharmed(20, s.get("other", url("/page/1")), func(context.Context) {
				for range hostile {
					hostileHolds[test.hold](s, ctx, url)
				}
				s.eventually(func() error {
					if n := s.metric("robotsproxy_waiting_requests"); n < hostile-8 {
						return fmt.Errorf("%v requests of the hostile client wait", n)
					}
					return nil
				})
				time.Sleep(2 * time.Second) // the first of them hold the host for a second
			})
			stop()
			overlapped := func(rec audit.Record) bool { return rec.Client == "one" && rec.Deviation == "overlap" }
			if !slices.ContainsFunc(s.server.records(t), overlapped) {
				t.Error("no record of the hostile client has the deviation overlap")
			}
		})
	}
}
