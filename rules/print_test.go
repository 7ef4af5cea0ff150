package rules_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/rules"
)

// checkRoundTrip checks that the printed form of a Ruleset is equivalent to the Ruleset, for an agent and a target.
func checkRoundTrip(set *rules.Ruleset, opts rules.Options, userAgent, target string) error {
	text := set.String()
	opts.ContentType, opts.MaxSize = "", 4*len(text)+1
	again := rules.Parse([]byte(text), opts)
	if diff := cmp.Diff(said(set, userAgent, target), said(again, userAgent, target)); diff != "" {
		return fmt.Errorf("in %v, agent %q, target %q: String() reads otherwise (-file +String):\n%s\n%q", opts.Dialect, userAgent, target, diff, text)
	}
	return nil
}

// saying is the answer of a Ruleset, without line numbers.
type saying struct {
	Allowed, HasDelay, HasRate, HasTime, HasUsage bool
	Rule, Token, Host                             string
	Delay, Rate, Time, Usage                      any
	Sitemaps, Fields                              []string
}

func said(set *rules.Ruleset, userAgent, target string) (s saying) {
	agent := set.Agent(userAgent)
	v := agent.Verdict(target)
	s.Allowed, s.Rule, s.Token, s.Host = v.Allowed, v.Rule, agent.Token(), set.Host()
	s.Delay, s.HasDelay = agent.CrawlDelay()
	s.Rate, s.HasRate = agent.RequestRate()
	s.Time, s.HasTime = agent.VisitTime()
	usage, ok := agent.ContentUsage(target)
	s.Usage, s.HasUsage = usage.Preferences, ok
	s.Sitemaps = set.Sitemaps()
	for _, f := range set.Fields("sitemap", "content-signal", "license") {
		s.Fields = append(s.Fields, f.Name+"="+f.Value)
	}
	return s
}

func TestString(t *testing.T) {
	tests := []struct {
		name    string
		dialect rules.Dialect
		robots  string
		want    string
	}{
		{"comments and blank lines", rules.DialectRFC9309, "# a\n\nUser-agent: a # b\n\nDisallow: /x # c\n", "User-agent: a\nDisallow: /x\n"},
		{"keys of groups", rules.DialectRFC9309, "useragent:a\nuser agent : b/1.0\ndisalow /x\n", "User-agent: a\nUser-agent: b/1.0\ndisalow /x\n"},
		{"groups", rules.DialectRFC9309, "User-agent: a\nDisallow: /\nUser-agent: b\nAllow: /\n", "User-agent: a\nDisallow: /\n\nUser-agent: b\nAllow: /\n"},
		{"a group without rules", rules.DialectRFC9309, "User-agent: a\nDisallow:\nUser-agent: b\n", "User-agent: a\nDisallow:\n\nUser-agent: b\nDisallow:\n"},
		{
			"what is nobody's", rules.DialectRFC9309, "Disallow: /y\nUser-agent: a\nDisallow: /x\nUser-agent: !\nDisallow: /\nCrawl-delay: 3\nSitemap: /s\n",
			"User-agent: a\nDisallow: /x\nSitemap: /s\n",
		},
		{
			"fields", rules.DialectRFC9309, "License: /l\nUser-agent: a\nCrawl-delay: 2\nUser-agent: b\nCrawl-delay: 5\nDisallow: /\nContent-Signal: x=y\n",
			"License: /l\n\nUser-agent: a\nCrawl-delay: 2\nUser-agent: b\nCrawl-delay: 5\nDisallow: /\nContent-Signal: x=y\n",
		},
		{
			"rules in front of groups", rules.DialectRobotstxtRB, "Disallow: /x\nUser-agent: a\nDisallow: /*.pdf$\n",
			"User-agent: *\nDisallow: /x\n\nUser-agent: a\nDisallow: /*.pdf$\n",
		},
		{"a blank line ends a group", rules.DialectMK1996, "User-agent: a\nDisallow:\n\nCrawl-delay: 3\n", "User-agent: a\nDisallow:\n\nCrawl-delay: 3\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := rules.Parse([]byte(tt.robots), rules.Options{Dialect: tt.dialect}).String()
			if got != tt.want {
				t.Errorf("String() = %q, want %q of\n%s", got, tt.want, tt.robots)
			}
		})
	}
}

