package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/robotsproxy/robotsproxy/rules"
)

// FuzzParse checks that answers are repeatable, and that their lines exist.
func FuzzParse(f *testing.F) {
	f.Add([]byte("User-agent: a\nDisallow: /x*y$\nCrawl-delay: 1.5\nSitemap: /s\n"), "a/1.0", "/xzy")
	f.Add([]byte("User-agent: a Crawl-delay: 5 Disallow: /x\nUser-agent: * x: Allow : /\ndisallows; /"), "a/1.0", "/xzy")
	f.Add([]byte("\xEF\xBB\xBFuser agent *\r\rdisalow /%2a\r\n"), "Mozilla/5.0 (compatible; b)", "https://a.example?%2A")
	f.Add([]byte("\xFF\xFEU\x00s\x00"), "", "")
	f.Fuzz(func(t *testing.T, body []byte, userAgent, target string) {
		set := rules.Parse(body, rules.Options{MaxSize: 1 << 16})
		agent := set.Agent(userAgent)
		got := agent.Verdict(target)
		if again := rules.Parse(body, rules.Options{MaxSize: 1 << 16}).Agent(userAgent).Verdict(target); again != got {
			t.Errorf("Verdict(%q) = %+v, then %+v", target, got, again)
		}
		lines := 1 + strings.Count(string(body), "\n") + strings.Count(string(body), "\r")
		switch {
		case got.Line == 0 && got != (rules.Verdict{Allowed: true}):
			t.Errorf("Verdict(%q) = %+v: decided by no line", target, got)
		case got.Line != 0 && (got.Line > lines || got.Rule == "" || got.Group.Line < 1 || got.Group.Line > got.Line || got.Group.Agents == ""):
			t.Errorf("Verdict(%q) = %+v in a file of %d lines", target, got, lines)
		}
		if delay, ok := agent.CrawlDelay(); delay < 0 || ok && agent.Token() == "" {
			t.Errorf("CrawlDelay() = %v, %v for token %q", delay, ok, agent.Token())
		}
		if limit := 1024 + 16*len(body); set.Size() > limit {
			t.Errorf("Size() = %d for %d octets", set.Size(), len(body))
		}
		if token := rules.ProductToken(userAgent); !strings.Contains(userAgent, token) {
			t.Errorf("ProductToken(%q) = %q", userAgent, token)
		}
	})
}

// one returns the agent of a file with one rule, and whether a line can contain the pattern.
func one(pattern string) (agent rules.Agent, ok bool) {
	if strings.ContainsAny(pattern, "\r\n#\x00\t\v\f") || strings.Trim(pattern, " ") != pattern || len(pattern) > 1000 {
		return agent, false
	}
	return rules.Parse([]byte("User-agent: *\nDisallow: "+pattern+"\n"), rules.Options{}).Agent("*"), true
}

func FuzzVerdictEqualsSlowMatcher(f *testing.F) {
	f.Add("/a*b$", "/ab")
	f.Add("*%2A%61$b", "/*a$b")
	f.Add("/**ab*ba$", "/aba")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		agent, ok := one(pattern)
		if !ok || len(path) > 1000 {
			t.Skip()
		}
		path = "/" + path
		got := agent.Verdict(path)
		if want := slowVerdict([]slowRule{{line: 2, pattern: pattern}}, path) == nil; got.Allowed != want {
			t.Errorf("Disallow: %q: Verdict(%q) = %+v, want Allowed %v", pattern, path, got, want)
		}
	})
}

// FuzzEquivalents checks that equivalent percent-encodings get the same verdict (2.2.2).
func FuzzEquivalents(f *testing.F) {
	f.Add("/a%7Eb*c", "/a~bc")
	f.Add("/ツ$", "/%E3%83%84")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		agent, ok := one(pattern)
		if !ok || len(path) > 1000 {
			t.Skip()
		}
		path = "/" + path
		want := agent.Verdict(path).Allowed
		if got := agent.Verdict(encoded(path)).Allowed; got != want {
			t.Errorf("Disallow: %q: Verdict(%q).Allowed = %v, Verdict(%q).Allowed = %v", pattern, path, want, encoded(path), got)
		}
		if other, ok := one(encoded(pattern)); ok {
			if got := other.Verdict(path).Allowed; got != want {
				t.Errorf("Verdict(%q).Allowed = %v under %q, %v under %q", path, want, pattern, got, encoded(pattern))
			}
		}
	})
}

// encoded encodes all that section 2.2.2 makes equal to its encoded form, and turns the digits of escapes to lower
// case.
func encoded(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			b.WriteString(strings.ToLower(s[i : i+3]))
			i += 2
		case c >= utf8.RuneSelf || strings.IndexByte("-._~% \"<>\\^`{|}", c) >= 0 || 'a' <= c && c <= 'z' || '0' <= c && c <= '9':
			fmt.Fprintf(&b, "%%%02x", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// FuzzString checks that the printed form of a Ruleset is equivalent in every dialect.
func FuzzString(f *testing.F) {
	f.Add([]byte("User-agent: a\nDisallow: /x*y$\nCrawl-delay: 1.5\n\nUser-agent: *\nAllow:\nSitemap: /s\n"), "a/1.0", "/xzy")
	f.Add([]byte("User-agent: a Crawl-delay: 5 Disallow: /x\nUser-agent: b Crawl-delay: 7\nUser-agent: * x: Allow : /\ndisallows; /"), "b", "/x")
	f.Add([]byte("Disallow: http://a.example/x\n\nCrawl-delay: 2\nuseragent *\rContent-Usage: /x y\n"), "b", "http://a.example/%78")
	f.Fuzz(func(t *testing.T, body []byte, userAgent, target string) {
		if len(body) > 4096 {
			t.Skip()
		}
		for _, d := range rules.Dialects() {
			opts := rules.Options{Dialect: d, RobotsURL: "http://a.example/robots.txt"}
			if err := checkRoundTrip(rules.Parse(body, opts), opts, userAgent, target); err != nil {
				t.Error(err)
			}
		}
	})
}

// FuzzExplain checks that an explanation agrees with the verdict, in every dialect.
func FuzzExplain(f *testing.F) {
	f.Add([]byte("User-agent: a\nDisallow: /x*y$\nAllow: /x\nUser-agent: *\nDisallow: /\n"), "a/1.0", "/xzy")
	f.Add([]byte("Disallow: /x$\nAllow: /d/index.html\n"), "b", "/x?")
	f.Fuzz(func(t *testing.T, body []byte, userAgent, target string) {
		for _, d := range rules.Dialects() {
			a := rules.Parse(body, rules.Options{Dialect: d, RobotsURL: "http://a.example/robots.txt"}).Agent(userAgent)
			checkExplanation(t, a.Explain(target), a.Verdict(target))
		}
	})
}

func checkExplanation(t *testing.T, e rules.Explanation, v rules.Verdict) {
	t.Helper()
	decided := e.Why != rules.ReasonNoGroup && e.Why != rules.ReasonNoMatch && e.Why != rules.ReasonRobotsTxt && e.Why != rules.ReasonOtherOrigin
	switch {
	case e.Verdict != v || e.Why.String() == "":
		t.Errorf("%+v explains %+v", e, v)
	case decided && (len(e.Matches) == 0 || e.Matches[0].Line != v.Line || e.Matches[0].Allow != v.Allowed):
		t.Errorf("%+v has another rule first than %+v", e, v)
	case !decided && v.Line != 0:
		t.Errorf("%+v has no rule for %+v", e, v)
	}
}
