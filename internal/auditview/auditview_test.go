package auditview

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// crawl has the records of two crawlers.
func crawl() *memory {
	var ids audit.Sequence
	m := &memory{
		file:   &audit.File{Answer: fetch.Answer{Status: 200, SHA256: strings.Repeat("ab", 32), Body: []byte("# Ask us\nUser-agent: *\nDisallow: /private/\nAllow: /private/press/\n")}, State: "found"},
		policy: []byte("{}"),
	}
	for i := range 1200 {
		at := noon.Add(time.Duration(i) * time.Second)
		r := audit.Record{
			ID: ids.Next(at), Time: at, Client: "local", ClientAddr: "10.4.2.17", Agent: "NewsBot", UserAgent: "NewsBot/1.0", Mode: "enforce",
			Method: "GET", Scheme: "http", Host: "a.example", Port: 80, Path: "/page", Via: audit.Plain, Decision: policy.Allow,
			Waited: audit.Millis(2 * time.Second), Status: 200, Bytes: 12, SentAt: at, EndedAt: at.Add(time.Second),
		}
		if i%10 == 0 {
			r.Decision, r.Reason, r.Path, r.Rule, r.RuleLine, r.Status, r.SentAt = policy.Deny, policy.ReasonRobots, "/private/x", "Disallow: /private/", 3, 403, time.Time{}
			r.RobotsSHA256, r.RobotsState, r.RobotsStatus, r.RobotsFetchedAt = strings.Repeat("ab", 32), "found", 200, noon
			r.GroupLine, r.GroupAgents = 2, "*"
		}
		if i%4 == 1 {
			r.Agent, r.Host = "PriceWatch", "shop.example"
		}
		m.records = append(m.records, r)
	}
	return m
}

func TestSummary(t *testing.T) {
	for width, want := range map[int]string{
		80: `1,200 requests by 2 crawlers to 2 hosts: 120 blocked (10.0 %), 0 failed. 40 m spent waiting.

crawler     requests  blocked  waited  most blocked  by
NewsBot          900      120    30 m  a.example     line 3  Disallow: /private/
PriceWatch       300        0    10 m

Deviations: none. Gaps in the record: none.
`,
		0: "1,200 requests by 2 crawlers to 2 hosts: 120 blocked (10.0 %), 0 failed. 40 m spent waiting.\n\n" +
			"crawler\trequests\tblocked\twaited\tmost blocked\tby\nNewsBot\t900\t120\t30 m\ta.example\tline 3  Disallow: /private/\n" +
			"PriceWatch\t300\t0\t10 m\t\t\n\nDeviations: none. Gaps in the record: none.\n",
	} {
		var out bytes.Buffer
		v := &Sums{Records: crawl(), Options: Options{Width: width, Format: Table}, Out: &out}
		if more, err := v.Summarize(t.Context(), Summary{}); more || err != nil || out.String() != want {
			t.Errorf("%v, %v:\n%s\nwant\n%s", more, err, &out, want)
		}
	}
}

func TestSummaryForPrograms(t *testing.T) {
	var out bytes.Buffer
	v := &Sums{Records: crawl(), Options: Options{Format: JSON}, Out: &out}
	if _, err := v.Summarize(t.Context(), Summary{By: []audit.Dimension{audit.ByHost, audit.ByDecision}}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Requests, Blocked, Agents, Hosts int
		Waited                           float64 `json:"waited_ms"`
		Rows                             []struct {
			Host, Decision string
			Requests       int
		}
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	if text := fmt.Sprint(got); text != "{1200 120 2 2 2.4e+06 [{a.example allow 780} {shop.example allow 300} {a.example deny 120}]}" {
		t.Error(text)
	}
	out.Reset()
	v.Options.Format = CSV
	if _, err := v.Summarize(t.Context(), Summary{}); err != nil {
		t.Fatal(err)
	}
	want := "agent,requests,blocked,would_deny,throttled,failed,deviating,waited_ms,bytes,most_blocked_host,most_blocked_rule\n" +
		"NewsBot,900,120,0,0,0,0,1800000,0,a.example,line 3  Disallow: /private/\nPriceWatch,300,0,0,0,0,0,600000,0,,\n"
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", &out, want)
	}
}

