package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/policy"
)

// arrivalLag is how long a request may lie between the proxy and the site's handler, which notes its arrival. A busy
// machine needs that long.
const arrivalLag = 300 * time.Millisecond

// TestNothingIsSentAfterAStop stops a host amid many requests of each kind, and lifts the stop, again and again.
func TestNothingIsSentAfterAStop(t *testing.T) {
	const rounds = 4
	for _, row := range []struct {
		name   string
		policy policy.Options
		robots string
		http1  bool // the site has no HTTP/2
		clear  bool // without TLS and HTTP/2: each write to the site is a header
		client func(*rig) func(context.Context) error
		want   func(Ended) bool
	}{
		{name: "plain", clear: true, client: getting("http", true)},
		{name: "plain, paced", robots: "User-agent: *\nCrawl-delay: 0.001\n", clear: true, client: getting("http", true)},
		{name: "plain, report", policy: policy.Options{Mode: policy.Report}, clear: true, client: getting("http", true)},
		{name: "plain, off", policy: policy.Options{Mode: policy.Off}, clear: true, client: getting("http", true)},
		{name: "HTTP/2 to HTTP/2", client: getting("https", false)},
		{name: "HTTP/1.1 to HTTP/2", policy: policy.Options{Mode: policy.Off}, client: getting("https", true)},
		{name: "HTTP/2 to HTTP/1.1", policy: policy.Options{Mode: policy.Off}, http1: true, client: getting("https", false)},
		{name: "WebSocket", policy: policy.Options{Mode: policy.Off}, client: talking("http"), want: func(e Ended) bool { return e.WebSockets > 0 }},
		{name: "WebSocket over TLS", policy: policy.Options{Mode: policy.Off}, client: talking("https"), want: func(e Ended) bool { return e.WebSockets > 0 }},
		{name: "raw tunnel", policy: policy.Options{TunnelHosts: []string{"a.example"}}, client: tunneling, want: func(e Ended) bool { return e.Tunnels > 0 }},
	} {
		t.Run(row.name, func(t *testing.T) {
			var r *rig
			var transport *timed
			r = newRig(t, func(o *Options) {
				o.Snapshots, o.Policy = fixed(row.robots), r.newPolicy(row.policy)
				if row.clear {
					transport = newTimed(o.Guard)
					o.Transport = transport
				}
			})
			if row.http1 {
				r.site.HTTP1Only()
			}
			last := r.noteMessages()
			ctx, cancel := context.WithCancel(t.Context())
			var clients sync.WaitGroup
			defer clients.Wait()
			defer cancel()
			for range 40 {
				send := row.client(r)
				clients.Go(func() {
					for ctx.Err() == nil {
						if send(ctx) != nil {
							time.Sleep(time.Millisecond)
						}
					}
				})
			}
			var all Ended
			wanted := func() bool { return row.want == nil || row.want(all) }
			for round := 0; round < rounds || round < 10*rounds && !wanted(); round++ {
				r.eventually("a request", func() bool { return len(r.site.Requests()) > 0 })
				time.Sleep(rand.N(time.Duration(1+round) * 20 * time.Millisecond)) // later on a slow machine
				ended := r.stop(row.policy, time.Time{})
				returned := time.Now()
				all = Ended{all.Answered + ended.Answered, all.Tunnels + ended.Tunnels, all.WebSockets + ended.WebSockets}
				time.Sleep(arrivalLag + 50*time.Millisecond)
				if row.clear && time.Unix(0, transport.last.Load()).After(returned) {
					t.Fatalf("round %d: a header was written %v after the stop", round, time.Unix(0, transport.last.Load()).Sub(returned))
				}
				for _, req := range r.site.Requests() {
					if late := req.Start.Sub(returned); late > arrivalLag {
						t.Fatalf("round %d: %s arrived %v after the stop", round, req, late)
					}
				}
				if late := time.Unix(0, last.Load()).Sub(returned); late > arrivalLag {
					t.Fatalf("round %d: a message arrived %v after the stop", round, late)
				}
				r.site.Reset()
				r.change(func(o *Options) { o.Policy = r.newPolicy(row.policy) })
			}
			t.Logf("the stops ended %+v", all)
			if !wanted() {
				t.Errorf("the stops ended %+v", all)
			}
		})
	}
}

// timed is a transport that notes when it began to write to the site last, in Unix nanoseconds.
type timed struct {
	http.Transport
	last atomic.Int64
}

