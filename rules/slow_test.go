package rules_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/rules"
)

// This file compares the engine with a slow and obviously correct one, which follows RFC 9309 section 2.2.2 literally.

// slowRule is a rule with its line in the file.
type slowRule struct {
	line    int
	allow   bool
	pattern string
}

// slowVerdict returns the rule that decides, or nil.
func slowVerdict(all []slowRule, target string) (best *slowRule) {
	path := slowPath(target)
	if strings.Join(path, "") == "/robots.txt" {
		return nil
	}
	for i := range all {
		r := &all[i]
		if r.pattern == "" || !slowMatch(r.pattern, path) {
			continue
		}
		if best == nil || slowOctets(r.pattern) > slowOctets(best.pattern) ||
			slowOctets(r.pattern) == slowOctets(best.pattern) && r.allow && !best.allow {
			best = r
		}
	}
	return best
}

// slowMatch follows all possible matches of the pattern at once: at marks the positions that are reachable.
func slowMatch(pattern string, path []string) bool {
	pattern, ends := strings.CutSuffix(pattern, "$")
	at := make([]bool, len(path)+1)
	at[0] = true
	for _, unit := range slowUnits(pattern, true) {
		next := make([]bool, len(path)+1)
		for i := range at {
			switch {
			case !at[i]:
			case unit == "*":
				for j := i; j <= len(path); j++ {
					next[j] = true
				}
			case i < len(path) && path[i] == unit:
				next[i+1] = true
			}
		}
		at = next
	}
	if ends {
		return at[len(path)]
	}
	return slices.Contains(at, true)
}

// slowOctets returns the length of a pattern after normalising, with "*" and "$" as written.
func slowOctets(pattern string) int {
	n := 0
	for _, unit := range slowUnits(strings.ReplaceAll(pattern, "$", "*"), true) {
		n += len(unit)
	}
	return n
}

// slowPath returns the units of a target that is a path.
func slowPath(target string) []string {
	target, _, _ = strings.Cut(target, "#")
	if !strings.HasPrefix(target, "/") {
		target = "/" + target
	}
	return slowUnits(target, false)
}

// slowUnits splits s into the bytes of its normal form. An escape has three, and only a wildcard is "*".
func slowUnits(s string, wildcards bool) (units []string) {
	const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	const reserved = ":/?#[]@!&'()+,;="
	for len(s) > 0 {
		c := s[0]
		if c == '%' && len(s) >= 3 && isHex(s[1]) && isHex(s[2]) {
			value, _ := strconv.ParseUint(s[1:3], 16, 8)
			c, s = byte(value), s[3:]
			if !strings.Contains(unreserved, string(rune(c))) {
				units = append(units, escape(c)...)
				continue
			}
		} else {
			s = s[1:]
		}
		if wildcards && c == '*' || c < 0x80 && strings.Contains(unreserved+reserved, string(rune(c))) {
			units = append(units, string(rune(c)))
		} else {
			units = append(units, escape(c)...)
		}
	}
	return units
}

func escape(c byte) []string { return strings.Split(fmt.Sprintf("%%%02X", c), "") }

func isHex(c byte) bool { return strings.Contains("0123456789abcdefABCDEF", string(rune(c))) }

func TestSlowMatcher(t *testing.T) {
	tests := []struct {
		pattern, path string
		match         bool
		octets        int
	}{
		{"/a", "/ab", true, 2},
		{"/a$", "/ab", false, 3},
		{"/*b$", "/abb", true, 4},
		{"/a%2fb", "/a%2Fb", true, 6},
		{"/a%2fb", "/a/b", false, 6},
		{"/%61", "/a", true, 2},
		{"/a%2A", "/a*", true, 5},
		{"/a$b", "/a%24b", true, 4},
		{"/ツ", "/%e3%83%84", true, 10},
		{"/%", "/%25", true, 4},
	}
	for _, tt := range tests {
		if got := slowMatch(tt.pattern, slowPath(tt.path)); got != tt.match {
			t.Errorf("slowMatch(%q, %q) = %v, want %v", tt.pattern, tt.path, got, tt.match)
		}
		if got := slowOctets(tt.pattern); got != tt.octets {
			t.Errorf("slowOctets(%q) = %d, want %d", tt.pattern, got, tt.octets)
		}
	}
}

// generator makes files and paths from few pieces, so that they often match.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) generator { return generator{rand.New(rand.NewPCG(seed, 9309))} }

