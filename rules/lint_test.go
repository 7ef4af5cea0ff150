package rules_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/rules"
)

func lint(robots string) []rules.Finding {
	return rules.Lint([]byte(robots), rules.Options{})
}

// at returns the places, "line:column", of the findings with a code.
func at(findings []rules.Finding, code string) (places []string) {
	for _, f := range findings {
		if f.Code == code {
			places = append(places, fmt.Sprintf("%d:%d", f.Line, f.Column))
		}
	}
	return places
}

const star = "User-agent: *\n"

// long exceeds the limit of a line, and large that of a file.
var (
	long  = strings.Repeat("x", 17<<10)
	large = strings.Repeat("#23456789\n", 60_000)
)

// lintTests have, for each code, a file with the finding and a similar file without it.
var lintTests = []struct {
	code, bad, at, good string
}{
	{"html-page", "\n <!DOCTYPE html>\n<p>Disallow: /\n", "1:1", "#<!DOCTYPE html>\n" + star + "Disallow: /\n"},
	{"html-page", "<pre>\n" + star + "Disallow: /\n</pre>\n", "1:1", star + "Disallow: /\n<pre>\n"},
	{"too-large", large + "Disallow: /\n", "51200:1", large[:500<<10]},
	{"utf-16", utf16("User-agent: *\nDisallow: /\n", false), "1:1", star + "Disallow: /ÿþ\n"},
	{"utf-16", utf16("User-agent: *\nDisallow: /\n", true), "1:1", star},
	{"not-utf-8", star + "Disallow: /\xFC # \xFC\n# \xFC\n", "2:12", star + "# \xFC\nDisallow: / # \xFC\n"},
	{"not-utf-8", star + "Disallow: /ü\xFC\n", "2:13", star + "Disallow: /ü\uFFFD\n"},
	{"not-utf-8", star + "Disallow: /" + long[:16<<10-12] + "ü" + long[:1<<10] + "\xFC\n", "", star},
	{"byte-order-mark", "\uFEFF" + star, "1:1", star},
	{"nul", star + "# \x00\nDisallow: /\x00#\n", "3:12", star + "Disallow: / # \x00\n"},
	{"nul", star + "Disallow: /\x00a\n", "2:12", star + "Disallow: /0\n"},
	{"line-too-long", star + "Disallow: /" + long + "#\n", "2:16385", star + "Disallow: / #" + long + "\n#" + long + "\n"},
	{"line-too-long", star + "Disallow: /" + long + "\r\n", "2:16385", star + "Disallow: /" + long[:16<<10-11] + "\r\n"},
	{"too-complex", star + strings.Repeat("Allow: /*a\n", 25_000), "20835:1", star + strings.Repeat("Allow: /*a\n", 20_000)},
	{"too-complex", star + strings.Repeat("Allow: /"+strings.Repeat("*a", 8000)+"\n", 30), "20:1", star + strings.Repeat("Allow: /a\n", 25_000)},
	{"missing-colon", star + "Disallow /a\n", "2:9", star + "Disallow: /a\n"},
	{"missing-colon", "User-agent\n", "1:11", "user agent: *\n"},
	{"missing-colon", star + " Disallow /a b:c\n", "2:10", star + "Disallow : /a\n"},
	{"no-field", star + "Please stay out\n", "2:1", star + "# Please stay out\n"},
	{"misspelt-field", star + "Dissallow: /a\n", "2:1", star + "DISALLOW: /a\n"},
	{"misspelt-field", star + "  disallows: /a\n", "2:3", star + "clean-param: a\n"},
	{"misspelt-field", star + "Disallow\u00a0: /a\n", "2:1", star + "Disallow: /\u00a0a\n"},
	{"misspelt-field", star + "Allow-everyone-here: /a\n", "2:1", star + "Everyone-allowed-here: /a\n"},
	{"misspelt-field", "user agent: a\n", "1:1", "user-agent: a\n"},
	{"misspelt-field", "User_Agent: a\n", "1:1", "Host: a\n"},
	{"misspelt-field", star + "Sitemaps: https://a.example/s\n", "2:1", star + "Sitemap: https://a.example/s\n"},
	{"unknown-field", star + "Colour: red\n", "2:1", star + "Host: site.example\n"},
	{"unknown-field", star + ": red\n", "2:1", star + "Content-Signal: search=yes\n"},
	{"noindex", star + "Noindex: /a\n", "2:1", star + "Disallow: /a\n"},
	{"fields-glued", star + "Disallow: /aDisallow: /b\n", "2:13", star + "Disallow: /a\nDisallow: /b\n"},
	{"fields-glued", star + "Crawl-delay: 5 Disallow: /\n", "2:16", star + "Disallow: /?allow:\n"},
	{"fields-glued", "User-agent: a Disallow: /\n", "1:15", star + "Disallow: /disallow:a\n"},
	{"fields-glued", "User-agent: a Crawl-delay: 5 disallow : /\n", "1:15 1:30", "User-agent: a # Disallow: /\n"},
	{"fields-glued", "User-agent: * Allow: /\n", "1:15", "User-agent: a/Disallow:\n"},
	{"path-without-slash", "User-agent: a Disallow: b\n", "1:25", "User-agent: a Disallow: /b\n"},
	{"outside-group", "Crawl-delay: 1 Disallow: /\n", "1:1", "User-agent: a Crawl-delay: 1 Disallow: /\n"},
	{"outside-group", "Disallow: /a\n" + star, "1:1", star + "Disallow: /a\n"},
	{"outside-group", "Crawl-delay: 1\n", "1:1", "Sitemap: https://a.example/s\n"},
	{"agent-empty", "User-agent:\nDisallow: /a\n", "1:1", star},
	{"agent-not-token", "User-agent: Googlebot/2.1\n", "1:22", "User-agent: Googlebot-Image\n"},
	{"agent-not-token", "User-agent: (all)\n", "1:13", star},
	{"agent-not-token", "User-agent: * (all)\n", "1:14", star},
	{"agent-repeated", "User-agent: a\nDisallow: /a\nUser-agent: A\nDisallow: /b\n", "3:13", "User-agent: a\nDisallow: /a\nDisallow: /b\n"},
	{"agent-repeated", "User-agent: a\nUser-agent: a\n", "2:13", "User-agent: a\nUser-agent: b\n"},
	{"star-among-names", "User-agent: a\nUser-agent: *\nDisallow: /\n", "2:13", "User-agent: a\nDisallow: /\n" + star + "Disallow: /\n"},
	{"group-split-by-blank-line", star + "Disallow: /a\n\t\n# and\nDisallow: /b\n", "5:1", star + "Disallow: /a\n# and\nDisallow: /b\n"},
	{"group-split-by-blank-line", star + "\nDisallow: /b\n\nDisallow: /c\n", "3:1", "\n" + star + "Disallow: /b\n\nSitemap: https://a.example/s\n"},
	{"group-split-by-blank-line", "User-agent: a\n\nUser-agent: b\nDisallow: /\n", "3:1", "User-agent: a\nDisallow: /\n\nUser-agent: b\n"},
	{"group-not-split", "User-agent: a\nCrawl-delay: 5\nUser-agent: b\nDisallow: /\n", "3:1", "User-agent: a\nDisallow:\nCrawl-delay: 5\nUser-agent: b\nDisallow: /\n"},
	{"group-not-split", star + "Sitemap: https://a.example/s\nUser-agent: b\n", "3:1", "Sitemap: https://a.example/s\n" + star},
	{"path-without-slash", star + "Disallow: a/\n", "2:11", star + "Disallow: *a/\n"},
	{"path-without-slash", star + "Disallow: https://a.example/b\n", "2:11", star + "Disallow:\n"},
	{"space-in-path", star + "Disallow: /a /b\n", "2:13", star + "Disallow: /a # /b\n"},
	{"bad-escape", star + "Disallow: /100%\n", "2:15", star + "Disallow: /100%25\n"},
	{"dollar-in-middle", star + "Disallow: /a$b\n", "2:13", star + "Disallow: /a$\n"},
	{"dollar-in-middle", star + "Disallow: /a$*\n", "2:13", star + "Disallow: /a%24*\n"},
	{"idle-wildcard", star + "Disallow: /a*\n", "2:13", star + "Disallow: /a\n"},
	{"idle-wildcard", star + "Disallow: /a*$\n", "2:13", star + "Disallow: /*a$\n"},
	{"idle-wildcard", star + "Disallow: /a**b\n", "2:14", star + "Disallow: /a*b\n"},
	{"duplicate-rule", star + "Disallow: /a\nDisallow: /%61 # a\n", "3:1", star + "Disallow: /a\nDisallow: /A\n"},
	{"duplicate-rule", star + "Disallow: /a\nUser-agent: b\nAllow: /a\n" + star + "Disallow: /a\n", "6:1", star + "Disallow: /a\nUser-agent: b\nDisallow: /a\n"},
	{"contradicting-rules", star + "Disallow: /a\nAllow: /a*\n", "3:1", star + "Disallow: /a\nAllow: /a$\n"},
	{"contradicting-rules", star + "Disallow: /a\nAllow: /a\n", "3:1", star + "Disallow: /a\nUser-agent: b\nAllow: /a\n"},
	{"unreachable-rule", star + "Disallow: /x.pdf\nAllow: /*.pdf\n", "2:1", star + "Disallow: /xx.pdf\nAllow: /*.pdf\n"},
	{"unreachable-rule", star + "Allow: /*a*b*c\nDisallow: /a*b*c\n", "3:1", star + "Allow: /*a*b*c\nDisallow: /a*c*b\n"},
	{"unreachable-rule", star + "Disallow: /ab$\nAllow: /a****\n", "2:1", star + "Disallow: /ba$\nAllow: /a****\n"},
	{"unreachable-rule", star + "Disallow: /a*b$\nAllow: /*a***b\n", "2:1", star + "Disallow: /a*b\nAllow: /*a***b$\n"},
	{"crawl-delay-not-number", star + "Crawl-delay: soon\n", "2:14", star + "Crawl-delay: 0.5\n"},
	{"crawl-delay-not-number", star + "Crawl-delay: 10s\n", "2:16", star + "Crawl-delay: 10 # s\n"},
	{"crawl-delay-not-number", star + "Crawl-delay:\n", "2:13", star + "Crawl-delay: 1.\n"},
	{"crawl-delay-not-number", star + "Crawl-delay: -1\n", "2:14", star + "Crawl-delay: 1\n"},
	{"sitemap-not-absolute", "Sitemap: /sitemap.xml\n", "1:10", "Sitemap: https://a.example/sitemap.xml\n"},
	{"sitemap-not-absolute", "Sitemap: https:///a\n", "1:10", "Sitemap: HTTP://A.EXAMPLE/\n"},
	{"reading-wildcard", star + "Disallow: /a*b\nDisallow: /c*d\n", "2:13", star + "Disallow: /a\n"},
	{"reading-allow", star + "Allow: /a\n", "2:1", star + "Disallow: /a\n"},
	{"reading-empty-allow", star + "Allow:\nDisallow: /a\n", "2:1", star + "Allow: /b\nDisallow: /a\n"},
	{"reading-empty-disallow", star + "Disallow:\nDisallow: /a\n", "2:1", star + "Disallow:\nUser-agent: b\nDisallow: /a\n"},
	{"reading-first-match", star + "Disallow: /\nAllow: /a\n", "3:1", star + "Allow: /a\nDisallow: /\n"},
	{"reading-first-match", star + "Allow: /a\nDisallow: /a/b*c\n", "3:1", star + "Disallow: /a\nAllow: /\nDisallow: /a/b\n"},
	{"reading-star-first", star + "Disallow: /a\nUser-agent: b\nDisallow:\n", "1:13", "User-agent: b\nDisallow:\n" + star + "Disallow: /a\n"},
	{"reading-comment", star + "Disallow: /a#b\n", "2:13", star + "Disallow: /a #b\n"},
	{"reading-escape", star + "Disallow: /%7Ejoe\n", "2:12", star + "Disallow: /~joe%2Fa\n"},
	{"reading-escape", star + "Disallow: /a%3Ab\n", "2:13", star + "Disallow: /a:b%20\n"},
	{"reading-escape", star + "Disallow: /a%2Ab\n", "2:13", star + "Disallow: /a%2Fb\n"},
	{"reading-escape", star + "Disallow: /a%3Fb\n", "2:13", star + "Disallow: /a?b\n"},
	{"reading-index", star + "Allow: /a/index.html\n", "2:10", star + "Disallow: /a/index.html\n"},
	{"reading-token", "User-agent: MJ12bot\n", "1:13", "User-agent: MJ_bot\n"},
}

