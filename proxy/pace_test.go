package proxy

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots"
)

// answering returns a handler that answers with a status and fields, given as names and values.
func answering(status int, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(fields); i += 2 {
			w.Header().Set(fields[i], fields[i+1])
		}
		w.WriteHeader(status)
	}
}

// TestBackoffIsForEverybody has one client's request answered 503 with a Retry-After: every other is refused for as
// long, and nothing reaches the origin.
func TestBackoffIsForEverybody(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
		mode   policy.Mode // of the request that is answered so
		status int
	}{
		{"503", answering(503, "Retry-After", "1000"), policy.Enforce, 503},
		{"503 in mode report", answering(503, "Retry-After", "1000"), policy.Report, 503},
		{"a spent quota", answering(200, "RateLimit", `"default";r=0;t=1000`), policy.Enforce, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots, o.MaxWait = fixed(""), time.Second })
			r.site.SetPage("a.example", "/busy", test.answer)
			r.change(func(o *Options) { o.Policy = r.newPolicy(policy.Options{Mode: test.mode}) })
			if resp, _ := r.get(r.client(true), r.url("http", "/busy")); resp.StatusCode != test.status {
				t.Fatalf("status %d, want the origin's %d", resp.StatusCode, test.status)
			}
			r.change(func(o *Options) { o.Policy = r.newPolicy(policy.Options{}) })
			resp, _ := r.get(r.client(true), r.url("https", "/page/1"))
			h := resp.Header
			if resp.StatusCode != 429 || h.Get("Robotsproxy-Reason") != "backoff" || h.Get("RateLimit") != `"default";r=0;t=`+h.Get("Retry-After") {
				t.Errorf("status %d, fields %v; want 429, the reason backoff and how long the rest of the pause is", resp.StatusCode, h)
			}
			if got := r.site.Paths("a.example"); len(got) != 1 {
				t.Errorf("the origin was asked for %v, want /busy alone", got)
			}
		})
	}
}

// TestNoBackoffByOurOwnAnswers has answers that we make ourselves, with the statuses that an origin pushes back with.
func TestNoBackoffByOurOwnAnswers(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
	r.records.refuse = true
	for range 5 {
		if resp, _ := r.get(r.client(true), r.url("http", "/page/1")); resp.StatusCode != 503 {
			t.Fatalf("status %d, want 503 while nothing can be recorded", resp.StatusCode)
		}
	}
	if until := r.limiter.Paused("a.example"); !until.IsZero() {
		t.Errorf("our own 503 paused the host until %v", until)
	}
}

// TestHeldToTheEndOfAPause has a request wait for a pause that is short enough, and its record say why.
func TestHeldToTheEndOfAPause(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
	r.site.SetPage("a.example", "/busy", answering(429, "Retry-After", "3")) // longer than a busy machine stalls
	r.get(r.client(true), r.url("http", "/busy"))
	if resp, _ := r.get(r.client(true), r.url("http", "/page/1")); resp.StatusCode != 200 {
		t.Fatalf("status %d, want 200", resp.StatusCode)
	}
	rec := r.last(2)
	if rec.DelaySource != "retry-after" || rec.DelayRequired <= 0 || rec.Gap < rec.DelayRequired || rec.Waited <= 0 {
		t.Errorf("the record has delay %v by %q, gap %v, waited %v; want a gap of the delay at least, by retry-after", rec.DelayRequired, rec.DelaySource, rec.Gap, rec.Waited)
	}
}

// TestStoppedHost has an operator stop a host, in every mode, also for a request that waits already.
func TestStoppedHost(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("User-agent: *\nCrawl-delay: 100\n") })
	r.get(r.client(true), r.url("http", "/page/1"))
	waiting := make(chan *http.Response)
	go func() {
		resp, err := r.client(true).Get(r.url("http", "/page/2"))
		if err == nil {
			resp.Body.Close()
		}
		waiting <- resp
	}()
	r.eventually("a request that waits", func() bool { return r.limiter.Stats().Waiting == 1 })
	until := time.Now().Add(time.Hour)
	if ended := r.stop(policy.Options{}, until); ended != (Ended{Answered: 1}) {
		t.Errorf("the stop ended %+v, want one answer", ended)
	}
	stopped := func(what string, resp *http.Response) {
		t.Helper()
		if resp == nil || resp.StatusCode != 503 || resp.Header.Get("Robotsproxy-Reason") != "stopped" || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s was answered %+v, want 503, stopped, with a Retry-After", what, resp)
			return
		}
		resp.Body.Close()
	}
	stopped("a request that waited", <-waiting)
	for _, mode := range []policy.Mode{policy.Enforce, policy.Report, policy.Off} {
		r.stop(policy.Options{Mode: mode}, until)
		resp, _ := r.get(r.client(true), r.url("http", "/page/3"))
		stopped("a request in mode "+mode.String(), resp)
	}
	if got := r.site.Paths("a.example"); len(got) != 1 {
		t.Errorf("the origin was asked for %v, want /page/1 alone", got)
	}
	for _, rec := range r.records.all()[1:] {
		if rec.Intervention != "stop a.example: the owner asked (ops)" || rec.Reason != policy.ReasonStopped {
			t.Errorf("record of a request that was stopped: %+v", rec)
		}
	}
	r.change(func(o *Options) { o.Policy = r.newPolicy(policy.Options{Mode: policy.Off}) })
	if resp, _ := r.get(r.client(true), r.url("http", "/page/4")); resp.StatusCode != 200 {
		t.Errorf("status %d after the stop was lifted, want 200", resp.StatusCode)
	}
}