func (g generator) pick(from ...string) string { return from[g.IntN(len(from))] }

func (g generator) pattern() string {
	var b strings.Builder
	b.WriteString(g.pick("/", "/", "/", "/", "*", "", "//"))
	for range g.IntN(7) {
		b.WriteString(g.pick("a", "b", "ab", "/", "*", "*", "**", "$", "%61", "%62", "%2F", "%2f", "%2A", "%24", "%", "%4",
			"ツ", "%E3%83%84", "\xE3", " ", "?", "."))
	}
	b.WriteString(g.pick("", "", "", "$", "*", "*$"))
	return strings.TrimSpace(b.String())
}

func (g generator) path() string {
	var b strings.Builder
	b.WriteString("/")
	for range g.IntN(9) {
		b.WriteString(g.pick("a", "b", "ab", "/", "a", "b", "*", "$", "%61", "%42", "%2F", "%2f", "%2A", "%24", "%", "%4",
			"ツ", "%e3%83%84", "\xE3", " ", "?", ".", "#"))
	}
	return b.String()
}

// file returns a file of several groups, and the rules of each of three agents.
func (g generator) file() (body string, held map[string][]slowRule) {
	var b strings.Builder
	held = map[string][]slowRule{}
	line := 0
	write := func(format string, args ...any) {
		fmt.Fprintf(&b, format+"\n", args...)
		line++
	}
	for range 1 + g.IntN(4) {
		var agents []string
		for range 1 + g.IntN(3) {
			agents = append(agents, g.pick("a", "b", "c"))
			write("User-agent: %s", agents[len(agents)-1])
		}
		slices.Sort(agents)
		for range 1 + g.IntN(6) {
			allow, pattern := g.IntN(2) == 0, g.pattern()
			write("%s: %s", map[bool]string{true: "Allow", false: "Disallow"}[allow], pattern)
			for _, agent := range slices.Compact(agents) {
				held[agent] = append(held[agent], slowRule{line, allow, pattern})
			}
		}
	}
	return b.String(), held
}

func TestVerdictEqualsSlowMatcher(t *testing.T) {
	files, paths := 5000, 20
	if testing.Short() {
		files = 600
	}
	g := generator{rand.New(rand.NewPCG(9309, 2022))}
	decided := 0
	for range files {
		body, held := g.file()
		set := rules.Parse([]byte(body), rules.Options{})
		for range paths {
			agent, path := g.pick("a", "b", "c"), g.path()
			got := set.Agent(agent).Verdict(path)
			want := rules.Verdict{Allowed: true}
			if r := slowVerdict(held[agent], path); r != nil {
				want.Allowed, want.Line = r.allow, r.line
				decided++
			}
			if got.Allowed != want.Allowed || got.Line != want.Line {
				t.Fatalf("Agent(%q).Verdict(%q) = %+v, want Allowed %v by line %d in\n%s", agent, path, got, want.Allowed, want.Line, body)
			}
		}
	}
	if decided < files*paths/4 {
		t.Errorf("only %d of %d paths were decided by a rule: the cases are too far apart", decided, files*paths)
	}
}

// TestLargeGroupEqualsSlowMatcher does the same for groups of many rules with long common prefixes.
func TestLargeGroupEqualsSlowMatcher(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(2022, 9309))}
	for range 20 {
		body := "User-agent: *\n"
		all := []slowRule{{line: 1}}
		for len(all) < 300 {
			pattern := all[g.IntN(len(all))].pattern
			if pattern = pattern[:g.IntN(len(pattern)+1)]; pattern == "" {
				pattern = "/"
			}
			pattern += strings.Repeat(g.pick("a", "b"), g.IntN(12)) + g.pick("a", "b", "/", "%C3%A9", "*", "$")
			all = append(all, slowRule{len(all) + 1, g.IntN(2) == 0, pattern})
			body += map[bool]string{true: "Allow: ", false: "Disallow: "}[all[len(all)-1].allow] + pattern + "\n"
		}
		agent := rules.Parse([]byte(body), rules.Options{}).Agent("*")
		for range 20 {
			path := strings.Trim(all[1+g.IntN(len(all)-1)].pattern, "$") + g.pick("", "a", "b", "/")
			want := slowVerdict(all, path)
			if got := agent.Verdict(path); want == nil && got.Line != 0 || want != nil && got.Line != want.line {
				t.Fatalf("Verdict(%q) = %+v, want %+v in\n%s", path, got, want, body)
			}
		}
	}
}
