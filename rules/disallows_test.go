package rules

import "testing"

func TestDisallowsAll(t *testing.T) {
	for _, row := range []struct {
		name, robots, agent string
		dialect             Dialect
		line                int // of the rule that disallows all; 0: no such rule
	}{
		{"no file", "", "NewsBot", DialectRFC9309, 0},
		{"the root", "User-agent: *\nDisallow: /\n", "NewsBot", DialectRFC9309, 2},
		{"a star", "User-agent: *\nDisallow: *\n", "NewsBot", DialectRFC9309, 2},
		{"a slash and a star", "User-agent: *\nDisallow: /*\n", "NewsBot", DialectRFC9309, 2},
		{"a star up to the end", "User-agent: *\nDisallow: /*$\n", "NewsBot", DialectRFC9309, 2},
		{"the front page alone", "User-agent: *\nDisallow: /$\n", "NewsBot", DialectRFC9309, 0},
		{"a folder", "User-agent: *\nDisallow: /private/\n", "NewsBot", DialectRFC9309, 0},
		{"two slashes", "User-agent: *\nDisallow: //\n", "NewsBot", DialectRFC9309, 0},
		{"the front page and all", "User-agent: *\nDisallow: /$\nDisallow: /\n", "NewsBot", DialectRFC9309, 3},
		{"the rule with the most octets", "User-agent: *\nDisallow: /\nDisallow: /*\n", "NewsBot", DialectRFC9309, 3},
		{"one page is allowed", "User-agent: *\nDisallow: /\nAllow: /about\n", "NewsBot", DialectRFC9309, 0},
		{"an Allow that says nothing", "User-agent: *\nDisallow: /\nAllow:\n", "NewsBot", DialectRFC9309, 2},
		{"nothing is disallowed", "User-agent: *\nDisallow:\n", "NewsBot", DialectRFC9309, 0},
		{"another's group", "User-agent: NewsBot\nDisallow: /\n", "ShopBot", DialectRFC9309, 0},
		{"one's own group", "User-agent: *\nAllow: /\n\nUser-agent: NewsBot\nDisallow: /\n", "NewsBot/2.0", DialectRFC9309, 5},
		{"merged groups", "User-agent: NewsBot\nDisallow: /\n\nUser-agent: NewsBot\nAllow: /x\n", "NewsBot", DialectRFC9309, 0},
		{"nobody's name", "User-agent: *\nDisallow: /\n", "*", DialectRFC9309, 2},
		{"a star is a letter in 1996", "User-agent: *\nDisallow: /*\n", "NewsBot", DialectMK1996, 0},
		{"the root in 1996", "User-agent: *\nDisallow: /\n", "NewsBot", DialectMK1996, 2},
		{"the root for Google", "User-agent: *\nDisallow: /\n", "NewsBot", DialectGoogle, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			v, closed := Parse([]byte(row.robots), Options{Dialect: row.dialect}).Agent(row.agent).DisallowsAll()
			if closed != (row.line != 0) || v.Line != row.line || v.Allowed == closed {
				t.Errorf("DisallowsAll() of %q for %q = %+v, %t; want line %d", row.robots, row.agent, v, closed, row.line)
			}
		})
	}
}

// FuzzDisallowsAll compares DisallowsAll with Verdict: if it returns true, no path is allowed except robots.txt.
func FuzzDisallowsAll(f *testing.F) {
	f.Add("User-agent: *\nDisallow: /*$\nDisallow: /x\n", "/x?y", uint8(0))
	f.Add("User-agent: a\nDisallow: *\nAllow: *\n", "/", uint8(1))
	f.Add("User-agent: *\nDisallow: /\n", "/robots.txt", uint8(2))
	f.Fuzz(func(t *testing.T, robots, path string, dialect uint8) {
		d := Dialects()[int(dialect)%len(Dialects())]
		agent := Parse([]byte(robots), Options{Dialect: d}).Agent("NewsBot")
		if _, closed := agent.DisallowsAll(); !closed {
			return
		}
		path = "/" + path
		robotsTxt := string(formNormal.appendPath(nil, pathOf(path))) == "/robots.txt"
		if v := agent.Verdict(path); v.Allowed && !robotsTxt {
			t.Errorf("%q closes the origin and allows %q in %v", robots, path, d)
		}
	})
}
