package policy

import (
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/robots"
)

// TestInterception holds that the most specific setting says whether a host's tunnels are opened.
func TestInterception(t *testing.T) {
	p, err := New(Options{
		Interception: NoTunnel,
		TunnelHosts:  []string{"*.bank.example", "a.example", "*.example.org"},
		Hosts: []Host{
			{Pattern: "www.bank.example", Interception: ptr(Intercept)},
			{Pattern: "slow.bank.example", Delay: time.Second},
			{Pattern: "*.example.org", Interception: ptr(NoTunnel)},
			{Pattern: "api.example.org", Interception: ptr(Intercept)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]Interception{
		"www.bank.example":  Intercept, // its entry, before the list
		"slow.bank.example": Tunnel,    // its entry does not say
		"x.bank.example":    Tunnel,
		"bank.example":      NoTunnel, // not below itself
		"a.example":         Tunnel,
		"b.example":         NoTunnel,
		"api.example.org":   NoTunnel, // the first entry that matches
	} {
		if got := p.Interception(host); got != want {
			t.Errorf("Interception(%q) = %v, want %v", host, got, want)
		}
	}
	if (&Policy{}).Interception("a.example") != Intercept {
		t.Error("where nothing is set, tunnels are not opened")
	}
}

func TestInterceptionWords(t *testing.T) {
	for i, want := range map[Interception]string{Intercept: "intercept", Tunnel: "tunnel", NoTunnel: "refuse"} {
		if got := i.String(); got != want {
			t.Errorf("String of %d = %q, want %q", i, got, want)
		}
	}
}

func TestTunnelHostsAreCanonical(t *testing.T) {
	if _, err := New(Options{TunnelHosts: []string{"A.example"}}); err == nil {
		t.Error("New accepts a pattern that is not canonical")
	}
}

// A tunnel shows no path, so only what holds for all of them decides.
func TestDecideTunnel(t *testing.T) {
	entry := func(path string, effect Effect) Options {
		return Options{Exemptions: []Exemption{{Host: "a.example", Path: path, Effect: effect, Reason: "r", Owner: "o"}}}
	}
	closed := found("User-agent: *\nDisallow: /\nCrawl-delay: 2\n\nUser-agent: NewsBot\nDisallow: /private/\n")
	news := Client{ProductToken: "NewsBot"}
	for _, row := range []struct {
		name    string
		options Options
		request Request
		snap    *robots.Snapshot
		want    string // action outcome reason line delay source
	}{
		{"every path is disallowed", Options{}, Request{}, closed, "refuse deny intercept 2 2s crawl-delay"},
		{"some are", Options{}, Request{UserAgent: "NewsBot/1.0"}, closed, "forward allow - 0 0s -"},
		{"all but one are", Options{}, Request{}, found("User-agent: *\nDisallow: /\nAllow: /x\n"), "forward allow - 0 0s -"},
		{"the client's token, where CONNECT names nobody", Options{}, Request{Client: news}, closed, "forward allow - 0 0s -"},
		{"CONNECT's agent before the client's token", Options{}, Request{Client: news, UserAgent: "curl/8.0"}, closed, "refuse deny intercept 2 2s crawl-delay"},
		{"2.3.1.3/unavailable allows", Options{}, Request{}, empty(robots.Unavailable, 404), "forward allow - 0 0s -"},
		{"2.3.1.4/unreachable refuses", Options{}, Request{}, empty(robots.Unreachable, 503), "refuse deny robots-unreachable 0 0s -"},
		{"report forwards", Options{Mode: Report}, Request{}, closed, "forward would_deny report 2 2s crawl-delay"},
		{"off needs no snapshot", Options{Mode: Off}, Request{}, nil, "forward allow off 0 0s -"},
		{"an exemption of all paths allows", entry("", EffectAllow), Request{}, closed, "forward exempt exemption 2 2s crawl-delay"},
		{"one of some paths does not", entry("/api/", EffectAllow), Request{}, closed, "refuse deny intercept 2 2s crawl-delay"},
		{"an exemption of all paths denies", entry("/*", EffectDeny), Request{UserAgent: "NewsBot"}, closed, "refuse deny exemption 0 0s -"},
		{"one of some paths cannot be held", entry("/cart", EffectDeny), Request{UserAgent: "NewsBot"}, closed, "forward allow - 0 0s -"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, err := New(row.options)
			if err != nil {
				t.Fatal(err)
			}
			row.request.Origin, row.request.Tunnel = mustOrigin(t, "https://a.example"), true
			if got := show(p.Decide(row.request, row.snap, now)); got != row.want {
				t.Errorf("Decide(%+v) by %+v:\n got %s\nwant %s", row.request, row.options, got, row.want)
			}
		})
	}
}
