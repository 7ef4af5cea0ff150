package ownfetch

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
	"github.com/robotsproxy/robotsproxy/rules"
)

// oneFile is the robots.txt of every origin.
type oneFile struct {
	mu    sync.Mutex
	snap  *robots.Snapshot
	asked int
	err   error
}

func (f *oneFile) ToJudge(context.Context, origin.Origin, robots.Asker) (*robots.Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.snap, f.err
}

func (f *oneFile) Kept(origin.Origin) *robots.Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.snap
}

func (f *oneFile) set(body string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.snap = &robots.Snapshot{Answer: robots.Answer{Availability: robots.Found, Status: 200, Body: []byte(body), SHA256: "5ha"}, Rules: rules.Parse([]byte(body), rules.Options{})}
}

// fetchRig is Fetches with real parts except for the files.
type fetchRig struct {
	*Fetches
	t       *testing.T
	file    oneFile
	limiter *ratelimit.Limiter
	records recorder
}

// recorder keeps records in memory.
type recorder struct {
	refuse bool

	mu    sync.Mutex
	ended []audit.Record
}

func (r *recorder) Begin(context.Context, *audit.Record) error {
	if r.refuse {
		return audit.ErrUnavailable
	}
	return nil
}

func (r *recorder) End(rec *audit.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, *rec)
}

func (r *recorder) all() []audit.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ended)
}

func newFetchRig(t *testing.T, body string, o policy.Options) *fetchRig {
	t.Helper()
	r := &fetchRig{t: t}
	r.file.set(body)
	judge, err := policy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if r.limiter, err = ratelimit.New(ratelimit.Options{}); err != nil {
		t.Fatal(err)
	}
	r.Fetches = New(Options{
		Rules: &r.file, Policy: judge, Client: policy.Client{ProductToken: "robotsproxy"}, Limiter: r.limiter, Recorder: &r.records, IDs: new(audit.Sequence),
	})
	return r
}

// hop returns a redirect to a page of victim.example, in a fetch for client that lasts 10 s.
func (r *fetchRig) hop(client, target string) fetch.Hop {
	r.t.Helper()
	evil, err := origin.Parse("http://evil.example")
	if err != nil {
		r.t.Fatal(err)
	}
	victim, err := origin.Parse("http://victim.example")
	if err != nil {
		r.t.Fatal(err)
	}
	return fetch.Hop{
		For: evil, To: victim, Target: target, Page: true, Asker: robots.Asker{Client: client, Name: client}, UserAgent: "robotsproxy/1", Until: time.Now().Add(10 * time.Second),
	}
}

// visit admits a hop and waits until it may be sent.
func (r *fetchRig) visit(h fetch.Hop) (fetch.Visit, error) {
	ctx, cancel := context.WithDeadline(r.t.Context(), h.Until)
	defer cancel()
	v, err := r.Admit(ctx, h)
	if err != nil {
		return nil, err
	}
	return v, v.Begin(ctx, nil)
}

// mustVisit makes a visit and ends it.
func (r *fetchRig) mustVisit(h fetch.Hop) {
	r.t.Helper()
	v, err := r.visit(h)
	if err != nil {
		r.t.Fatal(err)
	}
	v.End(fetch.Outcome{Response: &http.Response{StatusCode: 200}, Header: time.Now(), Addr: &net.TCPAddr{}})
}

// stop stops victim.example for an hour.
func (r *fetchRig) stop() {
	p, err := policy.New(policy.Options{Interventions: []policy.Intervention{{
		Kind: policy.Stop, Host: "victim.example", Reason: "the owner asked", By: "ops", Until: time.Now().Add(time.Hour),
	}}})
	if err != nil {
		r.t.Error(err)
		return
	}
	o := *r.options.Load()
	o.Policy = p
	r.Reload(o)
	r.EndStopped()
}

// redirectIsRefused checks the error of a redirect that is refused until a moment.
func redirectIsRefused(t *testing.T, err error, why string, until time.Time) {
	t.Helper()
	var refused *fetch.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), why) || !refused.Until.Equal(until) {
		t.Errorf("error %v (%+v), want a refusal until %v that says %q", err, refused, until, why)
	}
}

// isLater checks the error of a redirect that may be tried at a later moment.
func isLater(t *testing.T, err error, at time.Time) {
	t.Helper()
	var later *fetch.LaterError
	if !errors.As(err, &later) || !later.At.Equal(at) {
		t.Errorf("error %v (%+v), want a LaterError at %v", err, later, at)
	}
}

