package rules_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/robotsproxy/robotsproxy/rules"
)

// file draws a file of groups with letters as agents, and patterns from a generator.
func file(t *rapid.T, pattern *rapid.Generator[string]) string {
	var b strings.Builder
	for range rapid.IntRange(1, 4).Draw(t, "groups") {
		for _, agent := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab", "*"}), 1, 3).Draw(t, "agents") {
			b.WriteString("User-agent: " + agent + "\n")
		}
		for range rapid.IntRange(0, 5).Draw(t, "rules") {
			key := rapid.SampledFrom([]string{"Allow", "Disallow"}).Draw(t, "key")
			b.WriteString(key + ": " + pattern.Draw(t, "pattern") + "\n")
		}
		b.WriteString(rapid.SampledFrom([]string{"", "\n", "Crawl-delay: 1\n", "Sitemap: /s\n"}).Draw(t, "end"))
	}
	return b.String()
}

// TestGoogleDiffersWhereDocumented checks that DialectGoogle equals RFC 9309 for files without the differences that its
// comment lists.
func TestGoogleDiffersWhereDocumented(t *testing.T) {
	pattern := rapid.StringMatching(`[/*]([ab/.*?$]|\*\*){0,6}\$?`)
	path := rapid.StringMatching(`/[ab/.?]{0,8}`)
	rapid.Check(t, func(t *rapid.T) {
		body, agent, target := file(t, pattern), rapid.SampledFrom([]string{"a", "b", "c", "AB", "*"}).Draw(t, "agent"), path.Draw(t, "path")
		rfc := rules.Parse([]byte(body), rules.Options{}).Agent(agent).Verdict(target)
		google := rules.Parse([]byte(body), rules.Options{Dialect: rules.DialectGoogle}).Agent(agent).Verdict(target)
		if rfc != google {
			t.Fatalf("Agent(%q).Verdict(%q) = %+v, in google %+v, of\n%s", agent, target, rfc, google, body)
		}
	})
}

// TestFirstMatch compares the dialects in which the first rule decides with a linear search.
func TestFirstMatch(t *testing.T) {
	pattern := rapid.StringMatching(`/[ab/]{0,4}`)
	path := rapid.StringMatching(`/[ab/]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString("User-agent: *\n")
		target, line, allowed := path.Draw(t, "path"), 0, true
		for n := range rapid.IntRange(1, 30).Draw(t, "rules") {
			p, allow := pattern.Draw(t, "pattern"), rapid.Bool().Draw(t, "allow")
			b.WriteString(map[bool]string{true: "Allow: ", false: "Disallow: "}[allow] + p + "\n")
			if line == 0 && strings.HasPrefix(target, p) {
				line, allowed = n+2, allow
			}
		}
		for _, d := range []rules.Dialect{rules.DialectRobotstxtRB, rules.DialectRobotsCR, rules.DialectMK1996, rules.DialectGYM2008} {
			got := rules.Parse([]byte(b.String()), rules.Options{Dialect: d}).Agent("x").Verdict(target)
			if got.Line != line || got.Allowed != allowed {
				t.Fatalf("in %v: Verdict(%q) = %+v, want %v by line %d of\n%s", d, target, got, allowed, line, b.String())
			}
		}
	})
}

// TestEndBeforeQuery compares "$", in the dialects in which it also matches before a query, with a pattern without it.
func TestEndBeforeQuery(t *testing.T) {
	pattern := rapid.StringMatching(`/[ab*]{0,5}[ab]`)
	path := rapid.StringMatching(`/[ab]{0,4}(\?[ab?]{0,4})?`)
	rapid.Check(t, func(t *rapid.T) {
		p, target := pattern.Draw(t, "pattern"), path.Draw(t, "path")
		matches := func(p, target string) bool {
			set := rules.Parse([]byte("User-agent: *\nDisallow: "+p+"\n"), rules.Options{Dialect: rules.DialectGYM2008})
			return !set.Agent("x").Verdict(target).Allowed
		}
		want := matches(p+"$", target)
		for i := range target {
			want = want || target[i] == '?' && matches(p+"$", target[:i])
		}
		set := rules.Parse([]byte("User-agent: *\nDisallow: "+p+"$\n"), rules.Options{Dialect: rules.DialectRobotstxtRB})
		if got := !set.Agent("x").Verdict(target).Allowed; got != want {
			t.Fatalf("Disallow: %s$ matches %q: %v, want %v", p, target, got, want)
		}
	})
}
