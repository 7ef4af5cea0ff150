package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/rules"
)

// TestVerdict checks one verdict of a small file per row, by section of RFC 9309.
func TestVerdict(t *testing.T) {
	const star = "User-agent: *\n"
	tests := []struct {
		name, robots, agent, target string
		want                        string // the rule that decides, or ""
	}{
		{"2.1/rules follow their group", "User-agent: a\nDisallow: /x\nUser-agent: b\nDisallow: /y\n", "a", "/y", ""},
		{"2.1/one group may have several agents", "User-agent: a\nUser-agent: b\nDisallow: /x\n", "a", "/x", "Disallow: /x"},
		{"2.1/blank lines end no group", "User-agent: a\n\nUser-agent: b\n\n\nDisallow: /x\n\nDisallow: /y\n", "a", "/y", "Disallow: /y"},
		{"2.1/the last group may be empty", star + "Disallow: /\nUser-agent: a\n", "a", "/x", ""},
		{"2.1/an empty rule ends the agents too", "User-agent: a\nDisallow:\nUser-agent: b\nDisallow: /\n", "a", "/x", ""},
		{"2.2/CR", "User-agent: *\rDisallow: /x\r", "a", "/x", "Disallow: /x"},
		{"2.2/CRLF", "User-agent: *\r\nDisallow: /x\r\n", "a", "/x", "Disallow: /x"},
		{"2.2/no line end at the end", "User-agent: *\nDisallow: /x", "a", "/x", "Disallow: /x"},
		{"2.2/white space", " \tUser-agent \t:\t * \n\t Disallow\t: /x \t\n", "a", "/x", "Disallow\t: /x"},
		{"2.2/keys in any case", "uSER-aGENT: *\ndISALLOW: /x\n", "a", "/x", "dISALLOW: /x"},
		{"2.2/NUL is white space", "\x00User-agent:\x00*\x00\nDisallow: /x\x00\x00\n", "a", "/x", "Disallow: /x"},
		{"2.2/a web page says nothing", "<!DOCTYPE html>\n<html><p>User-agent: *</p>\nDisallow /\n", "a", "/", ""},

		{"2.2.1/no group", "User-agent: a\nDisallow: /\n", "b", "/", ""},
		{"2.2.1/any case", "User-agent: NEWSbot\nDisallow: /\n", "newsBOT", "/", "Disallow: /"},
		{"2.2.1/a named group hides *", star + "Disallow: /\nUser-agent: a\nDisallow: /x\n", "a", "/y", ""},
		{"2.2.1/* where no group is named", "User-agent: a\nDisallow: /x\n" + star + "Disallow: /y\n", "b", "/y", "Disallow: /y"},
		{"2.2.1/groups of one token are merged", "User-agent: a\nDisallow: /x\nUser-agent: b\nDisallow: /z\nUser-agent: a\nDisallow: /y\n", "a", "/y", "Disallow: /y"},
		{"2.2.1/merged groups decide together", "User-agent: a\nDisallow: /x\nUser-agent: b\nUser-agent: a\nAllow: /x/y\n", "a", "/x/y", "Allow: /x/y"},
		{"2.2.1/and for one agent only", "User-agent: a\nDisallow: /x\nUser-agent: b\nUser-agent: a\nAllow: /x/y\n", "b", "/x", ""},
		{"2.2.1/groups of * are merged", star + "Disallow: /x\nUser-agent: a\nDisallow: /z\n" + star + "Disallow: /y\n", "b", "/x", "Disallow: /x"},
		{"2.2.1/one agent twice in a group", "User-agent: a\nUser-agent: A\nDisallow: /x\n", "a", "/x", "Disallow: /x"},
		{"2.2.1/the value's first token counts", "User-agent: Googlebot Images\nDisallow: /\n", "Googlebot", "/", "Disallow: /"},
		{"2.2.1/digits and dots are of the token", "User-agent: MJ12bot\nDisallow: /\n", "MJ", "/", ""},
		{"2.2.1/a tilde is not", "User-agent: a~b\nDisallow: /\n", "a", "/", "Disallow: /"},
		{"2.2.1/nor is what is no letter", "User-agent: Bot\u00a0\u2013 all\nDisallow: /\n", "bot", "/", "Disallow: /"},
		{"2.2.1/nor are broken characters", "User-agent: Bot\xff\nDisallow: /\n", "bot", "/", "Disallow: /"},
		{"2.2.1/a value without token starts a group", star + "Disallow: /x\nUser-agent: !\nDisallow: /\n", "a", "/y", ""},
		{"2.2.1/an empty value starts a group", star + "Disallow: /x\nUser-agent:\nDisallow: /\n", "a", "/y", ""},
		{"2.2.1/text may follow *", "User-agent: * (all)\nDisallow: /\n", "a", "/", "Disallow: /"},
		{"2.2.1/after white space", "User-agent: *\t\u00a0\nDisallow: /\n", "a", "/", "Disallow: /"},
		{"2.2.1/and no other", "User-agent: *\u00a0\nDisallow: /\n", "a", "/", ""},
		{"2.2.1/*bot is no *", "User-agent: *bot\nDisallow: /\n", "bot", "/", ""},

		{"2.2.2/most octets", star + "Disallow: /a\nAllow: /a/b\nDisallow: /a/b/c\n", "a", "/a/b/d", "Allow: /a/b"},
		{"2.2.2/a star is an octet", star + "Disallow: /foo\nAllow: /foo*\n", "a", "/foobar", "Allow: /foo*"},
		{"2.2.2/two stars are two", star + "Disallow: /foo**\nAllow: /foo*\n", "a", "/foobar", "Disallow: /foo**"},
		{"2.2.2/the end mark is an octet", star + "Allow: /foo\nDisallow: /foo$\n", "a", "/foo", "Disallow: /foo$"},
		{"2.2.2/octets, not characters", star + "Disallow: /ツ\nAllow: /*abcdef\n", "a", "/ツabcdef", "Disallow: /ツ"},
		{"2.2.2/octets as normalised", star + "Disallow: /%61%62%63\nAllow: /abc*\n", "a", "/abc", "Allow: /abc*"},
		{"2.2.2/a dollar is one octet", star + "Disallow: /a$bc\nAllow: /a*bcd\n", "a", "/a$bcd", "Allow: /a*bcd"},
		{"2.2.2/allow wins a tie", star + "Disallow: /page\nAllow: /page\n", "a", "/page", "Allow: /page"},
		{"2.2.2/allow wins a tie of patterns", star + "Disallow: /*b\nAllow: /ab\nDisallow: /a*\n", "a", "/ab", "Allow: /ab"},
		{"2.2.2/case counts", star + "Disallow: /X\n", "a", "/x", ""},
		{"2.2.2/from the first octet", star + "Disallow: /x\n", "a", "/a/x", ""},
		{"2.2.2/a pattern without slash", star + "Disallow: x\n", "a", "/x", ""},
		{"2.2.2/an empty pattern", star + "Disallow: /x\nAllow:\n", "a", "/x", "Disallow: /x"},
		{"2.2.2/rules before any group", "Disallow: /\nUser-agent: a\nAllow: /x\n", "a", "/y", ""},
		{"2.2.2/robots.txt", star + "Disallow: /\n", "a", "/robots.txt", ""},
		{"2.2.2/robots.txt by its URL", star + "Disallow: /\n", "a", "https://a.example/robots.txt#x", ""},
		{"2.2.2/robots.txt encoded", star + "Disallow: /\n", "a", "/%72obots.txt", ""},
		{"2.2.2/only robots.txt itself", star + "Disallow: /\n", "a", "/robots.txt?x", "Disallow: /"},
		{"2.2.2/the query is part of the path", star + "Disallow: /x?y=\n", "a", "/x?y=1", "Disallow: /x?y="},
		{"2.2.2/the fragment is not", star + "Disallow: /x$\n", "a", "/x#y", "Disallow: /x$"},
		{"2.2.2/an empty path is /", star + "Disallow: /$\n", "a", "https://a.example", "Disallow: /$"},
		{"2.2.2/a query alone", star + "Disallow: /?x\n", "a", "https://a.example?x", "Disallow: /?x"},
		{"2.2.2/an empty target", star + "Disallow: /$\n", "a", "", "Disallow: /$"},
		{"2.2.2/slashes that look like a scheme", star + "Disallow: /x:\n", "a", "/x://y/z", "Disallow: /x:"},
		{"2.2.2/what is no scheme is a path", star + "Disallow: /a_b://c/d\n", "a", "a_b://c/d", "Disallow: /a_b://c/d"},
		{"2.2.2/no more is nothing", star + "Disallow: /://a\n", "a", "://a", "Disallow: /://a"},
		{"2.2.2/schemes are many", star + "Disallow: /d\n", "a", "h2+x.1://c/d", "Disallow: /d"},
		{"2.2.2/two slashes are a path", star + "Disallow: //a\n", "a", "//a/b", "Disallow: //a"},

		{"2.2.2/unreserved is decoded in the rule", star + "Disallow: /%7Ejoe\n", "a", "/~joe", "Disallow: /%7Ejoe"},
		{"2.2.2/unreserved is decoded in the path", star + "Disallow: /~joe\n", "a", "/%7ejoe", "Disallow: /~joe"},
		{"2.2.2/UTF-8 in the rule", star + "Disallow: /ツ\n", "a", "/%E3%83%84", "Disallow: /ツ"},
		{"2.2.2/UTF-8 in the path", star + "Disallow: /%e3%83%84\n", "a", "/ツ", "Disallow: /%e3%83%84"},
		{"2.2.2/Latin-1 octets", star + "Disallow: /\xe9\n", "a", "/%E9", "Disallow: /\xe9"},
		{"2.2.2/hex digits in any case", star + "Disallow: /a%2fb\n", "a", "/a%2Fb", "Disallow: /a%2fb"},
		{"2.2.2/reserved in the rule", star + "Disallow: /a%2Fb\n", "a", "/a/b", ""},
		{"2.2.2/reserved in the path", star + "Disallow: /a/b\n", "a", "/a%2Fb", ""},
		{"2.2.2/space", star + "Disallow: /a b\n", "a", "/a%20b", "Disallow: /a b"},
		{"2.2.2/quotes and braces", star + "Disallow: /%7b%22\n", "a", `/{"`, "Disallow: /%7b%22"},
		{"2.2.2/stray per cent", star + "Disallow: /100%\n", "a", "/100%25", "Disallow: /100%"},
		{"2.2.2/stray per cent in the path", star + "Disallow: /100%25x\n", "a", "/100%xy", "Disallow: /100%25x"},
		{"2.2.2/decoded once", star + "Disallow: /a\n", "a", "/%2561", ""},

		{"2.2.3/comment", star + "Disallow: /x # not /y\n#Disallow: /\n", "a", "/x", "Disallow: /x"},
		{"2.2.3/comment without space", star + "Disallow: /x#y\n", "a", "/x", "Disallow: /x"},
		{"2.2.3/an encoded # is no comment", star + "Disallow: /x%23y\n", "a", "/x%23y", "Disallow: /x%23y"},
		{"2.2.3/star at the end", star + "Disallow: /x*\n", "a", "/x", "Disallow: /x*"},
		{"2.2.3/star in front", star + "Disallow: *.gif$\n", "a", "/a/b.gif", "Disallow: *.gif$"},
		{"2.2.3/star alone", star + "Disallow: *\n", "a", "/", "Disallow: *"},
		{"2.2.3/star for nothing", star + "Disallow: /a*b\n", "a", "/ab", "Disallow: /a*b"},
		{"2.2.3/star before the end", star + "Disallow: /a*$\n", "a", "/abc", "Disallow: /a*$"},
		{"2.2.3/several stars", star + "Disallow: /a*b***c*d\n", "a", "/a1b2c3d4", "Disallow: /a*b***c*d"},
		{"2.2.3/in their order", star + "Disallow: /a*b*c\n", "a", "/a1c2b3", ""},
		{"2.2.3/the last at the end", star + "Disallow: /*ab$\n", "a", "/abab", "Disallow: /*ab$"},
		{"2.2.3/without sharing octets", star + "Disallow: /*aba*ba$\n", "a", "/aba", ""},
		{"2.2.3/end", star + "Disallow: /x$\n", "a", "/xy", ""},
		{"2.2.3/end and query", star + "Disallow: /x$\n", "a", "/x?y", ""},
		{"2.2.3/end alone", star + "Disallow: $\n", "a", "/", ""},
		{"2.2.3/dollar in the middle", star + "Disallow: /x$/abc\n", "a", "/x$/abcd", "Disallow: /x$/abc"},
		{"2.2.3/two dollars", star + "Disallow: /x$$\n", "a", "/x$", "Disallow: /x$$"},
		{"2.2.3/%2A is a literal star", star + "Disallow: /a%2Ab\n", "a", "/axb", ""},
		{"2.2.3/%2A matches a star", star + "Disallow: /a%2ab\n", "a", "/a*b", "Disallow: /a%2ab"},
		{"2.2.3/%2A matches itself", star + "Disallow: /a%2Ab\n", "a", "/a%2ab", "Disallow: /a%2Ab"},
		{"2.2.3/%24 at the end is literal", star + "Disallow: /a%24\n", "a", "/a", ""},
		{"2.2.3/%24 matches a dollar", star + "Disallow: /a%24\n", "a", "/a$b", "Disallow: /a%24"},
		{"2.2.3/a star matches an encoded star", star + "Disallow: /a*b\n", "a", "/a%2Ab", "Disallow: /a*b"},

		{"2.2.4/a sitemap ends no group", "User-agent: a\nSitemap: https://a.example/s\nUser-agent: b\nDisallow: /\n", "a", "/", "Disallow: /"},
		{"2.2.4/a delay ends no group", "User-agent: a\nCrawl-delay: 5\nUser-agent: b\nDisallow: /\n", "a", "/", "Disallow: /"},
		{"2.2.4/an unknown record ends no group", "User-agent: a\nNoindex: /\nUser-agent: b\nDisallow: /\n", "a", "/", "Disallow: /"},
		{"2.2.4/misspelt", "useragent: a\nuser agent: b\ndisalow: /1\ndissallow: /2\ndissalow: /3\ndiasllow: /4\ndisallaw: /5\n", "a", "/5", "disallaw: /5"},
		{"2.2.4/misspelt beyond recognition", star + "disllow: /1\nall: /\nx-disallow: /1\n", "a", "/1", ""},
		{"2.2.4/keys that go on", "user-agents: a\ndisallows: /1\n", "a", "/1", "disallows: /1"},
		{"2.2.4/keys that go on with a sign", star + "disallow;: /1\n", "a", "/1", "disallow;: /1"},
		{"2.2.4/keys that go on with a sign, without a colon", star + "disallow; /1\n", "a", "/1", "disallow; /1"},
		{"2.2.4/keys that go on with a space of Unicode", star + "disallow\u00a0: /1\n", "a", "/1", "disallow\u00a0: /1"},
		{"2.2.4/keys that go on at length", star + "disallow-everything-below: /1\n", "a", "/1", "disallow-everything-below: /1"},
		{"2.2.4/a longer Allow", star + "disallow: /\nallowed: /1\n", "a", "/1", "allowed: /1"},
		{"2.2.4/without a colon", "User-agent a\nDisallow\t/x # y\n", "a", "/x", "Disallow\t/x"},
		{"2.2.4/three words without a colon", "User-agent: a\nDisallow /x /y\n", "a", "/x%20/y", ""},

		{"2.2/a rule in the line of its agent", "User-agent: a Disallow: /x\nUser-agent: *\nDisallow: /y\n", "a", "/x", "Disallow: /x"},
		{"2.2/of all agents", "User-agent: * Disallow: /\n", "a", "/x", "Disallow: /"},
		{"2.2/in any case", "User-agent: a\tDISALLOW : /x\n", "a", "/x", "DISALLOW : /x"},
		{"2.2/misspelt", "User-agent: a Dissallow: /x\n", "a", "/x", "Dissallow: /x"},
		{"2.2/a rule ends the group", "User-agent: a Disallow: /x\nUser-agent: b Disallow: /y\n", "a", "/y", ""},
		{"2.2/an Allow", "User-agent: a Allow: /x\nDisallow: /\n", "a", "/x", "Allow: /x"},
		{"2.2/an empty rule", "User-agent: a Disallow:\nUser-agent: *\nDisallow: /\n", "a", "/", ""},
		{"2.2/a delay between", "User-agent: a Crawl-delay: 5 Disallow: /x\n", "a", "/x", "Disallow: /x"},
		{"2.2/the first of two values", "User-agent: a http://b Disallow: /x Allow: /\n", "a", "/x%20Allow:%20/", "Disallow: /x Allow: /"},
		{"2.2/after white space alone", "User-agent: a,Disallow: /x\n", "a", "/x", ""},
		{"2.2/not at once", "User-agent: *\nUser-agent: Disallow: /x\nAllow: /x\nDisallow: /\n", "a", "/x", "Allow: /x"},
		{"2.2/after its own colon", "User-agent: Disallow: /x\n", "disallow", "/x", ""},
		{"2.2/a rule is not cut", star + "Disallow: /x Allow: /\n", "a", "/x%20Allow:%20/", "Disallow: /x Allow: /"},
		{"2.2/nor a delay in its own line", star + "Crawl-delay: 5 Disallow: /x\n", "a", "/x", ""},

		{"2.3/UTF-8 mark", "\xEF\xBB\xBF" + star + "Disallow: /x\n", "a", "/x", "Disallow: /x"},
		{"2.3/UTF-8 mark in the middle", star + "\xEF\xBB\xBFDisallow: /x\n", "a", "/x", ""},
		{"2.3/UTF-16 LE", utf16(star+"Disallow: /æ\n", false), "a", "/%C3%A6", "Disallow: /æ"},
		{"2.3/UTF-16 BE", utf16(star+"Disallow: /æ\n", true), "a", "/%C3%A6", "Disallow: /æ"},
		{"2.3/UTF-16 cut in a unit", utf16(star+"Disallow: /x\n", true) + "\x00", "a", "/x", "Disallow: /x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := rules.Parse([]byte(tt.robots), rules.Options{}).Agent(tt.agent).Verdict(tt.target)
			allowed := !strings.HasPrefix(strings.ToLower(tt.want), "di")
			if got.Rule != tt.want || got.Allowed != allowed || (got.Line == 0) != (tt.want == "") {
				t.Errorf("Agent(%q).Verdict(%q) = %+v, want Rule %q in\n%s", tt.agent, tt.target, got, tt.want, tt.robots)
			}
		})
	}
}

