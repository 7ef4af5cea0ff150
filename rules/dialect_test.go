package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/rules"
)

func TestDialectNames(t *testing.T) {
	for _, d := range rules.Dialects() {
		got, err := rules.ParseDialect(d.String())
		if err != nil || got != d {
			t.Errorf("ParseDialect(%q) = %v, %v", d.String(), got, err)
		}
		var text rules.Dialect
		if err := text.UnmarshalText([]byte(d.String())); err != nil || text != d {
			t.Errorf("UnmarshalText(%q) = %v, %v", d.String(), text, err)
		}
	}
	for _, name := range []string{"", "RFC9309", "bing"} {
		if d, err := rules.ParseDialect(name); err == nil || !strings.Contains(err.Error(), "www-robotrules") {
			t.Errorf("ParseDialect(%q) = %v, %v, want an error that names the dialects", name, d, err)
		}
	}
	if got, want := rules.Dialect(200).String(), rules.DialectRFC9309.String(); got != want {
		t.Errorf("Dialect(200).String() = %q, want %q", got, want)
	}
}

// TestDialects checks the reading of one file in each dialect. The columns are in the order of rules.Dialects: "+" is
// allowed.
func TestDialects(t *testing.T) {
	tests := []struct{ name, robots, agent, target, want string }{
		//                                                                           rfc google rb cr www mk gym
		{"the longest or the first", "User-agent: *\nDisallow: /a\nAllow: /ab\n", "x", "/ab", "++-----"},
		{"wildcards", "User-agent: *\nDisallow: /*b\n", "x", "/ab", "----++-"},
		{"an end", "User-agent: *\nDisallow: /a$\n", "x", "/a", "----++-"},
		{"an end before a query", "User-agent: *\nDisallow: /a$\n", "x", "/a?b", "++--+++"},
		{"an encoded query is no query", "User-agent: *\nDisallow: /a$\n", "x", "/a%3Fb", "+++++++"},
		{"two groups of one agent", "User-agent: a\nDisallow: /x\n\nUser-agent: a\nDisallow: /y\n", "a", "/y", "--+++++"},
		{"two groups of *", "User-agent: *\nDisallow: /x\n\nUser-agent: *\nDisallow: /y\n", "a", "/y", "--++-++"},
		{"* in front of a name", "User-agent: *\nDisallow: /x\n\nUser-agent: a\nDisallow: /y\n", "a", "/y", "--++---"},
		{"an agent within a value", "User-agent: newsbot\nDisallow: /\n", "bot", "/", "++--+++"},
		{"a value within an agent", "User-agent: bot\nDisallow: /\n", "newsbot", "/", "++-----"},
		{"a value within a comment", "User-agent: bot\nDisallow: /\n", "x/1 (robot)", "/", "++--+--"},
		{"a value with a wildcard", "User-agent: n*bot\nDisallow: /\n", "newsbot", "/", "++--+++"},
		{"a token with digits", "User-agent: b2\nDisallow: /\n", "b2", "/", "-+-----"},
		{"rules in front of groups", "Disallow: /\n", "x", "/", "++---++"},
		{"an empty Disallow in front", "User-agent: *\nDisallow:\nDisallow: /\n", "x", "/", "--+++++"},
		{"an empty Allow in front", "User-agent: *\nAllow:\nDisallow: /x\n", "x", "/y", "+++++--"},
		{"a blank line in a group", "User-agent: *\nDisallow: /x\n\nDisallow: /y\n", "a", "/y", "----+++"},
		{"a blank line below the agent", "User-agent: *\n\nDisallow: /y\n", "a", "/y", "----+++"},
		{"a delay between agents", "User-agent: a\nCrawl-delay: 1\nUser-agent: b\nDisallow: /\n", "a", "/", "-----++"},
		{"Allow", "User-agent: *\nAllow: /x\nDisallow: /\n", "a", "/x", "++++-++"},
		{"an encoded letter", "User-agent: *\nDisallow: /%61\n", "x", "/a", "-+--+--"},
		{"an encoded slash", "User-agent: *\nDisallow: /a%2fb\n", "x", "/a/b", "+++++++"},
		{"an encoded slash in other case", "User-agent: *\nDisallow: /a%2fb\n", "x", "/a%2Fb", "----+--"},
		{"an encoded equals sign", "User-agent: *\nDisallow: /a%3Db\n", "x", "/a=b", "+++++--"},
		{"an encoded star", "User-agent: *\nDisallow: /%2Ab\n", "x", "/ab", "++--++-"},
		{"a comment at once", "User-agent: *\nDisallow: /a#b\n", "x", "/a", "--++---"},
		{"a comment behind white space", "User-agent: *\nDisallow: /a #b\n", "x", "/a", "-------"},
		{"a misspelling", "User-agent: *\nDisalow: /\n", "x", "/", "--+++++"},
		{"a key that goes on", "User-agent: *\nDisallows: /\n", "x", "/", "--+++++"},
		{"text after *", "User-agent: * (all)\nDisallow: /\n", "x", "/", "--+++++"},
		{"two records in a line", "User-agent: x Disallow: /\n", "x", "/", "-++++++"},
		{"two records in a line, a rule below", "User-agent: x Disallow: /\nAllow: /a\n", "x", "/b", "-++++++"},
		{"a key in the middle", "User-agent: *\nxDisallow: /\n", "x", "/", "+++++--"},
		{"no colon", "User-agent: *\nDisallow /\n", "x", "/", "--+++++"},
		{"a space before the colon", "User-agent: *\nDisallow : /\n", "x", "/", "-----++"},
		{"an index page", "User-agent: *\nAllow: /d/index.html\nDisallow: /d/\n", "x", "/d/", "-+-----"},
		{"a NUL", "User-agent: *\nDisallow: /a\x00\n", "x", "/a", "-------"},
		{"a NUL within", "User-agent: *\nDisallow: /a\x00b\n", "x", "/ab", "+---+--"},
		{"an empty query", "User-agent: *\nDisallow: /a?\n", "x", "/a?", "-----++"},
		{"an empty query, two signs", "User-agent: *\nDisallow: /a?\n", "x", "/a??", "-------"},
		{"a query", "User-agent: *\nDisallow: /a?b\n", "x", "/a?b", "-------"},
		{"a query, encoded", "User-agent: *\nDisallow: /a?b\n", "x", "/a?%62", "-+--+--"},
		{"empty parameters", "User-agent: *\nDisallow: /a;\n", "x", "/a;", "-----++"},
		{"empty parameters and a query", "User-agent: *\nDisallow: /a;?b\n", "x", "/a;?b", "-----++"},
		{"empty parameters and a query, without them", "User-agent: *\nDisallow: /a?b\n", "x", "/a;?b", "+++++--"},
		{"empty parameters and an empty query", "User-agent: *\nDisallow: /a$\n", "x", "/a;?", "++++++-"},
		{"parameters", "User-agent: *\nDisallow: /a;b;\n", "x", "/a;b;", "-------"},
		{"parameters within a path", "User-agent: *\nDisallow: /a;/b\n", "x", "/a;/b", "-------"},
		{"an empty fragment", "User-agent: *\nDisallow: /a$\n", "x", "/a#", "----++-"},
		{"robots.txt", "User-agent: *\nDisallow: /\n", "x", "/robots.txt", "+------"},
		{"a URL in a rule", "User-agent: *\nDisallow: http://a.example/x\n", "x", "/x", "++++-++"},
		{"a URL of another", "User-agent: *\nDisallow: http://b.example/x\n", "x", "/x", "+++++++"},
		{"a relative URL in a rule", "User-agent: *\nDisallow: x\n", "x", "/x", "++++-++"},
		{"a URL of another as target", "User-agent: *\nDisallow: /\n", "x", "http://b.example/x", "----+--"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			for _, d := range rules.Dialects() {
				set := rules.Parse([]byte(tt.robots), rules.Options{Dialect: d, RobotsURL: "http://a.example/robots.txt"})
				got += map[bool]string{true: "+", false: "-"}[set.Agent(tt.agent).Verdict(tt.target).Allowed]
			}
			if got != tt.want {
				t.Errorf("Agent(%q).Verdict(%q) is %s, want %s in %v:\n%s", tt.agent, tt.target, got, tt.want, rules.Dialects(), tt.robots)
			}
		})
	}
}

