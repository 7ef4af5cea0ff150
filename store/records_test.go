package store

import (
	gocmp "cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

var firstDay = time.Date(2026, 10, 20, 0, 0, 0, 0, time.UTC)

func openRecords(t testing.TB, o RecordsOptions) *Records {
	t.Helper()
	if o.Path == "" {
		o.Path = filepath.Join(t.TempDir(), "audit.db")
	}
	r, err := OpenRecords(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func writeRecords(t testing.TB, r *Records, entries ...audit.Entry) {
	t.Helper()
	if err := r.Write(context.Background(), entries); err != nil {
		t.Fatal(err)
	}
}

// fillRecord sets each field to something, often to nothing.
func fillRecord(t *rapid.T, r *audit.Record) {
	v := reflect.ValueOf(r).Elem()
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Name, v.Field(i)
		switch {
		case v.Type().Field(i).Tag.Get("json") == "-":
		case field.Type() == reflect.TypeFor[time.Time]():
			if rapid.Bool().Draw(t, name) {
				field.Set(reflect.ValueOf(firstDay.Add(time.Duration(rapid.Int64Range(-1e15, 1e15).Draw(t, name)))))
			}
		case field.Kind() == reflect.String:
			field.SetString(rapid.OneOf(rapid.Just(""), rapid.String(), rapid.StringMatching(`[ -~]*`),
				rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, name))
		case field.CanUint():
			field.SetUint(uint64(rapid.Uint16().Draw(t, name)))
		case field.CanInt():
			field.SetInt(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 1<<50)).Draw(t, name))
		}
	}
}

// A record is read back as it is encoded, whatever its fields hold.
func TestRecordIsReadBack(t *testing.T) { onEach(t, checkRecordIsReadBack) }

func checkRecordIsReadBack(t *testing.T, open opener) {
	r := open(t, RecordsOptions{})
	ctx := context.Background()
	rapid.Check(t, func(rt *rapid.T) {
		var e audit.Entry
		fillRecord(rt, &e.Record)
		if err := r.Write(ctx, []audit.Entry{e}); err != nil {
			rt.Fatal(err)
		}
		got, err := r.Record(ctx, e.ID)
		if err != nil {
			rt.Fatal(err)
		}
		want := e.Record
		want.Normal()
		if got, want := encoded(r, got), encoded(r, &want); got != want {
			rt.Errorf("read back\n%s\nwant\n%s", got, want)
		}
	})
}

// encoded returns the encoding of rec. PostgreSQL keeps no NUL.
func encoded(r *Records, rec *audit.Record) string {
	text := string(rec.AppendJSON(nil))
	if r.postgres != nil {
		return strings.ReplaceAll(text, `\u0000`, "%00")
	}
	return text
}

// crawl returns n records of the given hosts in the order of their IDs.
func crawl(n, hosts int, span time.Duration) []audit.Entry {
	random := rand.New(rand.NewPCG(1, 2))
	ids := audit.Sequence{}
	entries := make([]audit.Entry, n)
	for i := range entries {
		at := firstDay.Add(span * time.Duration(i) / time.Duration(n))
		h := random.IntN(hosts)
		r := audit.Record{
			ID: ids.Next(at), Time: at, Client: []string{"news", "shop", "lab"}[random.IntN(3)],
			ClientAddr: fmt.Sprintf("10.0.0.%d:%d", random.IntN(20), 1024+random.IntN(60000)),
			UserAgent:  "NewsBot/1.0 (+https://news.example/bot)", Agent: "NewsBot", ProductToken: "NewsBot", Method: "GET",
			Scheme: "https", Host: fmt.Sprintf("site-%d.example", h), Port: 443, Via: audit.Intercepted, Mode: "enforce",
			Path:     fmt.Sprintf("/articles/2026/11/%08x/page-%04d.html", random.Uint32(), random.IntN(10000)),
			Decision: policy.Allow, GroupLine: 1, GroupAgents: "*", Dialect: "rfc9309",
			RobotsSHA256: fmt.Sprintf("%064x", h), RobotsStatus: 200, RobotsState: "found", RobotsFetchedAt: at.Truncate(24 * time.Hour),
			PolicySHA256: strings.Repeat("ab", 32), RulesVersion: 1, PacingMode: "local",
			DelayRequired: audit.Millis(time.Second), DelaySource: "crawl-delay", Waited: audit.Millis(random.IntN(1e9)),
			Gap: audit.Millis(1e9 + random.IntN(1e9)), SentAt: at.Add(time.Millisecond), FirstByte: audit.Millis(random.IntN(1e8)),
			EndedAt: at.Add(100 * time.Millisecond), Status: 200, Bytes: int64(random.IntN(100_000)),
			UpstreamAddr: fmt.Sprintf("192.0.2.%d:443", h%250),
		}
		switch random.IntN(20) {
		case 0:
			r.Decision, r.Reason, r.Rule, r.RuleLine, r.Status = policy.Deny, policy.ReasonRobots, "Disallow: /articles/", 3, 403
			r.SentAt, r.FirstByte, r.Gap, r.UpstreamAddr = time.Time{}, 0, 0, ""
		case 1:
			r.Decision, r.Reason, r.Error = policy.Error, policy.ReasonClientLeft, "the client disconnected"
		case 2:
			r.Deviation = audit.DeviationReported
		}
		entries[i].Record = r
	}
	return entries
}

