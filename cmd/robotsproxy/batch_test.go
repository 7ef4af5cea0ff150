package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/robotsproxy/robotsproxy/rules"
)

// TestBatchPlainLines holds that what is read without encoding/json is what encoding/json reads.
func TestBatchPlainLines(t *testing.T) {
	b := newBatch(rules.RFC9309)
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SampledFrom([]string{"robots", "robots_b64", "ua", "url", "url_b64", "dialect", "robots_url", "x", "Robots"})
		values := rapid.OneOf(rapid.Just("null"), rapid.Just("1"), rapid.StringMatching(`"([a-z ]|\\\\|\\"|\\u00e9|\\n|\\x|é|\t)*"`))
		spaces := rapid.SampledFrom([]string{"", "", " ", "\t"})
		var parts []string
		for range rapid.IntRange(0, 4).Draw(t, "fields") {
			s := spaces.Draw(t, "space")
			parts = append(parts, s+fmt.Sprintf("%q", names.Draw(t, "name"))+s+":"+s+values.Draw(t, "value")+s)
		}
		line := []byte("{" + strings.Join(parts, ",") + rapid.SampledFrom([]string{"}", "}", "}", "", ",}", "} x"}).Draw(t, "end"))
		var got, want question
		if !b.plain(line, &got) {
			return
		}
		if err := json.Unmarshal(line, &want); err != nil {
			t.Fatalf("%s is read, and is no JSON: %v", line, err)
		}
		if g, w := fmt.Sprint(show(got)), fmt.Sprint(show(want)); g != w {
			t.Fatalf("%s is read as %s, want %s", line, g, w)
		}
	})
}

func show(q question) (values []string) {
	for _, s := range []*string{q.Robots, q.RobotsB64, q.UA, q.URL, q.URLB64, q.Dialect, q.RobotsURL} {
		if s == nil {
			values = append(values, "none")
		} else {
			values = append(values, fmt.Sprintf("%q", *s))
		}
	}
	return values
}

// TestBatchForgets holds that a batch of ever new files answers right and keeps no more than it may.
func TestBatchForgets(t *testing.T) {
	b := newBatch(rules.RFC9309)
	pad := strings.Repeat("#", 1<<20)
	for i := range 3 * keptAtMost >> 20 {
		line := fmt.Sprintf(`{"robots":"User-agent: *\nDisallow: /%d\n%s","ua":"a","url":"/%d"}`, i, pad, i)
		if got := string(b.answer([]byte(line))); !strings.HasPrefix(got, `{"allowed":false,"line":2,`) {
			t.Fatalf("line %d: answer %s", i, got)
		}
		if b.kept > keptAtMost {
			t.Fatalf("line %d: %d octets are kept, at most %d may be", i, b.kept, keptAtMost)
		}
	}
}

// TestBatchLongLine holds that a line of any length is one line.
func TestBatchLongLine(t *testing.T) {
	short := `{"robots":"User-agent: *\nDisallow: /x","ua":"a","url":"/x"}`
	long := strings.TrimSuffix(short, "}") + `,"note":"` + strings.Repeat("x", 3<<20) + `"}`
	var out bytes.Buffer
	if err := newBatch(rules.RFC9309).run(strings.NewReader(short+"\n"+long+"\r\n"+long+"\n"+short), &out); err != nil {
		t.Fatal(err)
	}
	answers := strings.SplitAfter(out.String(), "\n")
	if len(answers) != 5 || answers[4] != "" {
		t.Fatalf("%d answers to 4 lines", len(answers)-1)
	}
	for i, got := range answers[:4] {
		if want := `{"allowed":false,"line":2,"rule":"Disallow: /x",`; !strings.HasPrefix(got, want) {
			t.Errorf("answer %d is %.200s, want %s", i, got, want)
		}
	}
}

func BenchmarkBatch(b *testing.B) {
	var in bytes.Buffer
	const lines = 1000
	for i := range lines {
		fmt.Fprintf(&in, `{"robots":"User-agent: *\nDisallow: /private/\nAllow: /private/press$\nCrawl-delay: 0.5\n","ua":"NewsBot/2.1","url":"https://site.example/private/%d?q=1"}`+"\n", i)
	}
	batch := newBatch(rules.RFC9309)
	b.ReportAllocs()
	for b.Loop() {
		if err := batch.run(bytes.NewReader(in.Bytes()), io.Discard); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(lines*b.N)/b.Elapsed().Seconds(), "lines/s")
}
