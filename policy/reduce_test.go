package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// A reduced policy names no other host and no other client, and decides about its host as the whole does.
func TestReduce(t *testing.T) {
	site, err := origin.Parse("http://www.a.example")
	if err != nil {
		t.Fatal(err)
	}
	since := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	report := policy.Report
	o := policy.Options{
		Hosts: []policy.Host{{Pattern: "secret.example", Mode: &report}, {Pattern: "*.a.example", Delay: time.Second}},
		Clients: []policy.Client{
			{Name: "news", Purpose: policy.PurposeSearch}, {Name: "secret-lab"},
		},
		Access: policy.Access{Allow: []string{"www.a.example", "secret.example"}, Deny: []string{"secret2.example"}},
		ClientAccess: map[string]policy.Access{
			"news": {Deny: []string{"secret3.example"}}, "secret-lab": {Allow: []string{"secret4.example"}},
		},
		Exemptions: []policy.Exemption{
			{Host: "www.a.example", Path: "/feed", Client: "news", Effect: policy.EffectAllow, Reason: "contract", Owner: "ops"},
			{Host: "*", Client: "secret-lab", Effect: policy.EffectAllow, Reason: "secret", Owner: "ops"},
			{Host: "secret.example", Effect: policy.EffectAllow, Reason: "secret", Owner: "ops"},
		},
		Interventions: []policy.Intervention{
			{Kind: policy.Slow, Host: "www.a.example", Delay: time.Minute, Reason: "owner asked", By: "ops", Since: since},
			{Kind: policy.Stop, Host: "secret.example", Reason: "secret dispute", By: "ops", Since: since},
		},
	}
	p, err := policy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := policy.Reduce(p.Text(), "www.a.example", []string{"news"})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "secret") {
		t.Errorf("other hosts and clients are in\n%s", text)
	}
	for _, kept := range []string{"*.a.example", "owner asked", "contract", `"name": "news"`} {
		if !strings.Contains(string(text), kept) {
			t.Errorf("%s is not in\n%s", kept, text)
		}
	}
	reduced, err := policy.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	snap := robots.NewSnapshot(robots.Answer{
		Availability: robots.Found, Status: 200, Body: []byte("User-agent: *\nDisallow: /feed\nDisallow: /private\n"),
	})
	request := func(target string) policy.Request {
		return policy.Request{Origin: site, Target: target, UserAgent: "NewsBot"}
	}
	for _, target := range []string{"/", "/feed", "/private"} {
		for _, client := range []string{"news", "other"} {
			r := request(target)
			r.Client, _ = p.Client(client)
			want := p.Decide(r, snap, since.Add(time.Hour))
			r.Client, _ = reduced.Client(client)
			if got := reduced.Decide(r, snap, since.Add(time.Hour)); got != want {
				t.Errorf("%s of %s: %+v, want %+v", target, client, got, want)
			}
		}
	}
	wantRule, want := p.DeniedToAll("www.a.example")
	if rule, denied := reduced.DeniedToAll("www.a.example"); denied != want || rule != wantRule {
		t.Errorf("DeniedToAll = %q, %t, want %q, %t", rule, denied, wantRule, want)
	}
	o.Access.Allow = []string{"secret.example"}
	if p, err = policy.New(o); err != nil {
		t.Fatal(err)
	}
	if text, err = policy.Reduce(p.Text(), "www.a.example", nil); err != nil || strings.Contains(string(text), "secret") {
		t.Errorf("%v, %s", err, text)
	}
	if reduced, err = policy.Parse(text); err != nil {
		t.Fatal(err)
	}
	if _, denied := reduced.Denied(request("/"), since); denied {
		t.Error("a host list is an entry of the operator")
	}
	if rule, _ := reduced.DeniedToAll("www.a.example"); !strings.HasPrefix(rule, "not in allow_hosts") {
		t.Errorf("the host is not in the list, and the rule is %q", rule)
	}
	if _, err := policy.Reduce([]byte("mode: enforce"), "www.a.example", nil); err == nil {
		t.Error("a text of another format was reduced")
	}
}
