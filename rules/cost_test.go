package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/rules"
)

func TestVerdictAllocatesNothing(t *testing.T) {
	set := rules.Parse(append(site(100), "User-agent: other\nDisallow: /a*b*c$\nDisallow: /%41\n"...), rules.Options{})
	const header = "Mozilla/5.0 (compatible; Other/2.1; +https://other.example/bot)"
	agent := set.Agent(header)
	for _, target := range []string{
		"/", "/catalog/item-0/x", "/abc", "/a%20b?c=%C3%A9",
		"https://site.example/abc?d#e", "https://site.example",
		"/%61bc", "/a*b$c", "/ツ", "/100%", strings.Repeat("/%61", 300),
	} {
		if n := testing.AllocsPerRun(100, func() { sink = agent.Verdict(target) }); n != 0 {
			t.Errorf("Verdict(%.40q) allocates %v times", target, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() { agent = set.Agent(header) }); n != 0 {
		t.Errorf("Agent(%q) allocates %v times", header, n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = agent.CrawlDelay() }); n != 0 {
		t.Errorf("CrawlDelay() allocates %v times", n)
	}
}

// TestCostIsLinear measures each case at one size and at eight times that size in the same run. A linear cost grows 8
// times, a quadratic cost 64 times. The test fails if the growth is nearer to the second.
func TestCostIsLinear(t *testing.T) {
	if testing.Short() {
		t.Skip("measures time")
	}
	verdict := func(pattern, target string) func() {
		agent := rules.Parse([]byte("User-agent: *\nDisallow: "+pattern+"\n"), rules.Options{}).Agent("*")
		return func() { sink = agent.Verdict(target) }
	}
	parse := func(body string) func() {
		return func() { rules.Parse([]byte(body), rules.Options{}) }
	}
	tests := []struct {
		name string
		at   func(n int) func() // n: 1 or 8
	}{
		{"stars that match", func(n int) func() {
			return verdict("/"+strings.Repeat("*a", 512*n), "/"+strings.Repeat("a", 2048*n))
		}},
		{"stars that fail at the end", func(n int) func() {
			return verdict("/"+strings.Repeat("*a", 512*n)+"*b", "/"+strings.Repeat("a", 2048*n))
		}},
		{"a literal that nearly matches everywhere", func(n int) func() {
			return verdict("/*"+strings.Repeat("a", 64*n)+"b", "/"+strings.Repeat("a", 2048*n))
		}},
		{"literals that nearly match everywhere", func(n int) func() {
			return verdict("/"+strings.Repeat("*aaaaaaab", 56*n), "/"+strings.Repeat("a", 2048*n))
		}},
		{"one literal prefix of another", func(n int) func() {
			var b strings.Builder
			b.WriteString("User-agent: *\n")
			for i := range 64 * n {
				b.WriteString("Disallow: /" + strings.Repeat("a", i%1024) + "$\n")
			}
			agent := rules.Parse([]byte(b.String()), rules.Options{}).Agent("*")
			return func() { sink = agent.Verdict("/" + "aaaaaaaaaaaaaaaab") }
		}},
		{"lines that end in CR", func(n int) func() { return parse(strings.Repeat("Disallow: /x\r", 4096*n)) }},
		{"rules in no order", func(n int) func() { return parse(string(site(1000 * n))) }},
		{"agents of one group", func(n int) func() {
			return parse(strings.Repeat("User-agent: a\nUser-agent: b\nCrawl-delay: 1\n", 512*n))
		}},
		{"delays of one list", func(n int) func() {
			return parse(strings.Repeat("User-agent: a\n", 512*n) + strings.Repeat("Crawl-delay: 1\n", 512*n))
		}},
		{"groups of one agent", func(n int) func() { return parse(strings.Repeat("User-agent: a\nDisallow: /a\n", 512*n)) }},
		{"rates of other agents", func(n int) func() {
			body := strings.Repeat("User-agent: b\n", 512*n) + strings.Repeat("Request-rate: 1/5\n", 512*n) + "User-agent: *\nDisallow: /x\n"
			agent := rules.Parse([]byte(body), rules.Options{}).Agent("a")
			return func() { agent.RequestRate() }
		}},
		{"hours that are none", func(n int) func() {
			body := strings.Repeat("User-agent: b\n", 512*n) + "User-agent: a\n" + strings.Repeat("Visit-time: never\n", 512*n)
			agent := rules.Parse([]byte(body), rules.Options{}).Agent("a")
			return func() { agent.VisitTime() }
		}},
		{"usages of lists in one group", func(n int) func() {
			body := strings.Repeat("User-agent: b\n", 512*n) + strings.Repeat("Request-rate: 1/5\nUser-agent: b\nContent-Usage: x\n", 256*n)
			agent := rules.Parse([]byte("User-agent: a\nDisallow: /x\n"+body), rules.Options{}).Agent("a")
			return func() { agent.ContentUsage("/") }
		}},
		{"a header of many words", func(n int) func() {
			set := rules.Parse(site(10), rules.Options{})
			header := strings.Repeat("a/1 (b; c) ", 256*n)
			return func() { set.Agent(header) }
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			small, large := tt.at(1), tt.at(8)
			ratio := 0.0
			for range 5 { // other programs on the machine can spoil a ratio
				ratio = float64(fastest(large)) / float64(fastest(small))
				if ratio < 24 {
					return
				}
			}
			t.Errorf("eight times the size takes %.1f times as long, want about 8", ratio)
		})
	}
}

// fastest returns the shortest time that f takes, which other work on the machine affects least.
func fastest(f func()) time.Duration {
	least := time.Duration(1 << 62)
	for range 12 {
		start := time.Now()
		f()
		least = min(least, time.Since(start))
	}
	return max(least, 1)
}
