package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/rules"
)

// answers returns the answer to each line.
func answers(t *testing.T, lines ...string) []string {
	t.Helper()
	var out bytes.Buffer
	if err := (&batch{}).run(strings.NewReader(strings.Join(lines, "\n")), &out); err != nil {
		t.Fatal(err)
	}
	all := slices.Collect(strings.Lines(out.String()))
	if len(all) != len(lines) {
		t.Fatalf("%d answers to %d lines", len(all), len(lines))
	}
	return all
}

// TestBatchFiles checks that a line is judged by its own file, not by that of the previous line.
func TestBatchFiles(t *testing.T) {
	const text = `User-agent: *\nDisallow: http://a.example/x\nDisallow: /y\n`
	b64 := base64.StdEncoding.EncodeToString([]byte("User-agent: *\nDisallow: /y\n"))
	files := []struct{ fields, ua, url, want string }{
		{`"robots":"` + text + `"`, "a", "/y", `{"allowed":false,"line":3,`},
		{`"robots":"` + text + `","dialect":"www-robotrules","robots_url":"http://b.example/robots.txt"`, "a", "http://a.example/x", `{"allowed":true,"line":0,`},
		{`"robots":"` + text + `","dialect":"www-robotrules","robots_url":"http://a.example/robots.txt"`, "a", "http://a.example/x", `{"allowed":false,"line":2,`},
		{`"robots_b64":"` + b64 + `"`, "a", "/y", `{"allowed":false,"line":2,`},
		{`"robots":"` + b64 + `"`, "a", "/y", `{"allowed":true,"line":0,`},
		{`"robots":""`, "a", "/y", `{"allowed":true,"line":0,`},
		{`"robots_b64":"!"`, "a", "/y", `{"error":"reading robots_b64: `},
		{`"robots":"User-agent: b\nDisallow: /\nUser-agent: c\nAllow: /"`, "b", "/y", `{"allowed":false,"line":2,`},
		{`"robots":"User-agent: b\nDisallow: /\nUser-agent: c\nAllow: /"`, "c", "/y", `{"allowed":true,"line":4,`},
	}
	var lines, want []string
	for _, f := range files {
		for _, g := range files {
			for _, q := range []struct{ fields, ua, url, want string }{f, g} {
				lines = append(lines, fmt.Sprintf(`{%s,"ua":%q,"url":%q}`, q.fields, q.ua, q.url))
				want = append(want, q.want)
			}
		}
	}
	for i, got := range answers(t, lines...) {
		if !strings.HasPrefix(got, want[i]) {
			t.Errorf("after %s\nthe answer to %s is %s, want %s", lines[max(0, i-1)], lines[i], got, want[i])
		}
	}
}

// TestBatchFaults checks that a line with a fault has its own error, and that the lines around it are answered.
func TestBatchFaults(t *testing.T) {
	const good = `{"robots":"User-agent: *\nDisallow: /","ua":"a","url":"/x"}`
	for _, row := range []struct{ line, want string }{
		{"", "unexpected end of JSON input"},
		{"{", "unexpected end of JSON input"},
		{good + " x", "invalid character 'x' after top-level value"},
		{"[]", "cannot unmarshal array"},
		{`{"ua":1}`, "cannot unmarshal number"},
		{"<p>", "invalid character '<'"},
		{`{"ua":"a","url":"/x"}`, "robots is missing"},
		{`{"robots":null,"ua":"a","url":"/x"}`, "robots is missing"},
		{`{"robots":"","url":"/x"}`, "ua is missing"},
		{`{"robots":"","ua":"a"}`, "url is missing"},
		{`{"robots":"","ua":"a","url":"/","url_b64":"Lw=="}`, "both url and url_b64"},
		{`{"robots":"","ua":"a","url_b64":"!"}`, "reading url_b64: "},
		{`{"robots":"","robots_b64":"","ua":"a","url":"/"}`, "both robots and robots_b64"},
		{`{"robots":"","ua":"a","url":"/","dialect":"x"}`, `no dialect "x"`},
	} {
		got := answers(t, good, row.line, good)
		for _, i := range []int{0, 2} {
			if !strings.HasPrefix(got[i], `{"allowed":false,`) {
				t.Errorf("beside %s: %s", row.line, got[i])
			}
		}
		var fault map[string]string
		if err := json.Unmarshal([]byte(got[1]), &fault); err != nil || len(fault) != 1 || !strings.Contains(fault["error"], row.want) {
			t.Errorf("the answer to %q is %s, %v, want an error of %q", row.line, got[1], err, row.want)
		}
	}
}

// TestBatchLongLine checks that a line may be of any length.
func TestBatchLongLine(t *testing.T) {
	short := `{"robots":"User-agent: *\nDisallow: /x","ua":"a","url":"/x"}`
	long := strings.TrimSuffix(short, "}") + `,"note":"` + strings.Repeat("x", 3<<20) + `"}`
	for i, got := range answers(t, short, long+"\r", long, short) {
		if want := `{"allowed":false,"line":2,"rule":"Disallow: /x",`; !strings.HasPrefix(got, want) {
			t.Errorf("answer %d is %.200s, want %s", i, got, want)
		}
	}
}

// TestBatchAnswersAtOnce checks that a line is answered before the next is written.
func TestBatchAnswersAtOnce(t *testing.T) {
	in, lines := io.Pipe()
	results, out := io.Pipe()
	ended := make(chan error)
	go func() { ended <- (&batch{}).run(in, out) }()
	answer := make([]byte, 1000)
	for range 3 {
		if _, err := io.WriteString(lines, `{"robots":"","ua":"a","url":"/"}`+"\n"); err != nil {
			t.Fatal(err)
		}
		n, err := results.Read(answer)
		if err != nil || !bytes.HasPrefix(answer[:n], []byte(`{"allowed":true,`)) || answer[n-1] != '\n' {
			t.Errorf("the answer is %q, %v", answer[:n], err)
		}
	}
	lines.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func BenchmarkBatch(b *testing.B) {
	var in bytes.Buffer
	const lines = 1000
	for i := range lines {
		fmt.Fprintf(&in, `{"robots":"User-agent: *\nDisallow: /private/\nAllow: /private/press$\nCrawl-delay: 0.5\n","ua":"NewsBot/2.1","url":"https://site.example/private/%d?q=1"}`+"\n", i)
	}
	batch := &batch{dialect: rules.DialectRFC9309}
	b.ReportAllocs()
	for b.Loop() {
		if err := batch.run(bytes.NewReader(in.Bytes()), io.Discard); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(lines*b.N)/b.Elapsed().Seconds(), "lines/s")
}