// A table of would-deny has one column of counts; formats for programs have all.
func TestWouldDeny(t *testing.T) {
	m := crawl()
	for i := range m.records {
		if r := &m.records[i]; r.Decision == policy.Deny {
			r.Decision, r.Reason, r.Mode, r.Status, r.Waited = policy.WouldDeny, policy.ReasonReport, "report", 200, 0
		}
	}
	for format, want := range map[Format]string{
		Table: "Mode enforce would have blocked 120 of 1,200 requests.\n\nclient\thost\twould block\tmost by\nlocal\ta.example\t120\tline 3  Disallow: /private/\n",
		CSV: "client,host,requests,blocked,would_deny,throttled,failed,deviating,waited_ms,bytes,rule\n" +
			"local,a.example,120,0,120,0,0,0,0,0,line 3  Disallow: /private/\n",
	} {
		var out bytes.Buffer
		v := &Sums{Records: m, Options: Options{Format: format}, Out: &out}
		if _, err := v.WouldDeny(t.Context(), audit.Filter{}); err != nil || out.String() != want {
			t.Errorf("%v\n%s\nwant\n%s", err, &out, want)
		}
	}
}

// Lists without entries are [] in JSON.
func TestEmptyLists(t *testing.T) {
	var out bytes.Buffer
	err := errors.Join(
		Changes(&out, Options{Format: JSON}, nil), Spacing(&out, Options{Format: JSON}, &proof.SpacingReport{}, ""),
	)
	if err != nil || out.String() != "[]\n[]\n" {
		t.Errorf("%v: %s", err, &out)
	}
}

// A lane shows the shortest and the longest Delay that applied, and the words agree with their numbers.
func TestSpacingOfChangedDelay(t *testing.T) {
	lane := func(host string, gaps int64, least, most time.Duration) proof.LaneSpacing {
		l := proof.LaneSpacing{Lane: host, Required: audit.Millis(most), RequiredMin: audit.Millis(least)}
		l.Gaps, l.Smallest, l.P1, l.P50, l.Max = gaps, 5e9, 5e9, 5e9, 5e9
		return l
	}
	one, two := lane("a.example", 1, time.Second, 1860*time.Millisecond), lane("b.example", 3, 2*time.Second, 2*time.Second)
	s := &proof.SpacingReport{Lanes: []proof.LaneSpacing{one, two}}
	s.Gaps = 4
	for host, row := range map[string]struct {
		s    *proof.SpacingReport
		want string
	}{
		"": {s, "0 of 4 gaps were shorter than required, at 2 hosts.\n\n" +
			"host\tgaps\ttoo short\trequired\tsmallest\tp1\tmedian\tlongest\toverlap\twith a cause\n" +
			"a.example\t1\t0\t1 s to 1.86 s\t5 s\t5 s\t5 s\t5 s\t0 s\t\nb.example\t3\t0\t2 s\t5 s\t5 s\t5 s\t5 s\t0 s\t\n"},
		"a.example": {
			&proof.SpacingReport{SpacingSum: one.SpacingSum, Lanes: []proof.LaneSpacing{one}},
			"0 of 1 gap was shorter than required (1 s to 1.86 s). Smallest 5.000 s, median 5.000 s.\n",
		},
	} {
		var out bytes.Buffer
		if err := Spacing(&out, Options{Format: Table}, row.s, host); err != nil || out.String() != row.want {
			t.Errorf("%v\n%s\nwant\n%s", err, &out, row.want)
		}
	}
	var out bytes.Buffer
	if err := Spacing(&out, Options{Format: CSV}, s, ""); err != nil || !strings.Contains(out.String(), "\na.example,1,0,1860,5000,5000,5000,5000,0,0,0,1000,0,0,\n") {
		t.Errorf("%v\n%s", err, &out)
	}
}

