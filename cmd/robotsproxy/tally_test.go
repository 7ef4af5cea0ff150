package main

import (
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// Whatever kept a request from its origin has a name in the summary, also where nobody refused it.
func TestTallyNamesEveryCause(t *testing.T) {
	counts := newTally()
	counts.observe(&audit.Record{Host: "a.example", Decision: policy.Error, Reason: policy.ReasonClientLeft})
	counts.observe(&audit.Record{Host: "a.example", Decision: policy.Deny, Reason: policy.ReasonEgress})
	counts.observe(&audit.Record{Host: "a.example", Decision: policy.Deny, Reason: policy.ReasonRobots, RuleLine: 2, Rule: "Disallow: /"})
	var b strings.Builder
	counts.report(&b, "crawl")
	for _, want := range []string{"1  a.example  client-left\n", "1  a.example  egress\n", "1  a.example  robots.txt line 2: Disallow: /\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, &b)
		}
	}
}
