package dashboard

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// oneFile has one robots.txt, of a.example.
type oneFile struct {
	admin.Files
	admin.History
}

func (oneFile) Own(string) []admin.OwnFile { return nil }

func (oneFile) Origins(_ context.Context, host string, _ int) ([]origin.Origin, error) {
	o, err := origin.Parse("http://" + host)
	return []origin.Origin{o}, err
}

func (oneFile) Peek(_ context.Context, o origin.Origin) (*robots.Snapshot, error) {
	if o.Host() != "a.example" {
		return nil, robots.ErrNoSnapshot
	}
	return robots.NewSnapshot(robots.Answer{Origin: o, Availability: robots.Found, Status: 200, Body: robotsBody, Fetched: time.Now()}), nil
}

// spacedRecords returns a store with requests for a host that have a Delay of two seconds and these gaps, in seconds.
func spacedRecords(t *testing.T, gaps ...float64) audit.Reader {
	t.Helper()
	records, _ := keptRecords(t, 3)
	at := time.Now().Add(-time.Hour).Truncate(time.Microsecond)
	var ids audit.Sequence
	var entries []audit.Entry
	for i, gap := range append([]float64{0}, gaps...) {
		at = at.Add(time.Duration(gap * float64(time.Second)))
		r := newRecord(ids.Next(at), 3*i+1)
		r.Host, r.SentAt, r.EndedAt, r.PacingMode = "slow.example", at, at, "local"
		r.DelayRequired, r.DelaySource = audit.Millis(2*time.Second), "crawl-delay"
		entries = append(entries, audit.Entry{Record: r})
	}
	if err := records.Write(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	return records
}

func TestHosts(t *testing.T) {
	files := oneFile{}
	server := serve(t, Options{
		Records: spacedRecords(t, 2, 3, 1), Files: files, History: files,
		Lane: func(string) Lane {
			return Lane{Waiting: 14, PausedUntil: time.Now().Add(time.Minute), PauseSource: "retry-after"}
		},
	})
	for path, want := range map[string][]string{
		"/hosts":                    {"a.example", "slow.example", "1 of 3 blocked", "retry-after", "2 s", "found"},
		"/hosts?host=slow":          {"slow.example"},
		"/hosts?host=none":          {"No host with none in its name"},
		"/hosts/a.example":          {`<li data-n="3">Disallow: /private/`, "No two requests", "Version 1", "14", "paused until"},
		"/hosts/slow.example":       {"1 of 3 gaps were too short", "&#34;gaps&#34;:[2,3,1]", "&#34;kinds&#34;:[0,0,1]", "2 s between requests (crawl-delay)"},
		"/hosts?range=7d":           {`href="/hosts/slow.example?range=7d"`, `href="/decisions?range=7d"`},
		"/hosts/a.example?range=7d": {`href="/check?range=7d&amp;url=http%3A%2F%2Fa.example%2F"`},
		"/hosts/A.Example.":         {"<h1>a.example</h1>"},
	} {
		resp, page := get(t, server.URL+path)
		if resp.StatusCode != http.StatusOK || strings.Contains(page, hostile) {
			t.Errorf("%s: %s, or a script", path, resp.Status)
		}
		for _, text := range want {
			if !strings.Contains(page, text) {
				t.Errorf("%s: the page does not contain %q\n%s", path, text, page)
			}
		}
	}
	if _, page := get(t, server.URL+"/hosts?host=slow"); strings.Contains(page, ">a.example<") {
		t.Error("a host that is not searched for")
	}
	for path, status := range map[string]int{"/hosts?sort=x": 400, "/hosts/a%20b": 400, "/hosts/other.example": 404} {
		if resp, _ := get(t, server.URL+path); resp.StatusCode != status {
			t.Errorf("%s: %s, want %d", path, resp.Status, status)
		}
	}
}

// The page of a host names its interventions once: those that no banner of the page names.
func TestHostInterventions(t *testing.T) {
	in := &orders{}
	for _, host := range []string{"a.example", "b.example", "c.example", "d.example", "e.example"} {
		in.all = append(in.all, policy.Intervention{Kind: policy.Stop, Host: host, Reason: "owner of " + host + " called", By: "eve"})
	}
	in.all = append(in.all, policy.Intervention{Kind: policy.Slow, Host: "*.example", Delay: time.Second, Reason: "weekend", By: "eve"})
	files := oneFile{}
	records, _ := keptRecords(t, 3)
	server := serve(t, Options{Records: records, Interventions: in, Files: files, History: files})
	named := func(n int) {
		t.Helper()
		_, page := get(t, server.URL+"/hosts/a.example")
		if got := strings.Count(page, "owner of a.example called"); got != n {
			t.Errorf("the stop is named %d times with %d interventions, want %d", got, len(in.all), n)
		}
		contains(t, page, "slow 1 s: weekend (eve)")
	}
	named(2) // no page names them all above its content
	in.all = in.all[3:]
	in.all[0].Host, in.all[0].Reason = "a.example", "owner of a.example called"
	named(1)
}

// The Delay of a host is that of the last request that was sent. That of the operator counts as it is now.
func TestDelayOfLane(t *testing.T) {
	sent := func(delay time.Duration, source string) audit.Record {
		return audit.Record{SentAt: time.Now(), DelayRequired: audit.Millis(delay), DelaySource: source}
	}
	for name, row := range map[string]struct {
		lane Lane
		rows []audit.Record
		want time.Duration
	}{
		"refused last":   {Lane{}, []audit.Record{{}, sent(2*time.Second, "crawl-delay")}, 2 * time.Second},
		"no Delay now":   {Lane{}, []audit.Record{sent(0, ""), sent(2*time.Second, "crawl-delay")}, 0},
		"lifted":         {Lane{}, []audit.Record{sent(9*time.Second, "floor")}, 0},
		"slowed":         {Lane{Floor: 9 * time.Second}, []audit.Record{sent(2*time.Second, "crawl-delay")}, 9 * time.Second},
		"slowed by less": {Lane{Floor: time.Second}, []audit.Record{sent(2*time.Second, "crawl-delay")}, 2 * time.Second},
		"nothing sent":   {Lane{}, []audit.Record{{}}, 0},
	} {
		if got, _ := row.lane.delay(row.rows); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}

func TestMix(t *testing.T) {
	row := hostRow{Sum: audit.Sum{Requests: 100, Blocked: 50, Failed: 1, Throttled: 20}}
	sum := 0
	for _, part := range row.Mix() {
		if part.X != sum {
			t.Errorf("part %+v begins at %d, want %d", part, part.X, sum)
		}
		sum += part.Width
	}
	if sum < 56 || sum > 60 {
		t.Errorf("the parts have a width of %d, want about 60", sum)
	}
}

func TestDiffLines(t *testing.T) {
	lines := diffLines("diff a b\n@@ -1 +1 @@\n-Disallow: /a\n+Disallow: /b\x1b\n same\n")
	var classes []string
	for _, l := range lines {
		classes = append(classes, l.Class)
		if strings.Contains(l.Text, "\x1b") {
			t.Errorf("%q has a control character", l.Text)
		}
	}
	if got := strings.Join(classes, ","); got != "gap,gap,removed,added," {
		t.Errorf("classes %s", got)
	}
}

// The lines of a file in UTF-16 have the numbers and the texts by which it is judged.
func TestLinesOfUTF16(t *testing.T) {
	var body []byte
	for _, c := range "\ufeffUser-agent: *\r\nDisallow: /\n" {
		body = append(body, byte(c), byte(c>>8))
	}
	lines := fileLines(body, 2, 1, false, -1)
	if len(lines) != 2 || lines[0].Text != "User-agent: *" || lines[1].Text != "Disallow: /" || !lines[1].Hit() {
		t.Errorf("%+v", lines)
	}
}
