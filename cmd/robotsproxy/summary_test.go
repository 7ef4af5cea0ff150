package main

import (
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// The summary names every reason for which a request was not sent, including those that are not refusals.
func TestSummaryNamesEveryCause(t *testing.T) {
	counts := newSummary()
	counts.observe(&audit.Record{Host: "a.example", Decision: policy.Error, Reason: policy.ReasonClientLeft})
	counts.observe(&audit.Record{Host: "a.example", Decision: policy.Deny, Reason: policy.ReasonEgress})
	counts.observe(&audit.Record{Host: "a.example", Decision: policy.Deny, Reason: policy.ReasonRobots, RuleLine: 2, Rule: "Disallow: /"})
	counts.observe(&audit.Record{Host: "a.example", Decision: policy.Deny, Reason: policy.ReasonHost, Rule: "deny_hosts: a.example"})
	var b strings.Builder
	counts.report(&b, "crawl")
	for _, want := range []string{"1  a.example  deny_hosts: a.example\n", "1  a.example  client-left\n", "1  a.example  egress\n", "1  a.example  robots.txt line 2: Disallow: /\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, &b)
		}
	}
}

// The proxy's requests for robots.txt are not counted.
func TestSummaryCountsNoFetches(t *testing.T) {
	counts := newSummary()
	counts.observe(&audit.Record{Host: "a.example", Path: "/robots.txt", Via: audit.Robots, Decision: policy.Allow, Status: 200})
	counts.observe(&audit.Record{Host: "b.example", Path: "/private", Via: audit.Robots, Decision: policy.Deny, Reason: policy.ReasonRobots})
	var b strings.Builder
	counts.report(&b, "crawl")
	if !strings.Contains(b.String(), "not one request") {
		t.Errorf("the summary counts requests where there was none of the child's:\n%s", &b)
	}
}

// The agents are listed by the number of their requests.
func TestSummaryNamesTheAgents(t *testing.T) {
	counts := newSummary()
	for _, agent := range []string{"", "curl", "Wget", "Wget"} {
		counts.observe(&audit.Record{Host: "a.example", Agent: agent, Decision: policy.Allow})
	}
	var b strings.Builder
	counts.report(&b, "crawl")
	if want := "robotsproxy: agents: Wget 2, curl 1, no agent 1\n"; !strings.Contains(b.String(), want) {
		t.Errorf("the summary lacks %q:\n%s", want, &b)
	}
}