func writeAll(t testing.TB, r *Records, entries []audit.Entry) {
	t.Helper()
	for batch := range slices.Chunk(entries, 500) {
		writeRecords(t, r, batch...)
	}
}

func ids(t *testing.T, r audit.Reader, f audit.Filter) (all []audit.ID) {
	t.Helper()
	for rec, err := range r.Records(context.Background(), f) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rec.ID)
	}
	return all
}

// filters select records of crawl.
var filters = map[string]struct {
	filter audit.Filter
	match  func(*audit.Record) bool
}{
	"all":          {audit.Filter{}, func(*audit.Record) bool { return true }},
	"host":         {audit.Filter{Host: "site-3.example"}, func(r *audit.Record) bool { return r.Host == "site-3.example" }},
	"hosts":        {audit.Filter{Host: "*.example"}, func(*audit.Record) bool { return true }},
	"another host": {audit.Filter{Host: "*.site-3.example"}, func(*audit.Record) bool { return false }},
	"client":       {audit.Filter{Client: "shop"}, func(r *audit.Record) bool { return r.Client == "shop" }},
	"agent":        {audit.Filter{Agent: "OtherBot"}, func(*audit.Record) bool { return false }},
	"agent's case": {audit.Filter{Agent: "newsBOT"}, func(*audit.Record) bool { return true }},
	"denied":       {audit.Filter{Decisions: []policy.Outcome{policy.Deny}}, func(r *audit.Record) bool { return r.Decision == policy.Deny }},
	"not allowed":  {audit.Filter{Decisions: []policy.Outcome{policy.Deny, policy.Error}}, func(r *audit.Record) bool { return r.Decision != policy.Allow }},
	"client left":  {audit.Filter{Reasons: []policy.Reason{policy.ReasonClientLeft}}, func(r *audit.Record) bool { return r.Reason == policy.ReasonClientLeft }},
	"rule":         {audit.Filter{Rule: "disallow: /ARTICLES/"}, func(r *audit.Record) bool { return r.Rule != "" }},
	"path":         {audit.Filter{Path: "/articles/2026/11/0"}, func(r *audit.Record) bool { return strings.HasPrefix(r.Path, "/articles/2026/11/0") }},
	"whole hours":  {audit.Filter{Since: firstDay.Add(2 * time.Hour), Until: firstDay.Add(5 * time.Hour)}, func(r *audit.Record) bool { return between(r, 2*time.Hour, 5*time.Hour) }},
	"parts of hours": {
		audit.Filter{Since: firstDay.Add(90 * time.Minute), Until: firstDay.Add(5*time.Hour + time.Second), Client: "lab"},
		func(r *audit.Record) bool {
			return r.Client == "lab" && between(r, 90*time.Minute, 5*time.Hour+time.Second)
		},
	},
	"within an hour": {
		audit.Filter{Since: firstDay.Add(10 * time.Minute), Until: firstDay.Add(20 * time.Minute)},
		func(r *audit.Record) bool { return between(r, 10*time.Minute, 20*time.Minute) },
	},
	"requests of the proxy": {audit.Filter{Vias: []audit.Via{audit.Robots}}, func(*audit.Record) bool { return false }},
}

func between(r *audit.Record, since, until time.Duration) bool {
	return !r.Time.Before(firstDay.Add(since)) && r.Time.Before(firstDay.Add(until))
}

func TestRecordsAndSums(t *testing.T) {
	Long(t)
	onEach(t, checkRecordsAndSums)
}

