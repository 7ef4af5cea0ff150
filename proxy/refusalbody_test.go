package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/style"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

// refused returns the refusal of a request by a line of a robots.txt.
func refused(t testing.TB, body string, line int) *refusal {
	t.Helper()
	o, err := origin.Parse("http://a.example")
	if err != nil {
		t.Fatal(err)
	}
	f := &facts{
		URL: "http://a.example/private/<script>", Host: "a.example", Crawler: "NewsBot", UserAgent: "NewsBot/2 <script>", Contact: "https://ops.example/",
		verdict: rules.Verdict{Line: line, Rule: "Disallow: /private/", Group: rules.Group{Line: 1, Agents: "*"}}, origin: o,
		robots: &robots.Snapshot{Answer: robots.Answer{
			Origin: o, Availability: robots.Found, Status: 200, Body: []byte(body), Fetched: time.Now().Add(-41 * time.Minute), SHA256: "ab12",
		}},
	}
	ref := &refusal{Reason: policy.ReasonRobots, Rule: "line 6: Disallow: /private/", Detail: "robots.txt line 6: Disallow: /private/", Facts: func() *facts { return f }}
	ref.complete(0)
	return ref
}

const longFile = "User-agent: *\r\n# two\r\n# three\r\nAllow: /four\r\n<script>\r\nDisallow: /private/\r\n# seven\r\n# eight\r\n# nine\r\n# ten\r\n"

func bodyOf(t *testing.T, ref *refusal, accept string) (string, http.Header) {
	t.Helper()
	resp := ref.response(&http.Request{Method: "GET", Header: http.Header{"Accept": {accept}}}, "id1")
	var b strings.Builder
	if err := resp.Write(&b); err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(b.String(), "\r\n\r\n")
	return body, resp.Header
}

// The page names the URL, the crawler and the line among those around it, and what to do next.
func TestRefusalPage(t *testing.T) {
	page, header := bodyOf(t, refused(t, longFile, 6), "text/html")
	for _, text := range []string{
		"<h1>403 Disallowed by robots.txt</h1>", "The robots.txt of a.example disallows /private/&lt;script&gt; for the crawler NewsBot", "http://a.example/private/&lt;script&gt;", "NewsBot", "NewsBot/2 &lt;script&gt;",
		`<li data-n="6" class="hit">Disallow: /private/`, `<li data-n="1">User-agent: *`, `<li data-n="3" class="comment">`, `<li data-n="9" class="comment">`, `<li data-n="5">&lt;script&gt;`,
		"in the group of * (line 1)", `href="http://a.example/robots.txt"`, "fetched 41 minutes ago", `<a href="https://ops.example/">https://ops.example/</a> (request <code>id1</code>).`,
		"<code>robotsproxy check --explain &#39;http://a.example/private/&lt;script&gt;&#39; -A NewsBot</code>", `<li class="gap"`,
	} {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not contain %q\n%s", text, page)
		}
	}
	for _, text := range []string{`data-n="2"`, `data-n="10"`, "<script>"} {
		if strings.Contains(page, text) {
			t.Errorf("the page contains %q", text)
		}
	}
	if policy := header.Get("Content-Security-Policy"); policy != "default-src 'none'; style-src "+style.Source {
		t.Errorf("Content-Security-Policy %q", policy)
	}
	if !strings.Contains(page, "<style>"+style.Sheet+"</style>") {
		t.Error("the style element is not the one that the policy permits")
	}
}

func TestRefusalProblem(t *testing.T) {
	body, _ := bodyOf(t, refused(t, longFile, 6), "application/json")
	var p problem
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatal(err)
	}
	if p.URL != "http://a.example/private/<script>" || p.Crawler != "NewsBot" || p.Line != 6 || p.Group == nil || p.Group.Agents != "*" || p.RobotsURL != "http://a.example/robots.txt" ||
		p.RobotsSHA256 != "ab12" || p.RobotsFetchedAt == nil || p.Contact != "https://ops.example/" || len(p.Next) != 3 || p.RequestID != "id1" {
		t.Errorf("%+v", p)
	}
	var numbers []int
	for _, l := range p.Lines {
		numbers = append(numbers, l.Line)
		if l.Decides != (l.Line == 6) {
			t.Errorf("line %+v", l)
		}
	}
	if want := "1 3 4 5 6 7 8 9"; strings.Trim(strings.Join(strings.Fields(jsonOf(t, numbers)), ""), "[]") != strings.ReplaceAll(want, " ", ",") {
		t.Errorf("lines %v, want %s", numbers, want)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A site cannot make its refusals large.
func TestRefusalPageIsBounded(t *testing.T) {
	long := strings.Repeat("User-agent: x\n", 20000) + "Disallow: /" + strings.Repeat("é", 200<<10) + "\n"
	ref := refused(t, long, 20001)
	f := ref.facts()
	f.verdict = rules.Parse([]byte(long), rules.Options{MaxSize: len(long)}).Agent("x").Verdict("/" + strings.Repeat("é", 9<<10))
	ref.Rule = "line 20001: " + f.verdict.Rule
	ref.Detail = "robots.txt " + ref.Rule
	f.URL = elide("http://a.example/"+strings.Repeat("é", 200<<10), maxShownURL)
	if f.verdict.Line != 20001 {
		t.Fatalf("line %d decides", f.verdict.Line)
	}
	for accept, most := range map[string]int{"text/html": 24 << 10, "application/json": 64 << 10, "text/plain": 64 << 10} {
		if body, _ := bodyOf(t, ref, accept); len(body) > most {
			t.Errorf("%s: %d bytes", accept, len(body))
		}
	}
}

// Every reason has a page with a title and something to do.
func TestPageOfEachReason(t *testing.T) {
	for reason := range classes {
		ref := &refusal{Reason: reason, RetryAfter: 3 * time.Second}
		ref.complete(0)
		page, _ := bodyOf(t, ref, "text/html")
		if !strings.Contains(page, fmt.Sprintf("<h1>%d %s</h1>", ref.Status, classes[reason].title)) || !strings.Contains(page, "<li>") || !strings.Contains(page, "in 3 s") {
			t.Errorf("%s:\n%s", reason, page)
		}
	}
}

// BenchmarkRefusal is the body that a crawler, a program and a browser get.
func BenchmarkRefusal(b *testing.B) {
	ref := &refusal{Reason: policy.ReasonRobots, Rule: "line 6: Disallow: /private/", Detail: "robots.txt line 6: Disallow: /private/"}
	ref.complete(0)
	ref.Facts = refused(b, longFile, 6).Facts
	for name, accept := range map[string]string{"text": "*/*", "json": "application/json", "html": "text/html"} {
		req := &http.Request{Method: "GET", Header: http.Header{"Accept": {accept}}}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ref.response(req, "id1")
			}
		})
	}
}
