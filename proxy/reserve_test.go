package proxy

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/robotsproxy/robotsproxy/policy"
)

// crowded starts a rig with two users, "news" and "lab", and limits. Requests for /held are answered after release.
func crowded(t *testing.T, l Limits) (r *rig, release func()) {
	r = newRig(t, func(o *Options) { o.Users, o.Limits = users(t), l })
	return r, r.heldPage()
}

// holdRequests sends n requests for /held as c and waits until the proxy has them. The returned function waits for the
// answers.
func (r *rig) holdRequests(c *http.Client, url string, n int, body func() io.Reader) (answers func()) {
	r.t.Helper()
	statuses := make(chan int, n)
	before := r.server.requests.InUse()
	for range n {
		go func() {
			resp, err := c.Post(url, "text/plain", body())
			if err != nil {
				statuses <- 0
				return
			}
			resp.Body.Close()
			statuses <- resp.StatusCode
		}()
	}
	r.eventually("the requests", func() bool { return r.server.requests.InUse() == before+int64(n) && r.server.memory.InUse() > 0 })
	return func() {
		r.t.Helper()
		for range n {
			if status := <-statuses; status != http.StatusOK {
				r.t.Errorf("a held request was answered %d", status)
			}
		}
	}
}

func noBody() io.Reader { return http.NoBody }

// A client at its limit of requests gets 503 for the next; another client does not.
func TestTooManyRequests(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			r, release := crowded(t, Limits{Requests: 6, RequestsPerClient: 4})
			one, other := as(r.client(false), "news", "s3cr3t"), as(r.client(false), "lab", "pass:word")
			answers := r.holdRequests(one, r.url(scheme, "/held"), 4, noBody)
			resp, _ := r.get(one, r.url(scheme, "/page/1"))
			checkOverloaded(t, resp)
			rec := r.last(1)
			if rec.Reason != policy.ReasonOverload || rec.Client != "news" || rec.Host != "a.example" || rec.Status != 503 {
				t.Errorf("record: %+v", rec)
			}
			if resp, _ := r.get(other, r.url(scheme, "/page/1")); resp.StatusCode != 200 {
				t.Errorf("another client: %s", resp.Status)
			}
			rest := r.holdRequests(other, r.url(scheme, "/held"), 2, noBody)
			resp, _ = r.get(other, r.url(scheme, "/page/1")) // in all
			checkOverloaded(t, resp)
			release()
			answers()
			rest()
			r.eventually("the places", func() bool { return r.server.requests.InUse() == 0 })
			if resp, _ := r.get(one, r.url(scheme, "/page/1")); resp.StatusCode != 200 {
				t.Errorf("with free places: %s", resp.Status)
			}
			if n := r.server.requests.Refused(); n != 2 {
				t.Errorf("%d requests were refused, want 2", n)
			}
			for _, key := range []string{"key=limits.requests ", "client=news key=limits.requests_per_client "} {
				if !strings.Contains(r.log.String(), key) {
					t.Errorf("the log does not say %q: %s", key, r.log)
				}
			}
		})
	}
}

func checkOverloaded(t *testing.T, resp *http.Response) {
	t.Helper()
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || resp.Header.Get("Robotsproxy-Reason") != string(policy.ReasonOverload) {
		t.Errorf("got %s %v, want 503 overload with Retry-After", resp.Status, resp.Header)
	}
}

// The headers and bodies that requests hold in memory are bounded for each client: a small body, which is read before
// the request waits, by its length, and any other by what HTTP/2 buffers of it. HTTP/1.1 buffers nothing.
func TestRequestMemory(t *testing.T) {
	small := func() io.Reader { return bytes.NewReader(make([]byte, 60<<10)) }
	large := func() io.Reader { return bytes.NewReader(make([]byte, 65<<10)) }
	unknown := func() io.Reader { return io.MultiReader(strings.NewReader("x"), strings.NewReader("y")) }
	header := func(r *http.Request) { r.Header.Set("X", strings.Repeat("x", 50<<10)) }
	for _, row := range []struct {
		name, scheme string
		body         func() io.Reader
		header       func(*http.Request)
		refused      bool // the second of them
	}{
		{"small body", "http", small, nil, true},
		{"small body", "https", small, nil, true},
		{"large body", "https", large, nil, true},
		{"unknown length", "https", unknown, nil, true},
		{"large body", "http", large, nil, false},
		{"unknown length", "http", unknown, nil, false},
		{"large header", "http", noBody, header, true},
		{"large header", "https", noBody, header, true},
	} {
		t.Run(row.name+"/"+row.scheme, func(t *testing.T) {
			r, release := crowded(t, Limits{RequestMemory: 1 << 20, RequestMemoryPerClient: 100 << 10})
			defer release()
			post := func(c *http.Client, path string, body io.Reader) *http.Response {
				req, err := http.NewRequest("POST", r.url(row.scheme, path), body)
				if err != nil {
					panic(err)
				}
				if row.header != nil {
					row.header(req)
				}
				resp, err := c.Do(req)
				if err != nil {
					t.Error(err)
					return &http.Response{}
				}
				resp.Body.Close()
				return resp
			}
			one, other := as(r.client(false), "news", "s3cr3t"), as(r.client(false), "lab", "pass:word")
			go post(one, "/held", row.body())
			r.eventually("a held request", func() bool { return r.server.memory.InUse() > 0 })
			if resp := post(one, "/page/1", row.body()); row.refused {
				checkOverloaded(t, resp)
			} else if resp.StatusCode != 200 {
				t.Errorf("a second request: %s", resp.Status)
			}
			if resp, _ := r.get(one, r.url(row.scheme, "/page/1")); resp.StatusCode != 200 {
				t.Errorf("a small request of the same client: %s", resp.Status)
			}
			if resp := post(other, "/page/1", row.body()); resp.StatusCode != 200 {
				t.Errorf("another client: %s", resp.Status)
			}
		})
	}
}

// A tunnel of HTTP/2 accepts 100 concurrent streams and 64 KiB of an unread body.
func TestStreamLimits(t *testing.T) {
	r := newRig(t, nil)
	_, conn, _ := r.connect(r.site.TLSPort(), "", "")
	c := r.secured(conn, "h2")
	io.WriteString(c, http2.ClientPreface)
	framer := http2.NewFramer(c, c)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	frame, err := framer.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	settings, ok := frame.(*http2.SettingsFrame)
	if !ok {
		t.Fatalf("the first frame is %v", frame)
	}
	for id, want := range map[http2.SettingID]uint32{http2.SettingMaxConcurrentStreams: 100, http2.SettingInitialWindowSize: 64 << 10} {
		if got, _ := settings.Value(id); got != want {
			t.Errorf("%v is %d, want %d", id, got, want)
		}
	}
}

// secured starts TLS with a protocol in a tunnel.
func (r *rig) secured(conn net.Conn, protocol string) *tls.Conn {
	c := tls.Client(conn, &tls.Config{ServerName: "a.example", RootCAs: r.ca, NextProtos: []string{protocol}})
	if err := c.Handshake(); err != nil {
		r.t.Fatal(err)
	}
	return c
}
