package rules

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// TestSteps counts the steps of a verdict: nodes and rules that are compared, and bytes that are read. A linear
// verdict on a pattern of 8 KB and a path of 16 KB takes about 24,000 steps, a quadratic one 134 million.
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

// overshoot is the number of steps, of one rule and one form of a path, by which a verdict may exceed its bound.
const overshoot = 3 * 64 << 10

// TestStepsAreBounded checks, in every dialect, that a verdict on slow files, targets and User-Agents takes a bounded
// number of steps, or is given up after a bounded number.
func TestStepsAreBounded(t *testing.T) {
	gaveUp := make(map[string]bool)
	for _, file := range robotstest.CostlyFiles() {
		for _, d := range Dialects() {
			set := Parse([]byte(file.Text), Options{Dialect: d})
			for _, header := range []string{"*", robotstest.CostlyAgent()} {
				a, steps := set.agent(header)
				if steps > maxAgentSteps+overshoot || a.tooComplex != (steps > maxAgentSteps) {
					t.Errorf("%s in %v: Agent(%.10q) takes %d steps, too complex: %v", file.Name, d, header, steps, a.tooComplex)
				}
				targets := robotstest.CostlyTargets()
				if header != "*" && !a.tooComplex {
					targets = targets[:1]
				}
				for _, target := range targets {
					v, steps := a.verdict(target.Text, 0)
					if steps > maxVerdictSteps+overshoot || v.TooComplex != (a.tooComplex || steps > maxVerdictSteps) {
						t.Errorf("%s in %v: Agent(%.10q).Verdict(%s) takes %d steps, too complex: %v", file.Name, d, header, target.Name, steps, v.TooComplex)
					}
					if v.TooComplex && v != (Verdict{TooComplex: true}) {
						t.Errorf("%s in %v: Verdict(%s) = %+v", file.Name, d, target.Name, v)
					}
					gaveUp[file.Name] = gaveUp[file.Name] || v.TooComplex
				}
			}
		}
	}
	for _, name := range []string{"stars before an absent byte", "segments of 16,000 bytes that nearly match", "agents that nearly match", "agents with many stars"} {
		if !gaveUp[name] {
			t.Errorf("no verdict on %s was given up", name)
		}
	}
}

// TestFormsShareSteps checks that the forms of one target have the steps of one verdict together.
func TestFormsShareSteps(t *testing.T) {
	a := Parse([]byte("User-agent: *\n"+strings.Repeat("Allow: /*!\n", 1000)), Options{}).Agent("x")
	target := "/" + strings.Repeat("a", 20<<10)
	forms := []string{target + "b", target + "c", target + "d", target + "e"}
	for _, form := range append(forms, target) {
		if v := a.Verdict(form); !v.Allowed || v.TooComplex {
			t.Fatalf("the verdict on one form is %+v", v)
		}
	}
	if v := a.VerdictOf(target, forms); v != (Verdict{TooComplex: true}) {
		t.Errorf("the verdict on all forms is %+v", v)
	}
}

// TestIndex compares the search for a literal with the standard library's, and counts its steps.
func TestIndex(t *testing.T) {
	text := rapid.Map(rapid.SliceOfN(rapid.IntRange(0, 150), 1, 15), func(runs []int) string {
		var b strings.Builder
		for _, n := range runs {
			b.WriteString("b" + strings.Repeat("a", n))
		}
		return b.String()[1:]
	})
	rapid.Check(t, func(t *rapid.T) {
		s, sub := text.Draw(t, "s"), text.Draw(t, "sub")+rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "end")
		if from := rapid.IntRange(0, len(s)).Draw(t, "from"); rapid.Bool().Draw(t, "inside") && from < len(s) {
			sub = s[from:rapid.IntRange(from+1, len(s)).Draw(t, "to")]
		}
		at, steps := index(s, sub)
		if want := strings.Index(s, sub); at != want {
			t.Fatalf("index(%q, %q) = %d, want %d", s, sub, at, want)
		}
		if most := 16 + len(s) + len(s)/16 + len(sub); steps > most {
			t.Fatalf("index(%q, %q) takes %d steps, want %d at most", s, sub, steps, most)
		}
	})
}

// TestTooComplexAgent checks that an agent whose groups could not be found may do nothing.
func TestTooComplexAgent(t *testing.T) {
	set := Parse([]byte(strings.Repeat("User-agent: aaab\nDisallow: /x\n", 10_000)+"User-agent: *\nAllow: /\n"), Options{Dialect: DialectMK1996})
	a := set.Agent(strings.Repeat("a", 60<<10))
	want := Verdict{TooComplex: true}
	if v := a.Verdict("/"); v != want {
		t.Errorf("Verdict = %+v", v)
	}
	if v, closed := a.DisallowsAll(); v != want || !closed {
		t.Errorf("DisallowsAll() = %+v, %v", v, closed)
	}
	if d, ok := a.CrawlDelay(); ok || a.Token() != "" {
		t.Errorf("CrawlDelay() = %v, Token() = %q", d, a.Token())
	}
	if _, ok := a.RequestRate(); ok {
		t.Error("it has a Request-rate")
	}
	if e := a.Explain("/"); e.Verdict != want || e.Why != ReasonTooComplex || len(e.Matches)+len(e.OtherAgents) > 0 {
		t.Errorf("Explain = %+v", e)
	}
}
