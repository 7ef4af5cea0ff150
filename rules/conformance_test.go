package rules_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/rules"
)

// vector is one line of a file of conformance vectors: a known answer of a parser.
type vector struct {
	Source    string          `json:"source"`
	Name      string          `json:"name"`
	Kind      string          `json:"kind"`
	Robots    string          `json:"robots"`
	RobotsB64 []byte          `json:"robots_b64"`
	UA        string          `json:"ua"`
	URL       string          `json:"url"`
	URLB64    []byte          `json:"url_b64"`
	Allowed   *bool           `json:"allowed"`
	Expect    json.RawMessage `json:"expect"`
	Dialect   string          `json:"dialect"`
	RFC       *bool           `json:"rfc"`
	RobotsURL string          `json:"robots_url"`
	Type      string          `json:"content_type"`
	Pattern   string          `json:"pattern"`
	Status    int             `json:"status"`
	LastLine  int             `json:"last_line"`
	MinBytes  int             `json:"min_bytes"`
	Prefix    string          `json:"robots_prefix"`
	Pad       string          `json:"pad"`
	PadUntil  int             `json:"pad_until"`
	Suffix    string          `json:"robots_suffix"`
}

func (v *vector) body() []byte {
	if v.RobotsB64 != nil {
		return v.RobotsB64
	}
	return []byte(v.Robots)
}

func (v *vector) target() string {
	if v.URLB64 != nil {
		return string(v.URLB64)
	}
	return v.URL
}

// question is the input of a vector, by kind.
func (v *vector) question() string {
	if v.Status != 0 {
		return fmt.Sprint(v.Kind, " ", v.Status)
	}
	return v.Kind + " " + v.UA + v.URL
}

// dialects returns the dialects for which a vector has an answer: its own, and RFC 9309 if the row is marked to agree
// with it. A row about a point that the RFC leaves open is not checked for RFC 9309.
func (v *vector) dialects() (dialects []rules.Dialect) {
	own, err := rules.ParseDialect(v.Dialect)
	switch {
	case v.Kind == "parse_stats" && v.LastLine == 0: // the counts of another parser's reports
		return nil
	case v.Kind != "match":
		if err == nil {
			dialects = append(dialects, own)
		}
		return dialects
	case err == nil && (own != rules.DialectRFC9309 || v.RFC != nil && *v.RFC):
		dialects = append(dialects, own)
	}
	if own != rules.DialectRFC9309 && v.RFC != nil && *v.RFC {
		dialects = append(dialects, rules.DialectRFC9309)
	}
	return dialects
}

func (v *vector) parse(d rules.Dialect) *rules.Ruleset {
	return rules.Parse(v.body(), rules.Options{Dialect: d, RobotsURL: v.RobotsURL, ContentType: v.Type})
}

// departures are vectors, by kind and question, that are correct for their source but contradict this package, with the
// reason.
var departures = map[string]string{
	"fetch_status 429":                          "a server that asks for fewer requests does not mean to allow all; Google's crawler refuses as well",
	"product_token_valid ツ":                     "letters of all scripts are part of a token, or crawlers that have them could not be addressed",
	"url_path //a/b/c":                          "a request target that begins with two slashes is a path (RFC 9112, section 3.2.1)",
	"url_path example.com":                      noScheme,
	"url_path example.com/":                     noScheme,
	"url_path example.com/a":                    noScheme,
	"url_path example.com/a/":                   noScheme,
	"url_path example.com/a/b?c=d&e=f#fragment": noScheme,
	"url_path a":                                noScheme,
	"url_path a/":                               noScheme,
	"url_path a/b":                              noScheme,
	"url_path example.com?a":                    noScheme,
	"url_path example.com/a;b#c":                noScheme,
}

const noScheme = "a target without a scheme is a path: no request has a host there"

