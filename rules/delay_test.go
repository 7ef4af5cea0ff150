package rules_test

import (
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/rules"
)

func TestCrawlDelayValues(t *testing.T) {
	const none = -1
	tests := []struct {
		value string
		want  time.Duration
	}{
		{"0", 0},
		{"1", time.Second},
		{"10", 10 * time.Second},
		{"007", 7 * time.Second},
		{"2.5", 2500 * time.Millisecond},
		{".3", 300 * time.Millisecond},
		{"4.", 4 * time.Second},
		{"1.234", 1234 * time.Millisecond},
		{"1.2340", 1234 * time.Millisecond},
		{"1.2341", 1235 * time.Millisecond},
		{"0.0000001", time.Millisecond},
		{"1.9999", 2 * time.Second},
		{"5 # seconds", 5 * time.Second},
		{"", none},
		{".", none},
		{"-1", none},
		{"+1", none},
		{"1e3", none},
		{"0x10", none},
		{"5s", none},
		{"5 seconds", none},
		{"1,5", none},
		{"1.2.3", none},
		{"NaN", none},
		{"inf", none},
		{"-inf", none},
		{"Infinity", none},
		{"٣", none},
	}
	for _, tt := range tests {
		got, ok := rules.Parse([]byte("User-agent: a\nCrawl-delay: "+tt.value+"\n"), rules.Options{}).Agent("a").CrawlDelay()
		if !ok {
			got = none
		}
		if got != tt.want {
			t.Errorf("Crawl-delay: %q: CrawlDelay() = %v, %v, want %v", tt.value, got, ok, tt.want)
		}
	}
}

// TestCrawlDelayTooLarge checks that no number of digits makes a short delay of a long one.
func TestCrawlDelayTooLarge(t *testing.T) {
	digits := ""
	last := time.Duration(0)
	for range 40 {
		digits += "9"
		got, ok := rules.Parse([]byte("User-agent: a\nCrawl-delay: "+digits+".9999\n"), rules.Options{}).Agent("a").CrawlDelay()
		if !ok || got < last {
			t.Errorf("Crawl-delay: %s.9999: CrawlDelay() = %v, %v, want at least %v", digits, got, ok, last)
		}
		last = got
	}
}

func TestCrawlDelayLists(t *testing.T) {
	const none = -1
	tests := []struct {
		name, robots, agent string
		want                time.Duration
	}{
		{"of its agents", "User-agent: a\nUser-agent: b\nCrawl-delay: 2\nDisallow: /\n", "a", 2 * time.Second},
		{"behind the rules", "User-agent: a\nUser-agent: b\nDisallow: /\nCrawl-delay: 2\nAllow: /x\n", "a", 2 * time.Second},
		{"one for each agent above", "User-agent: a\nCrawl-delay: 2\nUser-agent: b\nCrawl-delay: 5\nDisallow: /\n", "a", 2 * time.Second},
		{"one for each agent below", "User-agent: a\nCrawl-delay: 2\nUser-agent: b\nCrawl-delay: 5\nDisallow: /\n", "b", 5 * time.Second},
		{"none for the agent below", "User-agent: a\nCrawl-delay: 2\nUser-agent: b\nDisallow: /\n", "b", none},
		{"none for the agent above", "User-agent: a\nDisallow: /\nUser-agent: b\nCrawl-delay: 2\n", "a", none},
		{"an empty rule ends a list", "User-agent: a\nDisallow:\nUser-agent: b\nCrawl-delay: 2\n", "a", none},
		{"so does a delay that says nothing", "User-agent: a\nCrawl-delay: soon\nUser-agent: b\nCrawl-delay: 2\n", "a", none},
		{"a sitemap does not", "User-agent: a\nSitemap: /s\nUser-agent: b\nCrawl-delay: 2\n", "a", 2 * time.Second},
		{"before any agent", "Crawl-delay: 2\nUser-agent: a\nDisallow: /\n", "a", none},
		{"of an agent without name", "User-agent: a\nDisallow: /\nUser-agent: !\nCrawl-delay: 2\n", "a", none},
		{"of *", "User-agent: *\nCrawl-delay: 2\n", "a", 2 * time.Second},
		{"a named group hides that of *", "User-agent: *\nCrawl-delay: 2\nUser-agent: a\nDisallow: /\n", "a", none},
		{"a group with a delay alone is named", "User-agent: *\nDisallow: /\nUser-agent: a\nCrawl-delay: 1\n", "a", time.Second},
		{"the largest of one list", "User-agent: a\nCrawl-delay: 2\nCrawl-delay: 7\nCrawl-delay: 5\n", "a", 7 * time.Second},
		{"the largest of merged groups", "User-agent: a\nCrawl-delay: 7\nDisallow: /x\nUser-agent: a\nCrawl-delay: 2\nDisallow: /y\n", "a", 7 * time.Second},
		{"spelt crawldelay", "User-agent: a\ncrawldelay: 3.5\n", "a", 3500 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := rules.Parse([]byte(tt.robots), rules.Options{}).Agent(tt.agent).CrawlDelay()
			if !ok {
				got = none
			}
			if got != tt.want {
				t.Errorf("Agent(%q).CrawlDelay() = %v, %v, want %v in\n%s", tt.agent, got, ok, tt.want, tt.robots)
			}
		})
	}
}