func TestLint(t *testing.T) {
	tested := map[string]bool{}
	for _, tt := range lintTests {
		tested[tt.code] = true
		t.Run(tt.code, func(t *testing.T) {
			bad := lint(tt.bad)
			if got := strings.Join(at(bad, tt.code), " "); got != tt.at {
				t.Errorf("Lint() has %s at %q, want %q\n%.200q\n%v", tt.code, got, tt.at, tt.bad, bad)
			}
			if got := at(lint(tt.good), tt.code); got != nil {
				t.Errorf("Lint() has %s at %q, want none\n%.200q", tt.code, got, tt.good)
			}
		})
	}
	for _, c := range rules.Checks() {
		if !tested[c.Code] {
			t.Errorf("no test has %s", c.Code)
		}
	}
}

// TestLintFindsNothing checks that lint finds nothing in files that are correct and read alike by all dialects.
func TestLintFindsNothing(t *testing.T) {
	for _, robots := range []string{
		"",
		"# nothing\n\n",
		star + "Disallow:\n",
		"User-agent: NewsBot\nUser-agent: Other-Bot\nDisallow: /private/ # not for you\r\nCrawl-delay: 2.5\r\n\r\n" +
			"user-agent: *\nDisallow: /a\nDisallow: /b/%20c\nDisallow: /ツ\n\nSitemap: https://site.example/sitemap.xml\nHost: site.example",
	} {
		if got := lint(robots); len(got) > 0 {
			t.Errorf("Lint() = %+v, want nothing\n%s", got, robots)
		}
	}
}