func checkRecordsAndSums(t *testing.T, open opener) {
	r := open(t, RecordsOptions{})
	entries := crawl(3000, 10, 8*time.Hour)
	own := entries[0]
	own.ID, own.Via, own.Path = own.ID+1, audit.Robots, "/robots.txt"
	writeAll(t, r, entries)
	writeRecords(t, r, own)
	ctx := context.Background()
	for name, row := range filters {
		t.Run(name, func(t *testing.T) {
			var want []audit.ID
			counts := make(map[audit.Dimension]map[string]int64)
			for i := range entries {
				rec := &entries[i].Record
				if !row.match(rec) {
					continue
				}
				want = append(want, rec.ID)
				for d, value := range dimensionsOf(rec) {
					if counts[d] == nil {
						counts[d] = make(map[string]int64)
					}
					counts[d][value]++
				}
			}
			if len(row.filter.Vias) > 0 {
				want = append(want, own.ID)
			}
			if diff := cmp.Diff(want, ids(t, r, row.filter)); diff != "" {
				t.Errorf("Records (-want +got):\n%s", diff)
			}
			newest := row.filter
			newest.Newest, newest.Limit = true, 7
			slices.Reverse(want)
			if diff := cmp.Diff(want[:min(7, len(want))], ids(t, r, newest)); diff != "" && len(want) > 0 {
				t.Errorf("the newest (-want +got):\n%s", diff)
			}
			if len(row.filter.Vias) > 0 {
				return
			}
			for _, d := range audit.Dimensions {
				sums, err := r.Sums(ctx, row.filter, d)
				if err != nil {
					t.Fatal(err)
				}
				got := make(map[string]int64)
				for i, s := range sums {
					got[s.Values[0]] = s.Requests
					if i > 0 && s.Requests > sums[i-1].Requests {
						t.Errorf("by %s: %d after %d", d, s.Requests, sums[i-1].Requests)
					}
				}
				if diff := cmp.Diff(counts[d], got); diff != "" && len(counts[d])+len(got) > 0 {
					t.Errorf("by %s (-want +got):\n%s", d, diff)
				}
			}
			checkTotals(t, r, row.filter, entries, row.match)
		})
	}
}

func checkTotals(t *testing.T, r *Records, f audit.Filter, entries []audit.Entry, match func(*audit.Record) bool) {
	t.Helper()
	sums, err := r.Sums(context.Background(), f)
	if err != nil || len(sums) != 1 {
		t.Fatalf("Sums = %v, %v; want one", sums, err)
	}
	want := audit.Sum{Values: []string{}}
	for i := range entries {
		rec := entries[i].Record
		if !match(&rec) {
			continue
		}
		rec.Normal()
		want.Requests++
		want.Bytes += rec.Bytes
		want.Waited += time.Duration(rec.Waited)
		switch rec.Decision {
		case policy.Deny:
			want.Blocked++
		case policy.Error:
			want.Failed++
		}
		if rec.Deviation != "" {
			want.Deviating++
		}
	}
	if diff := cmp.Diff(want, sums[0]); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	points, err := r.Timeline(context.Background(), f, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for _, p := range points {
		for _, count := range p.Decisions {
			n += count
		}
	}
	if n != want.Requests {
		t.Errorf("the timeline has %d records, want %d", n, want.Requests)
	}
}

func TestUses(t *testing.T) { onEach(t, checkAllUses) }

func checkAllUses(t *testing.T, open opener) {
	r := open(t, RecordsOptions{})
	entries := crawl(3000, 10, 8*time.Hour)
	for i := range entries {
		rec := &entries[i].Record
		rec.Purpose = map[string]string{"news": "search", "lab": "train-ai"}[rec.Client]
		rec.Usage = []string{"", "robots.txt: ai-train=no", "header: x-robots-tag=noai"}[i%3]
		switch {
		case i%10 == 0:
			rec.Decision, rec.Reason = policy.Deny, policy.ReasonUsage
		case i%10 == 1:
			rec.Status = []int{204, 304, 404, 206}[i%4]
		case i%10 == 3:
			rec.Method = "HEAD"
		case i%10 == 2:
			rec.Decision, rec.Reason = policy.WouldDeny, policy.ReasonReport
		case i%10 == 4:
			rec.Path, rec.Query = "/robots.txt", []string{"", "v=1"}[i%4/2]
		}
	}
	writeAll(t, r, entries)
	for _, name := range []string{"all", "host", "within an hour", "client"} {
		row, ok := filters[name]
		if !ok {
			t.Fatalf("no filter %q", name)
		}
		t.Run(name, func(t *testing.T) { checkUses(t, r, row.filter, entries, row.match) })
	}
}

// checkUses compares the counts of each host, purpose and text of preferences with those of the records.
func checkUses(t *testing.T, r *Records, f audit.Filter, entries []audit.Entry, match func(*audit.Record) bool) {
	t.Helper()
	counts := make(map[audit.Use]*audit.Use)
	for i := range entries {
		rec := entries[i].Record
		if !match(&rec) {
			continue
		}
		rec.Normal()
		key := audit.Use{Host: rec.Host, Purpose: rec.Purpose, Usage: rec.Usage}
		u := counts[key]
		if u == nil {
			u = &audit.Use{Host: rec.Host, Purpose: rec.Purpose, Usage: rec.Usage}
			counts[key] = u
		}
		u.Requests++
		switch rec.Decision {
		case policy.Deny:
			u.Refused++
			if rec.Reason == policy.ReasonUsage {
				u.ByPreference++
			}
		case policy.Allow, policy.Exempt, policy.WouldDeny, policy.WouldThrottle:
			if policy.CarriesContent(rec.Method, rec.Status) && (rec.Path != "/robots.txt" || rec.Query != "") {
				u.Fetched++
			}
		}
	}
	var want []audit.Use
	for _, u := range counts {
		want = append(want, *u)
	}
	slices.SortFunc(want, func(a, b audit.Use) int {
		return gocmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.Purpose, b.Purpose), strings.Compare(a.Usage, b.Usage))
	})
	for _, limit := range []int{0, 3} {
		f.Limit = limit
		var got []audit.Use
		for u, err := range r.Uses(context.Background(), f) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, u)
		}
		if limit > 0 {
			want = want[:min(limit, len(want))]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Uses with the limit %d (-want +got):\n%s", limit, diff)
		}
	}
}