func TestCharsets(t *testing.T) {
	const latin1 = "User-agent: *\nDisallow: /caf\xE9\n"
	tests := []struct {
		name, body, contentType string
		dialect                 rules.Dialect
		target                  string
		allowed                 bool
	}{
		{"none is UTF-8", latin1, "", rules.DialectGYM2008, "/caf%C3%A9", true},
		{"none named, the RFC's reading", latin1, "text/plain", rules.DialectRFC9309, "/caf%E9", false},
		{"none named, ISO-8859-1", latin1, "text/plain", rules.DialectGYM2008, "/caf%C3%A9", false},
		{"named", latin1, "text/plain; charset=ISO-8859-1", rules.DialectRFC9309, "/caf%C3%A9", false},
		{"named in quotes", latin1, `text/plain; charset="windows-1252"`, rules.DialectGoogle, "/caf%C3%A9", false},
		{"UTF-8", "User-agent: *\nDisallow: /café\n", "text/plain; charset=UTF-8", rules.DialectMK1996, "/caf%C3%A9", false},
		{"unknown", "User-agent: *\nDisallow: /café\n", "text/plain; charset=x", rules.DialectRFC9309, "/caf%C3%A9", false},
		{"nonsense", "User-agent: *\nDisallow: /café\n", ";;", rules.DialectRFC9309, "/caf%C3%A9", false},
		{"Japanese", "User-agent: *\nDisallow: /\x83c\n", "text/plain; charset=shift_jis", rules.DialectRFC9309, "/%E3%83%84", false},
		{"a mark counts more", "\xEF\xBB\xBFUser-agent: *\nDisallow: /café\n", "text/plain; charset=latin1", rules.DialectRFC9309, "/caf%C3%A9", false},
		{"UTF-8 with the label of another", "User-agent: *\nDisallow: /café\n", "text/plain; charset=iso-8859-1", rules.DialectRFC9309, "/caf%C3%A9", false},
		{"UTF-8 with a false label, Google's reading", "User-agent: *\nDisallow: /café\n", "text/plain; charset=windows-1252", rules.DialectGoogle, "/caf%C3%A9", false},
		{"UTF-8 with a false label, cut in a character", "User-agent: *\nDisallow: /café\n# \xE2\x82", "text/plain; charset=iso-8859-1", rules.DialectRFC9309, "/caf%C3%A9", false},
		{"the label counts where ISO-8859-1 is taken for granted", "User-agent: *\nDisallow: /café\n", "text/plain; charset=iso-8859-1", rules.DialectGYM2008, "/caf%C3%A9", true},
		{"ISO-8859-1 that ends like a cut character", "User-agent: *\nDisallow: /caf\xE9", "text/plain; charset=iso-8859-1", rules.DialectRFC9309, "/caf%C3%A9", false},
		{"ASCII called UTF-16", "User-agent: *\nDisallow: /a\n", "text/plain; charset=UTF-16", rules.DialectRFC9309, "/a", false},
		{"ASCII called UTF-16BE", "User-agent: *\nDisallow: /a\n", "text/plain; charset=utf-16be", rules.DialectGYM2008, "/a", false},
		{"UTF-8 called UTF-16", "User-agent: *\nDisallow: /café\n", "text/plain; charset=utf-16le", rules.DialectGYM2008, "/caf%C3%A9", false},
		{"UTF-16", "U\x00s\x00e\x00r\x00-\x00a\x00g\x00e\x00n\x00t\x00:\x00*\x00\n\x00D\x00i\x00s\x00a\x00l\x00l\x00o\x00w\x00:\x00/\x00\xC3\x80\n\x00", "text/plain; charset=utf-16le", rules.DialectRFC9309, "/%E8%83%83", false},
		{"half a mark", "\xEF\xBBUser-agent: *\nDisallow: /a\n", "", rules.DialectGoogle, "/a", false},
		{"half a mark, the RFC's reading", "\xEF\xBBUser-agent: *\nDisallow: /a\n", "", rules.DialectRFC9309, "/a", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set := rules.Parse([]byte(tt.body), rules.Options{Dialect: tt.dialect, ContentType: tt.contentType})
			if got := set.Agent("x").Verdict(tt.target); got.Allowed != tt.allowed {
				t.Errorf("Verdict(%q) = %+v, want Allowed %v of %q as %q", tt.target, got, tt.allowed, tt.body, tt.contentType)
			}
		})
	}
}

