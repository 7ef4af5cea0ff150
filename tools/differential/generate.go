package main

import (
	"math/rand/v2"
	"regexp"
	"strings"
)

// question is a file, and the agents and targets to judge by it.
type question struct {
	robots  []byte
	agents  []string
	targets []string
}

// paths have what patterns and targets are made of. The clean ones are in normal form, and no crawler reads them
// differently.
var (
	cleanParts = []string{"/", "/a", "/b", "a", "b", "ab", ".html", "?", "?q=", "=", "&", "-", "~", "_"}
	wildParts  = append([]string{
		"%61", "%2f", "%2F", "%7e", "%2A", "%24", "%", "%zz", "ä", "\xe4", " ", "#", "$", "+", "\"", "{", "|", "\x00", "\t",
		";", "/index.html", "//", ":", "://", "/robots.txt",
	}, cleanParts...)
	agentNames = []string{"FooBot", "BarBot", "foo-bot", "Foo_Bot"}
	wildNames  = append([]string{"Bot2", "Foo.Bot", "FooBot/1.0", "FooBot Images", "*", "*Bot", "* all", "", "!", "Bött", "*\t", "FooBot*"}, agentNames...)
	wildKeys   = []string{
		"Disallow", "Allow", "disallow", "DISALLOW", "Dissallow", "Disalow", "Diasllow", "Disallaw", "Disallows", "Disallow;",
		"Disallow\u00a0", "Allowed", "Allow ", "Disalllow", "Noindex", "Crawl-delay", "Sitemap", "X", "", "Allow-all",
	}
	agentKeys = []string{"User-agent", "user-agent", "Useragent", "User agent", "User-agents", "User_agent", "User-agent "}
	joints    = []string{": ", ":", " : ", " ", "\t", ":\t", "", "::"}
	ends      = []string{"\n", "\n", "\n", "\r\n", "\r", "\n\n", " \n", " # text\n", "#\n", "\x00\n"}
	beginning = []string{"\xEF\xBB\xBF", "\xEF\xBB", "\xEF", "\xFE\xFF", "\xFF\xFE", "\xBF", "\u00a0", "# text\n", "\n", "Disallow: /\n"}
)

func pick(r *rand.Rand, from []string) string { return from[r.IntN(len(from))] }

// path returns a path of a few parts, with wildcards if it is a pattern.
func path(r *rand.Rand, parts []string, pattern bool) string {
	var b strings.Builder
	if !pattern || r.IntN(10) > 0 {
		b.WriteByte('/')
	}
	for range r.IntN(5) {
		if pattern && r.IntN(6) == 0 {
			b.WriteByte('*')
		}
		b.WriteString(pick(r, parts))
	}
	if pattern && r.IntN(8) == 0 {
		b.WriteByte('$')
	}
	return b.String()
}

// clean returns a file that follows the grammar of RFC 9309, section 2.2.
func clean(r *rand.Rand) question {
	var b strings.Builder
	for range 1 + r.IntN(3) {
		for range 1 + r.IntN(2) {
			b.WriteString("User-agent: " + pick(r, append(agentNames, "*")) + "\n")
		}
		for range r.IntN(5) {
			b.WriteString(pick(r, []string{"Disallow: ", "Allow: "}) + path(r, cleanParts, true) + "\n")
		}
		b.WriteString(pick(r, []string{"", "\n", "Sitemap: https://site.example/s\n"}))
	}
	return question{[]byte(b.String()), agentNames[:2], targets(r, cleanParts, b.String())}
}

// wild returns a file with the mistakes of real files.
func wild(r *rand.Rand) question {
	var b strings.Builder
	if r.IntN(8) == 0 {
		b.WriteString(pick(r, beginning))
	}
	for range 2 + r.IntN(8) {
		b.WriteString(line(r))
		for r.IntN(12) == 0 { // a line end is missing
			b.WriteString(pick(r, []string{" ", "\t", "", " x "}) + line(r))
		}
		b.WriteString(pick(r, ends))
	}
	return question{[]byte(b.String()), []string{"FooBot", "BarBot", "Bot2"}, targets(r, wildParts, b.String())}
}

func line(r *rand.Rand) string {
	if r.IntN(3) == 0 {
		return pick(r, agentKeys[:1+r.IntN(len(agentKeys))]) + pick(r, joints[:1+r.IntN(len(joints))]) + pick(r, wildNames)
	}
	return pick(r, wildKeys[:2+r.IntN(len(wildKeys)-1)]) + pick(r, joints[:1+r.IntN(len(joints))]) + path(r, wildParts, true)
}

func targets(r *rand.Rand, parts []string, robots string) []string {
	list := append([]string{"/"}, targetsOf(robots, 4)...)
	if r.IntN(20) == 0 {
		list = append(list, "/robots.txt")
	}
	for range 4 {
		list = append(list, path(r, parts, false))
	}
	for i := range list {
		list[i] = strings.ReplaceAll(list[i], "\x00", "") // no request can have one
	}
	return list
}

// values are those of the rules of a file.
var values = regexp.MustCompile(`(?im)^[^#\r\n]*?allow[^:#\r\n]*:[ \t]*([^#\r\n]+?)[ \t]*(?:#|\r|$)`)

// targetsOf returns targets that rules of a file match, or nearly match.
func targetsOf(robots string, most int) (list []string) {
	for _, m := range values.FindAllStringSubmatch(robots, -1) {
		if len(list) >= most {
			break
		}
		target := strings.ReplaceAll(strings.TrimSuffix(m[1], "$"), "*", "x")
		if !strings.HasPrefix(target, "/") {
			target = "/" + target
		}
		list = append(list, target)
		if len(list) < most {
			list = append(list, target+"y")
		}
	}
	return list
}

// named are the agents of a file.
var named = regexp.MustCompile(`(?im)^[ \t]*user-?agent[^:\r\n]*:[ \t]*([A-Za-z0-9_.-]+)`)

// real returns the question of a real file: agents that it names, another one, and targets of its rules.
func real(robots []byte) question {
	q := question{robots: robots, agents: []string{"SomeBot"}, targets: []string{"/", "/robots.txt", "/some/page?id=1"}}
	for _, m := range named.FindAllSubmatch(robots, 3) {
		q.agents = append(q.agents, string(m[1]))
	}
	q.targets = append(q.targets, targetsOf(string(robots), 21)...)
	return q
}