// newTimed returns one that sends each request of HTTP/1.1 without TLS by one write.
func newTimed(guard *egress.Guard) *timed {
	t := &timed{}
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := guard.DialContext(ctx, network, addr)
		return &timedConn{Conn: c, last: &t.last}, err
	}
	return t
}

// timedConn counts its writes for egress.Writes.
type timedConn struct {
	net.Conn
	last   *atomic.Int64
	writes atomic.Int64
}

func (c *timedConn) Write(p []byte) (int, error) {
	began := time.Now().UnixNano()
	n, err := c.Conn.Write(p)
	if err != nil {
		return n, err
	}
	c.writes.Add(1)
	for last := c.last.Load(); began > last && !c.last.CompareAndSwap(last, began); last = c.last.Load() {
	}
	return n, nil
}

func (c *timedConn) Writes() int64 { return c.writes.Load() }

// noteMessages adds a page to a.example whose WebSockets note when their last message came, in Unix nanoseconds.
func (r *rig) noteMessages() *atomic.Int64 {
	var last atomic.Int64
	r.site.SetPage("a.example", "/messages", func(w http.ResponseWriter, req *http.Request) {
		conn, err := websocket.Accept(w, req, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		for {
			if _, _, err := conn.Read(req.Context()); err != nil {
				return
			}
			last.Store(time.Now().UnixNano())
		}
	})
	return &last
}

// getting returns clients that each fetch a page of a.example.
func getting(scheme string, http1 bool) func(*rig) func(context.Context) error {
	return func(r *rig) func(context.Context) error {
		return fetching(r.client(http1), r.url(scheme, "/page/1"))
	}
}

// tunneling is a client that fetches a page of a.example through a raw tunnel.
func tunneling(r *rig) func(context.Context) error {
	return fetching(r.pinnedClient(), r.url("https", "/page/1"))
}

func fetching(c *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
		if err != nil {
			return err
		}
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
			return errors.Join(errNotThere, err)
		}
		return nil
	}
}

// talking returns clients that each open a WebSocket to a.example and send messages until it ends.
func talking(scheme string) func(*rig) func(context.Context) error {
	return func(r *rig) func(context.Context) error {
		c, url := r.client(true), "ws"+strings.TrimPrefix(r.url(scheme, "/messages"), "http")
		return func(ctx context.Context) error {
			conn, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: c})
			if err != nil {
				return err
			}
			defer conn.CloseNow()
			for {
				if err := conn.Write(ctx, websocket.MessageText, []byte("x")); err != nil {
					return err
				}
				time.Sleep(time.Millisecond)
			}
		}
	}
}

// pausing calls pause with each connection for a request, before or after the proxy gets it.
type pausing struct {
	http.RoundTripper
	gotConn, wroteHeaders func()
}

func (p pausing) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{}
	if p.gotConn != nil {
		trace.GotConn = func(httptrace.GotConnInfo) { p.gotConn() }
	}
	if p.wroteHeaders != nil {
		trace.WroteHeaders = p.wroteHeaders
	}
	return p.RoundTripper.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}

// A request that has its connection when the stop comes is not sent.
func TestStopWithAConnection(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			var r *rig
			var ended Ended
			stop := sync.OnceFunc(func() { ended = r.stop(policy.Options{}, time.Time{}) })
			r = newRig(t, func(o *Options) {
				o.Snapshots, o.Transport = fixed(""), pausing{RoundTripper: o.Transport, gotConn: stop}
			})
			resp, _ := r.get(r.client(way.http1), r.url(way.scheme, "/page/1"))
			if resp.StatusCode != 503 || resp.Header.Get("Robotsproxy-Reason") != "stopped" {
				t.Errorf("status %d, fields %v", resp.StatusCode, resp.Header)
			}
			if got := r.site.Requests(); len(got) != 0 || ended != (Ended{Answered: 1}) {
				t.Errorf("the origin saw %v, the stop ended %+v", got, ended)
			}
			if v, _ := r.limiter.Peek("a.example"); v.InFlight != 0 {
				t.Errorf("%d places are not given back", v.InFlight)
			}
		})
	}
}