func TestPace(t *testing.T) {
	day := rules.Hours{From: 6 * time.Hour, To: 8*time.Hour + 45*time.Minute}
	tests := []struct {
		value string
		want  rules.Rate // zero: no rate
	}{
		{"1/5", rules.Rate{Requests: 1, Per: 5 * time.Second}},
		{"10/1m", rules.Rate{Requests: 10, Per: time.Minute}},
		{"1/10s", rules.Rate{Requests: 1, Per: 10 * time.Second}},
		{"100/24h", rules.Rate{Requests: 100, Per: 24 * time.Hour}},
		{"1/2D 0600-0845", rules.Rate{Requests: 1, Per: 48 * time.Hour, During: day}},
		{"1/1s 0600 - 0845", rules.Rate{Requests: 1, Per: time.Second, During: day}},
		{"1", rules.Rate{}},
		{"0/5", rules.Rate{}},
		{"1/0", rules.Rate{}},
		{"-1/5", rules.Rate{}},
		{"1/5x", rules.Rate{}},
		{"1/5 2500-2600", rules.Rate{}},
		{"1/s", rules.Rate{}},
		{"", rules.Rate{}},
	}
	for _, tt := range tests {
		set := rules.Parse([]byte("User-agent: a\nRequest-rate: "+tt.value+"\nUser-agent: b\nDisallow: /\n"), rules.Options{})
		if got, ok := set.Agent("a").RequestRate(); got != tt.want && ok || ok != (tt.want != rules.Rate{}) {
			t.Errorf("Request-rate: %q: RequestRate() = %+v, %v, want %+v", tt.value, got, ok, tt.want)
		}
		if got, ok := set.Agent("b").RequestRate(); ok {
			t.Errorf("Request-rate: %q: RequestRate() of another agent = %+v", tt.value, got)
		}
	}
	for value, want := range map[string]bool{"0600-0845": true, "0600 0845": true, "06:00-08:45": true, "0600Z-0845Z": true, "6-8": false, "0660-0845": false, "0600": false} {
		set := rules.Parse([]byte("User-agent: *\nVisit-time: "+value+"\n"), rules.Options{})
		if got, ok := set.Agent("a").VisitTime(); ok != want || ok && got != day {
			t.Errorf("Visit-time: %q: VisitTime() = %+v, %v, want %v", value, got, ok, want)
		}
	}
}

