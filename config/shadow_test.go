package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/robotsproxy/robotsproxy/policy"
)

// TestShadowedClientsAreUnreachable checks for lists of clients that the first match of a request is never one that a
// warning names.
func TestShadowedClientsAreUnreachable(t *testing.T) {
	networks := []string{"127.0.0.1", "127.0.0.0/8", "10.0.0.0/8", "10.1.0.0/16", "10.1.0.0/17", "10.1.2.3", "0.0.0.0/0", "::/0", "2001:db8::/32", "2001:db8::1", "::1"}
	users, subjects := []string{"", "news", "lab"}, []string{"", "CN=ci", "CN=other"}
	warned := 0
	rapid.Check(t, func(rt *rapid.T) {
		listen := rapid.SampledFrom([]string{"127.0.0.1:1", "[::1]:1", "0.0.0.0:1"}).Draw(rt, "listen")
		text := "listen: \"" + listen + "\"\nidentity: {contact: \"mailto:op@example.org\"}\nauth: {htpasswd_file: robotsproxy.yaml}\n" +
			"tls: {cert_file: robotsproxy.yaml, key_file: robotsproxy.yaml, client_ca_file: robotsproxy.yaml}\n"
		if rapid.Bool().Draw(rt, "load balancer") {
			text, listen = text+"proxy_protocol: [127.0.0.1]\n", ""
		}
		text += "clients:\n"
		for i := range rapid.IntRange(1, 5).Draw(rt, "clients") {
			cidr := rapid.SliceOfN(rapid.SampledFrom(networks), 0, 2).Draw(rt, "cidr")
			user := rapid.SampledFrom(users).Draw(rt, "user")
			subject := rapid.SampledFrom(subjects).Draw(rt, "subject")
			if user == "" && subject == "" && len(cidr) == 0 {
				user = "both"
			}
			text += fmt.Sprintf("  - {name: c%d, user: %q, tls_subject: %q, cidr: [%s]}\n", i, user, subject, `"`+strings.Join(cidr, `", "`)+`"`)
		}
		text = strings.ReplaceAll(text, `[""]`, "[]")
		cfg, warnings, faults := loadText(t, text, Options{})
		if faults != "" {
			rt.Fatal(text, faults)
		}
		for _, addr := range requestsFrom(listen) {
			for n := range 4 * 3 {
				user, subject := append(users, "both")[n%4], subjects[n/4]
				i := slices.IndexFunc(cfg.Clients, func(c Client) bool { return matches(c, user, subject, netip.MustParseAddr(addr)) })
				if i >= 0 && strings.Contains(warnings, fmt.Sprintf("clients[%d]: ", i)) {
					rt.Fatalf("%q, %q from %s is client %d, although a warning says that it never applies:\n%s%s", user, subject, addr, i, text, warnings)
				}
			}
		}
		warned += strings.Count(warnings, "never applies")
	})
	if warned == 0 {
		t.Error("no list was shadowed")
	}
}

// requestsFrom returns addresses from which requests come to listen.
func requestsFrom(listen string) []string {
	switch listen {
	case "127.0.0.1:1":
		return []string{"127.0.0.1"}
	case "[::1]:1":
		return []string{"::1"}
	}
	return []string{"127.0.0.1", "127.0.0.2", "::1", "10.0.0.1", "10.1.0.1", "10.1.200.1", "10.1.2.3", "192.0.2.1", "2001:db8::1", "2001:db8::2", "2001:db9::1"}
}

// matches is how a request is given to a client, as docs/configuration.md says.
func matches(c Client, user, subject string, addr netip.Addr) bool {
	in := len(c.CIDR) == 0 || slices.ContainsFunc(c.CIDR, func(p netip.Prefix) bool { return p.Contains(addr) })
	return in && (c.User == "" || c.User == user) && (c.TLSSubject == "" || c.TLSSubject == subject)
}

// TestShadowedHostsAreUnreachable checks the same for hosts, and that a pattern which one earlier pattern contains is
// named.
func TestShadowedHostsAreUnreachable(t *testing.T) {
	patterns := []string{"*", "*.example", "*.a.example", "*.b.a.example", "example", "a.example", "b.a.example", "c.b.a.example", "ba.example", "192.0.2.1"}
	names := []string{"example", "a.example", "b.a.example", "c.b.a.example", "d.c.b.a.example", "ba.example", "192.0.2.1", "other.test"}
	rapid.Check(t, func(rt *rapid.T) {
		drawn := rapid.SliceOfN(rapid.SampledFrom(patterns), 1, 5).Draw(rt, "hosts")
		text := "hosts:\n"
		for _, pattern := range drawn {
			text += fmt.Sprintf("  - {host: %q}\n", pattern)
		}
		_, warnings, faults := loadText(t, text, Options{})
		if faults != "" {
			rt.Fatal(text, faults)
		}
		for i, pattern := range drawn {
			reached := slices.ContainsFunc(names, func(name string) bool {
				first := slices.IndexFunc(drawn, func(p string) bool { return policy.MatchHost(p, name) })
				return first == i
			})
			warned := strings.Contains(warnings, fmt.Sprintf("hosts[%d].host: ", i))
			contained := slices.ContainsFunc(drawn[:i], func(p string) bool { return contains(p, pattern, names) })
			if warned && reached || contained && !warned {
				rt.Fatalf("entry %d: warned %t, reached %t, in an earlier one %t:\n%s%s", i, warned, reached, contained, text, warnings)
			}
		}
	})
}

// contains reports whether p matches each of names that q matches.
func contains(p, q string, names []string) bool {
	return !slices.ContainsFunc(names, func(n string) bool { return policy.MatchHost(q, n) && !policy.MatchHost(p, n) })
}
