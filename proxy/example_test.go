package proxy_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/proxy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// printer prints the decision of each record.
type printer struct{}

func (printer) Begin(context.Context, *audit.Record) error { return nil }

func (printer) End(r *audit.Record) { fmt.Println(r.Decision, r.Path, "by", r.Rule) }

// A whole proxy, with a site that disallows a folder.
func Example() {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			io.WriteString(w, "User-agent: *\nDisallow: /private/\n")
		}
	}))
	defer site.Close()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	ca, err := certs.Open(certs.Options{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	guard := egress.New(egress.Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	transport := egress.NewTransport(egress.TransportOptions{Guard: guard})
	fetcher, err := fetch.New(fetch.Options{Transport: transport, UserAgent: "example/1.0"})
	if err != nil {
		log.Fatal(err)
	}
	cache, err := robots.NewCache(robots.CacheOptions{Fetch: fetcher.Fetch})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()
	rules, err := policy.New(policy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := ratelimit.New(ratelimit.Options{})
	if err != nil {
		log.Fatal(err)
	}
	server, err := proxy.New(proxy.Options{
		Snapshots: cache, Policy: rules, Limiter: limiter, Authority: ca, Recorder: printer{}, Guard: guard, Transport: transport,
	})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(listener)
	defer server.Close()

	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: listener.Addr().String()})}}
	resp, err := client.Get(site.URL + "/private/page")
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Println(resp.Status)
	fmt.Println(resp.Header.Get("Robotsproxy-Rule"))
	// Output:
	// deny /private/page by Disallow: /private/
	// 403 Disallowed by robots.txt line 2
	// line 2: Disallow: /private/
}