func utf16(s string, bigEndian bool) string {
	b := []byte("\xFF\xFE")
	if bigEndian {
		b = []byte("\xFE\xFF")
	}
	for _, r := range s { // no test has a character outside of the basic plane
		low, high := byte(r), byte(r>>8)
		if bigEndian {
			low, high = high, low
		}
		b = append(b, low, high)
	}
	return string(b)
}

// TestVerdictNames checks line, rule and group of a verdict, with the three line ends of section 2.2.
func TestVerdictNames(t *testing.T) {
	const robots = `# the whole site
Disallow: /never

User-agent: NewsBot # ours
Crawl-delay: 2
User-agent: Archive Robot/2.0
User-agent: !

Disallow: /private/ # see contract
allow : /private/press
Sitemap: https://a.example/sitemap.xml

User-agent: *
Disallow: /
User-agent: newsbot
Disallow: /*.pdf$
`
	first := rules.Group{Line: 4, Agents: "NewsBot, Archive Robot/2.0"}
	tests := []struct {
		agent, target string
		want          rules.Verdict
	}{
		{"NewsBot", "/private/x", rules.Verdict{Line: 9, Rule: "Disallow: /private/", Group: first}},
		{"archive", "/private/press/1", rules.Verdict{Allowed: true, Line: 10, Rule: "allow : /private/press", Group: first}},
		{"NEWSBOT", "/a.pdf", rules.Verdict{Line: 16, Rule: "Disallow: /*.pdf$", Group: rules.Group{Line: 15, Agents: "newsbot"}}},
		{"other", "/a", rules.Verdict{Line: 14, Rule: "Disallow: /", Group: rules.Group{Line: 13, Agents: "*"}}},
		{"newsbot", "/a", rules.Verdict{Allowed: true}},
		{"archive", "/never", rules.Verdict{Allowed: true}},
	}
	for _, eol := range []string{"\n", "\r\n", "\r"} {
		set := rules.Parse([]byte(strings.ReplaceAll(robots, "\n", eol)), rules.Options{})
		for _, tt := range tests {
			if diff := cmp.Diff(tt.want, set.Agent(tt.agent).Verdict(tt.target)); diff != "" {
				t.Errorf("line ends %q: Agent(%q).Verdict(%q) (-want +got):\n%s", eol, tt.agent, tt.target, diff)
			}
		}
	}
}

