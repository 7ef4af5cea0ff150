package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/auth"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

const fault = "a fault of ours"

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// faultyBody panics after its first bytes.
type faultyBody struct{ io.Reader }

func (b faultyBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil {
		panic(fault)
	}
	return n, nil
}

func (faultyBody) Close() error { return nil }

// faultyRecorder panics when a decision is made, once for each request.
type faultyRecorder struct {
	*recorder
	seen map[audit.ID]bool
}

func (r faultyRecorder) Begin(ctx context.Context, rec *audit.Record) error {
	if !r.seen[rec.ID] {
		r.seen[rec.ID] = true
		panic(fault)
	}
	return r.recorder.Begin(ctx, rec)
}

// A panic in any stage is one 500, one line in the log and one record; the next request is served.
func TestPanicInAnyStage(t *testing.T) {
	for name, change := range map[string]func(*Options, *recorder){
		"look-up": func(o *Options, _ *recorder) {
			o.Snapshots = snapshots(func(context.Context, origin.Origin) (*robots.Snapshot, error) { panic(fault) })
		},
		"record": func(o *Options, r *recorder) { o.Recorder = faultyRecorder{r, make(map[audit.ID]bool)} },
		"transport": func(o *Options, _ *recorder) {
			o.Transport = roundTripper(func(*http.Request) (*http.Response, error) { panic(fault) })
		},
		"answer": func(o *Options, _ *recorder) {
			o.Transport = roundTripper(func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 200}, nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			r.change(func(o *Options) { change(o, r.records) })
			for i, way := range ways {
				resp, body := r.get(r.client(way.http1), r.url(way.scheme, "/page/1"))
				if resp.StatusCode != 500 || resp.Header.Get("Robotsproxy-Reason") != "internal" || strings.Contains(string(body), fault) {
					t.Errorf("%s: %s %s", way.name, resp.Status, body)
				}
				if rec := r.last(i + 1); rec.Reason != policy.ReasonInternal || !strings.HasPrefix(rec.Error, "panic: ") {
					t.Errorf("%s: record %+v", way.name, rec)
				}
				if n := strings.Count(r.log.String(), "a panic while a request was served"); n != i+1 || len(r.records.all()) != i+1 {
					t.Errorf("%s: %d lines and %d records of %d panics", way.name, n, len(r.records.all()), i+1)
				}
			}
		})
	}
}

// A panic during an upload abandons the body: the answer does not wait for the rest, and no request is read from it.
func TestPanicAmidAnUpload(t *testing.T) {
	for _, way := range connections {
		t.Run(way.name, func(t *testing.T) {
			rest := make(chan error, 1)
			r := newRig(t, func(o *Options) {
				o.Snapshots = fixed("")
				o.Transport = roundTripper(func(req *http.Request) (*http.Response, error) {
					exactly(t, req.Body, "hello")
					go func() {
						_, err := io.ReadAll(req.Body)
						rest <- err
					}()
					panic(fault)
				})
			})
			conn, target, host := way.open(r)
			fmt.Fprintf(conn, "POST %s/ HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", target, host)
			if all, err := answers(conn); err != nil || len(all) != 1 || all[0].StatusCode != 500 || !all[0].Close {
				t.Errorf("%v, %v", all, err)
			}
			if err := <-rest; !errors.Is(err, errCutShort) {
				t.Errorf("the rest of the body ended with %v", err)
			}
		})
	}
}

// A panic while a client is identified is recovered too, also at a CONNECT, which gives its slots back.
func TestPanicAtIdentification(t *testing.T) {
	r := newRig(t, nil)
	r.change(func(o *Options) { o.Users = &auth.Users{} }) // its zero value is not usable
	for i, target := range []string{r.url("http", "/page/1"), "a.example:443"} {
		method := []string{"GET ", "CONNECT "}[i]
		conn := r.raw(method + target + " HTTP/1.1\r\nHost: a\r\nProxy-Authorization: Basic eDp5\r\nConnection: close\r\n\r\n")
		if all, err := answers(conn); err != nil || len(all) != 1 || all[0].StatusCode != 500 || all[0].Header.Get("Robotsproxy-Reason") != "internal" {
			t.Errorf("%s: %v, %v", target, all, err)
		}
		if rec := r.last(i + 1); rec.Reason != policy.ReasonInternal || !strings.HasPrefix(rec.Error, "panic: ") || rec.Host != "a.example" && i == 1 {
			t.Errorf("%s: record %+v", target, rec)
		}
	}
	if n := strings.Count(r.log.String(), "a panic while a request was served"); n != 2 {
		t.Errorf("%d lines in the log: %s", n, r.log)
	}
	r.eventually("all slots", func() bool { return r.server.Connections() == 0 && r.server.tunnelLimit.InUse() == 0 })
}

// An answer that has begun cannot become a 500: it breaks off, and the record says why.
func TestPanicInABody(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) {
				o.Snapshots = fixed("")
				o.Transport = roundTripper(func(req *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 200, Header: http.Header{}, Body: faultyBody{strings.NewReader("begun")}, ContentLength: -1, Request: req}, nil
				})
			})
			resp, err := r.client(way.http1).Get(r.url(way.scheme, "/page/1"))
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if err == nil {
				t.Error("the answer looks whole")
			}
			if rec := r.last(1); rec.Error != "panic: "+fault || rec.Status != 200 || len(r.records.all()) != 1 {
				t.Errorf("records: %+v", r.records.all())
			}
			if n := strings.Count(r.log.String(), "a panic while a request was served"); n != 1 {
				t.Errorf("%d lines in the log: %s", n, r.log)
			}
		})
	}
}

