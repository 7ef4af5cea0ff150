package robots_test

import (
	"sync"
	"testing"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

func TestRulesFor(t *testing.T) {
	o, err := origin.Parse("http://a.example")
	if err != nil {
		t.Fatal(err)
	}
	const body = "User-agent: *\nDisallow: http://a.example/x\nDisallow: /caf\xE9\nDisallow: /y"
	tests := []struct {
		name, contentType string
		origin            origin.Origin
		availability      robots.Availability
		truncated         bool
		dialect           rules.Dialect
		target            string
		allowed           bool
	}{
		{"the RFC's reading", "", o, robots.Found, false, rules.DialectRFC9309, "/x", true},
		{"values are URLs of the origin", "", o, robots.Found, false, rules.DialectWWWRobotRules, "/x", false},
		{"the origin is that of the file", "", o, robots.Found, false, rules.DialectWWWRobotRules, "http://b.example/x", true},
		{"no charset is ISO-8859-1", "", o, robots.Found, false, rules.DialectGYM2008, "/caf%C3%A9", false},
		{"a charset is a charset", "text/plain; charset=utf-8", o, robots.Found, false, rules.DialectGYM2008, "/caf%C3%A9", true},
		{"a file of the operator's is UTF-8", "", origin.Origin{}, robots.Found, false, rules.DialectGYM2008, "/caf%C3%A9", true},
		{"the last line", "", o, robots.Found, false, rules.DialectMK1996, "/y", false},
		{"a last line that is cut", "", o, robots.Found, true, rules.DialectMK1996, "/y", true},
		{"no rules but where there is a file", "", o, robots.Unavailable, false, rules.DialectMK1996, "/y", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			snap := &robots.Snapshot{
				Answer: robots.Answer{
					Origin: tt.origin, Availability: tt.availability, ContentType: tt.contentType, Body: []byte(body),
					Truncated: tt.truncated,
				},
				Rules: &rules.Ruleset{},
			}
			if tt.availability == robots.Found {
				snap.Rules = rules.Parse(snap.Body, rules.Options{})
			}
			set := snap.RulesFor(tt.dialect)
			if got := set.Agent("a").Verdict(tt.target); got.Allowed != tt.allowed {
				t.Errorf("RulesFor(%v): Verdict(%q) = %+v, want Allowed %v", tt.dialect, tt.target, got, tt.allowed)
			}
			if again := snap.RulesFor(tt.dialect); again != set {
				t.Errorf("RulesFor(%v) parses again", tt.dialect)
			}
		})
	}
}

// TestRulesForAtOnce holds that all who ask at once get the same.
func TestRulesForAtOnce(t *testing.T) {
	snap := &robots.Snapshot{Answer: robots.Answer{Availability: robots.Found, Body: []byte("User-agent: *\nDisallow: /\n")}, Rules: rules.Parse(nil, rules.Options{})}
	sets := make([]*rules.Ruleset, 32)
	var all sync.WaitGroup
	for i := range sets {
		all.Go(func() { sets[i] = snap.RulesFor(rules.Dialects()[1+i%6]) })
	}
	all.Wait()
	for i, set := range sets {
		if d := rules.Dialects()[1+i%6]; set != snap.RulesFor(d) || set.Dialect() != d {
			t.Errorf("RulesFor(%v) gave %v, and another to others", d, set.Dialect())
		}
	}
}