// A header that is in the buffer of its connection when the stop comes is not sent.
func TestStopWithAHeaderInTheBuffer(t *testing.T) {
	var r *rig
	var ended Ended
	stop := sync.OnceFunc(func() { ended = r.stop(policy.Options{}, time.Time{}) }) // in the goroutine that sends next
	r = newRig(t, func(o *Options) {
		o.Snapshots, o.Transport = fixed(""), pausing{RoundTripper: o.Transport, wroteHeaders: stop}
	})
	resp, _ := r.get(r.client(true), r.url("http", "/page/1"))
	if resp.StatusCode != 503 || resp.Header.Get("Robotsproxy-Reason") != "stopped" {
		t.Errorf("status %d, fields %v", resp.StatusCode, resp.Header)
	}
	time.Sleep(arrivalLag)
	if got := r.site.Requests(); len(got) != 0 || ended != (Ended{Answered: 1}) {
		t.Errorf("the origin saw %v, the stop ended %+v", got, ended)
	}
}

// A request of which the origin has the header gets its answer, and is not sent again.
func TestStopLetsAnswersCome(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			release := r.heldPage()
			answers := make(chan *http.Response)
			go func() {
				resp, _ := r.client(way.http1).Get(r.url(way.scheme, "/held"))
				answers <- resp
			}()
			r.eventually("the request", func() bool { return len(r.site.Requests()) == 1 })
			began := time.Now()
			if ended := r.stop(policy.Options{}, time.Time{}); ended != (Ended{}) {
				t.Errorf("the stop ended %+v", ended)
			}
			if took := time.Since(began); took > maxSending/2 {
				t.Errorf("the stop took %v", took)
			}
			release()
			resp := <-answers
			if resp == nil || resp.StatusCode != 200 {
				t.Fatalf("answer %+v", resp)
			}
			resp.Body.Close()
		})
	}
}

// A WebSocket and a raw tunnel end with the stop, and their records say so.
func TestStopClosesSessions(t *testing.T) {
	for name, row := range map[string]struct {
		policy policy.Options
		open   func(*rig) io.Reader
		want   Ended
	}{
		"WebSocket": {policy.Options{}, func(r *rig) io.Reader {
			authority := strings.TrimSuffix(strings.TrimPrefix(r.url("http", "/ws"), "http://"), "/ws")
			c := r.raw("GET " + r.url("http", "/ws") + " HTTP/1.1\r\nHost: " + authority + "\r\n" + asksWell + "\r\n")
			in := bufio.NewReader(c)
			if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != 101 {
				r.t.Fatalf("answer %v, %v", resp, err)
			}
			return in
		}, Ended{WebSockets: 1}},
		"raw tunnel": {policy.Options{TunnelHosts: []string{"a.example"}}, func(r *rig) io.Reader {
			resp, _, in := r.connect(r.site.TLSPort(), "", "")
			if resp.StatusCode != 200 {
				r.t.Fatal(resp.Status)
			}
			return in
		}, Ended{Tunnels: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var r *rig
			r = newRig(t, func(o *Options) { o.Snapshots, o.Policy = fixed(""), r.newPolicy(row.policy) })
			session := row.open(r)
			r.eventually("the session", func() bool { return r.server.Tunnels() == 1 })
			if ended := r.stop(row.policy, time.Time{}); ended != row.want {
				t.Errorf("the stop ended %+v, want %+v", ended, row.want)
			}
			if _, err := session.Read(make([]byte, 1)); err == nil {
				t.Error("the session goes on")
			}
			rec := r.last(1)
			if want := "stop a.example: the owner asked (ops)"; rec.Intervention != want || !strings.HasSuffix(rec.Error, want) || rec.Decision != policy.Allow {
				t.Errorf("record: %+v", rec)
			}
			r.eventually("the end", func() bool { return r.server.Tunnels() == 0 })
		})
	}
}

// Requests to other hosts are not touched.
func TestStopOfAnotherHost(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("User-agent: *\nCrawl-delay: 0.2\n") })
	url := strings.Replace(r.url("http", "/page/1"), "a.example", "b.example", 1)
	var answers sync.WaitGroup
	for range 3 {
		answers.Go(func() {
			if resp, _ := r.get(r.client(true), url); resp.StatusCode != 200 {
				t.Errorf("status %d", resp.StatusCode)
			}
		})
	}
	r.eventually("requests that wait", func() bool { return r.limiter.Stats().Waiting == 2 })
	if ended := r.stop(policy.Options{}, time.Time{}); ended != (Ended{}) {
		t.Errorf("the stop ended %+v", ended)
	}
	answers.Wait()
}

