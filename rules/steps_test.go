package rules

import (
	"fmt"
	"strings"
	"testing"
)

// TestSteps counts what a verdict costs: the nodes and rules that are looked at and the octets that are passed. Where it
// is linear, a pattern of 8 KB on a path of 16 KB costs some 24 thousand steps, and where it is not, 134 million.
func TestSteps(t *testing.T) {
	const pattern, path = 8 << 10, 16 << 10
	one := func(pattern string) string { return "User-agent: *\nDisallow: " + pattern + "\n" }
	many := func(n int, format string) string {
		var b strings.Builder
		b.WriteString("User-agent: *\n")
		for i := range n {
			fmt.Fprintf(&b, "Disallow: "+format+"\n", i)
		}
		return b.String()
	}
	tests := []struct {
		name, robots, path string
		most               int
	}{
		{"stars that match", one("/" + strings.Repeat("*a", pattern/2-1)), "/" + strings.Repeat("a", path), path + pattern},
		{"stars that fail at the end", one("/" + strings.Repeat("*a", pattern/2-2) + "*b"), "/" + strings.Repeat("a", path), path + pattern},
		{"stars that fail behind the end", one("/" + strings.Repeat("*a", pattern/2-2) + "*b$"), "/" + strings.Repeat("a", path), path + pattern},
		{"a literal that nearly matches everywhere", one("/*" + strings.Repeat("a", pattern) + "b"), "/" + strings.Repeat("a", path), path + pattern + 8},
		{"long literals between stars", one("/" + strings.Repeat("*"+strings.Repeat("a", 63), pattern/64)), "/" + strings.Repeat("a", path), path + pattern},
		{"one literal", one("/" + strings.Repeat("a", pattern) + "$"), "/" + strings.Repeat("a", path), pattern + 16},
		{"10,000 rules of other paths", many(10_000, "/x/%d/*z"), "/" + strings.Repeat("a", path), 32},
		{"10,000 rules with one prefix", many(10_000, "/a/%05d"), "/a/" + strings.Repeat("a", path), 32},
		{"10,000 wildcard rules, one of which fits", many(10_000, "/a/%05d*z"), "/a/01234" + strings.Repeat("a", path), path + 64},
		{"1,000 rules that the longest beats", many(1000, "/a*%04d") + "Allow: /aaaaaaaa\n", "/" + strings.Repeat("a", path), 1000 + 64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set := Parse([]byte(tt.robots), Options{})
			a := set.Agent("*")
			w := walk{set: set, path: tt.path}
			for _, block := range set.held[set.tokens[a.token].held:set.tokens[a.token+1].held] {
				w.search(int(block))
			}
			if w.steps > tt.most {
				t.Errorf("a verdict takes %d steps, at most %d are linear", w.steps, tt.most)
			}
			got := Verdict{Allowed: true}
			if w.best != nil {
				got = set.verdictBy(w.best)
			}
			if v := a.Verdict(tt.path); v != got {
				t.Errorf("the steps lead to %+v, the verdict is %+v", got, v)
			}
		})
	}
}