const paceOf5 = "User-agent: *\nDisallow: /private\nCrawl-delay: 5\n"

func TestStoppedHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFetchRig(t, paceOf5, policy.Options{})
		r.stop()
		_, err := r.visit(r.hop("a", "/x"))
		redirectIsRefused(t, err, "stopped victim.example", time.Time{})
		if r.file.asked != 0 {
			t.Errorf("the host was asked for its robots.txt %d times", r.file.asked)
		}
		if rec := r.records.all()[0]; rec.Decision != policy.Deny || rec.Reason != policy.ReasonStopped || rec.Host != "victim.example" || !rec.SentAt.IsZero() {
			t.Errorf("record %+v", rec)
		}
	})
}

func TestHostStoppedDuringTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFetchRig(t, paceOf5, policy.Options{})
		r.mustVisit(r.hop("a", "/x"))
		begin := time.Now()
		time.AfterFunc(time.Second, r.stop)
		_, err := r.visit(r.hop("a", "/x"))
		redirectIsRefused(t, err, "stopped victim.example", time.Time{})
		if got := time.Since(begin); got != time.Second {
			t.Errorf("it was refused after %v, want at once", got)
		}
	})
}

// A redirect waits for the end of a short pause, and is refused in a long one.
func TestPausedHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFetchRig(t, "", policy.Options{})
		v, err := r.visit(r.hop("a", "/x"))
		if err != nil {
			t.Fatal(err)
		}
		pushed := &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"4"}}}
		v.End(fetch.Outcome{Response: pushed, Header: time.Now(), Addr: &net.TCPAddr{}})
		begin := time.Now()
		v, err = r.visit(r.hop("b", "/x"))
		if err != nil || time.Since(begin) != 4*time.Second {
			t.Fatalf("in a pause of 4s: %v after %v, want to be sent then", err, time.Since(begin))
		}
		pushed.Header.Set("Retry-After", "60")
		v.End(fetch.Outcome{Response: pushed, Header: time.Now(), Addr: &net.TCPAddr{}})
		asked := r.file.asked
		_, err = r.visit(r.hop("b", "/x"))
		redirectIsRefused(t, err, "has pushed back", time.Now().Add(time.Minute))
		if r.file.asked != asked {
			t.Error("a paused host was asked for its robots.txt")
		}
	})
}

// A redirect waits in the queue of the client that asked, and not in that of another.
func TestQueueOfTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFetchRig(t, "User-agent: *\nCrawl-delay: 4\n", policy.Options{})
		r.mustVisit(r.hop("crowd", "/x"))
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				g, _ := r.limiter.Acquire(t.Context(), ratelimit.Request{Key: "victim.example", Client: "crowd", Delay: 4 * time.Second, MaxWait: time.Hour})
				g.Release(ratelimit.Outcome{})
			})
			synctest.Wait()
		}
		begin := time.Now()
		r.mustVisit(r.hop("other", "/x"))
		if got := time.Since(begin); got > 8*time.Second {
			t.Errorf("it waited %v, want one turn of the crowd before its own", got)
		}
		_, err := r.visit(r.hop("crowd", "/x"))
		if !errors.As(err, new(*fetch.LaterError)) {
			t.Errorf("a redirect of the crowd: %v, want a LaterError", err)
		}
		if got := r.limiter.Stats(); got.Reserved != 0 {
			t.Errorf("%d reservations for requests that are not made again", got.Reserved)
		}
		all.Wait()
	})
}

// A redirect is not followed if its place would come after the end of the fetch.
func TestNoPlaceInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFetchRig(t, "User-agent: *\nCrawl-delay: 30\n", policy.Options{})
		r.mustVisit(r.hop("a", "/x"))
		begin := time.Now()
		_, err := r.visit(r.hop("a", "/x"))
		isLater(t, err, begin.Add(30*time.Second))
		if got := time.Since(begin); got != 0 {
			t.Errorf("it was refused after %v, want at once", got)
		}
		if rec := r.records.all()[1]; rec.Decision != policy.Throttle || rec.Reason != policy.ReasonPace || !rec.SentAt.IsZero() || rec.Error == "" {
			t.Errorf("record %+v", rec)
		}
	})
}

