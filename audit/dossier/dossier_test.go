package dossier_test

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/dossier"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is an audit.Reader of some records of one host.
type memory struct {
	records []audit.Record // in order of their IDs
	files   []audit.File
	bodies  map[string]string
	policy  []byte // of the hashes that begin with b
}

func (m *memory) Record(context.Context, audit.ID) (*audit.Record, error) {
	return nil, audit.ErrNoRecord
}

func (m *memory) Records(_ context.Context, f audit.Filter) iter.Seq2[*audit.Record, error] {
	return func(yield func(*audit.Record, error) bool) {
		var shared audit.Record
		for i := range m.records {
			if m.records[i].ID <= f.After || !f.Selects(&m.records[i]) {
				continue
			}
			if shared = m.records[i]; !yield(&shared, nil) {
				return
			}
		}
	}
}

func (m *memory) Uses(context.Context, audit.Filter) iter.Seq2[audit.Use, error] { return nil }

func (m *memory) Sums(ctx context.Context, f audit.Filter, _ ...audit.Dimension) ([]audit.Sum, error) {
	sums := map[string]*audit.Sum{}
	for r := range m.Records(ctx, f) {
		s := sums[r.Path]
		if s == nil {
			s = &audit.Sum{Values: []string{r.Path}}
			sums[r.Path] = s
		}
		s.Requests++
		if r.Decision == policy.Deny {
			s.Blocked++
		}
	}
	var sorted []audit.Sum
	for _, s := range slices.SortedFunc(maps.Values(sums), func(a, b *audit.Sum) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Values[0], b.Values[0]))
	}) {
		sorted = append(sorted, *s)
	}
	return sorted[:min(len(sorted), f.Limit)], nil
}

func (m *memory) Timeline(ctx context.Context, f audit.Filter, step time.Duration) (points []audit.Point, _ error) {
	for r := range m.Records(ctx, f) {
		at := r.Time.Truncate(step)
		if len(points) == 0 || !points[len(points)-1].Time.Equal(at) {
			points = append(points, audit.Point{Time: at, Decisions: map[policy.Outcome]int64{}})
		}
		points[len(points)-1].Decisions[r.Decision]++
	}
	return points, nil
}

func (m *memory) File(context.Context, *audit.Record) (*audit.File, error) {
	return nil, audit.ErrNoFile
}

func (m *memory) Files(context.Context, string) ([]audit.File, error) { return m.files, nil }

func (m *memory) Body(_ context.Context, sha string) ([]byte, error) {
	if body, ok := m.bodies[sha]; ok {
		return []byte(body), nil
	}
	return nil, audit.ErrNoFile
}

func (m *memory) Policy(_ context.Context, sha string) ([]byte, error) {
	if strings.HasPrefix(sha, "b") {
		return m.policy, nil
	}
	return nil, audit.ErrNoPolicy
}

var began = time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)

const hostile = "<script>alert(1)</script>\x1b[31m\u202e"