func TestGaps(t *testing.T) {
	s := Summary{
		Filter: audit.Filter{Since: noon, Until: noon.Add(time.Hour)},
		Gaps:   []Gap{{noon.Add(-time.Hour), noon.Add(-time.Minute), 7}, {noon.Add(time.Minute), noon.Add(2 * time.Minute), 1200}, {noon.Add(time.Hour), noon.Add(2 * time.Hour), 9}},
	}
	want := "Gaps in the record: 1,200 requests not recorded between 2026-11-22 12:01:00 and 2026-11-22 12:02:00."
	if got := s.gapText(nil); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var out bytes.Buffer
	v := &Sums{Records: crawl(), Options: Options{Format: JSON}, Out: &out}
	if _, err := v.Summarize(t.Context(), s); err != nil || !json.Valid(out.Bytes()) ||
		!strings.Contains(out.String(), `"gaps":[{"began":"2026-11-22T12:01:00Z","ended":"2026-11-22T12:02:00Z","requests":1200}]`) {
		t.Errorf("%v: %s", err, &out)
	}
}

func TestTop(t *testing.T) {
	for by, want := range map[audit.Dimension]string{
		audit.ByHost:   "host\trequests\tblocked\twaited\na.example\t900\t120\t30 m\n",
		audit.ByRule:   "host\trule\trequests\tblocked\twaited\na.example\tline 3  Disallow: /private/\t120\t120\t4 m\n",
		audit.ByReason: "reason\trequests\tblocked\twaited\nrobots\t120\t120\t4 m\n",
	} {
		var out bytes.Buffer
		v := &Sums{Records: crawl(), Options: Options{Format: Table}, Out: &out}
		more, err := v.Top(t.Context(), audit.Filter{Limit: 1}, by)
		if err != nil || more != (by == audit.ByHost) || out.String() != want {
			t.Errorf("%s: %v, %v\n%s", by, more, err, &out)
		}
	}
}

func TestExplain(t *testing.T) {
	m := crawl()
	r := m.records[0]
	var out bytes.Buffer
	e, err := Explain(t.Context(), m, &r, noon.Add(time.Hour))
	if err == nil {
		err = e.Write(&out, Options{Format: Table})
	}
	want := `Refused: NewsBot, http://a.example/private/x, today 12:00:00, because of line 3 of its robots.txt.

      1  # Ask us
      2  User-agent: *
>     3  Disallow: /private/
      4  Allow: /private/press/

  robots.txt   200, fetched today 12:00:00, sha256 abababab…abab (kept; --body prints it)
  group        line 2  User-agent: *
  client       local from 10.4.2.17, mode enforce
  User-Agent   NewsBot/1.0
  pace         waited 2 s
  sent         nothing
  answered     403, 12 bytes, ended 2026-11-22 12:00:01
`
	if err != nil || !strings.HasPrefix(out.String(), want) {
		t.Errorf("%v\n%s\nwant\n%s", err, &out, want)
	}
}

// The record of the proxy's own request for a robots.txt does not say that none was read.
func TestExplainOwnFetch(t *testing.T) {
	r := crawl().records[1]
	r.Via, r.Path, r.UserAgent = audit.Robots, "/robots.txt", "robotsproxy"
	var out bytes.Buffer
	e := &Explanation{Record: &r, Now: noon}
	err := e.Write(&out, Options{Format: Table})
	if want := "  robots.txt   this is the proxy's own request for it\n"; err != nil || !strings.Contains(out.String(), want) {
		t.Errorf("%v\n%s\nwant\n%s", err, &out, want)
	}
	if err, want := e.Body(&out), "audit changes "+r.Host+" lists the versions"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Body: %v, want %s", err, want)
	}
}

