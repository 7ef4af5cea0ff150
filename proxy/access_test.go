package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/robotsproxy/robotsproxy/policy"
)

var denyA = policy.Options{Access: policy.Access{Deny: []string{"a.example"}}}

// A request to a host that the client may not visit is refused in every way that it can come, and nothing is sent to the
// host, not even a request for its robots.txt.
func TestDeniedHost(t *testing.T) {
	for _, way := range ways {
		for _, mode := range []policy.Mode{policy.Enforce, policy.Off} {
			t.Run(fmt.Sprintf("%s, mode %s", way.name, mode), func(t *testing.T) {
				o := denyA
				o.Mode = mode
				r := newRig(t, func(options *Options) { options.Policy, options.ServeRobots = mustPolicy(t, o), true })
				for i, path := range []string{"/page/1", "/robots.txt"} {
					resp, body := r.get(r.client(way.http1), r.url(way.scheme, path))
					const detail = "a.example: deny_hosts: a.example"
					if resp.StatusCode != 403 || resp.Header.Get("Robotsproxy-Reason") != "host" ||
						resp.Header.Get("Robotsproxy-Decision") != "deny" || !strings.Contains(string(body), detail) ||
						!strings.HasPrefix(resp.Header.Get("Proxy-Status"), "robotsproxy; error=http_request_denied;") {
						t.Errorf("%s: %s %v %s", path, resp.Status, resp.Header, body)
					}
					rec := r.last(i + 1)
					if rec.Decision != policy.Deny || rec.Reason != policy.ReasonHost || rec.Via != way.via ||
						rec.Rule != "deny_hosts: a.example" || rec.Mode != mode.String() || rec.RobotsSHA256 != "" {
						t.Errorf("record: %+v", rec)
					}
				}
				if got := r.site.Requests(); len(got) > 0 {
					t.Errorf("the host got %+v", got)
				}
			})
		}
	}
}

func mustPolicy(t *testing.T, o policy.Options) *policy.Policy {
	t.Helper()
	p, err := policy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDeniedRawTunnel(t *testing.T) {
	r := pinned(t, denyA, nil)
	resp, _, _ := r.connect(r.site.TLSPort(), "", "")
	if resp.StatusCode != 403 || resp.Header.Get("Robotsproxy-Reason") != "host" || len(r.site.Requests()) > 0 {
		t.Errorf("%s %v; the host got %v", resp.Status, resp.Header, r.site.Requests())
	}
}

func TestDeniedWebSocket(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Policy = mustPolicy(t, denyA) })
	for _, scheme := range []string{"http", "https"} {
		at := "ws" + strings.TrimPrefix(r.url(scheme, "/ws"), "http")
		_, resp, err := websocket.Dial(context.Background(), at, &websocket.DialOptions{HTTPClient: r.client(true)})
		if err == nil || resp == nil || resp.StatusCode != 403 || resp.Header.Get("Robotsproxy-Reason") != "host" {
			t.Errorf("%s: error %v, response %+v", at, err, resp)
		}
	}
	if got := r.site.Requests(); len(got) > 0 {
		t.Errorf("the host got %v", got)
	}
}

// In mode report the request passes, and no robots.txt is fetched for it.
func TestDeniedHostInReport(t *testing.T) {
	o := denyA
	o.Mode = policy.Report
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(options *Options) { options.Policy = mustPolicy(t, o) })
			if resp, _ := r.get(r.client(way.http1), r.url(way.scheme, "/page/1")); resp.StatusCode != http.StatusOK {
				t.Errorf("%s %v", resp.Status, resp.Header)
			}
			rec := r.last(1)
			if rec.Decision != policy.WouldDeny || rec.Reason != policy.ReasonReport || rec.Rule != "deny_hosts: a.example" {
				t.Errorf("record: %+v", rec)
			}
			if got := r.site.Requests(); len(got) != 1 {
				t.Errorf("the host got %+v", got)
			}
		})
	}
}

// A list of one client does not concern another, and takes effect in an open tunnel.
func TestDeniedClient(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
	c := r.client(true)
	for i, step := range []struct {
		access map[string]policy.Access
		status int
	}{
		{nil, 200},
		{map[string]policy.Access{"local": {Deny: []string{"a.example"}}}, 403},
		{map[string]policy.Access{"other": {Deny: []string{"a.example"}}, "local": {}}, 200},
		{map[string]policy.Access{"local": {Allow: []string{"b.example"}}}, 403},
	} {
		r.reload(func(o *Options) { o.Policy = mustPolicy(t, policy.Options{ClientAccess: step.access}) })
		if resp, _ := r.get(c, r.url("https", "/page/1")); resp.StatusCode != step.status {
			t.Errorf("step %d: %s, want %d", i, resp.Status, step.status)
		}
	}
}

// A request that waits when its host is denied is refused, and not sent.
func TestDeniedDuringTheWait(t *testing.T) {
	q := newQueue(t, "User-agent: *\nCrawl-delay: 0.1\n", 2, nil)
	q.reload(func(o *Options) { o.Policy = mustPolicy(t, denyA) })
	q.ends(403, "host")
	if n := q.pages(); n != 0 {
		t.Errorf("the host got %d pages", n)
	}
}
