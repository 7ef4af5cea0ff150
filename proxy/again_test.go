package proxy

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// queue is a rig whose requests wait in the lane of a.example, since one of them is under way.
type queue struct {
	*rig
	cache   *robots.Cache
	release func() // ends the one that is under way
	waiting []chan *http.Response
}

// newQueue has n requests wait under the rules of body.
func newQueue(t *testing.T, body string, n int, change func(*Options)) *queue {
	t.Helper()
	q := &queue{}
	q.rig = newRig(t, func(o *Options) {
		q.cache = o.Snapshots.(*robots.Cache)
		if change != nil {
			change(o)
		}
	})
	q.site.SetRobots("a.example", robotstest.Robots{Body: body})
	q.release = q.heldPage()
	first := q.ask("/held")
	q.eventually("the first request", func() bool { return len(q.site.Paths("a.example")) == 2 })
	q.waiting = append(q.waiting, first)
	for range n {
		q.waiting = append(q.waiting, q.ask("/page/1"))
	}
	q.eventually("the wait", func() bool { return q.limiter.Stats().Waiting == n })
	return q
}

// ask sends a request and returns where its answer, or nil, will be.
func (q *queue) ask(path string) chan *http.Response {
	answer := make(chan *http.Response, 1)
	c := q.client(true)
	go func() {
		resp, err := c.Get(q.url("http", path))
		if err == nil {
			resp.Body.Close()
		}
		answer <- resp
	}()
	return answer
}

// renew has a.example answer with other rules, of which the cache learns.
func (q *queue) renew(body string) {
	q.t.Helper()
	q.site.SetRobots("a.example", robotstest.Robots{Body: body})
	o, err := origin.Parse(q.url("http", ""))
	if err == nil {
		_, err = q.cache.Refresh(context.Background(), o)
	}
	if err != nil {
		q.t.Fatal(err)
	}
}

// ends lets the requests go on, and checks the answers to those that waited.
func (q *queue) ends(status int, reason string) {
	q.t.Helper()
	q.release()
	<-q.waiting[0]
	for _, answer := range q.waiting[1:] {
		if resp := <-answer; resp == nil || resp.StatusCode != status || resp.Header.Get("Robotsproxy-Reason") != reason {
			q.t.Errorf("a request that waited was answered %+v; want %d %s", resp, status, reason)
		}
	}
}

// pages returns how many requests for pages the origin saw.
func (q *queue) pages() int {
	return q.requests("/page/1")
}

// requests returns how many requests for a path the origin saw.
func (q *queue) requests(path string) (n int) {
	for _, req := range q.site.Requests() {
		if req.Target == path {
			n++
		}
	}
	return n
}

// Requests that wait are judged by the robots.txt in memory when their turn comes, and the record names that one.
func TestRulesThatChangeDuringTheWait(t *testing.T) {
	q := newQueue(t, "User-agent: *\nCrawl-delay: 0.1\n", 3, nil)
	q.renew("User-agent: *\nCrawl-delay: 0.1\nDisallow: /page\n")
	q.ends(403, "robots")
	if n := q.pages(); n != 0 {
		t.Errorf("the origin saw %d pages that are disallowed", n)
	}
	for _, rec := range q.records.all() {
		if rec.Path == "/page/1" && (rec.Rule != "Disallow: /page" || !rec.SentAt.IsZero() || rec.Waited <= 0 || rec.RobotsSHA256 == "") {
			t.Errorf("record: %+v", rec)
		}
	}
	if v, ok := q.limiter.Peek("a.example"); ok && v.InFlight != 0 {
		t.Errorf("%d places are not given back", v.InFlight)
	}
}

