package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"testing"

	"github.com/coder/websocket"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/policy"
)

// withAgent makes every client the client news, with these settings.
func withAgent(userAgent, token string) func(*Options) {
	return func(o *Options) {
		o.Clients = []Client{{
			Client: policy.Client{Name: "news", ProductToken: token}, UserAgent: userAgent,
			Prefixes: []netip.Prefix{loopback},
		}}
	}
}

// TestOutgoingUserAgent checks which User-Agent the origin receives, and by which one a request is judged.
func TestOutgoingUserAgent(t *testing.T) {
	const robotsTxt = "User-agent: *\nDisallow: /page/1\n\nUser-agent: NewsBot\nDisallow: /page/2\n\nUser-agent: OldBot\nDisallow: /page/3\n"
	const newsBot = "NewsBot/2.0 (+https://example.org/bot)"
	global := func(o *Options) { o.UserAgent = newsBot }
	for _, row := range []struct {
		name    string
		change  func(*Options)
		refused string // page
		sent    string
	}{
		{"the client's own", nil, "/page/3", "OldBot/1.0"},
		{"one for all", global, "/page/2", newsBot},
		{"one of the client", withAgent(newsBot, ""), "/page/2", newsBot},
		{"one of the client before one for all", func(o *Options) { withAgent("x", "")(o); global(o) }, "/page/1", "x"},
		{"a product token", withAgent("", "NewsBot"), "/page/2", "OldBot/1.0"},
		{"a product token and a User-Agent", withAgent("x", "NewsBot"), "/page/2", "x"},
	} {
		for _, way := range ways {
			t.Run(row.name+"/"+way.name, func(t *testing.T) {
				r := newRig(t, row.change)
				r.site.SetRobots("a.example", robotstest.Robots{Body: robotsTxt})
				c := r.client(way.http1)
				for page := range 3 {
					path := fmt.Sprintf("/page/%d", page+1)
					req, err := http.NewRequest("GET", r.url(way.scheme, path), nil)
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("User-Agent", "OldBot/1.0")
					resp, err := c.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					if want := path == row.refused; (resp.StatusCode == 403) != want {
						t.Errorf("%s: %s, want it refused: %t", path, resp.Status, want)
					}
					rec := r.last(page + 1)
					sent := row.sent
					if sent == "OldBot/1.0" {
						sent = ""
					}
					if rec.UserAgent != "OldBot/1.0" || rec.SentUserAgent != sent || rec.Agent != "OldBot" {
						t.Errorf("recorded %q and %q as sent, agent %q; want OldBot/1.0, %q and OldBot", rec.UserAgent, rec.SentUserAgent, rec.Agent, sent)
					}
				}
				pages := 0
				for _, q := range r.site.Requests() {
					if q.Target == "/robots.txt" {
						continue
					}
					if pages++; q.Header.Get("User-Agent") != row.sent || len(q.Header["User-Agent"]) != 1 {
						t.Errorf("the origin received %q, want %q", q.Header["User-Agent"], row.sent)
					}
				}
				if pages != 2 {
					t.Errorf("%d pages were requested, want 2", pages)
				}
			})
		}
	}
}

// TestUserAgentOfWebSockets checks the same for handshakes.
func TestUserAgentOfWebSockets(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		r := newRig(t, withAgent("NewsBot/2.0", "NewsBot"))
		r.site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: NewsBot\nDisallow: /closed\n"})
		got := make(chan string, 1)
		r.site.SetPage("a.example", "/open", func(w http.ResponseWriter, req *http.Request) {
			got <- req.UserAgent()
			if conn, err := websocket.Accept(w, req, nil); err == nil {
				conn.CloseNow()
			}
		})
		o := &websocket.DialOptions{HTTPClient: r.client(true), HTTPHeader: http.Header{"User-Agent": {"OldBot/1.0"}}}
		conn, _, err := websocket.Dial(context.Background(), r.url(scheme, "/open"), o)
		if err != nil {
			t.Fatal(err)
		}
		conn.CloseNow()
		if agent := <-got; agent != "NewsBot/2.0" {
			t.Errorf("%s: the origin received %q", scheme, agent)
		}
		if _, resp, err := websocket.Dial(context.Background(), r.url(scheme, "/closed"), o); err == nil || resp == nil || resp.StatusCode != 403 {
			t.Errorf("%s: a WebSocket that is disallowed for the product token: %v, %v", scheme, resp, err)
		}
	}
}

// TestRequiredContact checks that a request without a contact is refused before its robots.txt is fetched, and that
// what would be sent counts.
func TestRequiredContact(t *testing.T) {
	const contact = "OldBot/1.0 (+https://example.org/bot)"
	for _, row := range []struct {
		name, userAgent, outgoing string
		mode                      policy.Mode
		want                      string
	}{
		{"without", "OldBot/1.0", "", policy.Enforce, "403 identity deny identity"},
		{"none", "", "", policy.Enforce, "403 identity deny identity"},
		{"with", contact, "", policy.Enforce, "200  allow "},
		{"in the outgoing one", "OldBot/1.0", contact, policy.Enforce, "200  allow "},
		{"not in the outgoing one", contact, "OldBot/1.0", policy.Enforce, "403 identity deny identity"},
		{"report", "OldBot/1.0", "", policy.Report, "200  would_deny report"},
		{"off", "OldBot/1.0", "", policy.Off, "200  allow off"},
	} {
		for _, way := range ways {
			t.Run(row.name+"/"+way.name, func(t *testing.T) {
				r := newRig(t, func(o *Options) { o.UserAgent = row.outgoing })
				r.change(func(o *Options) { o.Policy = r.newPolicy(policy.Options{Mode: row.mode, RequireContact: true}) })
				req, err := http.NewRequest("GET", r.url(way.scheme, "/page/1"), nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("User-Agent", row.userAgent)
				resp, err := r.client(way.http1).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				rec := r.last(1)
				got := fmt.Sprintf("%d %s %s %s", resp.StatusCode, resp.Header.Get("Robotsproxy-Reason"), rec.Decision, rec.Reason)
				if got != row.want {
					t.Errorf("%s, want %s: %+v", got, row.want, rec)
				}
				if n := len(r.site.Requests()); resp.StatusCode == 403 && n > 0 {
					t.Errorf("%d requests reached the origin", n)
				}
			})
		}
	}
}

// TestRequiredContactOfRawTunnels refuses a tunnel by the User-Agent of its CONNECT, since that inside is not seen.
func TestRequiredContactOfRawTunnels(t *testing.T) {
	r := newRig(t, func(o *Options) { o.UserAgent = "NewsBot/1.0 (+https://example.org/bot)" })
	r.change(func(o *Options) {
		o.Policy = r.newPolicy(policy.Options{Interception: policy.Tunnel, RequireContact: true})
	})
	for userAgent, want := range map[string]int{"": 403, "OldBot/1.0": 403, "OldBot/1.0 (bot@example.org)": 200} {
		c := r.raw(fmt.Sprintf("CONNECT a.example:%d HTTP/1.1\r\nHost: a.example\r\nUser-Agent: %s\r\n\r\n", r.site.TLSPort(), userAgent))
		resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
		if err != nil || resp.StatusCode != want {
			t.Errorf("CONNECT with %q: %v, %v; want %d", userAgent, resp, err, want)
		}
		c.Close()
	}
}