// TestStringOfVectors checks the round trip for the files of the conformance vectors.
func TestStringOfVectors(t *testing.T) {
	for file, vectors := range readVectors(t) {
		for i, v := range vectors {
			for _, d := range rules.Dialects() {
				opts := rules.Options{Dialect: d, RobotsURL: v.RobotsURL}
				if err := checkRoundTrip(rules.Parse(v.body(), opts), opts, v.UA, v.target()); err != nil {
					t.Fatalf("%s:%d: %v\n%q", file, i+1, err, v.body())
				}
			}
		}
	}
}

func TestStringOfGenerated(t *testing.T) {
	g := newGenerator(7)
	for range 3000 {
		body := g.lines()
		for _, d := range rules.Dialects() {
			opts := rules.Options{Dialect: d, RobotsURL: "http://a.example/robots.txt"}
			set := rules.Parse([]byte(body), opts)
			for range 4 {
				if err := checkRoundTrip(set, opts, g.pick("a", "b", "ab/1.0", "c", "*"), g.path()); err != nil {
					t.Fatalf("%v\n%q", err, body)
				}
			}
		}
	}
}

// lines returns a file of all kinds of lines in random order.
func (g generator) lines() string {
	var body string
	for range g.IntN(24) {
		body += g.pick(" ", "", "", "", "", "x ", "\t", "\xEF\xBB\xBF", "\x00")
		body += g.pick("User-agent", "User-agent", "useragent", "user agent", "Disallow", "Disallow", "Allow", "disallows", "Crawl-delay",
			"Request-rate", "Visit-time", "Sitemap", "Content-Usage", "Content-Signal", "License", "Host", "#", "x", "")
		body += g.pick(":", ": ", ": ", ": ", " : ", " ", "")
		body += g.pick("a", "b", "*", "ab", "a b", "!", "", "/", "/a", "/b$", "/*a$", "1", "2.5", "1/5m", "0100-0200", "/a/index.html",
			"http://a.example/b", "http://b.example/", "%2A%24", "/%61%2f", "/a train-ai=n", "train-ai=y", "a.example", "\xC3\xA9")
		body += g.pick("", "", "", " ", " # c", "#c", "\x00x", "\v")
		body += g.pick("\n", "\n", "\n", "\n\n", "\r", "\r\n")
	}
	return body
}

// TestStringIsPlain checks that every printed line is understood.
func TestStringIsPlain(t *testing.T) {
	set := rules.Parse([]byte("User-agent: a\nnonsense\n<b>\nDisallow: /x\n"), rules.Options{})
	if got, want := set.String(), "User-agent: a\nDisallow: /x\n"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
	if got := set.Fields(); !slices.Equal(got, nil) {
		t.Errorf("Fields() = %v, want none", got)
	}
}

// TestUnderstood checks that only the rules of a web page remain.
func TestUnderstood(t *testing.T) {
	const page = "<!doctype html>\nPassword: x\nuser-agent: a\nToken: y\nDisallow: /x\nCrawl-delay: 2\nLicense: /l\nUser-agent: *\nDisallow: /y\nSitemap: https://a.example/s\nprose\n"
	const want = "User-agent: a\nDisallow: /x\nCrawl-delay: 2\n\nUser-agent: *\nDisallow: /y\nSitemap: https://a.example/s\n"
	set := rules.Parse([]byte(page), rules.Options{})
	if got := set.Understood(); got != want {
		t.Errorf("Understood() = %q, want %q", got, want)
	}
	if got := rules.Parse([]byte("Password: x\n"), rules.Options{}).Understood(); got != "" {
		t.Errorf("Understood() without rules = %q, want nothing", got)
	}
}