func TestSentence(t *testing.T) {
	refused := audit.Record{
		Agent: "NewsBot", Host: "a.example", Scheme: "https", Port: 443, Path: "/private/x", Decision: policy.Deny, Reason: policy.ReasonRobots, RuleLine: 3,
		Rule: "Disallow: /private/", RobotsState: "found", EndedAt: noon,
	}
	for want, change := range map[string]func(r *audit.Record){
		"NewsBot was refused /private/x on a.example, because line 3 of its robots.txt disallows /private/.": func(*audit.Record) {},
		"NewsBot was allowed /private/x on a.example, although mode enforce would have refused it, because line 3 of its robots.txt disallows /private/.": func(r *audit.Record) {
			r.Decision, r.Reason = policy.WouldDeny, policy.ReasonReport
		},
		"A client was allowed /private/x?a=1 on a.example:8443, because line 4 of its robots.txt allows /private/x.": func(r *audit.Record) {
			r.Agent, r.Query, r.Port, r.Decision, r.Reason, r.RuleLine, r.Rule = "", "a=1", 8443, policy.Allow, "", 4, "Allow: /private/x"
		},
		"The proxy was allowed /robots.txt on a.example.": func(r *audit.Record) {
			r.Via, r.Path, r.Decision, r.Reason, r.RuleLine, r.Rule, r.RobotsState = audit.Robots, "/robots.txt", policy.Allow, "", 0, "", ""
		},
		"NewsBot was allowed a tunnel to a.example:443, because its robots.txt is empty, which disallows nothing.": func(r *audit.Record) {
			r.Via, r.Decision, r.Reason, r.RuleLine, r.Rule, r.RobotsState = audit.Tunnel, policy.Allow, "", 0, "", "empty"
		},
		"NewsBot was refused /private/x on a.example, because the operator stopped this host.": func(r *audit.Record) { r.Reason = policy.ReasonStopped },
		"NewsBot did not get a complete answer for /private/x on a.example, because the origin failed.": func(r *audit.Record) {
			r.Decision, r.Reason, r.SentAt = policy.Error, policy.ReasonUpstream, noon
		},
		"NewsBot was refused /private/x on a.example, because line 3 of its robots.txt disallows /private/; the request has not ended, or its end was not recorded.": func(r *audit.Record) {
			r.EndedAt = time.Time{}
		},
	} {
		r := refused
		change(&r)
		if got := (&Explanation{Record: &r, Now: noon}).Sentence(); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

// Each reason and each decision have words.
func TestWords(t *testing.T) {
	for _, d := range policy.Outcomes {
		if v := verdicts[d]; v.first == "" || !strings.Contains(v.clause, "%s") {
			t.Errorf("%s has no words", d)
		}
	}
	for _, reason := range policy.Reasons {
		r := audit.Record{Decision: policy.Deny, Reason: reason, RuleLine: 1}
		if (&Explanation{Record: &r}).cause() == "" {
			t.Errorf("%s has no words", reason)
		}
	}
}

func TestFind(t *testing.T) {
	m := crawl()
	id := m.records[7].ID.String()
	for text, want := range map[string]bool{id: true, strings.ToUpper(id): true, id[:11]: true, id[:3]: false, id[:6]: false, "0w00000000000": false, "vvvvvvvvvvvvv": false, "": false} {
		r, err := Find(t.Context(), m, text)
		if found := err == nil && r.ID.String() == id; found != want {
			t.Errorf("Find(%q) = %v, %v", text, r, err)
		}
	}
	if _, err := Find(t.Context(), m, id[:6]); !errors.As(err, new(*AmbiguousError)) {
		t.Errorf("several: %v", err)
	}
}

// Cells of CSV are no formulas, and no format has a control character.
func TestHostileCells(t *testing.T) {
	m := crawl()
	for _, hostile := range []string{"=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", "\x1b[31m", "\u202e", "\xff", "<script>", `"a,b"`} {
		r := m.records[0]
		r.Agent, r.UserAgent, r.Tag, r.Path = hostile, hostile, hostile, "/"+hostile
		for _, format := range Formats {
			for _, width := range []int{0, 200} {
				var out bytes.Buffer
				rs := NewRecords(&out, Options{Format: format, Width: width})
				if err := errors.Join(rs.Add(&r), rs.Close()); err != nil {
					t.Fatal(err)
				}
				if text := strings.Map(func(c rune) rune {
					if c == '\n' || c == '\t' && width == 0 {
						return -1
					}
					return c
				}, out.String()); strings.ContainsAny(text, "\x1b\r\t\u202e\uFFFD") || !strings.Contains(text, "/") {
					t.Errorf("%s of %q: %q", format, hostile, out.String())
				}
				if format != CSV {
					continue
				}
				rows, err := csv.NewReader(&out).ReadAll()
				if err != nil || len(rows) != 2 {
					t.Fatalf("%v, %q", err, rows)
				}
				for _, field := range rows[1] {
					if field != "" && strings.ContainsRune("=+-@", rune(field[0])) {
						t.Errorf("%q is a formula", field)
					}
				}
			}
		}
	}
}

func TestFormatsOfRecords(t *testing.T) {
	m := crawl()
	for format, parse := range map[Format]func([]byte) (int, error){
		JSON: func(b []byte) (int, error) {
			var all []audit.Record
			err := json.Unmarshal(b, &all)
			return len(all), err
		},
		JSONL: func(b []byte) (n int, err error) {
			for line := range bytes.Lines(b) {
				var r audit.Record
				err = errors.Join(err, json.Unmarshal(line, &r))
				n++
			}
			return n, err
		},
		CSV: func(b []byte) (int, error) {
			rows, err := csv.NewReader(bytes.NewReader(b)).ReadAll()
			return len(rows) - 1, err
		},
		Table: func(b []byte) (int, error) { return bytes.Count(b, []byte("\n")) - 1, nil },
	} {
		for _, want := range []int{0, 1, 1200} {
			var out bytes.Buffer
			rs := NewRecords(&out, Options{Format: format, Width: 120})
			for i := range want {
				if err := rs.Add(&m.records[i]); err != nil {
					t.Fatal(err)
				}
			}
			if err := rs.Close(); err != nil {
				t.Fatal(err)
			}
			if n, err := parse(out.Bytes()); err != nil || n != want && !(format == Table && want == 0) {
				t.Errorf("%s: %d records, %v; want %d", format, n, err, want)
			}
			for line := range strings.Lines(out.String()) {
				if n := len([]rune(line)) - 1; format == Table && n > 120 {
					t.Fatalf("a line of %d columns: %s", n, line)
				}
			}
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 s", 2003 * time.Millisecond: "2.003 s", 1860 * time.Millisecond: "1.86 s", 1128 * time.Millisecond: "1.128 s", 70 * time.Second: "1 m 10 s", 192 * time.Minute: "3 h 12 m", 59600 * time.Millisecond: "1 m",
		time.Hour - time.Millisecond: "1 h", 24*time.Hour - time.Second: "1 d", 52 * time.Hour: "2 d 4 h", 41 * time.Second: "41 s", -time.Minute: "-1 m",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%v) = %q, want %q", d, got, want)
		}
	}
}

// exact rounds down, and rounds no whole millisecond.
func TestExact(t *testing.T) {
	for m, want := range map[audit.Millis]string{1999600e3: "1.999 s", 1128e6: "1.128 s", 1860e6: "1.860 s", 1235e6: "1.235 s"} {
		if got := exact(m); got != want {
			t.Errorf("exact(%v) = %q, want %q", time.Duration(m), got, want)
		}
	}
}

func TestNumber(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		if got := Number(n); got != want {
			t.Errorf("Number(%d) = %s, want %s", n, got, want)
		}
	}
}

// Follow writes each record once, at its end.
func TestFollow(t *testing.T) {
	m := &memory{}
	var ids audit.Sequence
	record := func(path string, ended bool) audit.Record {
		now := time.Now()
		r := audit.Record{ID: ids.Next(now), Time: now, Path: path, Decision: policy.Allow}
		if ended {
			r.EndedAt = now
		}
		return r
	}
	m.put(record("/before", true))
	open := record("/open", false)
	m.put(open)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out lockedBuffer
	done := make(chan error, 1)
	go func() {
		rs := NewRecords(&out, Options{Format: JSONL})
		done <- errors.Join(Follow(ctx, rs, m, audit.Filter{Limit: 10}), rs.Close())
	}()
	out.expect(t, `"/before"`)
	m.put(record("/after", true))
	out.expect(t, `"/after"`)
	if strings.Contains(out.String(), "/open") {
		t.Error("a request was written before its end")
	}
	open.EndedAt = time.Now()
	m.put(open)
	out.expect(t, `"/open"`)
	time.Sleep(2 * pollEvery)
	cancel()
	if err := <-done; err != nil || strings.Count(out.String(), "\n") != 3 {
		t.Errorf("%v:\n%s", err, &out)
	}
}