// TestLintOfPage checks the number of rules that the finding of a web page names.
func TestLintOfPage(t *testing.T) {
	for robots, want := range map[string]string{
		"<html>\n<p>User-agent: *\nDisallow: /\n":                                "This is a web page, and it has no rules",
		"<pre>\nUser-agent: *\nDisallow: /\n":                                    "This is a web page, and crawlers apply the rule in line 3",
		"<a href=/x>x</a>\nUser-agent: a\nUser-agent: b\nDisallow: /a\nAllow: /": "This is a web page, and crawlers apply the 2 rules in it",
	} {
		if got := lint(robots); len(got) != 1 || got[0].Message != want {
			t.Errorf("Lint() = %+v, want %q alone\n%s", got, want, robots)
		}
	}
}

func TestLintFinding(t *testing.T) {
	got := lint("\uFEFFUser-agent: *\nDissallow: /ü$x\nDisallow: /a\nAllow: /a\n")
	want := []rules.Finding{
		{1, 1, "byte-order-mark", rules.SeverityWarning, "The file begins with a byte order mark, and crawlers that do not expect one miss the first line", "Save the file as UTF-8 without a byte order mark."},
		{2, 1, "misspelt-field", rules.SeverityError, `"Dissallow" is not "Disallow", and only lenient crawlers read it as that`, `Write "Disallow".`},
		{2, 14, "dollar-in-middle", rules.SeverityWarning, `"$" means the end of a path only at the end of a rule; here it is an ordinary character`, `Remove the text after it, or write "%24" for a dollar sign.`},
		{2, 14, "reading-wildcard", rules.SeverityInfo, "This character is a wildcard, but an ordinary character in www-robotrules and mk1996", "Write prefixes if you need such crawlers."},
		{4, 1, "contradicting-rules", rules.SeverityWarning, `Line 3 has the opposite rule for the same paths, "Disallow: /a"; line 4 wins, since Allow wins a tie`, "Remove one of the two."},
		{4, 1, "reading-allow", rules.SeverityInfo, "Allow is unknown in www-robotrules, and is ignored", "Do not rely on Allow alone."},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Lint() differs (-want +got):\n%s", diff)
	}
}

