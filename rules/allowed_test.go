package rules_test

import (
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/rules"
)

// TestAllowed checks the forms of url that Allowed accepts. It refuses the others.
func TestAllowed(t *testing.T) {
	const robots = "User-agent: *\nDisallow: /x\nDisallow: /*?q=\n"
	for url, want := range map[string]bool{
		"https://a.example/y": true, "http://a.example": true, "HTTPS://a.example:8443/y#/x": true, "/y": true, "//a.example/x": true,
		"https://a.example/x": false, "https://u:p@a.example/%78": false, "https://a.example?q=1": false, "/x": false, "/y?q=": false,
		"": false, "a.example/y": false, "y": false, "?y": false, "#": false, "://a.example/y": false, "4://a.example/y": false, "*": false,
	} {
		if got := rules.Allowed([]byte(robots), "NewsBot/1.0", url); got != want {
			t.Errorf("Allowed(%q) = %v, want %v", url, got, want)
		}
	}
	costly := "User-agent: *\n" + strings.Repeat("Allow: /*!\n", 10_000)
	if rules.Allowed([]byte(costly), "NewsBot", "/"+strings.Repeat("a", 60<<10)) {
		t.Error("Allowed returns true for a verdict that takes too many steps")
	}
	if !rules.Allowed(nil, "", "/") {
		t.Error("an empty file does not allow everything")
	}
}

// TestExplainWithoutGroup checks that an agent without a group of the file still learns of the rules of other agents.
func TestExplainWithoutGroup(t *testing.T) {
	for _, d := range rules.Dialects() {
		e := rules.Parse([]byte("User-agent: NewsBot\nDisallow: /x\n"), rules.Options{Dialect: d}).Agent("OtherBot").Explain("/x")
		if !e.Verdict.Allowed || e.Why != rules.ReasonNoGroup || e.Dialect != d || len(e.Matches) != 0 || len(e.OtherAgents) != 1 {
			t.Errorf("%v: Explain = %+v, want no group and one rule of another agent", d, e)
		}
	}
	if e := (rules.Agent{}).Explain("/%78"); !e.Verdict.Allowed || e.Path != "/x" || len(e.Matches)+len(e.OtherAgents) != 0 {
		t.Errorf("the zero Agent explains %+v", e)
	}
}
