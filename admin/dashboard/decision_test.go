package dashboard

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

func TestDecision(t *testing.T) {
	records, ids := keptRecords(t, 4)
	server := serve(t, Options{Records: records})
	refused, allowed := ids[3].String(), ids[1].String()
	for path, want := range map[string][]string{
		refused: {
			"NewsBot was refused /private/3 on a.example, because line 3 of its robots.txt disallows /private/.",
			`<li data-n="3" class="hit" id="hit">Disallow: /private/</li>`, `<li data-n="1" class="comment">`, newSnapshot().SHA256, refused,
			`href="/hosts/a.example"`, `href="/check?url=http%3a%2f%2fa.example%2fprivate%2f3&amp;agent=NewsBot"`, `href="/decisions?agent=NewsBot"`,
		},
		strings.ToUpper(refused): {"line 3"},
		allowed:                  {"NewsBot was allowed /p1", "because no line of its robots.txt disallows it"},
	} {
		resp, page := get(t, server.URL+"/decisions/"+path)
		if resp.StatusCode != http.StatusOK || strings.Contains(page, hostile) {
			t.Errorf("%s: %s, or a script", path, resp.Status)
		}
		for _, text := range want {
			if !strings.Contains(page, text) {
				t.Errorf("%s: the page does not contain %q\n%s", path, text, page)
			}
		}
	}
	r := request(t, "GET", server.URL+"/decisions/"+refused, nil)
	r.Header.Set("HX-Request", "true")
	if _, part := do(t, r); strings.Contains(part, "<html") || !strings.Contains(part, `class="hit"`) {
		t.Errorf("the part for the drawer is\n%s", part)
	}
	for path, status := range map[string]int{"0000000000000": 404, "x": 400, "nonsense-id": 400, "%3Cscript%3E": 400} {
		if resp, page := get(t, server.URL+"/decisions/"+path); resp.StatusCode != status || strings.Contains(page, "<script>") {
			t.Errorf("%s: %s, want %d", path, resp.Status, status)
		}
	}
}

// A page has a part of a large file: the line that decided, its group, and those around it.
func TestDecisionOfLargeFile(t *testing.T) {
	body := []byte("User-agent: *\n" + strings.Repeat("\n", 400_000) + "Disallow: /private/\n" + strings.Repeat("# "+strings.Repeat("x", 2000)+"\n", 50))
	snap := *newSnapshot()
	sum := sha256.Sum256(body)
	snap.Body, snap.SHA256 = body, hex.EncodeToString(sum[:])
	records, _ := keptRecords(t, 1)
	var ids audit.Sequence
	r := newRecord(ids.Next(time.Now()), 0)
	r.SetDecision(policy.Decision{Outcome: policy.Deny, Reason: policy.ReasonRobots}, &snap)
	r.RuleLine, r.Rule, r.GroupLine = 400_002, "Disallow: /private/", 1
	if err := records.Write(t.Context(), []audit.Entry{{Record: r}}); err != nil {
		t.Fatal(err)
	}
	_, page := get(t, serve(t, Options{Records: records}).URL+"/decisions/"+r.ID.String())
	for _, want := range []string{`<li data-n="400002" class="hit" id="hit">Disallow`, `<li data-n="1">User-agent: *`, `<li data-n="399902">`, "The whole file"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	if len(page) > 100<<10 || strings.Contains(page, `data-n="399901"`) {
		t.Errorf("the page has %d bytes, or more lines", len(page))
	}
}

// Each kind of record has a page, with every field of it.
func TestDecisionOfEachKind(t *testing.T) {
	records, _ := keptRecords(t, 1)
	var ids audit.Sequence
	var entries []audit.Entry
	for _, decision := range policy.Outcomes {
		for _, reason := range append(policy.Reasons, policy.ReasonNone) {
			r := newRecord(ids.Next(time.Now()), 0)
			r.Decision, r.Reason, r.Exemption, r.Intervention, r.Tag, r.Purpose, r.SentUserAgent = decision, reason, hostile, hostile, hostile, hostile, hostile
			r.Error, r.Usage, r.CrawlerPrice, r.RetryAfter, r.Waited, r.Gap, r.Deviation = hostile, hostile, hostile, 3, 1e9, 1e9, "overlap"
			entries = append(entries, audit.Entry{Record: r})
		}
	}
	bare := audit.Record{ID: ids.Next(time.Now()), Decision: policy.Error, Reason: policy.ReasonBadRequest}
	bare.Time = bare.ID.Time()
	tunnel := newRecord(ids.Next(time.Now()), 1)
	tunnel.Via, tunnel.Method, tunnel.Path = audit.Tunnel, "CONNECT", ""
	entries = append(entries, audit.Entry{Record: bare}, audit.Entry{Record: tunnel})
	if err := records.Write(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	server := serve(t, Options{Records: records})
	for _, e := range entries {
		resp, page := get(t, server.URL+"/decisions/"+e.Record.ID.String())
		if resp.StatusCode != http.StatusOK || strings.Contains(page, hostile) || strings.Contains(page, "%!") || !strings.Contains(page, `id="sentence">`) {
			t.Errorf("%s %s: %s\n%s", e.Record.Decision, e.Record.Reason, resp.Status, page)
		}
	}
}

// A shell passes each word of the command as the request had it, and runs nothing of it.
func TestCurl(t *testing.T) {
	for _, path := range []string{"/p", "/'; touch x; '", "/$(id)`id`\"\\", "/a b*[1-2]{x}", "/-o/x"} {
		r := audit.Record{Method: "PATCH", Scheme: "http", Host: "a.example", Path: path, UserAgent: "Bot'$(id) -o x", Via: audit.Intercepted}
		script := "curl() { printf '%s\\n' \"$@\"; }; " + curl(&r, "http://127.0.0.1:3128")
		out, err := exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput()
		want := "-i\n--globoff\n--path-as-is\n--proxy\nhttp://127.0.0.1:3128\n--request\nPATCH\n--user-agent\nBot'$(id) -o x\n--cacert\nca.pem\nhttp://a.example" + path + "\n"
		if err != nil || string(out) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", path, err, out, want)
		}
	}
	if got := curl(&audit.Record{Host: "a.example", Path: "/\n\x1b[31m\u202e"}, ""); strings.ContainsAny(got, "\n\x1b\u202e") {
		t.Errorf("%q has a control character", got)
	}
	if got := curl(&audit.Record{Via: audit.Tunnel, Host: "a.example"}, ""); got != "" {
		t.Errorf("a tunnel has the command %s", got)
	}
}

func TestSurroundings(t *testing.T) {
	for body, want := range map[string]int{"": -1, "User-agent: *\n": -1, strings.Repeat("\n", wholeLines+1): aroundHit, strings.Repeat("x", wholeFile+1): aroundHit} {
		if got := surroundings([]byte(body)); got != want {
			t.Errorf("surroundings of %d bytes are %d, want %d", len(body), got, want)
		}
	}
	lines := fileLines(bytes.Repeat([]byte("\n"), 5000), 0, 0, false, aroundHit)
	if len(lines) > aroundHit+1 {
		t.Errorf("%d lines of a file without a line that decided", len(lines))
	}
	if lines = fileLines(bytes.Repeat([]byte("\n"), 500_000), 0, 0, false, -1); len(lines) != maxLines+1 {
		t.Errorf("%d lines of a file of 500,000, want %d", len(lines), maxLines+1)
	}
}