// crawl returns the records of n requests for a.example, one every ten seconds, of two crawlers. Every seventh is
// refused. The robots.txt changes in the middle, and one gap is too short.
func crawl(t testing.TB, n int) *memory {
	o, err := origin.Parse("https://a.example")
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{bodies: map[string]string{
		strings.Repeat("1", 64): "# Ask us for the API: api@a.example\nUser-agent: *\nDisallow: /private/\nCrawl-delay: 2\n",
		strings.Repeat("2", 64): "User-agent: *\r\nDisallow: /private/\r\nDisallow: /search # " + hostile + "\r\nCrawl-delay: 5\r\n" + strings.Repeat("# more\n", 500) + "Disallow: /late\n",
	}}
	var ids audit.Sequence
	for i := range n {
		at := began.Add(time.Duration(i) * 10 * time.Second)
		sha, delay, line := strings.Repeat("1", 64), 2*time.Second, 3
		if i >= n/2 {
			sha, delay, line = strings.Repeat("2", 64), 5*time.Second, 2
		}
		took := time.Duration(300+(i*7919)%1800) * time.Millisecond
		r := audit.Record{
			ID: ids.Next(at), Time: at, Client: "news-team", Agent: "NewsBot", UserAgent: "NewsBot/2.1 (+https://news.example/bot)", Purpose: "search",
			ProductToken: "NewsBot", Method: "GET", Scheme: "https", Host: "a.example", Port: 443, Path: fmt.Sprintf("/article/%d", i%300),
			Via: audit.Intercepted, Mode: "enforce", Decision: policy.Allow, GroupLine: 2, GroupAgents: "*", RobotsSHA256: sha, RobotsStatus: 200,
			RobotsState: "found", Dialect: "rfc9309", PolicySHA256: strings.Repeat("b", 64), DelayRequired: audit.Millis(delay), DelaySource: "crawl-delay",
			Waited: audit.Millis(3 * time.Second), PacingMode: "local", SentAt: at.Add(time.Duration((i*i)%2500) * time.Millisecond), Status: 200, Bytes: 48_211, UpstreamAddr: "192.0.2.1:443",
		}
		r.EndedAt = r.SentAt.Add(took)
		switch {
		case i%7 == 3:
			r.Decision, r.Reason, r.RuleLine, r.Rule = policy.Deny, policy.ReasonRobots, line, "Disallow: /private/"
			r.Path, r.Status, r.SentAt, r.PacingMode, r.Waited, r.EndedAt = "/private/x", 403, time.Time{}, "", 0, at
		case i%11 == 5:
			r.Client, r.Agent, r.UserAgent, r.Purpose = "price-watch", "other", hostile, ""
			r.Path = "/" + hostile
		case i == n*3/4:
			r.SentAt = at.Add(-6 * time.Second)
			r.EndedAt = r.SentAt.Add(time.Second)
		case i%97 == 1:
			r.Deviation, r.Mode, r.PacingMode, r.SentAt = "reported", "report", "", at.Add(-4*time.Second)
			r.EndedAt = r.SentAt.Add(took)
		case i%101 == 8:
			r.Decision, r.Reason, r.Status, r.Error, r.PolicySHA256 = policy.Error, policy.ReasonUpstream, 502, "connect: refused", strings.Repeat("c", 64)
		case i%103 == 8:
			r.Intervention = "slow 30 s by ops@example.org: owner asked, ticket 812"
		}
		m.records = append(m.records, r)
	}
	end := m.records[n-1].Time
	m.files = []audit.File{
		{Answer: robots.Answer{Origin: o, Status: 200, SHA256: strings.Repeat("1", 64), Fetched: began.Add(-time.Minute), Redirects: []string{"https://www.a.example/robots.txt"}}, State: "found", Header: "HTTP/1.1 200 OK\nContent-Type: text/plain\n", Size: 90, FirstSeen: began, LastSeen: began.Add(end.Sub(began) / 2)},
		{Answer: robots.Answer{Origin: o, Status: 200, SHA256: strings.Repeat("2", 64), Fetched: began}, State: "found", Header: "HTTP/1.1 200 OK\n", Size: 3700, FirstSeen: began.Add(end.Sub(began) / 2), LastSeen: end},
	}
	return m
}

func write(t testing.TB, m *memory, o dossier.Options) (whole []byte, files map[string]string) {
	t.Helper()
	var b bytes.Buffer
	if err := dossier.Write(t.Context(), &b, m, o); err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = string(text)
	}
	return b.Bytes(), files
}