// TestLintDialect checks that with Options.Dialect only the readings of that dialect are reported.
func TestLintDialect(t *testing.T) {
	const robots = "User-agent: MJ12bot\nDisallow: /\nAllow: /*a#b\n"
	for _, tt := range []struct {
		dialect rules.Dialect
		want    string
	}{
		{rules.DialectGoogle, "reading-token"},
		{rules.DialectRobotstxtRB, "reading-comment reading-first-match"},
		{rules.DialectWWWRobotRules, "reading-allow reading-first-match reading-wildcard"},
		{rules.DialectGYM2008, "reading-first-match"},
	} {
		var got []string
		for _, f := range rules.Lint([]byte(robots), rules.Options{Dialect: tt.dialect}) {
			got = append(got, f.Code)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%v: Lint() has %q, want %q", tt.dialect, got, tt.want)
		}
	}
}

// TestReadingsAreTrue checks that exactly the dialects that a finding names give another verdict than RFC 9309.
func TestReadingsAreTrue(t *testing.T) {
	tests := []struct{ code, robots, agent, paths string }{
		{"reading-wildcard", star + "Disallow: /a*b\n", "x", "/axb"},
		{"reading-wildcard", star + "Disallow: /a$\n", "x", "/a"},
		{"reading-allow", star + "Allow: /a/b\nDisallow: /a\n", "x", "/a/b"},
		{"reading-empty-allow", star + "Allow:\nDisallow: /a\n", "x", "/a /b"},
		{"reading-empty-disallow", star + "Disallow:\nDisallow: /a\n", "x", "/a"},
		{"reading-first-match", star + "Disallow: /\nAllow: /a\n", "x", "/a"},
		{"reading-star-first", star + "Disallow: /a\nUser-agent: b\nDisallow: /b\n", "b", "/a /b"},
		{"reading-comment", star + "Disallow: /a#b\n", "x", "/a"},
		{"reading-escape", star + "Disallow: /%7Ejoe\n", "x", "/~joe"},
		{"reading-escape", star + "Disallow: /a%3Ab\n", "x", "/a:b"},
		{"reading-escape", star + "Disallow: /a%3Fb\n", "x", "/a?b"},
		{"reading-escape", star + "Disallow: /a%2Ab\n", "x", "/axb"},
		{"reading-index", star + "Allow: /a/index.html\nDisallow: /a/\n", "x", "/a/"},
		{"reading-token", "User-agent: MJ12bot\nDisallow: /\n", "MJ12bot", "/"},
		{"agent-repeated", "User-agent: a\nDisallow: /a\nUser-agent: a\nDisallow: /b\n", "a", "/b"},
		{"agent-repeated", star + "Disallow: /a\nUser-agent: *\nDisallow: /b\n", "x", "/b"},
		{"reading-first-match", star + "Allow: /a\nDisallow: /ab\n", "x", "/ab"},
		{"group-split-by-blank-line", "User-agent: a\nDisallow: /a\n\nDisallow: /b\n", "a", "/b"},
		{"group-not-split", "User-agent: a\nCrawl-delay: 5\nUser-agent: b\nDisallow: /\n", "a", "/"},
		{"outside-group", "Disallow: /a\nUser-agent: b\nDisallow: /b\n", "a", "/a"},
	}
	for _, tt := range tests {
		t.Run(tt.code, func(t *testing.T) {
			i := slices.IndexFunc(lint(tt.robots), func(f rules.Finding) bool { return f.Code == tt.code })
			if i < 0 {
				t.Fatalf("Lint() has no %s\n%s", tt.code, tt.robots)
			}
			var said, differ []string
			message := lint(tt.robots)[i].Message
			standard := rules.Parse([]byte(tt.robots), rules.Options{}).Agent(tt.agent)
			for _, d := range rules.Dialects()[1:] {
				if regexp.MustCompile(`\b` + d.String() + `\b`).MatchString(message) {
					said = append(said, d.String())
				}
				agent := rules.Parse([]byte(tt.robots), rules.Options{Dialect: d}).Agent(tt.agent)
				if slices.ContainsFunc(strings.Fields(tt.paths), func(path string) bool {
					return agent.Verdict(path).Allowed != standard.Verdict(path).Allowed
				}) {
					differ = append(differ, d.String())
				}
			}
			if diff := cmp.Diff(differ, said); diff != "" {
				t.Errorf("%s; the verdicts on %s differ otherwise (-verdicts +said):\n%s%s", message, tt.paths, diff, tt.robots)
			}
		})
	}
}