func TestConformanceVectors(t *testing.T) {
	for file, vectors := range readVectors(t) {
		t.Run(file, func(t *testing.T) {
			passed := map[string]int{}
			for i, v := range vectors {
				check, ok := checks[v.Kind]
				if !ok {
					continue
				}
				for _, d := range v.dialects() {
					err := check(&v, d)
					id := fmt.Sprintf("%s:%d", file, i+1)
					reason, listed := departures[v.question()]
					switch {
					case listed && err == nil:
						t.Errorf("%s (%s) passes in %v, and is listed as a departure: %s", id, v.Name, d, reason)
					case !listed && err != nil:
						t.Errorf("%s (%s) in %v: %v\n%.2000s", id, v.Name, d, err, v.body())
					case !listed:
						passed[d.String()+" "+v.Kind]++
					}
				}
			}
			t.Logf("passed: %v", passed)
		})
	}
}

// checks are the kinds of vectors that this package can answer. The others are for fetchers or linters.
var checks = map[string]func(*vector, rules.Dialect) error{
	"match":               checkMatch,
	"charset":             checkCharset,
	"sitemaps":            checkSitemaps,
	"crawl_delay":         checkCrawlDelay,
	"request_rate":        checkRequestRate,
	"host":                checkHost,
	"parse_limit":         checkLimit,
	"parse_limit_gen":     checkLimitGenerated,
	"parse_stats":         checkLineNumber,
	"product_token_valid": checkToken,
	"url_path":            checkPath,
	"escape_pattern":      checkPattern,
	"fetch_status":        checkStatus,
}

// checkStatus skips redirects: they are followed, and the last response has the status.
func checkStatus(v *vector, d rules.Dialect) error {
	words := map[rules.Access]string{
		rules.AccessNone: `"disallow_all"`, rules.AccessAll: `"allow_all"`, rules.AccessRules: `"parse"`, rules.AccessUnknown: `"error_to_caller"`,
	}
	if got := words[d.Access(v.Status)]; got != string(v.Expect) && string(v.Expect) != `"follow"` {
		return fmt.Errorf("Access(%d) = %s, want %s", v.Status, got, v.Expect)
	}
	return nil
}

func checkMatch(v *vector, d rules.Dialect) error {
	got := v.parse(d).Agent(v.UA).Verdict(v.target())
	if got.Allowed != *v.Allowed {
		return fmt.Errorf("Agent(%q).Verdict(%.500q) = %+v, want Allowed %v", v.UA, v.target(), got, *v.Allowed)
	}
	return nil
}

func checkCharset(v *vector, d rules.Dialect) error {
	var allowed bool
	if err := json.Unmarshal(v.Expect, &allowed); err != nil {
		return err
	}
	v.Allowed = &allowed
	return checkMatch(v, d)
}

func checkSitemaps(v *vector, d rules.Dialect) error {
	var want []string
	if err := json.Unmarshal(v.Expect, &want); err != nil {
		return err
	}
	if got := v.parse(d).Sitemaps(); !slices.Equal(got, want) {
		return fmt.Errorf("Sitemaps() = %q, want %q", got, want)
	}
	return nil
}

func checkCrawlDelay(v *vector, d rules.Dialect) error {
	var seconds *float64
	if err := json.Unmarshal(v.Expect, &seconds); err != nil {
		return err
	}
	got, ok := v.parse(d).Agent(v.UA).CrawlDelay()
	if ok != (seconds != nil) || ok && got != time.Duration(*seconds*1000)*time.Millisecond {
		return fmt.Errorf("Agent(%q).CrawlDelay() = %v, %v, want %s seconds", v.UA, got, ok, v.Expect)
	}
	return nil
}

// checkRequestRate checks a rate written as [requests, seconds].
func checkRequestRate(v *vector, d rules.Dialect) error {
	var want []int
	if err := json.Unmarshal(v.Expect, &want); err != nil {
		return err
	}
	got, ok := v.parse(d).Agent(v.UA).RequestRate()
	if ok != (want != nil) || ok && (got.Requests != want[0] || got.Per != time.Duration(want[1])*time.Second) {
		return fmt.Errorf("Agent(%q).RequestRate() = %+v, %v, want %s", v.UA, got, ok, v.Expect)
	}
	return nil
}

