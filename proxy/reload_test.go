package proxy

import (
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/robotsproxy/robotsproxy/policy"
)

// reload replaces options by Reload.
func (r *rig) reload(with func(*Options)) {
	r.t.Helper()
	o := r.server.settings.Load().Options
	with(&o)
	if err := r.server.Reload(o); err != nil {
		r.t.Fatal(err)
	}
}

// A request that waits is judged by the policy in force when it has its place, and as the client that it is by then.
func TestReloadDuringTheWait(t *testing.T) {
	deny := policy.Exemption{Host: "a.example", Path: "/page", Effect: policy.EffectDeny, Reason: "r", Owner: "o"}
	report, off := policy.Report, policy.Off
	for _, row := range []struct {
		name   string
		with   func(*rig, *Options)
		status int
		reason string
		pages  int
	}{
		{"an exemption that denies", func(r *rig, o *Options) {
			o.Policy = r.newPolicy(policy.Options{Exemptions: []policy.Exemption{deny}})
		}, 403, "exemption", 0},
		{"a longer delay", func(r *rig, o *Options) {
			o.Policy = r.newPolicy(policy.Options{Hosts: []policy.Host{{Pattern: "a.example", Delay: time.Hour}}})
		}, 429, "pace", 0},
		{"mode off", func(r *rig, o *Options) { o.Policy = r.newPolicy(policy.Options{Mode: off}) }, 200, "", 2},
		{"mode report", func(r *rig, o *Options) {
			o.Policy = r.newPolicy(policy.Options{Mode: report, Exemptions: []policy.Exemption{deny}})
		}, 200, "", 2},
		{"the client is removed", func(_ *rig, o *Options) {
			o.Clients = []Client{{Client: policy.Client{Name: "lab"}, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
		}, 403, "identity", 0},
		{"nothing", func(*rig, *Options) {}, 200, "", 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			q := newQueue(t, "User-agent: *\nCrawl-delay: 0.1\n", 2, nil)
			q.reload(func(o *Options) { row.with(q.rig, o) })
			q.ends(row.status, row.reason)
			if n := q.pages(); n != row.pages {
				t.Errorf("the origin saw %d pages, want %d", n, row.pages)
			}
			if v, ok := q.limiter.Peek("a.example"); ok && v.InFlight != 0 {
				t.Errorf("%d places are not given back", v.InFlight)
			}
		})
	}
}

// A connection stays open over a Reload. A request in a tunnel is of the client that would open the tunnel now.
func TestReloadOfClients(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	news := Client{Client: policy.Client{Name: "news"}, Prefixes: loopback}
	lab := Client{Client: policy.Client{Name: "lab"}, Prefixes: loopback}
	gone := Client{Client: policy.Client{Name: "news"}, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots, o.Clients = fixed(""), []Client{news} })
			c := r.client(way.http1)
			for i, step := range []struct {
				clients []Client
				status  int
				client  string
			}{
				{[]Client{news}, 200, "news"},
				{[]Client{lab, news}, 200, "lab"},
				{[]Client{gone}, 403, ""},
				{nil, 200, "local"},
				{[]Client{news}, 200, "news"},
			} {
				r.reload(func(o *Options) { o.Clients = step.clients })
				resp, _ := r.get(c, r.url(way.scheme, "/page/1"))
				if rec := r.last(i + 1); resp.StatusCode != step.status || rec.Client != step.client {
					t.Errorf("step %d: status %d, client %q; want %d, %q", i, resp.StatusCode, rec.Client, step.status, step.client)
				}
			}
			if way.scheme == "https" && r.server.Tunnels() != 1 {
				t.Errorf("%d tunnels are open, want the first one", r.server.Tunnels())
			}
		})
	}
}