// TestMisspelt checks which names are similar to that of a field, by the letters that are added, omitted, replaced or
// swapped.
func TestMisspelt(t *testing.T) {
	for name, want := range map[string]string{
		"Disalllow": "Disallow", "Dsallow": "Disallow", "Dizallow": "Disallow", "iDsallow": "Disallow", "Disallwo": "Disallow",
		"Dizallaw": "Disallow", "Disllaow": "Disallow", "Dizzallaw": "",
		"Allo": "Allow", "lAlow": "Allow", "Allwo": "Allow", "Alo": "", "Ollaw": "", "Alw": "",
		"Uzer-agend": "User-agent", "Uzer-agendd": "", "Ser-agen": "User-agent",
		"Sitmap": "Sitemap", "Sytemepp": "", "Krawl-deley": "Crawl-delay", "Krawl-delej": "", "Krawl-delay-in-secs": "",
	} {
		got := ""
		for _, f := range lint(star + name + ": /a\n") {
			if f.Code == "misspelt-field" {
				got = strings.Trim(strings.TrimPrefix(f.Fix, "Write "), `".`)
			}
		}
		if got != want {
			t.Errorf("%q is found to be %q, want %q", name, got, want)
		}
	}
}

func TestSeverity(t *testing.T) {
	for s, want := range map[rules.Severity]string{rules.SeverityInfo: "info", rules.SeverityWarning: "warning", rules.SeverityError: "error"} {
		if text, err := s.MarshalText(); s.String() != want || string(text) != want || err != nil {
			t.Errorf("Severity(%d) is %q, %q, %v, want %q", s, s, text, err, want)
		}
	}
}