// TestRecordsOfOneLine checks the lines, the groups and the delays of records that share a line with their agent.
func TestRecordsOfOneLine(t *testing.T) {
	const robots = "User-agent: a Crawl-delay: 5 Disallow: /x\n" +
		"User-agent: b Crawl-delay: 7\nUser-agent: c Crawl-delay: 9 Crawl-delay: 8\nDisallow: /y\n" +
		"User-agent: d Crawl-delay: 5 seconds Disallow: /z\n"
	tests := []struct {
		agent, target string
		delay         time.Duration
		want          rules.Verdict
	}{
		{"a", "/x", 5 * time.Second, rules.Verdict{Line: 1, Rule: "Disallow: /x", Group: rules.Group{Line: 1, Agents: "a"}}},
		{"b", "/y", 7 * time.Second, rules.Verdict{Line: 4, Rule: "Disallow: /y", Group: rules.Group{Line: 2, Agents: "b, c"}}},
		{"c", "/y", 9 * time.Second, rules.Verdict{Line: 4, Rule: "Disallow: /y", Group: rules.Group{Line: 2, Agents: "b, c"}}},
		{"d", "/z", 0, rules.Verdict{Line: 5, Rule: "Disallow: /z", Group: rules.Group{Line: 5, Agents: "d"}}},
	}
	set := rules.Parse([]byte(robots), rules.Options{})
	for _, tt := range tests {
		agent := set.Agent(tt.agent)
		if diff := cmp.Diff(tt.want, agent.Verdict(tt.target)); diff != "" {
			t.Errorf("Agent(%q).Verdict(%q) (-want +got):\n%s", tt.agent, tt.target, diff)
		}
		if delay, _ := agent.CrawlDelay(); delay != tt.delay {
			t.Errorf("Agent(%q).CrawlDelay() = %v, want %v", tt.agent, delay, tt.delay)
		}
		if e := agent.Explain(tt.target); e.Verdict != tt.want || len(e.Matches) != 1 || e.Matches[0].Line != tt.want.Line {
			t.Errorf("Agent(%q).Explain(%q) = %+v, want line %d", tt.agent, tt.target, e, tt.want.Line)
		}
	}
	var lines []int
	for _, f := range set.Fields("crawl-delay") {
		lines = append(lines, f.Line)
	}
	if diff := cmp.Diff([]int{1, 2, 3, 3, 5}, lines); diff != "" {
		t.Errorf("Fields() has other lines (-want +got):\n%s", diff)
	}
	again := rules.Parse([]byte(set.String()), rules.Options{})
	for _, tt := range tests {
		delay, _ := again.Agent(tt.agent).CrawlDelay()
		if got := again.Agent(tt.agent).Verdict(tt.target); got.Rule != tt.want.Rule || delay != tt.delay {
			t.Errorf("printed, Agent(%q).Verdict(%q) = %+v after %v, want %+v after %v:\n%s", tt.agent, tt.target, got, delay, tt.want, tt.delay, set)
		}
	}
}

