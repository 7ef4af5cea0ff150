package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// TestAdminHosts checks that the admin listener accepts the names of admin.hosts, in any spelling, and no others.
func TestAdminHosts(t *testing.T) {
	s := startSite(t, robotstest.New(t), "\nadmin: {hosts: [Proxy.Lab.Example, bücher.example]}\n")
	for host, want := range map[string]int{
		"proxy.lab.example": 200, "PROXY.lab.example.:3129": 200, "xn--bcher-kva.example": 200, "localhost": 200, s.admin: 200,
		"evil.example": 421, "lab.example": 421, "x.proxy.lab.example": 421, "proxy.lab.example@evil.example": 421,
	} {
		req, err := http.NewRequest("GET", "http://"+s.admin+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body := new(strings.Builder)
		fmt.Fprint(body, resp.Header)
		resp.Write(body)
		resp.Body.Close()
		if resp.StatusCode != want && !(want == 421 && resp.StatusCode == 400) {
			t.Errorf("Host %s: %s, want %d", host, resp.Status, want)
		}
		if resp.StatusCode == 421 && !strings.Contains(body.String(), "admin.hosts") {
			t.Errorf("Host %s: the answer does not name admin.hosts:\n%s", host, body)
		}
	}
}

// TestNamesOfTheAdminListener checks that the listener accepts the name in admin.listen, which the commands use.
func TestNamesOfTheAdminListener(t *testing.T) {
	for listen, want := range map[string][]string{
		"127.0.0.1:3129": {"a.example"}, "[::1]:3129": {"a.example"}, ":3129": {"a.example"}, "proxy.example:3129": {"a.example", "proxy.example"},
	} {
		cfg := config.Default()
		cfg.Admin.Listen, cfg.Admin.Hosts = listen, []string{"a.example"}
		if got := adminHosts(&cfg); !slices.Equal(got, want) {
			t.Errorf("adminHosts with admin.listen %s = %q, want %q", listen, got, want)
		}
		if len(cfg.Admin.Hosts) != 1 {
			t.Errorf("adminHosts changed the configuration: %q", cfg.Admin.Hosts)
		}
	}
}