func TestDossier(t *testing.T) {
	o := dossier.Options{
		Host: "a.example", Operator: "Example Ltd <bots@example.com>",
		Extra: []dossier.Extra{{Name: "seal.txt", About: "A checkpoint.", Write: func(_ context.Context, w io.Writer) error {
			_, err := io.WriteString(w, "checkpoint")
			return err
		}}},
	}
	o.Gaps = []dossier.Gap{{Began: began.Add(-time.Hour), Ended: began.Add(-30 * time.Minute), Records: 17}}
	first, files := write(t, crawl(t, 2000), o)
	second, _ := write(t, crawl(t, 2000), o)
	if !bytes.Equal(first, second) {
		t.Error("the same records gave different bytes")
	}
	names := slices.Sorted(maps.Keys(files))
	want := []string{
		"README.txt", "index.html", "policies/" + strings.Repeat("b", 64) + ".txt", "replay.json", "requests.csv", "requests.jsonl",
		"robots/https-a.example-443-version-1.response.txt", "robots/https-a.example-443-version-1.txt",
		"robots/https-a.example-443-version-2.response.txt", "robots/https-a.example-443-version-2.txt", "seal.txt", "spacing.json",
	}
	if !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
	if lines := strings.Count(files["requests.jsonl"], "\n"); lines != 2000 {
		t.Errorf("requests.jsonl has %d lines, want 2000", lines)
	}
	page := files["index.html"]
	for _, text := range []string{
		"<h1>Requests for <bdi>a.example</bdi></h1>", "Example Ltd &lt;bots@example.com&gt;", "2 crawlers asked for pages of this site 2,000 times",
		"NewsBot/2.1 (&#43;https://news.example/bot)", "1 of 1,707 gaps between requests was shorter than required (2.000 s to 5.000 s).",
		"refused 143 requests", "https://a.example/robots.txt</bdi>, version 2", "ticket 812", "the operator had set the proxy to report only",
		"cccc", `<path class="early"`, `<path class="required"`, "after 1 redirect",
		"17 requests, of this host or of others, were not recorded between 2026-11-02 07:00:00 UTC and 2026-11-02 07:30:00 UTC.",
	} {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	for _, text := range []string{"<script", "\x1b", "\u202e", "src=", "<link", "@import", "url("} {
		if strings.Contains(page, text) {
			t.Errorf("the page has %q", text)
		}
	}
	if len(page) > 300_000 {
		t.Errorf("the page has %d bytes, want 300,000 at most", len(page))
	}
	if text := files["robots/https-a.example-443-version-1.response.txt"]; !strings.Contains(text, "redirected to: https://www.a.example/robots.txt\n") || !strings.Contains(text, "Content-Type: text/plain") {
		t.Errorf("the response of version 1: %s", text)
	}
	for _, name := range names {
		if name != "README.txt" && name != "index.html" && !strings.Contains(files["README.txt"], "\n"+name+"\n") {
			t.Errorf("README.txt does not explain %s", name)
		}
	}
}

// A period without requests gives a dossier that says so.
func TestEmptyDossier(t *testing.T) {
	_, files := write(t, crawl(t, 20), dossier.Options{
		Host: "a.example", Until: began, Gaps: []dossier.Gap{{Began: began.Add(time.Hour), Ended: began.Add(2 * time.Hour), Records: 1}},
	})
	if strings.Contains(files["index.html"], "not recorded between") {
		t.Error("the page names a gap outside of the period")
	}
	for _, text := range []string{"No request for this site was recorded in this period.", "No delay between requests was required"} {
		if !strings.Contains(files["index.html"], text) {
			t.Errorf("the page lacks %q", text)
		}
	}
}

// Requests that were sent although robots.txt disallows them are counted, and listed with their cause.
func TestDossierOfDisallowedRequests(t *testing.T) {
	m := crawl(t, 40)
	for i := range m.files {
		m.files[i].Availability = robots.Found
	}
	modes := map[int]func(*audit.Record){
		1: func(r *audit.Record) { r.Mode, r.Decision, r.Reason = "report", policy.WouldDeny, policy.ReasonReport },
		2: func(r *audit.Record) { // its file is that of the second half, and was read before
			r.Mode, r.Reason, r.RobotsSHA256, r.RobotsState, r.RobotsStatus = "off", policy.ReasonOff, "", "", 0
		},
		4: func(r *audit.Record) {
			r.Decision, r.Reason, r.Exemption = policy.Exempt, policy.ReasonExemption, "allow a.example/private/: contract 17 (legal)"
		},
		6: func(r *audit.Record) {
			r.Mode, r.Decision, r.Reason = "report", policy.WouldDeny, policy.ReasonReport
			r.Intervention = "bypass a.example by ops: migration"
		},
		8: func(r *audit.Record) { // a deny entry of the operator, not of robots.txt
			r.Path, r.Mode, r.Decision, r.Reason, r.Exemption = "/open", "report", policy.WouldDeny, policy.ReasonReport, "deny a.example/open: careful (ops)"
		},
		9:  func(r *audit.Record) { r.Mode, r.Decision, r.Reason = "report", policy.Error, policy.ReasonUpstream },
		11: func(r *audit.Record) { r.Path = "/open" },
	}
	var want []string
	for i, change := range modes {
		r := &m.records[i]
		r.Decision, r.Reason, r.Path, r.RuleLine, r.Rule = policy.Allow, "", fmt.Sprintf("/private/%d", i), 3, "Disallow: /private/"
		r.SentAt = r.Time
		if change(r); r.Path != "/open" {
			want = append(want, r.Path)
		}
	}
	_, files := write(t, m, dossier.Options{Host: "a.example"})
	page, list := files["index.html"], files["sent-although-disallowed.csv"]
	for _, text := range []string{
		"5 requests were sent although robots.txt disallows them", "<td>mode report</td>", "<td>mode off</td>",
		"<td>exemption</td><td class=\"long\"><bdi>allow a.example/private/: contract 17 (legal)</bdi>",
		"<td>bypass</td><td class=\"long\"><bdi>bypass a.example by ops: migration</bdi>", "disallowed, but sent: 3 requests",
	} {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	exceptions, _, _ := strings.Cut(page[strings.Index(page, `<h2 id="exceptions">`):], "<h2>Gaps")
	for _, path := range want {
		if !strings.Contains(exceptions, path+"<") || !strings.Contains(list, path+",") {
			t.Errorf("%s is not listed", path)
		}
	}
	if n := strings.Count(list, "\n"); n != 6 {
		t.Errorf("the list has %d lines, want 6:\n%s", n, list)
	}
}

// A policy in a dossier has nothing of other hosts and clients.
func TestPolicyOfDossier(t *testing.T) {
	m := crawl(t, 20)
	p, err := policy.New(policy.Options{
		Clients:    []policy.Client{{Name: "news-team"}, {Name: "secret-client"}},
		Exemptions: []policy.Exemption{{Host: "secret.example", Effect: policy.EffectDeny, Reason: "dispute", Owner: "legal"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	m.policy = p.Text()
	_, files := write(t, m, dossier.Options{Host: "a.example"})
	text := files["policies/"+strings.Repeat("b", 64)+".txt"]
	if !strings.Contains(text, "news-team") || strings.Contains(text, "secret") || strings.Contains(text, "dispute") {
		t.Errorf("the policy is\n%s", text)
	}
	m.policy = []byte("secret: true\n")
	_, files = write(t, m, dossier.Options{Host: "a.example"})
	if text := files["policies/"+strings.Repeat("b", 64)+".txt"]; !strings.HasPrefix(text, "This policy is not shown") || strings.Contains(text, "secret") {
		t.Errorf("the policy is\n%s", text)
	}
}

// A dossier names the erasures and prunes that its period lacks.
func TestRemovalsOfDossier(t *testing.T) {
	o := dossier.Options{Host: "a.example", Removals: []dossier.Removal{{Time: began, About: "12 records were erased: \x1bticket 9."}}}
	_, files := write(t, crawl(t, 20), o)
	if text := "On 2026-11-02 08:00:00 UTC, 12 records were erased: %1Bticket 9."; !strings.Contains(files["index.html"], text) {
		t.Errorf("the page lacks %q", text)
	}
	if strings.Contains(files["index.html"], "None: each request has an end") {
		t.Error("the page says that nothing is missing")
	}
}

// A robots.txt that changes at each fetch does not make the page long.
func TestDossierOfManyVersions(t *testing.T) {
	m := crawl(t, 20)
	first := m.files[0]
	m.files = nil
	for i := range 300 {
		f := first
		f.SHA256, f.FirstSeen, f.Fetched = strings.Repeat(fmt.Sprint(i%2+1), 64), began.Add(time.Duration(i)*time.Second), began.Add(time.Duration(i)*time.Second)
		m.files = append(m.files, f)
	}
	_, files := write(t, m, dossier.Options{Host: "a.example"})
	page := files["index.html"]
	if !strings.Contains(page, "200 older versions of robots.txt are in the folder") || strings.Count(page, "/robots.txt</bdi>, version") != 100 {
		t.Error("the page does not have the last 100 versions")
	}
	if _, ok := files["robots/https-a.example-443-version-1.txt"]; !ok {
		t.Error("version 1 is missing")
	}
}