func checkHost(v *vector, d rules.Dialect) error {
	var want string // null means no rate
	if err := json.Unmarshal(v.Expect, &want); err != nil {
		return err
	}
	if got := v.parse(d).Host(); got != want {
		return fmt.Errorf("Host() = %q, want %q", got, want)
	}
	return nil
}

// checkPattern checks that a pattern and its normal form match the same path.
func checkPattern(v *vector, d rules.Dialect) error {
	var want string
	if err := json.Unmarshal(v.Expect, &want); err != nil {
		return err
	}
	set := rules.Parse([]byte("User-agent: *\nDisallow: /"+v.Pattern+"$\n"), rules.Options{Dialect: d})
	if got := set.Agent("*").Verdict("/" + want); got.Allowed {
		return fmt.Errorf("Verdict(%q) = %+v, want a match of %q", want, got, v.Pattern)
	}
	return nil
}

// checkLimit puts a rule at the end of the bytes that must be read.
func checkLimit(v *vector, d rules.Dialect) error {
	const last = "Disallow: /last"
	v.Prefix, v.Suffix, v.Pad, v.PadUntil = "User-agent: *\n", last, "#\n", v.MinBytes-len(last)-1
	v.UA, v.URL, v.Allowed = "FooBot", "/last", new(bool)
	return checkLimitGenerated(v, d)
}

func checkLimitGenerated(v *vector, d rules.Dialect) error {
	body := bytes.NewBufferString(v.Prefix)
	for body.Len() < v.PadUntil {
		body.WriteString(v.Pad)
	}
	body.WriteString(v.Suffix)
	allowed := v.Allowed == nil // nothing is read beyond the limit, as in Google's parser
	set := rules.Parse(body.Bytes(), rules.Options{Dialect: d})
	if got := set.Agent(v.UA).Verdict(v.URL); got.Allowed != allowed || set.Truncated() != allowed {
		return fmt.Errorf("%d octets: Verdict(%q) = %+v, Truncated() = %v, want both %v", body.Len(), v.URL, got, set.Truncated(), allowed)
	}
	return nil
}

// checkLineNumber compares the number of the last line with the line of its rule.
func checkLineNumber(v *vector, d rules.Dialect) error {
	if got := v.parse(d).Agent("bar").Verdict("/"); got.Line != v.LastLine {
		return fmt.Errorf(`Agent("bar").Verdict("/") = %+v, want line %d`, got, v.LastLine)
	}
	return nil
}

// checkToken checks that ProductToken returns exactly the valid product tokens unchanged.
func checkToken(v *vector, _ rules.Dialect) error {
	got := rules.ProductToken(v.UA) == v.UA && v.UA != ""
	if want := string(v.Expect) == "true"; got != want {
		return fmt.Errorf("ProductToken(%q) == %q is %v, want %v", v.UA, v.UA, got, want)
	}
	return nil
}

// checkPath checks that a rule for exactly the path matches the URL.
func checkPath(v *vector, d rules.Dialect) error {
	var path string
	if err := json.Unmarshal(v.Expect, &path); err != nil {
		return err
	}
	set := rules.Parse([]byte("User-agent: *\nDisallow: "+path+"$\n"), rules.Options{Dialect: d})
	if got := set.Agent("*").Verdict(v.URL); got.Allowed {
		return fmt.Errorf("Verdict(%q) = %+v, want a match of %q", v.URL, got, path)
	}
	return nil
}

func readVectors(t *testing.T) map[string][]vector {
	t.Helper()
	dir := os.Getenv("CONFORMANCE_VECTORS")
	if dir == "" {
		t.Skip("CONFORMANCE_VECTORS is not set: it names the folder of conformance vectors (*.jsonl)")
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no conformance vectors (*.jsonl) in %s: %v", dir, err)
	}
	files := map[string][]vector{}
	for _, path := range paths {
		files[filepath.Base(path)] = readVectorFile(t, path)
	}
	return files
}

func readVectorFile(t *testing.T, path string) (vectors []vector) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatalf("%s:%d: %v", path, len(vectors)+1, err)
		}
		vectors = append(vectors, v)
	}
	if err := lines.Err(); err != nil {
		t.Fatalf("reading %s: %v", path, err)
	}
	return vectors
}
