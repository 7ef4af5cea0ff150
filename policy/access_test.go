package policy

import (
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/hostset"
)

// Each row is a host, a client and the lists; want is the outcome, and the list that denies.
func TestAccess(t *testing.T) {
	file, err := hostset.New([]string{"*.listed.example", "a.example"})
	if err != nil {
		t.Fatal(err)
	}
	exempt := Exemption{Host: "*", Effect: EffectAllow, Reason: "contract 12", Owner: "ops", Until: now.AddDate(1, 0, 0)}
	for _, row := range []struct {
		name    string
		client  string
		mode    Mode
		all     Access
		clients map[string]Access
		want    string
	}{
		{"no lists", "news", Enforce, Access{}, nil, "allow"},
		{"denied to all", "news", Enforce, Access{Deny: []string{"*.example"}}, nil, "deny host deny_hosts: *.example"},
		{"another host is denied", "news", Enforce, Access{Deny: []string{"*.a.example", "b.example"}}, nil, "allow"},
		{"in the file", "news", Enforce, Access{DenyFile: file}, nil, "deny host deny_hosts_file: a.example"},
		{"every host is denied", "news", Enforce, Access{Deny: []string{"*"}}, nil, "deny host deny_hosts: *"},
		{"allowed", "news", Enforce, Access{Allow: []string{"b.example", "a.example"}}, nil, "allow"},
		{"not among the allowed", "news", Enforce, Access{Allow: []string{"b.example"}}, nil, "deny host not in allow_hosts"},
		{"deny takes precedence", "news", Enforce, Access{Allow: []string{"a.example"}, Deny: []string{"*"}}, nil, "deny host deny_hosts: *"},
		{"the file takes precedence", "news", Enforce, Access{Allow: []string{"a.example"}, DenyFile: file}, nil, "deny host deny_hosts_file: a.example"},
		{"denied to the client", "news", Enforce, Access{}, map[string]Access{"news": {Deny: []string{"a.example"}}}, "deny host deny_hosts: a.example (client news)"},
		{"denied to the client by its file", "news", Enforce, Access{}, map[string]Access{"news": {DenyFile: file}}, "deny host deny_hosts_file: a.example (client news)"},
		{"denied to another client", "lab", Enforce, Access{}, map[string]Access{"news": {Deny: []string{"a.example"}}, "lab": {}}, "allow"},
		{"the client's allow lifts no deny for all", "news", Enforce, Access{Deny: []string{"a.example"}}, map[string]Access{"news": {Allow: []string{"a.example"}}}, "deny host deny_hosts: a.example"},
		{"the client's allow replaces that for all", "news", Enforce, Access{Allow: []string{"b.example"}}, map[string]Access{"news": {Allow: []string{"*.example"}}}, "allow"},
		{"and may be narrower", "news", Enforce, Access{Allow: []string{"*"}}, map[string]Access{"news": {Allow: []string{"b.example"}}}, "deny host not in allow_hosts (client news)"},
		{"a client without its own has that for all", "lab", Enforce, Access{Allow: []string{"b.example"}}, map[string]Access{"news": {Allow: []string{"*"}}, "lab": {}}, "deny host not in allow_hosts"},
		{"report notes it", "news", Report, Access{Deny: []string{"a.example"}}, nil, "would_deny report deny_hosts: a.example"},
		{"off refuses too", "news", Off, Access{Deny: []string{"a.example"}}, nil, "deny host deny_hosts: a.example"},
		{"off, and not denied", "news", Off, Access{Deny: []string{"b.example"}}, nil, "allow off"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, err := New(Options{Mode: row.mode, Access: row.all, ClientAccess: row.clients, Exemptions: []Exemption{exempt}})
			if err != nil {
				t.Fatal(err)
			}
			r := Request{Origin: mustOrigin(t, "http://a.example"), Target: "/x", Client: Client{Name: row.client}}
			snap := found(example)
			if !p.NeedsRobots(r) {
				snap = nil
			}
			d := p.Decide(r, snap, now)
			got := strings.TrimSpace(strings.Join([]string{string(d.Outcome), string(d.Reason), d.HostRule}, " "))
			if got != row.want {
				t.Errorf("Decide(%+v) = %q, want %q", r, got, row.want)
			}
			if forwards := strings.HasPrefix(row.want, "allow") || row.mode == Report; (d.Action == Forward) != forwards || d.Mode != row.mode {
				t.Errorf("Decide(%+v) = %+v", r, d)
			}
			if wantsFile := d.HostRule == "" && row.mode != Off; p.NeedsRobots(r) != wantsFile {
				t.Errorf("NeedsRobots() = %t, want %t", !wantsFile, wantsFile)
			}
		})
	}
}

func TestDeniedToAll(t *testing.T) {
	deny := Access{Deny: []string{"a.example"}}
	for _, row := range []struct {
		name    string
		all     Access
		clients map[string]Access
		want    bool
	}{
		{"no lists", Access{}, nil, false},
		{"no clients", deny, nil, true},
		{"no clients, and not allowed", Access{Allow: []string{"b.example"}}, nil, true},
		{"one of two clients", Access{}, map[string]Access{"news": deny, "lab": {}}, false},
		{"both clients", Access{}, map[string]Access{"news": deny, "lab": {Allow: []string{"b.example"}}}, true},
		{"all clients", deny, map[string]Access{"news": {}, "lab": {Allow: []string{"a.example"}}}, true},
		{"allowed to one client alone", Access{Allow: []string{"b.example"}}, map[string]Access{"news": {Allow: []string{"a.example"}}, "lab": {}}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, err := New(Options{Access: row.all, ClientAccess: row.clients})
			if err != nil {
				t.Fatal(err)
			}
			if rule, got := p.DeniedToAll("a.example"); got != row.want || (rule != "") != row.want {
				t.Errorf("DeniedToAll() = %q, %t, want %t", rule, got, row.want)
			}
		})
	}
}

// A list of hosts finds what MatchHost finds.
func TestAccessMatchesAsMatchHost(t *testing.T) {
	names := []string{"a", "b", "example", "a.example", "b.a.example", "192.0.2.1", "64:ff9b::c000:201", "ab.example"}
	for _, pattern := range []string{"*", "a", "*.example", "*.a.example", "a.example", "192.0.2.1", "*.b.a.example", "*.ample"} {
		set, err := hostset.New([]string{pattern})
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range names {
			if _, got := set.Match(host); got != MatchHost(pattern, host) {
				t.Errorf("the list with %s matches %s: %t, and MatchHost %t", pattern, host, got, !got)
			}
		}
	}
}