// TestStoppedDuringTheLookUp has a host stopped while its robots.txt is looked up, for requests of each mode.
func TestStoppedDuringTheLookUp(t *testing.T) {
	for _, mode := range []policy.Mode{policy.Enforce, policy.Report} {
		var r *rig
		r = newRig(t, func(o *Options) {
			o.Policy = r.newPolicy(policy.Options{Mode: mode})
			o.Snapshots = snapshots(func(ctx context.Context, at origin.Origin) (*robots.Snapshot, error) {
				r.stop(policy.Options{Mode: mode}, time.Time{})
				return fixed("")(ctx, at)
			})
		})
		if resp, _ := r.get(r.client(true), r.url("http", "/page/1")); resp.StatusCode != 503 || resp.Header.Get("Robotsproxy-Reason") != "stopped" {
			t.Errorf("mode %v: status %d, fields %v; want 503, stopped", mode, resp.StatusCode, resp.Header)
		}
	}
}

// TestReportedRequestsDeviate has requests that are only reported on go too soon, alone and before one that waits: the
// records of both say so, and what the gap was.
func TestReportedRequestsDeviate(t *testing.T) {
	mode := policy.Report
	r := newRig(t, func(o *Options) {
		o.Snapshots = fixed("User-agent: *\nDisallow:\nCrawl-delay: 4\n")
		o.Users = users(t)
		o.Clients = []Client{{Client: policy.Client{Name: "news", Mode: &mode}, User: "news"}, {Client: policy.Client{Name: "lab"}, User: "lab"}}
	})
	report := func() { r.get(as(r.client(true), "news", "s3cr3t"), r.url("http", "/page/1")) }
	report()
	if rec := r.last(1); rec.Deviation != "" || rec.Gap != 0 {
		t.Errorf("the first record has the deviation %q and the gap %v, want neither", rec.Deviation, rec.Gap)
	}
	report()
	if rec := r.last(2); rec.Deviation != "reported" || rec.Gap <= 0 || rec.Gap >= rec.DelayRequired {
		t.Errorf("the second record has the deviation %q and the gap %v, want reported, and less than 4s", rec.Deviation, rec.Gap)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.get(as(r.client(true), "lab", "pass:word"), r.url("http", "/page/2"))
	}()
	r.eventually("a request that waits", func() bool { return r.limiter.Stats().Waiting == 1 })
	time.Sleep(2 * time.Second) // so that the gap is short by more than a busy machine adds
	report()
	<-done
	if rec := r.last(4); rec.Path != "/page/2" || rec.Deviation != "reported" || rec.Gap <= 0 || rec.Gap >= rec.DelayRequired {
		t.Errorf("the record of the one that waited has the deviation %q and the gap %v, want reported, and less than 4s", rec.Deviation, rec.Gap)
	}
}

// TestSubresourcesHaveNoDelay has a browser load a page under a long Crawl-delay.
func TestSubresourcesHaveNoDelay(t *testing.T) {
	for _, pages := range []bool{true, false} {
		t.Run(fmt.Sprint(pages), func(t *testing.T) {
			r := newRig(t, func(o *Options) {
				o.Snapshots, o.MaxWait = fixed("User-agent: *\nDisallow: /private\nCrawl-delay: 1000\n"), time.Second
				o.Clients = []Client{{Client: policy.Client{Name: "browser"}, Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Pages: pages}}
			})
			ask := func(path, dest string) int {
				req, _ := http.NewRequest("GET", r.url("http", path), nil)
				if dest != "" {
					req.Header.Set("Sec-Fetch-Dest", dest)
				}
				resp, err := r.client(true).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				return resp.StatusCode
			}
			got := []int{
				ask("/page/1", "document"), ask("/page/2", "image"), ask("/page/3", "empty"),
				ask("/private", "script"), ask("/page/4", "iframe"), ask("/page/5", "document"), ask("/page/6", ""),
				ask("/page/7", "font"), ask("/page/8", "fencedframe"),
			}
			want := []int{200, 200, 200, 403, 429, 429, 429, 200, 429}
			if !pages {
				want = []int{200, 429, 429, 403, 429, 429, 429, 429, 429}
			}
			if !slices.Equal(got, want) {
				t.Errorf("answered %v, want %v", got, want)
			}
			if rec := r.last(2); (rec.Deviation == "subresource") != pages {
				t.Errorf("the record of the image has the deviation %q", rec.Deviation)
			}
		})
	}
}