// brokenRecorder panics in every Begin, or in every End after it has kept the record.
type brokenRecorder struct {
	*recorder
	begin bool
}

func (r brokenRecorder) Begin(ctx context.Context, rec *audit.Record) error {
	if r.begin {
		panic(fault)
	}
	return r.recorder.Begin(ctx, rec)
}

func (r brokenRecorder) End(rec *audit.Record) {
	r.recorder.End(rec)
	panic(fault)
}

// closes fails the test if Close does not return soon.
func (r *rig) closes() {
	r.t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- r.server.Close() }()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		r.t.Error("Close waits for a request that has ended")
	}
}

// A Recorder that panics again while the first panic is recorded must not leave a CONNECT counted: Close would never
// return.
func TestPanicTwiceAtARawTunnel(t *testing.T) {
	r := pinned(t, policy.Options{}, func(o *Options) { o.Snapshots = fixed("") })
	r.change(func(o *Options) { o.Recorder = brokenRecorder{r.records, true} })
	conn := r.raw(fmt.Sprintf("CONNECT a.example:%d HTTP/1.1\r\nHost: a.example\r\n\r\n", r.site.TLSPort()))
	if all, _ := answers(conn); len(all) > 0 && all[0].StatusCode == 200 {
		t.Errorf("answer: %v", all)
	}
	r.closes()
}

// A panic of the Recorder at the end of a tunnel happens apart from any handler of net/http, and must not end the
// process.
func TestPanicAtTheEndOfARawTunnel(t *testing.T) {
	r := pinned(t, policy.Options{}, func(o *Options) { o.Snapshots = fixed("") })
	r.change(func(o *Options) { o.Recorder = brokenRecorder{r.records, false} })
	resp, conn, _ := r.connect(r.site.TLSPort(), "", "")
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	conn.Close()
	if rec := r.last(1); rec.Status != 200 {
		t.Errorf("record: %+v", rec)
	}
	r.closes()
	if n := strings.Count(r.log.String(), "a panic while a request was served"); n != 1 {
		t.Errorf("%d lines in the log: %s", n, r.log)
	}
}

// The same holds for a WebSocket without traffic, which ends by its timer.
func TestPanicAtTheEndOfAWebSocket(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots, o.IdleTimeout = fixed(""), 100*time.Millisecond })
	r.change(func(o *Options) { o.Recorder = brokenRecorder{r.records, false} })
	r.site.SetPage("a.example", "/silent", func(w http.ResponseWriter, req *http.Request) {
		if conn, err := websocket.Accept(w, req, nil); err == nil {
			conn.Read(context.WithoutCancel(req.Context()))
		}
	})
	url := "ws" + strings.TrimPrefix(r.url("http", "/silent"), "http")
	if _, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPClient: r.client(true)}); err != nil {
		t.Fatal(err)
	}
	if rec := r.last(1); rec.Status != 101 || rec.Error != errSilent.Error() {
		t.Errorf("record: %+v", rec)
	}
	r.closes()
}

// A panic in the TLS handshake of a tunnel closes the connection, which net/http does not do after a hijack.
func TestPanicInAHandshake(t *testing.T) {
	r := newRig(t, nil)
	r.change(func(o *Options) { o.Authority = nil }) // its methods panic
	if _, err := r.client(true).Get(r.url("https", "/page/1")); err == nil {
		t.Error("the handshake succeeded")
	}
	r.eventually("the end of the connection", func() bool {
		return r.server.Tunnels() == 0 && r.server.Connections() == 0 && r.server.tunnelLimit.InUse() == 0
	})
	if rec := r.last(1); rec.Via != audit.Tunnel || rec.Reason != policy.ReasonInternal || rec.Host != "a.example" {
		t.Errorf("record: %+v", rec)
	}
	if n := strings.Count(r.log.String(), "a panic while a request was served"); n != 1 {
		t.Errorf("%d lines in the log: %s", n, r.log)
	}
}

// A panic during the refusal of malformed bytes, or of a path without a page, is answered and recorded.
func TestPanicInARefusal(t *testing.T) {
	for _, data := range []string{"GET /\n\n", "GET //a.example/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"} {
		r := newRig(t, nil)
		r.change(func(o *Options) { o.Recorder = faultyRecorder{r.records, make(map[audit.ID]bool)} })
		if all, err := answers(r.raw(data)); err != nil || len(all) != 1 || all[0].StatusCode != 500 {
			t.Errorf("%q: %v, %v", data, all, err)
		}
		if rec := r.last(1); rec.Reason != policy.ReasonInternal {
			t.Errorf("%q: record %+v", data, rec)
		}
		r.closes()
	}
}

// After Close, the Recorder may be closed: no refusal may be recorded.
func TestOwnPageAfterClose(t *testing.T) {
	r := newRig(t, nil)
	r.closes()
	defer func() {
		if v := recover(); v != http.ErrAbortHandler {
			t.Errorf("the handler ended with %v, want ErrAbortHandler", v)
		}
		if n := len(r.records.all()); n > 0 {
			t.Errorf("%d records", n)
		}
	}()
	r.server.serveFront(httptest.NewRecorder(), httptest.NewRequest("GET", "//a.example/x", nil))
}