func dimensionsOf(r *audit.Record) map[audit.Dimension]string {
	return map[audit.Dimension]string{
		audit.ByHost: r.Host, audit.ByPath: r.Path, audit.ByClient: r.Client, audit.ByAgent: r.Agent,
		audit.ByRule: audit.RuleText(r.RuleLine, r.Rule), audit.ByReason: string(r.Reason), audit.ByDecision: string(r.Decision),
	}
}

// An open record is replaced at its end, and counts once.
func TestOpenRecord(t *testing.T) { onEach(t, checkOpenRecord) }

func checkOpenRecord(t *testing.T, open opener) {
	r := open(t, RecordsOptions{})
	e := crawl(1, 1, time.Hour)[0]
	e.Decision, e.Reason = policy.Allow, ""
	young := e
	young.Open, young.EndedAt, young.Bytes = true, time.Time{}, 0
	writeRecords(t, r, young)
	writeRecords(t, r, young)
	checkTotals(t, r, audit.Filter{}, []audit.Entry{young}, func(*audit.Record) bool { return true })
	e.Decision, e.Reason = policy.Error, policy.ReasonClientLeft
	writeRecords(t, r, e)
	checkTotals(t, r, audit.Filter{}, []audit.Entry{e}, func(*audit.Record) bool { return true })
	e2, e3 := e, e
	e2.ID, e3.ID = e.ID+1<<10, e.ID+1<<10
	e2.Open = true
	writeRecords(t, r, e2, e3)
	checkTotals(t, r, audit.Filter{}, []audit.Entry{e, e3}, func(*audit.Record) bool { return true })
}

func TestNoRecord(t *testing.T) { onEach(t, checkNoRecord) }

func checkNoRecord(t *testing.T, open opener) {
	r := open(t, RecordsOptions{})
	if _, err := r.Record(context.Background(), 1); !errors.Is(err, audit.ErrNoRecord) {
		t.Errorf("Record = %v, want ErrNoRecord", err)
	}
}

func BenchmarkWriteRecords(b *testing.B) {
	for _, hosts := range []int{1, 1000} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			r := openRecords(b, RecordsOptions{})
			entries := crawl(500, hosts, time.Second)
			ids := audit.Sequence{}
			b.ReportAllocs()
			for b.Loop() {
				for i := range entries {
					entries[i].ID = ids.Next(entries[i].Time)
				}
				writeRecords(b, r, entries...)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/record")
		})
	}
}