// TestUnreachableIsTrue checks, for random files, that a rule that is reported as unreachable never decides, and that a
// rule without a finding decides for a path that is made from it.
func TestUnreachableIsTrue(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 2))
	some := func(from string, most int) string {
		b := make([]byte, random.IntN(most))
		for i := range b {
			b[i] = from[random.IntN(len(from))]
		}
		return string(b)
	}
	reported := 0
	for range 20_000 {
		lines := []string{"User-agent: *"}
		for range 1 + random.IntN(5) {
			kind := []string{"Allow: /", "Disallow: /"}[random.IntN(2)]
			lines = append(lines, kind+some("ab**$", 6))
		}
		robots := strings.Join(lines, "\n")
		idle, spoken := map[int]bool{}, map[int]bool{}
		for _, f := range lint(robots) {
			switch f.Code {
			case "unreachable-rule":
				idle[f.Line] = true
				reported++
			case "duplicate-rule", "contradicting-rules":
				spoken[f.Line] = true
				line := regexp.MustCompile(`^Line (\d+) `).FindStringSubmatch(f.Message)[1]
				n, _ := strconv.Atoi(line)
				spoken[n] = true
			}
		}
		agent := rules.Parse([]byte(robots), rules.Options{}).Agent("*")
		for range 20 {
			path := "/" + some("abc", 8)
			if v := agent.Verdict(path); idle[v.Line] {
				t.Fatalf("Verdict(%q) = %+v, decided by a rule that is reported as unreachable\n%s", path, v, robots)
			}
		}
		for i, line := range lines[1:] {
			_, pattern, _ := strings.Cut(line, ": ")
			pattern, ends := strings.CutSuffix(pattern, "$")
			path := strings.NewReplacer("*", "!", "$", "%24").Replace(pattern)
			if !ends {
				path += "!"
			}
			if v := agent.Verdict(path); v.Line != i+2 && !idle[i+2] && !spoken[i+2] {
				t.Fatalf("Verdict(%q) = %+v: %q seems unreachable, and is not reported\n%s", path, v, line, robots)
			}
		}
	}
	if reported < 1000 {
		t.Errorf("only %d rules were reported", reported)
	}
}