// A slow holds for requests that wait already, also for parts of pages, and counts from the last request.
func TestSlowDuringTheWait(t *testing.T) {
	const floor = 400 * time.Millisecond
	for _, row := range []struct {
		name, robots string
		pages        bool
	}{
		{"a Crawl-delay", "User-agent: *\nCrawl-delay: 0.1\n", false},
		{"no Delay", "", false},
		{"parts of pages", "User-agent: *\nCrawl-delay: 0.1\n", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) {
				o.Snapshots = fixed(row.robots)
				o.Clients = []Client{{Client: policy.Client{Name: "all"}, Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Pages: row.pages}}
			})
			release := r.heldPage()
			fetch := func(path string) {
				req, err := http.NewRequest("GET", r.url("http", path), nil)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Sec-Fetch-Dest", "image")
				resp, err := r.client(true).Do(req)
				if err != nil || resp.StatusCode != 200 {
					t.Errorf("answer %v, %v", resp, err)
					return
				}
				resp.Body.Close()
			}
			var answers sync.WaitGroup
			for range 8 { // as many as are sent at once without a Delay
				answers.Go(func() { fetch("/held") })
			}
			come := func() int { return len(r.site.Requests()) + r.limiter.Stats().Waiting }
			r.eventually("the first requests", func() bool { return come() == 8 })
			for range 3 {
				answers.Go(func() { fetch("/page/1") })
			}
			r.eventually("requests that wait", func() bool { return come() == 8+3 })
			before := len(r.site.Requests())
			r.change(func(o *Options) {
				o.Policy = r.newPolicy(policy.Options{Interventions: []policy.Intervention{
					{Kind: policy.Slow, Host: "*.example", Delay: floor, Reason: "r", By: "b"},
				}})
			})
			release()
			answers.Wait()
			all := r.site.Requests()
			for i := max(before, 1); i < len(all); i++ {
				if gap := all[i].Start.Sub(all[i-1].Start); gap < floor {
					t.Errorf("request %d came %v after the one before, want %v", i, gap, floor)
				}
			}
			if rec := r.last(len(all)); rec.DelaySource != "floor" || rec.Intervention != "slow *.example 400ms: r (b)" {
				t.Errorf("record: %+v", rec)
			}
		})
	}
}

// A bypass lets requests go that wait, and the end of a slow too.
func TestBypassDuringTheWait(t *testing.T) {
	order := func(kind policy.InterventionKind) policy.Intervention {
		i := policy.Intervention{Kind: kind, Host: "a.example", Reason: "r", By: "b", Until: time.Now().Add(time.Hour)}
		if kind == policy.Slow {
			i.Delay = 40 * time.Second
		}
		return i
	}
	for _, row := range []struct {
		name, robots  string
		before, after []policy.Intervention
		mode          string
	}{
		{"bypass", "User-agent: *\nCrawl-delay: 40\n", nil, []policy.Intervention{order(policy.Bypass)}, "report"},
		{"end of a slow", "", []policy.Intervention{order(policy.Slow)}, nil, "enforce"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var r *rig
			r = newRig(t, func(o *Options) {
				o.Snapshots, o.Policy = fixed(row.robots), r.newPolicy(policy.Options{Interventions: row.before})
			})
			r.get(r.client(true), r.url("http", "/page/1"))
			var answers sync.WaitGroup
			for range 3 {
				answers.Go(func() {
					if resp, _ := r.get(r.client(true), r.url("http", "/page/2")); resp.StatusCode != 200 {
						t.Errorf("status %d", resp.StatusCode)
					}
				})
			}
			r.eventually("requests that wait", func() bool { return r.limiter.Stats().Waiting == 3 })
			r.change(func(o *Options) { o.Policy = r.newPolicy(policy.Options{Interventions: row.after}) })
			if ended := r.server.EndStopped(); ended != (Ended{}) {
				t.Errorf("it ended %+v", ended)
			}
			answers.Wait()
			if rec := r.last(4); rec.Mode != row.mode || rec.Status != 200 || rec.Waited > audit.Millis(30*time.Second) {
				t.Errorf("the record has the mode %s, the status %d, a wait of %v; want %s, 200, the time until then",
					rec.Mode, rec.Status, time.Duration(rec.Waited), row.mode)
			}
			if v, _ := r.limiter.Peek("a.example"); v.InFlight != 0 || r.limiter.Stats().Waiting != 0 {
				t.Errorf("places are not given back: %+v", v)
			}
		})
	}
}