// TestSubresourcesInReportMode has a browser load two pages at once. In mode enforce, the second would wait and its
// part would not.
func TestSubresourcesInReportMode(t *testing.T) {
	mode := policy.Report
	r := newRig(t, func(o *Options) {
		o.Snapshots = fixed("User-agent: *\nDisallow:\nCrawl-delay: 1000\n")
		o.Clients = []Client{{
			Client:   policy.Client{Name: "browser", Mode: &mode},
			Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Pages: true,
		}}
	})
	for i, test := range []struct {
		dest, deviation string
		decision        policy.Outcome
	}{{"document", "", policy.Allow}, {"document", "reported", policy.WouldThrottle}, {"image", "subresource", policy.Allow}} {
		req, _ := http.NewRequest("GET", r.url("http", fmt.Sprint("/page/", i+1)), nil)
		req.Header.Set("Sec-Fetch-Dest", test.dest)
		resp, err := r.client(true).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if rec := r.last(i + 1); resp.StatusCode != 200 || rec.Deviation != test.deviation || rec.Decision != test.decision || rec.Waited != 0 {
			t.Errorf("request %d (%s): status %d, deviation %q, %s, waited %v; want 200, %q, %s, 0",
				i, test.dest, resp.StatusCode, rec.Deviation, rec.Decision, rec.Waited, test.deviation, test.decision)
		}
	}
}

// TestDelayOverTheMaximum has a site ask for a longer Delay than the operator allows: nobody is told to come back to a
// host that is not visited at all, and nothing deviates from what the site asked.
func TestDelayOverTheMaximum(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("User-agent: *\nCrawl-delay: 1000\n") })
	r.change(func(o *Options) {
		o.Policy = r.newPolicy(policy.Options{MaxCrawlDelay: time.Second, RefuseOverMax: true})
	})
	resp, body := r.get(r.client(true), r.url("http", "/page/1"))
	if h := resp.Header; resp.StatusCode != 403 || h.Get("Robotsproxy-Reason") != "pace" || h.Get("Retry-After") != "" || h.Get("RateLimit") != "" {
		t.Errorf("status %d, fields %v; want 403, the reason pace and no time to come back", resp.StatusCode, h)
	}
	if !strings.Contains(string(body), "max_crawl_delay") {
		t.Errorf("the answer does not say why:\n%s", body)
	}
	if rec := r.last(1); rec.Decision != policy.Deny || rec.Deviation != "" || rec.DelayRequired != audit.Millis(1000*time.Second) {
		t.Errorf("the record is %+v, want a deny with the site's own delay, and no deviation", rec)
	}
	if got := r.site.Paths("a.example"); len(got) != 0 {
		t.Errorf("the origin was asked for %v, want nothing", got)
	}
}

// TestFullLineSaysSo has more requests come than may wait: the answer speaks of those that wait, and not of a limit
// that the wait is far below.
func TestFullLineSaysSo(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Snapshots = fixed("User-agent: *\nCrawl-delay: 100\n")
		var err error
		if o.Limiter, err = ratelimit.New(ratelimit.Options{MaxQueuePerClient: 1}); err != nil {
			t.Fatal(err)
		}
	})
	r.get(r.client(true), r.url("http", "/page/1"))
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, r.url("http", "/page/2"), nil)
		if resp, err := r.client(true).Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	r.eventually("a request that waits", func() bool { return r.server.settings.Load().Limiter.Stats().Waiting == 1 })
	resp, body := r.get(r.client(true), r.url("http", "/page/3"))
	if resp.StatusCode != 429 || !strings.Contains(string(body), "As many requests wait for a.example as may") {
		t.Errorf("status %d, want 429 and word of those that wait:\n%s", resp.StatusCode, body)
	}
	leave()
	<-left
}

// stuckPauses keep nothing until they are freed.
type stuckPauses struct {
	asked chan struct{}
	free  chan struct{}
}

func (s stuckPauses) Keep(ratelimit.Pause) error {
	s.asked <- struct{}{}
	<-s.free
	return nil
}

func (stuckPauses) Kept() ([]ratelimit.Pause, error) { return nil, nil }

// The client gets a 429 before its pause is stored.
func TestPushedBackAnswerIsNotHeldUp(t *testing.T) {
	stuck := stuckPauses{asked: make(chan struct{}, 1), free: make(chan struct{})}
	limiter, err := ratelimit.New(ratelimit.Options{Pauses: stuck})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(o *Options) { o.Snapshots, o.Limiter = fixed(""), limiter })
	r.site.SetPage("a.example", "/busy", answering(429, "Retry-After", "1000"))
	client := r.client(true)
	client.Timeout = 10 * time.Second
	if resp, _ := r.get(client, r.url("http", "/busy")); resp.StatusCode != 429 {
		t.Errorf("status %d, want the origin's 429", resp.StatusCode)
	}
	<-stuck.asked // and Keep has not returned
	if until := limiter.Paused("a.example"); until.IsZero() {
		t.Error("the host is not paused")
	}
	close(stuck.free)
	limiter.Close()
}