// TestLintIsLinear compares files with others of eight times their size, as TestCostIsLinear does.
func TestLintIsLinear(t *testing.T) {
	if testing.Short() {
		t.Skip("measures time")
	}
	numbered := func(format string) func(n int) string {
		return func(n int) string {
			var b strings.Builder
			b.WriteString(star)
			for i := range n {
				fmt.Fprintf(&b, format, i)
			}
			return b.String()
		}
	}
	tests := []struct {
		name string
		file func(n int) string
	}{
		{"wildcards that cover nothing", numbered("Disallow: /*a%d*b\n")},
		{"long wildcards", func(n int) string {
			return star + strings.Repeat("Disallow: /*"+strings.Repeat("a*", 100)+"b\nAllow: /"+strings.Repeat("a", 200)+"\n", n/8)
		}},
		{"prefixes of each other", func(n int) string {
			var b strings.Builder
			b.WriteString(star)
			for i := range n {
				b.WriteString("Disallow: /" + strings.Repeat("a", i%512) + "\nAllow: /" + strings.Repeat("a", i%512) + "*b\n")
			}
			return b.String()
		}},
		{"the same rule", numbered("Disallow: /a # %d\n")},
		{"findings in one line", func(n int) string { return star + strings.Repeat("Disallow: $ %*%**\x00\xFF a:", n) }},
		{"agents", func(n int) string { return strings.Repeat("User-agent: a\nUser-agent: b\nCrawl-delay: x\n", n) }},
		{"groups", numbered("User-agent: a%d\nUser-agent: *\nDisallow: /\n")},
		{"misspelt", func(n int) string { return strings.Repeat("Dissallows /a\n", n) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			small, large := []byte(tt.file(1000)), []byte(tt.file(8000))
			opts := rules.Options{MaxSize: 1 << 28}
			ratio := 0.0
			for range 5 {
				ratio = float64(fastestOfThree(func() { rules.Lint(large, opts) })) / float64(fastestOfThree(func() { rules.Lint(small, opts) }))
				if ratio < 24 {
					return
				}
			}
			t.Errorf("eight times the size takes %.1f times as long, want about 8", ratio)
		})
	}
}

func fastestOfThree(f func()) time.Duration {
	least := time.Duration(1 << 62)
	for range 3 {
		start := time.Now()
		f()
		least = min(least, time.Since(start))
	}
	return max(least, 1)
}

// section matches the section of a code in docs/lint.md, with its examples.
var (
	section     = regexp.MustCompile("(?m)^### `([a-z0-9-]+)` \\((\\w+)\\)\n\n(.+)\n(?s:.*?)Bad:\n\n```\n((?s:.*?))```\n\nGood:\n\n```\n((?s:.*?))```\n")
	placeholder = regexp.MustCompile(`\(here (\d+) bytes\)`)
	repetition  = regexp.MustCompile(`(?m)^(.*)\(here (\d+) times\)$`)
)

