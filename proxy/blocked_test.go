package proxy

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
)

// blocks are ways to block a request. Each sends one with c and returns when it is under way.
var blocks = []struct {
	name  string
	begin func(r *rig, c *http.Client, scheme string) (end func())
}{
	{"a download that is not read", func(r *rig, c *http.Client, scheme string) func() {
		resp, err := c.Get(r.url(scheme, "/endless"))
		if err != nil {
			r.t.Fatal(err)
		}
		return func() { resp.Body.Close() }
	}},
	{"an upload that drips", func(r *rig, c *http.Client, scheme string) func() {
		return r.uploads(c, scheme, drip{})
	}},
	{"an upload that stops", func(r *rig, c *http.Client, scheme string) func() {
		body, stuck := io.Pipe()
		end := r.uploads(c, scheme, io.MultiReader(strings.NewReader(strings.Repeat("x", 100<<10)), body))
		return func() {
			stuck.Close()
			end()
		}
	}},
}

// uploads begins an upload, and returns when the origin has the header of its request.
func (r *rig) uploads(c *http.Client, scheme string, body io.Reader) (end func()) {
	r.t.Helper()
	arrived := make(chan struct{}, 1)
	r.site.SetPage("a.example", "/upload", func(_ http.ResponseWriter, req *http.Request) {
		arrived <- struct{}{}
		_, _ = io.Copy(io.Discard, req.Body)
	})
	ctx, cancel := context.WithCancel(r.t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", r.url(scheme, "/upload"), body)
	if err != nil {
		r.t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		if resp, err := c.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	<-arrived
	return func() {
		cancel()
		<-over
	}
}

// A client blocks its own request. Another client waits for one second and the Delay, and the record of the blocked
// request has the deviation overlap.
func TestBlockedRequestsLetOthersGo(t *testing.T) {
	for _, way := range ways {
		for _, block := range blocks {
			t.Run(way.name+", "+block.name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, func(o *Options) { o.Snapshots = fixed("User-agent: *\nCrawl-delay: 1\n") })
				one, other := r.clientFrom("127.0.0.2"), r.clientFrom("127.0.0.3")
				one.Transport.(*http.Transport).ForceAttemptHTTP2 = !way.http1
				begin := time.Now()
				end := block.begin(r, one, way.scheme)
				r.get(other, r.url("http", "/page/1"))
				waited := time.Since(begin)
				end()
				rest := time.Duration(r.record("127.0.0.3").Waited)
				if waited < 1900*time.Millisecond || rest > 5*time.Second {
					t.Errorf("the other client was answered after %v, and its record says that it waited %v; want two seconds", waited, rest)
				}
				if rec := r.record("127.0.0.2"); rec.Deviation != audit.DeviationOverlap {
					t.Errorf("the record of the blocked request has the deviation %q, want %q", rec.Deviation, audit.DeviationOverlap)
				}
				if rec := r.record("127.0.0.3"); rec.Deviation != "" || rec.Gap < rec.DelayRequired {
					t.Errorf("the record of the other has the deviation %q and a gap of %v", rec.Deviation, time.Duration(rec.Gap))
				}
			})
		}
	}
}

// record waits for the record of a client's request and returns it.
func (r *rig) record(addr string) (rec audit.Record) {
	r.t.Helper()
	r.eventually("a record of "+addr, func() bool {
		for _, one := range r.records.all() {
			if strings.HasPrefix(one.ClientAddr, addr) {
				rec = one
				return true
			}
		}
		return false
	})
	return rec
}

// A client that reads at once holds the lane for as long as the origin takes, without a deviation.
func TestSlowOriginIsNoBlockingClient(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("User-agent: *\nCrawl-delay: 1\n") })
	r.site.SetPage("a.example", "/slow", func(w http.ResponseWriter, req *http.Request) {
		for range 25 {
			_, _ = w.Write(bytes.Repeat([]byte("x"), 100<<10))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(100 * time.Millisecond)
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.get(r.clientFrom("127.0.0.2"), r.url("http", "/slow"))
	}()
	r.eventually("the slow request", func() bool { return len(r.site.Paths("a.example")) == 1 })
	r.get(r.clientFrom("127.0.0.3"), r.url("http", "/page/1"))
	<-done
	if rec := r.record("127.0.0.2"); rec.Deviation != "" {
		t.Errorf("the record of the slow origin has the deviation %q", rec.Deviation)
	}
	if rec := r.record("127.0.0.3"); time.Duration(rec.Waited) < 3*time.Second {
		t.Errorf("the other client waited %v, want until the slow answer had ended", time.Duration(rec.Waited))
	}
}
