package rules_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/rules"
)

// TestMaxSize cuts one file at every size: a rule is read whole or not at all (2.5).
func TestMaxSize(t *testing.T) {
	const robots = "User-agent: a\r\nDisallow: /xyz\r\n"
	whole := len("User-agent: a\r\nDisallow: /xyz")
	for size := 1; size <= len(robots)+1; size++ {
		set := rules.Parse([]byte(robots), rules.Options{MaxSize: size})
		if got, want := set.Agent("a").Verdict("/xyz").Allowed, size < whole; got != want {
			t.Errorf("MaxSize %d: Verdict(/xyz).Allowed = %v, want %v", size, got, want)
		}
		if got := set.Agent("a").Verdict("/xy").Allowed; !got {
			t.Errorf("MaxSize %d: a cut rule disallows /xy", size)
		}
		if got, want := set.Truncated(), size < len(robots); got != want {
			t.Errorf("MaxSize %d: Truncated() = %v, want %v", size, got, want)
		}
	}
}

// TestMaxSizeUTF16 does the same for UTF-16, including characters with a byte that looks like a line end.
func TestMaxSizeUTF16(t *testing.T) {
	for _, bigEndian := range []bool{false, true} {
		robots := utf16("User-agent: a\nDisallow: /x\u0a0ay\nDisallow: /xz\n", bigEndian)
		for size := 1; size < len(robots); size++ {
			set := rules.Parse([]byte(robots), rules.Options{MaxSize: size})
			for _, path := range []string{"/", "/x", "/x\u0a0a"} {
				if got := set.Agent("a").Verdict(path); !got.Allowed || !set.Truncated() {
					t.Errorf("MaxSize %d: Truncated() = %v, Verdict(%q) = %+v: a cut rule", size, set.Truncated(), path, got)
				}
			}
		}
	}
}

func TestDefaultMaxSize(t *testing.T) {
	const rule = "Disallow: /last"
	for _, tt := range []struct {
		name string
		size int // bytes before the rule
		read bool
	}{
		{"2.5/500 KiB are read", 512_000 - len(rule), true},
		{"2.5/and no more", 512_001 - len(rule), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := []byte("User-agent: *\n")
			body = append(body, bytes.Repeat([]byte("\n"), tt.size-len(body))...)
			body = append(body, rule...)
			set := rules.Parse(body, rules.Options{})
			if got := !set.Agent("a").Verdict("/last").Allowed; got != tt.read || set.Truncated() == tt.read {
				t.Errorf("%d octets: rule read %v, Truncated() %v, want %v, %v", len(body), got, set.Truncated(), tt.read, !tt.read)
			}
		})
	}
}

// TestMaxLine checks that a line is cut at 16 KiB, and not within an escape.
func TestMaxLine(t *testing.T) {
	const key = "Disallow: "
	const max = 16<<10 - len(key)
	long := "/" + strings.Repeat("x", max-1)
	tests := []struct {
		name, pattern, target string
		allowed               bool
	}{
		{"all that fits counts", long, long[:max-1], true},
		{"what does not fit does not", long + "y", long + "z", false},
		{"escape cut after one octet", long[:max-1] + "%C3%A9", long[:max-1] + "%C3%A9", false},
		{"escape cut after two", long[:max-2] + "%C3%A9", long[:max-2] + "%C3%A9", false},
		{"escape that fits", long[:max-3] + "%C3%A9", long[:max-3] + "%C4", true},
		{"the longest normal form", "/" + strings.Repeat("\xFF", max-1), "/" + strings.Repeat("%FF", max-1), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set := rules.Parse([]byte("User-agent: *\n"+key+tt.pattern+"\nDisallow: /next\n"), rules.Options{})
			if got := set.Agent("a").Verdict(tt.target); got.Allowed != tt.allowed {
				t.Errorf("Verdict(%d octets).Allowed = %v, want %v", len(tt.target), got.Allowed, tt.allowed)
			}
			if got := set.Agent("a").Verdict("/next"); got.Line != 3 {
				t.Errorf("the line after is not line 3: %+v", got)
			}
		})
	}
}

// TestParseKeepsNothing checks that changes to the bytes of a file, and parsing another, do not affect a Ruleset.
func TestParseKeepsNothing(t *testing.T) {
	body := []byte("User-agent: NewsBot\nCrawl-delay: 3\nDisallow: /x\nSitemap: https://a.example/s\n")
	set := rules.Parse(body, rules.Options{})
	for i := range body {
		body[i] = '!'
	}
	rules.Parse([]byte("User-agent: other\nAllow: /yy\nSitemap: https://b.example/t\nDisallow: /zzz\n"), rules.Options{})
	a := set.Agent("NewsBot")
	v := a.Verdict("/x")
	delay, _ := a.CrawlDelay()
	if v.Rule != "Disallow: /x" || v.Group.Agents != "NewsBot" || delay != 3*time.Second || set.Sitemaps()[0] != "https://a.example/s" {
		t.Errorf("the Ruleset changed with its source: %+v, delay %v, %q", v, delay, set.Sitemaps())
	}
}

// TestSize checks that memory is proportional to the file, even if agents share rules in many ways: rules are not
// copied for each agent.
func TestSize(t *testing.T) {
	var shared strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&shared, "User-agent: bot%d\nUser-agent: bot%d\nDisallow: /%d\n", i, i*7%4000, i)
	}
	shared.WriteString("User-agent: all\n")
	for i := range 4000 {
		fmt.Fprintf(&shared, "User-agent: bot%d\n", i)
	}
	for i := range 8000 {
		fmt.Fprintf(&shared, "Disallow: /all/%d\n", i)
	}
	tests := []struct {
		name  string
		body  string
		limit float64 // bytes kept per byte of the file
	}{
		{"a usual file", string(site(10_000)), 3},
		{"shared rules", shared.String(), 6},
		{"shortest rules", "User-agent: *\n" + strings.Repeat("allow:/\n", 10_000), 6},
		{"long patterns", "User-agent: *\n" + strings.Repeat("Disallow: /"+strings.Repeat("x", 200)+"*.pdf$\n", 1000), 1.5},
		{"comments", strings.Repeat("# nothing\n", 10_000), 0.1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			kept := rules.Parse([]byte(tt.body), rules.Options{}).Size()
			if got := float64(kept) / float64(len(tt.body)); got > tt.limit {
				t.Errorf("Size() = %d for %d octets, %.2f for each, want at most %.1f", kept, len(tt.body), got, tt.limit)
			}
		})
	}
}
