package main

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A site that starts after the first request for it is not closed for the whole error_ttl.
func TestSiteStartsLater(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close() // until the site starts, its port refuses connections
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := "egress: {allow_addresses: [127.0.0.0/8], resolve: {a.example: 127.0.0.1}}\nrobots: {error_ttl: 10m}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := startServer(filepath.Join(t.TempDir(), "data"), append(os.Environ(), "HOME="+t.TempDir()), "--config", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop() })
	_, port, _ := net.SplitHostPort(at)
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: s.proxy})}}
	ask := func() (status int, retryAfter string) {
		resp, err := client.Get(fmt.Sprintf("http://a.example:%s/", port))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode, resp.Header.Get("Retry-After")
	}
	if status, after := ask(); status != http.StatusServiceUnavailable || after != "1" {
		t.Fatalf("before the site starts: %d, Retry-After %s; want 503, 1", status, after)
	}
	if l, err = net.Listen("tcp", at); err != nil {
		t.Skipf("another program took the port: %v", err)
	}
	site := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
		}
	})}
	go site.Serve(l)
	t.Cleanup(func() { site.Close() })
	time.Sleep(1100 * time.Millisecond)
	if status, _ := ask(); status != http.StatusOK {
		t.Errorf("after the site has started: %d, want 200", status)
	}
}