// A raw tunnel is judged again too.
func TestRulesThatChangeBeforeARawTunnel(t *testing.T) {
	q := newQueue(t, "User-agent: *\nCrawl-delay: 0.1\n", 0, func(o *Options) {
		p, err := policy.New(policy.Options{TunnelHosts: []string{"a.example"}})
		if err != nil {
			t.Fatal(err)
		}
		o.Policy = p
	})
	authority := q.url("https", "")[len("https://"):]
	conn := q.raw("CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n")
	q.eventually("the wait", func() bool { return q.limiter.Stats().Waiting == 1 })
	q.site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /\n"})
	o, _ := origin.Parse("https://" + authority)
	if _, err := q.cache.Refresh(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	q.ends(0, "")
	if all, err := answers(conn); err != nil || len(all) != 1 || all[0].StatusCode != 403 || all[0].Header.Get("Robotsproxy-Reason") != "intercept" {
		t.Errorf("answer to the CONNECT: %v, %v", all, err)
	}
}

// Rules that cannot be known any more when the turn comes refuse as well.
func TestRulesThatAreLostDuringTheWait(t *testing.T) {
	q := newQueue(t, "User-agent: *\nCrawl-delay: 0.1\n", 1, nil)
	o, _ := origin.Parse(q.url("http", ""))
	if err := q.cache.Purge(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	q.site.SetRobots("a.example", robotstest.Robots{Status: 500})
	if _, err := q.cache.Refresh(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	q.ends(503, "robots-unreachable")
	if n := q.pages(); n != 0 {
		t.Errorf("the origin saw %d pages", n)
	}
}

// Nothing is fetched while a place is held: rules that the memory does not have any more count on.
func TestRulesThatAreForgottenDuringTheWait(t *testing.T) {
	q := newQueue(t, "User-agent: *\nCrawl-delay: 0.1\n", 2, nil)
	o, _ := origin.Parse(q.url("http", ""))
	if err := q.cache.Purge(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	q.site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /\n"})
	q.ends(200, "")
	if files, pages := q.requests("/robots.txt"), q.pages(); files != 1 || pages != 2 {
		t.Errorf("the origin saw %d requests for robots.txt and %d pages, want 1 and 2", files, pages)
	}
}

// A Delay that has grown is waited for within the rest of the wait.
func TestDelayThatGrowsDuringTheWait(t *testing.T) {
	t.Run("within the rest", func(t *testing.T) {
		q := newQueue(t, "User-agent: *\nCrawl-delay: 0.1\n", 3, nil)
		q.renew("User-agent: *\nCrawl-delay: 1\n")
		q.ends(200, "")
		for _, rec := range q.records.all() {
			if rec.Path == "/page/1" && (time.Duration(rec.DelayRequired) != time.Second || rec.Gap < rec.DelayRequired || rec.Waited < rec.DelayRequired) {
				t.Errorf("gap %v, required %v, waited %v: record %+v", rec.Gap, rec.DelayRequired, rec.Waited, rec)
			}
		}
		if n := q.pages(); n != 3 {
			t.Errorf("the origin saw %d pages, want 3", n)
		}
	})
	t.Run("beyond the rest", func(t *testing.T) {
		q := newQueue(t, "User-agent: *\nCrawl-delay: 0.1\n", 3, func(o *Options) { o.MaxWait = 30 * time.Second })
		q.renew("User-agent: *\nCrawl-delay: 60\n")
		q.ends(429, "pace")
		if n := q.pages(); n != 0 {
			t.Errorf("the origin saw %d pages too early", n)
		}
	})
	t.Run("beyond what the operator takes", func(t *testing.T) {
		q := newQueue(t, "User-agent: *\nCrawl-delay: 0.1\n", 3, func(o *Options) {
			p, err := policy.New(policy.Options{MaxCrawlDelay: time.Second, RefuseOverMax: true})
			if err != nil {
				t.Fatal(err)
			}
			o.Policy = p
		})
		q.renew("User-agent: *\nCrawl-delay: 60\n")
		q.ends(403, "pace")
		if n := q.pages(); n != 0 {
			t.Errorf("the origin saw %d pages", n)
		}
	})
}

// An exemption that ends during the wait does not count any more when the turn comes.
func TestExemptionThatEndsDuringTheWait(t *testing.T) {
	ends := time.Now().Add(2 * time.Second)
	q := newQueue(t, "User-agent: *\nCrawl-delay: 0.1\nDisallow: /page\n", 2, func(o *Options) {
		p, err := policy.New(policy.Options{Exemptions: []policy.Exemption{
			{Host: "a.example", Path: "/page", Effect: policy.EffectAllow, Reason: "a test", Owner: "ops", Until: ends},
		}})
		if err != nil {
			t.Fatal(err)
		}
		o.Policy = p
	})
	time.Sleep(time.Until(ends))
	q.ends(403, "robots")
	if n := q.pages(); n != 0 {
		t.Errorf("the origin saw %d pages that are disallowed", n)
	}
}

// A stop that comes between the place in the lane and the sending is heard: here while the decision is being recorded.
func TestStoppedWhileTheDecisionIsRecorded(t *testing.T) {
	for _, mode := range []policy.Mode{policy.Enforce, policy.Report, policy.Off} {
		t.Run(mode.String(), func(t *testing.T) {
			var r *rig
			r = newRig(t, func(o *Options) {
				o.Policy, o.Snapshots = r.newPolicy(policy.Options{Mode: mode}), fixed("User-agent: *\nCrawl-delay: 100\n")
				o.Recorder = stoppingRecorder{o.Recorder, func() {
					r.stop(policy.Options{Mode: mode}, time.Time{})
				}}
			})
			if resp, _ := r.get(r.client(true), r.url("http", "/page/1")); resp.StatusCode != 503 || resp.Header.Get("Robotsproxy-Reason") != "stopped" {
				t.Errorf("status %d, fields %v; want 503 stopped", resp.StatusCode, resp.Header)
			}
			if got := r.site.Requests(); len(got) != 0 {
				t.Errorf("the origin saw %v", got)
			}
			if rec := r.last(1); rec.Reason != policy.ReasonStopped || rec.Decision != policy.Deny || !rec.SentAt.IsZero() {
				t.Errorf("record: %+v", rec)
			}
			if v, _ := r.limiter.Peek("a.example"); v.InFlight != 0 {
				t.Errorf("%d places are not given back", v.InFlight)
			}
		})
	}
}

// stoppingRecorder calls stop while it begins a record.
type stoppingRecorder struct {
	Recorder
	stop func()
}

func (r stoppingRecorder) Begin(ctx context.Context, rec *audit.Record) error {
	r.stop()
	return r.Recorder.Begin(ctx, rec)
}