// TestLintIsDocumented checks that docs/lint.md has every check, with an example that has the finding and one that does
// not.
func TestLintIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/lint.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	var order []string
	for _, m := range section.FindAllStringSubmatch(string(doc), -1) {
		documented[m[1]] = m[2:]
		order = append(order, m[1])
	}
	var codes []string
	for _, c := range rules.Checks() {
		codes = append(codes, c.Code)
		m := documented[c.Code]
		if m == nil {
			continue
		}
		if m[0] != c.Severity.String() || m[1] != c.Summary {
			t.Errorf("%s is documented as %s: %s, and is %v: %s", c.Code, m[0], m[1], c.Severity, c.Summary)
		}
		if got := at(lint(unescaped(t, m[2])), c.Code); got == nil {
			t.Errorf("%s: the bad example is found good\n%s", c.Code, m[2])
		}
		if got := at(lint(unescaped(t, m[3])), c.Code); got != nil {
			t.Errorf("%s: the good example is found bad at %s\n%s", c.Code, got, m[3])
		}
	}
	if diff := cmp.Diff(codes, order); diff != "" {
		t.Errorf("the checks and docs/lint.md differ (-checks +documented):\n%s", diff)
	}
}

// unescaped expands an example: "\xFF" is a byte, "(here 9 bytes)" are 9 bytes, and "(here 9 times)" at the end of a
// line repeats it.
func unescaped(t *testing.T, example string) string {
	t.Helper()
	text, err := strconv.Unquote(`"` + strings.NewReplacer("\n", `\n`, `"`, `\"`).Replace(example) + `"`)
	if err != nil {
		t.Fatalf("%v\n%s", err, example)
	}
	text = repetition.ReplaceAllStringFunc(text, func(s string) string {
		m := repetition.FindStringSubmatch(s)
		n, _ := strconv.Atoi(m[2])
		return strings.Repeat(m[1]+"\n", n)
	})
	return placeholder.ReplaceAllStringFunc(text, func(s string) string {
		n, _ := strconv.Atoi(placeholder.FindStringSubmatch(s)[1])
		return strings.Repeat("x", n)
	})
}

// FuzzLint checks that every finding is complete and within the file.
func FuzzLint(f *testing.F) {
	for _, tt := range lintTests {
		if len(tt.bad) < 1000 {
			f.Add([]byte(tt.bad), uint8(0), 0)
			f.Add([]byte(tt.good), uint8(4), 20)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, dialect uint8, size int) {
		text := string(body)
		if b, ok := strings.CutPrefix(text, "\xEF\xBB\xBF"); ok {
			text = b
		}
		lines := regexp.MustCompile("\r\n|\r|\n").Split(text, -1)
		wide := strings.HasPrefix(text, "\xFF\xFE") || strings.HasPrefix(text, "\xFE\xFF")
		last := rules.Finding{}
		for _, f := range rules.Lint(body, rules.Options{MaxSize: size, Dialect: rules.Dialect(dialect % 7)}) {
			if f.Code == "" || f.Message == "" || f.Fix == "" || strings.HasSuffix(f.Message, ".") || !strings.HasSuffix(f.Fix, ".") {
				t.Errorf("not whole: %+v", f)
			}
			if f.Line < last.Line || f.Line == last.Line && f.Column < last.Column {
				t.Errorf("%+v comes after %+v", f, last)
			}
			last = f
			if f.Line < 1 || f.Column < 1 {
				t.Errorf("in front of the file: %+v", f)
			}
			if !wide && (f.Line > len(lines) || f.Column > utf8.RuneCountInString(lines[f.Line-1])+1) {
				t.Errorf("outside of the file: %+v", f)
			}
		}
	})
}

func BenchmarkLint(b *testing.B) {
	body := site(10_000)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		rules.Lint(body, rules.Options{})
	}
}