// The user of a tunnel is known until the file of passwords drops it.
func TestReloadOfUsers(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots, o.Users, o.AuthRequired = fixed(""), users(t), true })
	c := as(r.client(true), "news", "s3cr3t")
	get := func() int {
		resp, _ := r.get(c, r.url("https", "/page/1"))
		return resp.StatusCode
	}
	if status := get(); status != 200 {
		t.Fatalf("status %d", status)
	}
	r.reload(func(o *Options) { o.Policy = r.newPolicy(policy.Options{}) })
	if status := get(); status != 200 {
		t.Errorf("status %d after a change of something else, want 200", status)
	}
	r.reload(func(o *Options) { o.Users = loadUsers(t, "lab:"+hashOf(t, "pass:word")) })
	if status := get(); status != 403 {
		t.Errorf("status %d without the user, want 403", status)
	}
}

// New limits hold for what comes. What is held already stays.
func TestReloadOfLimits(t *testing.T) {
	q := newQueue(t, "User-agent: *\nCrawl-delay: 0.1\n", 2, func(o *Options) { o.Limits = Limits{Requests: 10} })
	q.reload(func(o *Options) { o.Limits = Limits{Requests: 2} })
	if resp := <-q.ask("/page/2"); resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a request above the new limit was answered %+v", resp)
	}
	q.reload(func(o *Options) { o.Limits = Limits{RequestsPerClient: 1} })
	other := q.ask("/page/2")
	q.ends(200, "")
	if resp := <-other; resp == nil || resp.StatusCode != http.StatusOK {
		t.Errorf("a request within the new limit was answered %+v", resp)
	}
}

// A Reload of Options that contradict each other changes nothing.
func TestReloadRefused(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("User-agent: *\nDisallow: /page\n") })
	before := r.server.settings.Load()
	for _, change := range []func(*Options){
		func(o *Options) { o.Policy = nil },
		func(o *Options) { o.AuthRequired, o.Limits = true, Limits{Requests: 1} },
	} {
		o := before.Options
		change(&o)
		if err := r.server.Reload(o); err == nil || !strings.HasPrefix(err.Error(), "proxy: ") {
			t.Errorf("Reload = %v", err)
		}
	}
	if r.server.settings.Load() != before {
		t.Error("the settings have changed")
	}
}

// What a Server was made with stays, whatever a Reload says.
func TestReloadKeeps(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
	before := r.server.settings.Load()
	r.reload(func(o *Options) {
		o.Pseudonym, o.IDs, o.Logger, o.HeaderTimeout, o.IdleTimeout = "other", nil, nil, time.Hour, time.Hour
	})
	now := r.server.settings.Load()
	if now.Pseudonym != before.Pseudonym || now.IDs != before.IDs || now.Logger != before.Logger ||
		now.HeaderTimeout != before.HeaderTimeout || now.IdleTimeout != before.IdleTimeout {
		t.Errorf("settings: %+v", now)
	}
}

// A Policy that was replaced is not kept in memory by what stays open for long.
func TestReloadFreesThePolicy(t *testing.T) {
	for name, open := range map[string]func(*rig){
		"a raw tunnel": func(r *rig) {
			if resp, _, _ := r.connect(r.site.TLSPort(), "", ""); resp.StatusCode != http.StatusOK {
				r.t.Fatal(resp.Status)
			}
		},
		"a WebSocket": func(r *rig) {
			url := "ws" + strings.TrimPrefix(r.url("http", "/ws"), "http")
			if _, _, err := websocket.Dial(r.t.Context(), url, &websocket.DialOptions{HTTPClient: r.client(true)}); err != nil {
				r.t.Fatal(err)
			}
		},
		"an idle tunnel": func(r *rig) { r.get(r.client(true), r.url("https", "/page/1")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			freed := make(chan struct{})
			func() {
				o := policy.Options{}
				if name == "a raw tunnel" {
					o.TunnelHosts = []string{"a.example"}
				}
				p := r.newPolicy(o)
				runtime.AddCleanup(p, func(struct{}) { close(freed) }, struct{}{})
				r.reload(func(o *Options) { o.Policy = p })
			}()
			open(r)
			r.reload(func(o *Options) { o.Policy = r.newPolicy(policy.Options{}) })
			r.eventually("the end of the Policy", func() bool {
				runtime.GC()
				select {
				case <-freed:
					return true
				default:
					return false
				}
			})
			if r.server.Tunnels() != 1 {
				t.Errorf("%d tunnels and WebSockets are open, want 1", r.server.Tunnels())
			}
		})
	}
}