func TestContentUsage(t *testing.T) {
	const robots = "Content-Usage: train-ai=y\nUser-agent: a\nContent-Usage: train-ai=n\nContent-Usage: /free/ train-ai=y\nContent-Usage: /*.txt$ search=n\n" +
		"Content-Usage: /%66ree/x search=y\nDisallow: /no\nUser-agent: b\nContent-Usage: /b x=y\n"
	tests := []struct {
		agent, target, want string
		line                int
	}{
		{"a", "/", "train-ai=n", 3},
		{"a", "https://a.example/free/y?q", "train-ai=y", 4},
		{"a", "/a.txt", "search=n", 5},
		{"a", "/free/a.txt", "search=n", 5},
		{"a", "/free/x", "search=y", 6},
		{"b", "/b", "x=y", 9},
		{"b", "/", "", 0},
		{"c", "/", "", 0},
	}
	for _, tt := range tests {
		got, ok := rules.Parse([]byte(robots), rules.Options{}).Agent(tt.agent).ContentUsage(tt.target)
		if got.Preferences != tt.want || got.Line != tt.line || ok != (tt.line != 0) {
			t.Errorf("Agent(%q).ContentUsage(%q) = %+v, %v, want %q in line %d", tt.agent, tt.target, got, ok, tt.want, tt.line)
		}
	}
}