// TestTieNamesFirstLine checks that a tie of equal rules always names the first line.
func TestTieNamesFirstLine(t *testing.T) {
	set := rules.Parse([]byte("User-agent: a\nDisallow: /*b\nDisallow: /a*\nUser-agent: b\nUser-agent: a\nDisallow: /ab\n"), rules.Options{})
	if got := set.Agent("a").Verdict("/ab"); got.Line != 2 {
		t.Errorf(`Agent("a").Verdict("/ab") = %+v, want line 2`, got)
	}
}

func TestZeroValues(t *testing.T) {
	var set rules.Ruleset
	if v := set.Agent("a").Verdict("/"); !v.Allowed || set.Agent("a").Token() != "" || set.Sitemaps() != nil {
		t.Errorf("a zero Ruleset does not allow everything: %+v", v)
	}
	var agent rules.Agent
	if _, ok := agent.CrawlDelay(); ok || !agent.Verdict("/").Allowed || agent.Token() != "" {
		t.Error("a zero Agent is held to something")
	}
}

func TestSitemaps(t *testing.T) {
	const robots = "Sitemap: https://a.example/1\nUser-agent: a\nsite-map:https://a.example/2?x=1#frag\nSITEMAP:\nDisallow: /\nSitemap: /3\n"
	want := []string{"https://a.example/1", "https://a.example/2?x=1", "/3"}
	if diff := cmp.Diff(want, rules.Parse([]byte(robots), rules.Options{}).Sitemaps()); diff != "" {
		t.Errorf("Sitemaps() (-want +got):\n%s", diff)
	}
}
