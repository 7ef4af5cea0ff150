package fields

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestResponseUsage(t *testing.T) {
	for _, row := range []struct {
		name   string
		fields []string // names and values
		want   string
	}{
		{"nothing", []string{"Content-Type", "text/html", "Link", "</a.css>; rel=preload"}, ""},
		{"Content-Usage", []string{"Content-Usage", "train-ai=n, search=y;x=1"}, "search=y train-ai=n"},
		{"two lines of it", []string{"Content-Usage", "train-ai=n", "Content-Usage", "ai-use=y"}, "ai-use=y train-ai=n"},
		{"the last of a category counts", []string{"Content-Usage", "train-ai=n, train-ai=y"}, "train-ai=y"},
		{"values that mean unknown", []string{"Content-Usage", `train-ai, search="n", ai-use=no`}, ""},
		{"not a dictionary", []string{"Content-Usage", "Train-AI=n"}, ""},
		{"Content-Signal", []string{"Content-Signal", "Search=yes, ai-train = NO,use=reference"}, "ai-train=no search=yes use=reference"},
		{"no Content-Signal", []string{"Content-Signal", "search=y, =no, a b=no, x"}, ""},
		{"X-Robots-Tag", []string{"X-Robots-Tag", "NoAI, noimageai, all, max-snippet: 20, shout"}, "x-robots-tag=noai,noimageai"},
		{
			"for one crawler",
			[]string{"X-Robots-Tag", "none, OtherBot: noindex, nofollow", "X-Robots-Tag", "noindex"},
			"x-robots-tag=noindex,none,otherbot:nofollow,otherbot:noindex",
		},
		{"a date", []string{"X-Robots-Tag", "unavailable_after: 25 Jun 2010 15:00:00 GMT"}, "x-robots-tag=unavailable_after:2010-06-25T15:00:00Z"},
		{
			"a date with a comma",
			[]string{"X-Robots-Tag", "unavailable_after: Wed, 03 Dec 2025 13:09:53 GMT, noai"},
			"x-robots-tag=noai,unavailable_after:2025-12-03T13:09:53Z",
		},
		{"a date in a zone that is not known", []string{"X-Robots-Tag", "unavailable_after: 25 Jun 2010 15:00:00 PST"}, "x-robots-tag=unavailable_after"},
		{
			"TDMRep",
			[]string{"Tdm-Reservation", "1", "Tdm-Policy", "https://u:p@a.example/p;x.json"},
			"tdm-policy=https://a.example/p%3Bx.json tdm-reservation=1",
		},
		{"no TDMRep", []string{"Tdm-Reservation", "yes", "Tdm-Policy", "/p.json"}, ""},
		{
			"a license",
			[]string{"Link", `</x>; rel=next, <https://a.example/l.xml>; rel="license"; type="application/rsl+xml"`},
			"license=https://a.example/l.xml",
		},
		{"broken links", []string{"Link", "<", "Link", "<https://a.example/>; rel", "Link", "x"}, ""},
		{"control characters", []string{"Tdm-Policy", "https://a.example/\x1b[2J", "Content-Signal", "a\x00=no"}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := http.Header{}
			for i := 0; i < len(row.fields); i += 2 {
				h.Add(row.fields[i], row.fields[i+1])
			}
			got := strings.TrimPrefix(UsageText("header", ResponseUsage(h)), "header: ")
			if got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

// All tags of a long header are read, in preferences that are each short enough.
func TestManyTags(t *testing.T) {
	var line strings.Builder
	for i := range 50 {
		fmt.Fprintf(&line, "bot%02d: noai, ", i)
	}
	var tags int
	for _, p := range ResponseUsage(http.Header{"X-Robots-Tag": {line.String()}}) {
		tags += strings.Count(p, ":noai")
		if !strings.HasPrefix(p, "x-robots-tag=bot") || len(p) > maxPreference {
			t.Errorf("%d bytes: %s", len(p), p)
		}
	}
	if tags != 50 {
		t.Errorf("%d of 50 tags", tags)
	}
}

func TestStatedIn(t *testing.T) {
	const usage = "robots.txt: ai-train=no search=yes; header: tdm-reservation=1; html: robots=noai"
	for source, want := range map[string]string{"robots.txt": "ai-train=no search=yes", "header": "tdm-reservation=1", "html": "robots=noai", "x": ""} {
		if got := strings.Join(StatedIn(usage, source), " "); got != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}

func TestUsageTextIsBounded(t *testing.T) {
	var all []string
	for c := 'a'; c <= 'z'; c++ {
		all = append(all, strings.Repeat(string(c), 100)+"=no")
	}
	got := UsageText("header", append(all, all...))
	if len(got) > maxUsage+len(" ...") || !strings.HasSuffix(got, "=no ...") || strings.Count(got, "aaa=") != 1 {
		t.Errorf("got %d bytes: %s", len(got), got)
	}
	if got := ContentSignal(strings.Repeat("a", maxPreference) + "=no"); got != nil {
		t.Errorf("a long preference is not omitted: %s", got)
	}
}

func TestNoUsageAllocatesNothing(t *testing.T) {
	h := http.Header{"Content-Type": {"text/html"}, "Server": {"x"}}
	if n := testing.AllocsPerRun(100, func() { _ = UsageText("header", ResponseUsage(h)) + CrawlerPrice(h) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCrawlerPrice(t *testing.T) {
	for want, h := range map[string]http.Header{
		"":                 {"Content-Type": {"text/html"}},
		"USD 0.01":         {"Crawler-Price": {"USD 0.01"}},
		"charged USD 0.02": {"Crawler-Charged": {"USD 0.02"}},
	} {
		if got := CrawlerPrice(h); got != want {
			t.Errorf("CrawlerPrice(%v) = %q, want %q", h, got, want)
		}
	}
}
