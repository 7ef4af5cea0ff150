package robotstxt_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/robotsproxy/robotsproxy/rules"
	"github.com/robotsproxy/robotsproxy/rules/robotstxt"
)

// vector is one line of temoto.jsonl: a known answer of the other parser.
type vector struct {
	Name    string          `json:"name"`
	Kind    string          `json:"kind"`
	Robots  string          `json:"robots"`
	UA      string          `json:"ua"`
	URL     string          `json:"url"`
	Status  int             `json:"status"`
	Allowed bool            `json:"allowed"`
	Expect  json.RawMessage `json:"expect"`
}

// departures are the rows, by name and question, on which the two parsers differ on purpose, with the reason.
var departures = map[string]string{
	"TestURLMatching f /fish/":                    noSlash,
	"TestURLMatching f /fish/?id=anything":        noSlash,
	"TestURLMatching f /fish/salmon.htm":          noSlash,
	"TestRobotstxtOrg Googlebot /path/page1.html": "2.2.1: a product token is matched whole, and Google is not Googlebot; the other parser matches its beginning",
	"TestParseErrors/disallow-before":             neverError,
	"TestParseErrors/crawl-delay-syntax":          neverError,
	"TestParseErrors/crawl-delay-inf":             neverError,
}

const (
	noSlash    = "2.2.2: a pattern is compared from the first octet of the path, which is a slash; the other parser puts one in front"
	neverError = "2.3.1.5: what cannot be parsed is passed over, and the rest of the file counts; the other parser refuses the file"
)

