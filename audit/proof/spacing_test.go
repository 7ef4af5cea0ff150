package proof_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
)

var began = time.Date(2026, 11, 22, 23, 0, 0, 0, time.UTC)

// visit returns a record of a request that arrived and was sent some seconds after began, and took some seconds. It
// waited for its place under a Delay of two seconds.
func visit(sent, took float64, changes ...func(*audit.Record)) audit.Record {
	at := began.Add(seconds(sent))
	r := audit.Record{
		ID: idAt(at, 0), Time: at, Host: "a.example", Path: "/", Via: audit.Plain, Mode: "enforce", PacingMode: "local",
		Decision: "allow", DelayRequired: audit.Millis(2 * time.Second), DelaySource: "crawl-delay",
		SentAt: at, EndedAt: at.Add(seconds(took)),
	}
	for _, change := range changes {
		change(&r)
	}
	return r
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func idAt(t time.Time, instance int) audit.ID {
	var s audit.Sequence
	s.Instance = func() int { return instance }
	return s.Next(t)
}

func arrived(before float64) func(*audit.Record) {
	return func(r *audit.Record) {
		r.Time = r.SentAt.Add(-seconds(before))
		r.ID = idAt(r.Time, 0)
	}
}

func from(instance int) func(*audit.Record) {
	return func(r *audit.Record) { r.ID = idAt(r.Time, instance) }
}

func recorded(gap float64) func(*audit.Record) {
	return func(r *audit.Record) { r.Gap = audit.Millis(seconds(gap)) }
}

func deviation(d string) func(*audit.Record) {
	return func(r *audit.Record) { r.Deviation = d }
}

func inReport(r *audit.Record) { r.Mode, r.PacingMode, r.Deviation = "report", "", "reported" }

func inOff(r *audit.Record) {
	r.Mode, r.PacingMode, r.DelayRequired, r.DelaySource = "off", "", 0, ""
}

func fromStart(r *audit.Record) { r.Spacing = "start" }

func spread(r *audit.Record) { r.PacingMode = "spread" }

func toRobots(r *audit.Record) { r.Via, r.PacingMode, r.DelayRequired = audit.Robots, "", 0 }

func undelayed(r *audit.Record) { r.DelayRequired, r.DelaySource = 0, "" }

func released(after float64) func(*audit.Record) {
	return func(r *audit.Record) { r.ReleasedAt = r.SentAt.Add(seconds(after)) }
}

func inLane(lane, host string) func(*audit.Record) {
	return func(r *audit.Record) { r.Lane, r.Host = lane, host }
}

// TestSpacing has one or a few gaps in each row. The result lists each gap that was judged, in seconds, and each other
// gap with a Delay by its cause.
func TestSpacing(t *testing.T) {
	for name, tt := range map[string]struct {
		records []audit.Record
		want    string
	}{
		"long enough":      {[]audit.Record{visit(0, 1), visit(3, 1), visit(6.5, 1)}, "2s 2.5s"},
		"too short":        {[]audit.Record{visit(0, 1), visit(2.9, 1)}, "1.9s!"},
		"overlapping":      {[]audit.Record{visit(0, 5), visit(3, 1)}, "-2s!"},
		"under a long one": {[]audit.Record{visit(0, 9), visit(1, 1, undelayed), visit(3, 1)}, "-6s!"},
		"a microsecond is cut": {
			[]audit.Record{visit(0, 1), visit(3-1e-6, 1), visit(6-3e-6, 1)},
			"1.999999s 1.999998s!",
		},
		"sent out of order of arrival":     {[]audit.Record{visit(3, 1, arrived(2.5)), visit(0, 1), visit(6, 1, arrived(5))}, "2s 2s"},
		"overtaken by one without a Delay": {[]audit.Record{visit(0, .5), visit(2.9995, .01, undelayed), visit(3, .5, recorded(2.5)), visit(6, 1)}, "no-delay 2.5s"},
		"overtaken after a report": {
			[]audit.Record{visit(0, .5), visit(2.6, .39, inReport), visit(4.5999, .01, undelayed), visit(4.6, .5, recorded(2))}, "2.1s no-delay",
		},
		"only off before":           {[]audit.Record{visit(0, .5, inOff), visit(3, .5, recorded(9))}, "2.5s"},
		"overtaken too early":       {[]audit.Record{visit(0, 1.5), visit(2.9995, .01, undelayed), visit(3, .5)}, "-9.5ms!"},
		"after one without a Delay": {[]audit.Record{visit(0, .5), visit(2, .1, undelayed), visit(3, .5)}, "900ms!"},
		"no Delay":                  {[]audit.Record{visit(0, 1, undelayed), visit(0.5, 1, undelayed)}, ""},
		"bursts":                    {[]audit.Record{visit(0, 1), visit(1, 1, func(r *audit.Record) { r.DelaySource = "default-delay" })}, ""},
		"robots.txt takes no place": {[]audit.Record{visit(0, 1), visit(2, .5, toRobots), visit(3, 1)}, "2s"},
		"a paced redirect of it does": {
			[]audit.Record{visit(0, 1), visit(3, .5, func(r *audit.Record) { r.Via = audit.Robots }), visit(4, 1)},
			"2s 500ms!",
		},
		"refused requests were not sent": {[]audit.Record{visit(0, 1), visit(2, 0, func(r *audit.Record) { r.SentAt = time.Time{} }), visit(3, 1)}, "2s"},
		"lanes are apart":                {[]audit.Record{visit(0, 1), visit(1, 1, inLane("", "b.example")), visit(3, 1)}, "2s"},
		"hosts of one lane":              {[]audit.Record{visit(0, 1, inLane("example", "a.example")), visit(1, 1, inLane("example", "b.example"))}, "0s!"},

		"reported":                      {[]audit.Record{visit(0, 1), visit(1, 1, inReport)}, "reported"},
		"after a reported one":          {[]audit.Record{visit(0, 3, inReport), visit(2, 1)}, "reported"},
		"overtaken by one":              {[]audit.Record{visit(0, 1), visit(2.9, 1, inReport), visit(3, 1, deviation("reported"))}, "reported reported"},
		"too soon after a start":        {[]audit.Record{visit(0, 3, inReport), visit(1.5, 1)}, "-1.5s!"},
		"reported by another instance":  {[]audit.Record{visit(0, 1), visit(2.8, .1, inReport, from(1)), visit(3, 1)}, "reported reported"},
		"off":                           {[]audit.Record{visit(0, 1), visit(1, 1, inOff), visit(3, 1)}, "off"},
		"off, from the start":           {[]audit.Record{visit(0, 2.5, fromStart), visit(2, .1, inOff), visit(3, 1, fromStart)}, "off"},
		"subresource":                   {[]audit.Record{visit(0, 1), visit(1, 1, deviation("subresource"))}, "subresource"},
		"clamped":                       {[]audit.Record{visit(0, 1), visit(3, 1, deviation("max_crawl_delay")), visit(5, 1, deviation("max_crawl_delay"))}, "2s 1s!"},
		"overlap":                       {[]audit.Record{visit(0, 9, released(1), deviation("overlap")), visit(3, 1), visit(4, 1)}, "overlap -5s!"},
		"released":                      {[]audit.Record{visit(0, 90, released(30)), visit(32, 1), visit(35, 1), visit(92, 1)}, "released released 2s"},
		"too soon after a release":      {[]audit.Record{visit(0, 90, released(30)), visit(31, 1)}, "-59s!"},
		"from the start":                {[]audit.Record{visit(0, 1.5, fromStart), visit(2, 1.5, fromStart), visit(3.9, 1, fromStart)}, "2s 1.9s!"},
		"from the start, one at a time": {[]audit.Record{visit(0, 3, fromStart), visit(2.5, 1, fromStart)}, "-500ms!"},
		"two instances":                 {[]audit.Record{visit(0, 1), visit(2.5, 1, from(1))}, "1.5s!"},
		"spread":                        {[]audit.Record{visit(0, 1, spread), visit(2.5, 1, from(1), spread), visit(4, 1, from(1), spread)}, "spread 500ms!"},
		"the process died":              {[]audit.Record{visit(0, 1, func(r *audit.Record) { r.EndedAt = time.Time{} }), visit(2, 1)}, "2s"},

		"recorded":            {[]audit.Record{visit(0, 1), visit(3, 1, recorded(1.999))}, "2s"},
		"recorded longer":     {[]audit.Record{visit(0, 1), visit(3, 1, recorded(2.001))}, "2s?"},
		"of another instance": {[]audit.Record{visit(0, 1), visit(3, 1, from(1), recorded(2.001))}, "2s"},
		"of a reported start": {[]audit.Record{visit(0, .1, inReport), visit(3, 1, recorded(3.001))}, "2.9s"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for g, err := range proof.Gaps(t.Context(), &memory{records: tt.records}, audit.Filter{}) {
				if err != nil {
					t.Fatal(err)
				}
				got += described(g)
			}
			if got = strings.TrimSpace(got); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func described(g *proof.Gap) string {
	switch {
	case g.Cause != "":
		return g.Cause + " "
	case !g.Judged():
		return ""
	}
	s := g.Length.String()
	if g.Violation() {
		s += "!"
	} else if g.Contradiction {
		s += "?"
	}
	return s + " "
}

// TestSpacingReport has two lanes, of which one has a violation and a contradiction.
func TestSpacingReport(t *testing.T) {
	m := &memory{records: []audit.Record{
		visit(0, 1), visit(3, 1), visit(6.5, 1, from(7)), visit(8, 1, inReport),
		visit(20, 1, inLane("", "b.example")), visit(20.5, 1, inLane("", "b.example")),
		visit(24, 1, inLane("", "b.example"), recorded(4)),
	}}
	got, err := proof.Spacing(t.Context(), m, audit.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	ms := func(s float64) audit.Millis { return audit.Millis(seconds(s)) }
	want := &proof.SpacingReport{
		SpacingSum: proof.SpacingSum{
			Requests: 7, Gaps: 4, Violations: 1, Contradictions: 1, Between: 1, Overlap: ms(.5), Instances: []int{0, 7},
			Deviations: map[string]int64{"reported": 1},
		},
		Lanes: []proof.LaneSpacing{
			{
				Lane: "b.example", Smallest: ms(-.5), P1: ms(-.5), P50: ms(-.5), Max: ms(2.5), Required: ms(2), RequiredMin: ms(2),
				SpacingSum: proof.SpacingSum{Requests: 3, Gaps: 2, Violations: 1, Contradictions: 1, Overlap: ms(.5), Instances: []int{0}, Deviations: map[string]int64{}},
				Findings: []proof.SpacingFinding{
					{ID: m.records[5].ID, SentAt: began.Add(seconds(20.5)), Gap: ms(-.5), Required: ms(2), Kind: proof.Violation},
					{ID: m.records[6].ID, SentAt: began.Add(seconds(24)), Gap: ms(2.5), Required: ms(2), Recorded: ms(4), Kind: proof.Contradiction},
				},
			},
			{
				Lane: "a.example", Smallest: ms(2), P1: ms(2), P50: ms(2), Max: ms(2.5), Required: ms(2), RequiredMin: ms(2),
				SpacingSum: proof.SpacingSum{Requests: 4, Gaps: 2, Between: 1, Deviations: map[string]int64{"reported": 1}, Instances: []int{0, 7}},
				Findings:   []proof.SpacingFinding{},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A filter selects the gaps that are reported; the requests before them count in any case.
func TestSpacingOfSomeRequests(t *testing.T) {
	m := &memory{records: []audit.Record{
		visit(0, 1), visit(3, 1), visit(4, 1, inLane("", "b.example")),
		visit(6, 1, inLane("example", "b.example")), visit(7, 1, inLane("example", "a.example")),
		visit(8, 1, inLane("other", "c.example")), visit(9, 1, inLane("", "a.example")),
		visit(12, 1, func(r *audit.Record) { r.Client = "news" }),
	}}
	for name, tt := range map[string]struct {
		filter audit.Filter
		want   string
	}{
		"host":           {audit.Filter{Host: "a.example"}, "a.example 2s, example 0s!, a.example 5s, a.example 2s, "},
		"pattern":        {audit.Filter{Host: "*.example"}, "a.example 2s, example 0s!, a.example 5s, a.example 2s, "},
		"another host":   {audit.Filter{Host: "c.example"}, ""},
		"client":         {audit.Filter{Client: "news"}, "a.example 2s, "},
		"since":          {audit.Filter{Since: began.Add(seconds(3))}, "example 0s!, a.example 5s, a.example 2s, "},
		"until":          {audit.Filter{Until: began.Add(seconds(7))}, "a.example 2s, "},
		"no such client": {audit.Filter{Client: "old"}, ""},
	} {
		got := ""
		for g, err := range proof.Gaps(t.Context(), m, tt.filter) {
			if err != nil {
				t.Fatal(err)
			}
			if g.Judged() {
				got += g.Lane + " " + strings.TrimSpace(described(g)) + ", "
			}
		}
		if got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tt.want)
		}
	}
}

// An error ends the sequence, and so does a caller that has enough.
func TestGapsEnd(t *testing.T) {
	broken := &failing{memory: memory{records: []audit.Record{visit(0, 1), visit(3, 1)}}}
	if _, err := proof.Spacing(t.Context(), broken, audit.Filter{}); !errors.Is(err, errRead) {
		t.Errorf("Spacing of a broken store: %v, want its error", err)
	}
	n := 0
	for range proof.Gaps(t.Context(), &broken.memory, audit.Filter{}) {
		if n++; n == 1 {
			break
		}
	}
}

var errRead = errors.New("the disk is broken")

// failing is a memory with an error after its records.
type failing struct{ memory }

func (f *failing) Records(ctx context.Context, filter audit.Filter) iter.Seq2[*audit.Record, error] {
	return func(yield func(*audit.Record, error) bool) {
		for r, err := range f.memory.Records(ctx, filter) {
			if !yield(r, err) {
				return
			}
		}
		yield(nil, errRead)
	}
}

// TestQuantiles compares quantiles with those of the sorted gaps.
func TestQuantiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 99, 256, 257, 20_000} {
		var records []audit.Record
		var gaps []time.Duration
		at := 0.0
		for i := range n + 1 {
			gap := 2 + random.ExpFloat64()
			if i > 0 {
				gaps = append(gaps, seconds(at+gap).Truncate(time.Microsecond)-seconds(at).Truncate(time.Microsecond))
				at += gap
			}
			records = append(records, visit(at, 0))
		}
		report, err := proof.Spacing(t.Context(), &memory{records: records}, audit.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(gaps)
		got := report.Lanes[0]
		for name, q := range map[string]struct {
			got  audit.Millis
			want time.Duration
		}{
			"smallest": {got.Smallest, gaps[0]}, "p1": {got.P1, gaps[(n+99)/100-1]}, "p50": {got.P50, gaps[(n+1)/2-1]}, "max": {got.Max, gaps[n-1]},
		} {
			if off := float64(time.Duration(q.got)-q.want) / float64(q.want); off > 0.0006 || off < -0.0006 {
				t.Errorf("%s of %d gaps is %v, want %v", name, n, time.Duration(q.got), q.want)
			}
		}
	}
}

// BenchmarkSpacing measures records of a thousand hosts.
func BenchmarkSpacing(b *testing.B) {
	hosts := make([]string, 1000)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("host-%d.example", i)
	}
	many := &generated{n: b.N, hosts: hosts}
	b.ReportAllocs()
	report, err := proof.Spacing(b.Context(), many, audit.Filter{})
	if err != nil || !report.OK() {
		b.Errorf("%+v, %v", report.SpacingSum, err)
	}
}

// generated is a Reader of n records, a hundred in each second.
type generated struct {
	audit.Reader
	n     int
	hosts []string
}

func (g *generated) Records(context.Context, audit.Filter) iter.Seq2[*audit.Record, error] {
	return func(yield func(*audit.Record, error) bool) {
		r := visit(0, 0)
		for i := range g.n {
			r.Time = began.Add(time.Duration(i) * 10 * time.Millisecond)
			r.SentAt, r.EndedAt = r.Time.Add(3*time.Second), r.Time.Add(4*time.Second)
			r.ID, r.Host = idAt(r.Time, 0), g.hosts[i%len(g.hosts)]
			if !yield(&r, nil) {
				return
			}
		}
	}
}
