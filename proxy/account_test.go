package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
)

// clientFrom returns a client that reaches the proxy from a loopback address.
func (r *rig) clientFrom(addr string) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	t := &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: r.addr}), TLSClientConfig: &tls.Config{RootCAs: r.ca}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, to)
		},
	}
	r.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

// A host pushes back in answer to a request with credentials. That client is refused for the time that the response
// names, and all clients are if a second one gets the same.
func TestAccountQuota(t *testing.T) {
	quota := answering(200, "RateLimit-Remaining", "0", "RateLimit-Reset", "1000")
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
		field  string
		alone  bool
	}{
		{"Authorization and 429", answering(429, "Retry-After", "1000"), "Authorization", true},
		{"Cookie and 429", answering(429, "Retry-After", "1000"), "Cookie", true},
		{"Cookie and a quota", quota, "Cookie", true},
		{"Authorization and RateLimit", answering(200, "RateLimit", `"default";r=0;t=1000`), "Authorization", true},
		{"no credentials", quota, "Accept", false},
		{"503", answering(503, "Retry-After", "1000"), "Authorization", false},
	} {
		for _, listed := range []bool{true, false} {
			t.Run(test.name+", listed "+strconv.FormatBool(listed), func(t *testing.T) {
				r := newRig(t, func(o *Options) {
					o.Snapshots, o.MaxWait = fixed(""), time.Second
					if listed {
						o.Clients = []Client{
							{Client: policy.Client{Name: "one"}, Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}},
							{Client: policy.Client{Name: "others"}, Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
						}
					}
				})
				one, other := r.clientFrom("127.0.0.2"), r.clientFrom("127.0.0.3")
				r.site.SetPage("a.example", "/account", test.answer)
				ask := func(c *http.Client, scheme, path string) *http.Response {
					t.Helper()
					req, err := http.NewRequest("GET", r.url(scheme, path), nil)
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set(test.field, "x/y")
					req.Header.Set("User-Agent", path) // makes no difference
					resp, err := c.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
					return resp
				}
				refused := func(client string, resp *http.Response) {
					t.Helper()
					rest, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
					if resp.StatusCode != 429 || resp.Header.Get("Robotsproxy-Reason") != "backoff" || rest < 900 || rest > 1000 {
						t.Errorf("%s: %s %v, want 429, the reason backoff, and the rest of 1000 s", client, resp.Status, resp.Header)
					}
				}
				ask(one, "https", "/account")
				refused("the client", ask(one, "http", "/page/1"))
				if !test.alone {
					refused("another client", ask(other, "http", "/page/1"))
					return
				}
				if resp := ask(other, "http", "/page/1"); resp.StatusCode != 200 {
					t.Errorf("another client: %s %v, want 200", resp.Status, resp.Header)
				}
				ask(other, "http", "/account")
				refused("the second client", ask(other, "https", "/page/1"))
				if listed {
					return
				}
				refused("a third client", ask(r.clientFrom("127.0.0.4"), "https", "/page/1"))
			})
		}
	}
}

// Clients that are not listed have one queue for each address. A User-Agent makes no difference.
func TestUnlistedClientsTakeTurns(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("User-agent: *\nCrawl-delay: 20\n") })
	r.get(r.client(true), r.url("http", "/page/1"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i, addr := range []string{"127.0.0.2", "127.0.0.2", "127.0.0.3"} {
		req, err := http.NewRequestWithContext(ctx, "GET", r.url("http", "/page/2"), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User-Agent", strconv.Itoa(i))
		client := r.clientFrom(addr)
		go func() {
			if resp, err := client.Do(req); err == nil {
				resp.Body.Close()
			}
		}()
		r.eventually("one more that waits", func() bool { return r.limiter.Stats().Waiting == i+1 })
	}
	if v, _ := r.limiter.Peek("a.example"); v.Clients != 2 {
		t.Errorf("%d clients wait, want one for each address", v.Clients)
	}
	cancel()
	r.eventually("the end of all", func() bool { return r.server.Active() == 0 })
	if rec := r.last(1); rec.Client != "local" {
		t.Errorf("the record names the client %q, want local", rec.Client)
	}
}