// A redirect that waits is judged by the Policy that is in force after its wait.
func TestReloadDuringTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFetchRig(t, paceOf5, policy.Options{})
		r.mustVisit(r.hop("a", "/x"))
		deny, err := policy.New(policy.Options{Exemptions: []policy.Exemption{{Host: "victim.example", Effect: policy.EffectDeny, Reason: "asked", Owner: "ops"}}})
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() {
			o := *r.options.Load()
			o.Policy = deny
			r.Reload(o)
		})
		begin := time.Now()
		_, err = r.visit(r.hop("a", "/x"))
		redirectIsRefused(t, err, "the operator of the proxy refuses that: deny victim.example: asked (ops)", time.Time{})
		if got := time.Since(begin); got != 5*time.Second {
			t.Errorf("it was refused after %v, want when it has its place", got)
		}
	})
}

// A redirect is judged again after its wait.
func TestRulesThatChangeDuringTheWait(t *testing.T) {
	for _, row := range []struct {
		name, after string
		wait        time.Duration // until it is sent; 0: it is refused
	}{
		{"closed", "User-agent: *\nDisallow: /\nCrawl-delay: 5\n", 0},
		{"slower", "User-agent: *\nCrawl-delay: 8\n", 8 * time.Second},
		{"as before", paceOf5 + "# another text\n", 5 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFetchRig(t, paceOf5, policy.Options{})
				r.mustVisit(r.hop("a", "/x"))
				begin := time.Now()
				time.AfterFunc(time.Second, func() { r.file.set(row.after) })
				v, err := r.visit(r.hop("a", "/x"))
				if row.wait == 0 {
					redirectIsRefused(t, err, "line 2 of http://victim.example/robots.txt disallows that for *: Disallow: /", time.Time{})
				} else if err != nil || time.Since(begin) != row.wait {
					t.Errorf("sent with %v after %v, want after %v", err, time.Since(begin), row.wait)
				} else {
					v.End(fetch.Outcome{})
				}
				if view, _ := r.limiter.Peek("victim.example"); view.InFlight != 0 || view.Waiting != 0 {
					t.Errorf("the lane has %+v, want no requests", view)
				}
			})
		})
	}
}

// A request that cannot be recorded gives its place back and is not sent.
func TestUnrecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFetchRig(t, paceOf5, policy.Options{})
		r.records.refuse = true
		_, err := r.visit(r.hop("a", "/x"))
		if !errors.As(err, new(*fetch.LaterError)) || !errors.Is(err, audit.ErrUnavailable) {
			t.Errorf("visit: %v, want ErrUnavailable", err)
		}
		r.records.refuse = false
		begin := time.Now()
		r.mustVisit(r.hop("a", "/x"))
		if got := time.Since(begin); got != 0 {
			t.Errorf("the next waited %v for one that was not sent", got)
		}
	})
}

// A request that net/http sends again takes another place in the lane and has another record.
func TestSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFetchRig(t, paceOf5, policy.Options{})
		v, err := r.visit(r.hop("a", "/x"))
		if err != nil {
			t.Fatal(err)
		}
		v.End(fetch.Outcome{Err: errors.New("the connection broke"), Addr: &net.TCPAddr{}})
		begin := time.Now()
		if err := v.Begin(t.Context(), nil); err != nil || time.Since(begin) != 5*time.Second {
			t.Errorf("Begin again: %v after %v, want after the Delay", err, time.Since(begin))
		}
		v.End(fetch.Outcome{Response: &http.Response{StatusCode: 200}, Header: time.Now(), Bytes: 7, Addr: &net.TCPAddr{}})
		all := r.records.all()
		if len(all) != 2 || all[0].ID >= all[1].ID || all[0].Error == "" || all[0].Status != 0 || all[1].Error != "" || all[1].Status != 200 || all[1].Bytes != 7 || all[1].Gap != audit.Millis(5*time.Second) || all[1].DelayRequired != audit.Millis(5*time.Second) {
			t.Errorf("records %+v", all)
		}
	})
}

// A request of which nothing was sent gives its place back as if it had not taken it.
func TestNothingSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFetchRig(t, paceOf5, policy.Options{})
		v, err := r.visit(r.hop("a", "/x"))
		if err != nil {
			t.Fatal(err)
		}
		v.End(fetch.Outcome{Err: errors.New("connection refused")})
		begin := time.Now()
		r.mustVisit(r.hop("a", "/x"))
		if got := time.Since(begin); got != 0 {
			t.Errorf("the next waited %v for a request that was not sent", got)
		}
	})
}