// TestConformanceVectors runs all checks of the other parser's tests.
func TestConformanceVectors(t *testing.T) {
	dir := os.Getenv("CONFORMANCE_VECTORS")
	if dir == "" {
		t.Skip("CONFORMANCE_VECTORS is not set: it names the folder that has temoto.jsonl")
	}
	f, err := os.Open(filepath.Join(dir, "temoto.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	passed, departed := map[string]int{}, map[string]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	for number := 1; lines.Scan(); number++ {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		question := strings.TrimSpace(v.Name + " " + v.UA + " " + v.URL)
		reason, listed := departures[question]
		switch err := v.check(); {
		case err == nil && listed:
			t.Errorf("temoto.jsonl:%d: %s passes, and is listed as a departure: %s", number, question, reason)
		case err == nil:
			passed[v.Kind]++
		case !listed:
			t.Errorf("temoto.jsonl:%d: %s: %v\n%s", number, question, err, v.Robots)
		default:
			departed[question] = true
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for question, reason := range departures {
		if !departed[question] {
			t.Errorf("%s is listed as a departure, and there is no such row: %s", question, reason)
		}
	}
	for _, kind := range []string{"match", "crawl_delay", "fetch_status", "host", "sitemaps"} {
		if passed[kind] == 0 {
			t.Errorf("no row of kind %s", kind)
		}
	}
	t.Logf("passed: %v, departed: %d", passed, len(departed))
}

// check returns why this parser answers v differently.
func (v *vector) check() error {
	data, err := robotstxt.FromString(v.Robots)
	if err != nil {
		return err
	}
	switch v.Kind {
	case "match":
		return v.want(v.Allowed, data.TestAgent(v.URL, v.UA))
	case "crawl_delay":
		return v.expect(data.FindGroup(v.UA).CrawlDelay.Seconds())
	case "sitemaps":
		return v.expect(data.Sitemaps)
	case "host":
		if data.Host == "" {
			return v.expect(nil)
		}
		return v.expect(data.Host)
	case "fetch_status":
		return v.checkStatus()
	case "lint":
		return fmt.Errorf("FromString(%q) returned no error, want one", v.Robots)
	}
	return fmt.Errorf("unknown kind %q", v.Kind)
}

func (v *vector) checkStatus() error {
	data, err := robotstxt.FromStatusAndString(v.Status, "User-agent: a\nDisallow: /x\n")
	if err != nil {
		return err
	}
	word := map[[2]bool]string{{true, true}: "allow_all", {false, false}: "disallow_all", {true, false}: "parse"}
	return v.expect(word[[2]bool{data.TestAgent("/", "a"), data.TestAgent("/x", "a")}])
}

func (v *vector) expect(got any) error {
	text, err := json.Marshal(got)
	if err != nil {
		return err
	}
	var want any
	if err := json.Unmarshal(v.Expect, &want); err != nil {
		return err
	}
	normal, err := json.Marshal(want)
	if err != nil {
		return err
	}
	return v.want(string(normal), string(text))
}

func (v *vector) want(want, got any) error {
	if got != want {
		return fmt.Errorf("%s: got %v, want %v", v.Kind, got, want)
	}
	return nil
}

// TestDepartures has one row for each difference that the package comment names.
func TestDepartures(t *testing.T) {
	tests := []struct {
		name, robots, agent, path string
		want                      rules.Verdict
	}{
		{"2.3.1.5/a rule in front of all groups spoils nothing", "Disallow: /a\nUser-agent: *\nDisallow: /b", "a", "/b", deny(3, "Disallow: /b", 2, "*")},
		{"2.3.1.5/nor does a delay that is no number", "User-agent: *\nCrawl-delay: soon\nDisallow: /b", "a", "/b", deny(3, "Disallow: /b", 1, "*")},
		{"2.2.1/a token is matched whole", "User-agent: Google\nDisallow: /", "Googlebot", "/", rules.Verdict{Allowed: true}},
		{"2.2.1/a header will do", "User-agent: NewsBot\nDisallow: /", "Mozilla/5.0 (compatible; NewsBot/2.1)", "/", deny(2, "Disallow: /", 1, "NewsBot")},
		{"2.2.2/no slash is added", "User-agent: *\nDisallow: a", "a", "/a", rules.Verdict{Allowed: true}},
		{"2.2.2/allow wins a tie", "User-agent: *\nDisallow: /a\nAllow: /a", "a", "/a", rules.Verdict{Allowed: true, Line: 3, Rule: "Allow: /a", Group: rules.Group{Line: 1, Agents: "*"}}},
		{"2.2.2/percent-encoding is normalised", "User-agent: *\nDisallow: /%7Ejoe", "a", "/~joe", deny(2, "Disallow: /%7Ejoe", 1, "*")},
		{"2.2.2/robots.txt is allowed", "User-agent: *\nDisallow: /", "a", "/robots.txt", rules.Verdict{Allowed: true}},
		{"2.2.3/a dollar in the middle is a dollar", "User-agent: *\nDisallow: /a$b", "a", "/a$b", deny(2, "Disallow: /a$b", 1, "*")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data, err := robotstxt.FromString(tt.robots)
			if err != nil {
				t.Fatal(err)
			}
			if got := data.FindGroup(tt.agent).Verdict(tt.path); got != tt.want {
				t.Errorf("FindGroup(%q).Verdict(%q) = %+v, want %+v", tt.agent, tt.path, got, tt.want)
			}
			if got := data.TestAgent(tt.path, tt.agent); got != tt.want.Allowed {
				t.Errorf("TestAgent(%q, %q) = %v, want %v", tt.path, tt.agent, got, tt.want.Allowed)
			}
		})
	}
}

func deny(line int, rule string, groupLine int, agents string) rules.Verdict {
	return rules.Verdict{Line: line, Rule: rule, Group: rules.Group{Line: groupLine, Agents: agents}}
}

func TestFields(t *testing.T) {
	data, err := robotstxt.FromString("Host: a.example\nUser-agent: a\nCrawl-delay: 1\nDisallow: /\nUser-agent: a\nCrawl-delay: 2.5\nSitemap: /s\nHost: b.example\n")
	if err != nil {
		t.Fatal(err)
	}
	if data.Host != "a.example" || !slices.Equal(data.Sitemaps, []string{"/s"}) {
		t.Errorf("Host = %q, Sitemaps = %q, want a.example and /s", data.Host, data.Sitemaps)
	}
	if g := data.FindGroup("A/1.0"); g.Agent != "a" || g.CrawlDelay != 2500*time.Millisecond {
		t.Errorf(`FindGroup("A/1.0") = %+v, want Agent a and CrawlDelay 2.5s`, g)
	}
	if g := data.FindGroup("b"); g == nil || g.Agent != "" || g.CrawlDelay != 0 || !g.Test("/") {
		t.Errorf(`FindGroup("b") = %+v, want a Group that allows everything`, g)
	}
	if !new(robotstxt.Group).Test("/") || !new(robotstxt.RobotsData).TestAgent("/", "a") {
		t.Error("the zero values do not allow everything")
	}
}

func TestFromResponse(t *testing.T) {
	respond := func(status int, body io.Reader) *http.Response {
		return &http.Response{StatusCode: status, Body: io.NopCloser(body)}
	}
	if data, err := robotstxt.FromResponse(nil); data != nil || err != nil {
		t.Errorf("FromResponse(nil) = %v, %v, want nil, nil", data, err)
	}
	if _, err := robotstxt.FromResponse(respond(301, strings.NewReader(""))); err == nil {
		t.Error("FromResponse of a 301 returned no error")
	}
	if _, err := robotstxt.FromResponse(respond(200, iotest.ErrReader(io.ErrUnexpectedEOF))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("FromResponse of a body that breaks off: %v, want %v", err, io.ErrUnexpectedEOF)
	}
	const kept = "User-agent: *\nDisallow: /a\n"
	endless := io.MultiReader(strings.NewReader(kept), endlessComment{})
	data, err := robotstxt.FromResponse(respond(200, endless))
	if err != nil || data.TestAgent("/a", "a") || !data.TestAgent("/b", "a") {
		t.Errorf("FromResponse of a body without end: %+v, %v, want /a disallowed and /b not", data, err)
	}
}

// endlessComment is an endless body.
type endlessComment struct{}

func (endlessComment) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = "#\n"[i%2]
	}
	return len(p), nil
}

func TestParseError(t *testing.T) {
	err := error(robotstxt.ParseError{Errs: []error{io.EOF, io.ErrNoProgress}})
	if got, want := err.Error(), "parse error(s):\n"+io.EOF.Error()+"\n"+io.ErrNoProgress.Error()+"\n"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

// TestTooComplex checks that a path is not allowed if its verdict takes too many steps.
func TestTooComplex(t *testing.T) {
	data, err := robotstxt.FromString("User-agent: *\n" + strings.Repeat("Allow: /*!\n", 31_936))
	if err != nil {
		t.Fatal(err)
	}
	group := data.FindGroup("NewsBot")
	for path, want := range map[string]rules.Verdict{"/a": {Allowed: true}, "/" + strings.Repeat("a", 60<<10): {TooComplex: true}} {
		if got := group.Verdict(path); got != want || group.Test(path) != want.Allowed || data.TestAgent(path, "NewsBot") != want.Allowed {
			t.Errorf("a path of %d bytes: Verdict = %+v, Test = %v; want %+v", len(path), got, group.Test(path), want)
		}
	}
}
