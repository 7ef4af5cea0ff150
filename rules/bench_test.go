package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/rules"
)

var sections = []string{"catalog", "account", "search", "checkout", "blog", "images", "api/v1", "en-gb/help"}

// site returns a file of n rules as shops write them: mostly prefixes, one in eight with wildcards.
func site(n int) []byte {
	var b strings.Builder
	b.WriteString("User-agent: *\n")
	for i := range n {
		section := sections[i%len(sections)]
		switch {
		case i%16 == 7:
			fmt.Fprintf(&b, "Disallow: /%s/%d/*?sort=\n", section, i)
		case i%16 == 15:
			fmt.Fprintf(&b, "Disallow: /%s/%d/*.pdf$\n", section, i)
		case i%5 == 4:
			fmt.Fprintf(&b, "Allow: /%s/item-%d/public\n", section, i)
		default:
			fmt.Fprintf(&b, "Disallow: /%s/item-%d/\n", section, i)
		}
	}
	return []byte(b.String())
}

var sink rules.Verdict

func BenchmarkVerdict(b *testing.B) {
	for _, n := range []int{5, 25, 250, 10_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			agent := rules.Parse(site(n), rules.Options{}).Agent("NewsBot")
			var targets [256]string
			for i := range targets { // half of them under a rule
				targets[i] = fmt.Sprintf("/%s/item-%d/reviews?page=2", sections[i%len(sections)], i*n/128)
			}
			b.ReportAllocs()
			i := uint8(0)
			for b.Loop() {
				sink = agent.Verdict(targets[i])
				i++
			}
		})
	}
}

func BenchmarkVerdictOf(b *testing.B) {
	stars := "/" + strings.Repeat("*a", 60) + "*zz"
	tests := []struct{ name, rule, target string }{
		{"escapes", "/a%20b", "/a%20b/c"},
		{"unnormalised", "/a%20b", "/%61%20b/%c3%a9"},
		{"absolute", "/a", "https://site.example/a/b?c=d"},
		{"wildcard", "/*/print$", "/articles/2024/05/some-long-title/print"},
		{"stars", stars, "/" + strings.Repeat("ab", 1000)},
		{"long", "/*zz", "/" + strings.Repeat("ab", 1000)},
	}
	for _, tt := range tests {
		b.Run(tt.name, func(b *testing.B) {
			agent := rules.Parse([]byte("User-agent: *\nDisallow: "+tt.rule+"\n"), rules.Options{}).Agent("NewsBot")
			b.ReportAllocs()
			for b.Loop() {
				sink = agent.Verdict(tt.target)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for _, n := range []int{25, 250, 10_000} {
		body := site(n)
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			var size int
			for b.Loop() {
				size = rules.Parse(body, rules.Options{}).Size()
			}
			b.ReportMetric(float64(size)/float64(len(body)), "kept/B")
		})
	}
}

// BenchmarkParseReal parses a file and judges a path, with files of the shape of real ones.
func BenchmarkParseReal(b *testing.B) {
	files := robotstest.Files(2000, 1)
	total, kept := 0, 0
	for _, f := range files {
		total += len(f)
		kept += rules.Parse(f, rules.Options{}).Size()
	}
	b.SetBytes(int64(total))
	b.ReportAllocs()
	for b.Loop() {
		for _, f := range files {
			sink = rules.Parse(f, rules.Options{}).Agent("NewsBot").Verdict("/news/2026/report?page=2")
		}
	}
	b.ReportMetric(float64(kept)/float64(total), "kept/B")
}

func BenchmarkAgent(b *testing.B) {
	var body strings.Builder
	for i := range 130 {
		fmt.Fprintf(&body, "User-agent: Crawler%d\n", i)
	}
	body.WriteString("Disallow: /\n")
	set := rules.Parse([]byte(body.String()), rules.Options{})
	const header = "Mozilla/5.0 (compatible; Crawler77/2.1; +https://crawler.example/bot)"
	b.ReportAllocs()
	for b.Loop() {
		if a := set.Agent(header); a.Token() != "crawler77" {
			b.Fatalf("Agent(%q).Token() = %q", header, a.Token())
		}
	}
}

func BenchmarkAgentOfGroups(b *testing.B) {
	var body strings.Builder
	for i := range 500 {
		fmt.Fprintf(&body, "User-agent: Crawler-%c%cbot\nDisallow: /%d\n\n", 'a'+i/26, 'a'+i%26, i)
	}
	for _, d := range rules.Dialects() {
		b.Run(d.String(), func(b *testing.B) {
			set := rules.Parse([]byte(body.String()), rules.Options{Dialect: d})
			b.ReportAllocs()
			for b.Loop() {
				if a := set.Agent("Crawler-sjbot/2.1 (+https://crawler.example/bot)"); a.Token() != "crawler-sjbot" {
					b.Fatal("not found")
				}
			}
		})
	}
}