// A redirect without a known robots.txt is tried later if that robots.txt was not known in time, and fails otherwise.
func TestUnknownRobots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFetchRig(t, "", policy.Options{})
		r.file.err = &robots.BusyError{RetryAfter: time.Second}
		_, err := r.visit(r.hop("a", "/x"))
		isLater(t, err, time.Now().Add(retryLater))
		r.file.err = errors.New("prohibited")
		if _, err = r.visit(r.hop("a", "/x")); !errors.Is(err, r.file.err) || errors.As(err, new(*fetch.LaterError)) {
			t.Errorf("visit: %v, want the error of the look-up", err)
		}
		r.file.err = nil
		r.file.snap = &robots.Snapshot{Answer: robots.Answer{Cause: "connection_refused", Err: errors.New("dial 10.0.0.1")}, Rules: &rules.Ruleset{}}
		_, err = r.visit(r.hop("a", "/x"))
		redirectIsRefused(t, err, "http://victim.example/robots.txt, which says whether that is allowed, could not be fetched: connection refused", time.Time{})
	})
}

// TestPaceByAddress has the robots.txt of one host redirect to a page of another: the request takes a place in the lane
// of that host's address.
func TestPaceByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFetchRig(t, paceOf5, policy.Options{})
		var err error
		r.options.Load().Addr = func(context.Context, origin.Origin) (netip.Addr, error) {
			return netip.MustParseAddr("192.0.2.1"), err
		}
		r.mustVisit(r.hop("a", "/x"))
		if view, ok := r.limiter.Peek("192.0.2.1"); !ok || view.Last.IsZero() {
			t.Errorf("the lane of the address: %+v, %t; want a request", view, ok)
		}
		if _, ok := r.limiter.Peek("victim.example"); ok {
			t.Error("the host has a lane beside that of its address")
		}
		err = &net.DNSError{IsNotFound: true}
		if _, got := r.visit(r.hop("a", "/x")); !errors.As(got, new(*net.DNSError)) {
			t.Errorf("a host that cannot be resolved: %v, want the error of the look-up", got)
		}
		all := r.records.all()
		if rec := all[len(all)-1]; rec.Decision != policy.Error || rec.Reason != policy.ReasonUpstream {
			t.Errorf("the last record: %s, %s; want error, upstream", rec.Decision, rec.Reason)
		}
	})
}

// No request goes to a host that no client may visit, in any mode: neither a redirect to it, nor one for its robots.txt.
func TestDeniedHost(t *testing.T) {
	for _, mode := range []policy.Mode{policy.Enforce, policy.Report, policy.Off} {
		synctest.Test(t, func(t *testing.T) {
			r := newFetchRig(t, "", policy.Options{Mode: mode, Access: policy.Access{Deny: []string{"victim.example"}}})
			page, file, own := r.hop("a", "/x"), r.hop("a", "/robots.txt"), r.hop("a", "/robots.txt")
			file.Page, own.Page, own.For = false, false, own.To
			for _, hop := range []fetch.Hop{page, file} {
				_, err := r.visit(hop)
				redirectIsRefused(t, err, "no client may visit that host: deny_hosts: victim.example", time.Time{})
			}
			_, err := r.visit(own)
			isLater(t, err, time.Now().Add(time.Minute))
			if r.file.asked != 0 {
				t.Errorf("the host was asked for its robots.txt %d times", r.file.asked)
			}
			for _, rec := range r.records.all() {
				if rec.Decision != policy.Deny || rec.Reason != policy.ReasonHost || rec.Rule == "" || !rec.SentAt.IsZero() {
					t.Errorf("record %+v", rec)
				}
			}
			if n := len(r.records.all()); n != 3 {
				t.Errorf("%d records, want 3", n)
			}
		})
	}
}

// A host that one client may visit is asked, whatever the lists of the others.
func TestHostDeniedToOneClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deny := policy.Access{Deny: []string{"victim.example"}}
		r := newFetchRig(t, "", policy.Options{ClientAccess: map[string]policy.Access{"a": deny, "b": {}}})
		r.mustVisit(r.hop("b", "/x"))
	})
}

func TestHostDeniedDuringTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFetchRig(t, paceOf5, policy.Options{})
		r.mustVisit(r.hop("a", "/x"))
		time.AfterFunc(time.Second, func() {
			o := *r.options.Load()
			o.Policy, _ = policy.New(policy.Options{Access: policy.Access{Deny: []string{"victim.example"}}})
			r.Reload(o)
		})
		_, err := r.visit(r.hop("a", "/x"))
		redirectIsRefused(t, err, "no client may visit that host", time.Time{})
	})
}
