package auditview

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// Sums shows counts of records.
type Sums struct {
	Records audit.Reader
	Options Options
	Out     io.Writer
}

// title returns the title of a dimension in tables.
func title(d audit.Dimension) string {
	if d == audit.ByAgent {
		return "crawler"
	}
	return string(d)
}

// number is a column of numbers of a Sum.
type number struct {
	name, title string
	of          func(audit.Sum) any
	always      bool // in tables, even if it is zero in all rows
}

var numbers = []number{
	{"requests", "requests", func(s audit.Sum) any { return s.Requests }, true},
	{"blocked", "blocked", func(s audit.Sum) any { return s.Blocked }, true},
	{"would_deny", "would block", func(s audit.Sum) any { return s.WouldDeny }, false},
	{"throttled", "throttled", func(s audit.Sum) any { return s.Throttled }, false},
	{"failed", "", func(s audit.Sum) any { return s.Failed }, false},
	{"deviating", "", func(s audit.Sum) any { return s.Deviating }, false},
	{"waited_ms", "waited", func(s audit.Sum) any { return s.Waited }, true},
	{"bytes", "", func(s audit.Sum) any { return s.Bytes }, false},
}

// extra is a column of texts about a Sum, in tables and in programs' formats.
type extra struct {
	Column
	of func(audit.Sum) string
}

// leastText is the width of a column of texts that is not cut further.
const leastText = 16

// print writes rows of sums by some dimensions. Tables have the numbers that are always shown or needed.
func (v *Sums) print(sums []audit.Sum, by []audit.Dimension, more ...extra) error {
	return v.printNumbers(sums, by, func(n number) bool { return n.always || isNeeded(n, sums) }, more...)
}

// printNumbers is print with the numbers in tables that inTables selects.
func (v *Sums) printNumbers(sums []audit.Sum, by []audit.Dimension, inTables func(number) bool, more ...extra) error {
	var columns []Column
	for _, d := range by {
		columns = append(columns, Column{Name: string(d), Title: title(d), Least: leastText})
	}
	for _, n := range numbers {
		c := Column{Name: n.name, Title: n.title}
		if !inTables(n) {
			c.Title = ""
		}
		columns = append(columns, c)
	}
	for _, e := range more {
		columns = append(columns, e.Column)
	}
	p := NewPrinter(v.Out, v.Options, columns...)
	for _, s := range sums {
		var values []any
		for _, value := range s.Values {
			values = append(values, key(value))
		}
		for _, n := range numbers {
			values = append(values, n.of(s))
		}
		for _, e := range more {
			values = append(values, e.of(s))
		}
		if err := p.Row(values...); err != nil {
			return err
		}
	}
	return p.Close()
}

// isNeeded reports whether a number is not zero in one of sums.
func isNeeded(n number, sums []audit.Sum) bool {
	for _, s := range sums {
		if n.of(s) != any(int64(0)) {
			return true
		}
	}
	return false
}

// Top shows the values of a dimension with the most records. It returns whether there are more than f.Limit. Rules and
// paths are shown with their hosts.
func (v *Sums) Top(ctx context.Context, f audit.Filter, by audit.Dimension) (more bool, err error) {
	dimensions := []audit.Dimension{by}
	switch by {
	case audit.ByRule:
		dimensions = []audit.Dimension{audit.ByHost, by}
		if f.Decisions == nil {
			f.Decisions = []policy.Outcome{policy.Deny, policy.WouldDeny}
		}
	case audit.ByPath:
		dimensions = []audit.Dimension{audit.ByHost, by}
	}
	limit := cmp.Or(f.Limit, math.MaxInt)
	if f.Limit > 0 {
		f.Limit += unnamed + 1
	}
	sums, err := v.Records.Sums(ctx, f, dimensions...)
	if err != nil {
		return false, err
	}
	named := sums[:0]
	for _, s := range sums {
		if by == audit.ByRule || by == audit.ByReason {
			if s.Values[len(s.Values)-1] == "" {
				continue // no rule decided, or there is no reason
			}
		}
		named = append(named, s)
	}
	return len(named) > limit, v.print(named[:min(limit, len(named))], dimensions)
}

// unnamed is the number of sums without a rule or a reason that Top passes over.
const unnamed = 100

// Summary is a question for counts of records.
type Summary struct {
	Filter audit.Filter      // its Limit bounds the rows
	By     []audit.Dimension // of the rows; if empty, crawlers with the rule that blocked most of their requests
	Gaps   []Gap             // in the record; those outside of the Filter's time are not shown
}

// Gap is a time in which requests were not recorded.
type Gap struct {
	Began, Ended time.Time
	Records      int64 // missing
}

// gaps returns the gaps in the time of s.
func (s Summary) gaps() []Gap {
	return slices.DeleteFunc(slices.Clone(s.Gaps), func(g Gap) bool {
		return g.Ended.Before(s.Filter.Since) || !s.Filter.Until.IsZero() && !g.Began.Before(s.Filter.Until)
	})
}

// gapText returns one sentence about the gaps in the time of s.
func (s Summary) gapText(zone *time.Location) string {
	gaps := s.gaps()
	if len(gaps) == 0 {
		return "Gaps in the record: none."
	}
	var missing int64
	for _, g := range gaps {
		missing += g.Records
	}
	return fmt.Sprintf("Gaps in the record: %s not recorded between %s and %s.", counted(missing, "request"),
		Moment(gaps[0].Began, zone), Moment(gaps[len(gaps)-1].Ended, zone))
}

// totals are the counts over all records of a summary.
type totals struct {
	audit.Sum
	agents, hosts int
}

// most bounds the hosts and crawlers that a summary counts.
const most = 100_000

// total asks for the totals of f.
func (v *Sums) total(ctx context.Context, f audit.Filter) (t totals, err error) {
	f.Limit = 0
	all, err := v.Records.Sums(ctx, f)
	if err != nil || len(all) == 0 {
		return t, err
	}
	t.Sum = all[0]
	for by, n := range map[audit.Dimension]*int{audit.ByAgent: &t.agents, audit.ByHost: &t.hosts} {
		f.Limit = most
		sums, err := v.Records.Sums(ctx, f, by)
		if err != nil {
			return t, err
		}
		*n = len(sums)
	}
	return t, nil
}

// text returns one sentence about t, the totals of f.
func (t totals) text(f audit.Filter, zone *time.Location) string {
	switch {
	case t.Requests == 0 && f.Since.IsZero():
		return "No requests."
	case t.Requests == 0:
		return "No requests since " + Moment(f.Since, zone) + "."
	}
	s := fmt.Sprintf("%s by %s to %s: %s blocked", counted(t.Requests, "request"), counted(int64(t.agents), "crawler"),
		counted(int64(t.hosts), "host"), Number(t.Blocked))
	if t.Blocked > 0 {
		s += " (" + Share(t.Blocked, t.Requests) + ")"
	}
	if t.WouldDeny > 0 {
		s += fmt.Sprintf(", %s would be blocked in mode enforce", Number(t.WouldDeny))
	}
	if t.Throttled > 0 {
		s += fmt.Sprintf(", %s told to come back later", Number(t.Throttled))
	}
	return s + fmt.Sprintf(", %s failed. %s spent waiting.", Number(t.Failed), Duration(t.Waited))
}

// counted returns n with a noun.
func counted(n int64, noun string) string {
	text := Number(n) + " " + noun
	if n != 1 {
		text += "s"
	}
	return text
}

// Share returns n of all in per cent, with one decimal.
func Share(n, all int64) string {
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(all))
}

// Summarize shows s: one sentence, a table and the deviations. It returns whether there are more rows than the limit.
func (v *Sums) Summarize(ctx context.Context, s Summary) (more bool, err error) {
	t, err := v.total(ctx, s.Filter)
	if err != nil {
		return false, err
	}
	by := s.By
	var extras []extra
	if len(by) == 0 {
		by = []audit.Dimension{audit.ByAgent}
		blocked := s.Filter
		blocked.Decisions = []policy.Outcome{policy.Deny}
		w, err := v.worst(ctx, blocked, 1, audit.ByAgent, audit.ByHost, audit.ByRule)
		if err != nil {
			return false, err
		}
		extras = []extra{
			{Column{Name: "most_blocked_host", Title: "most blocked", Least: leastText}, w.value(1)},
			{Column{Name: "most_blocked_rule", Title: "by", Least: leastText}, w.value(2)},
		}
	}
	rows, more, err := v.limited(ctx, s.Filter, by...)
	if err != nil {
		return false, err
	}
	table := func() error { return v.print(rows, by, extras...) }
	if v.Options.Format == JSON {
		return more, v.object(s, t, table)
	}
	if err := v.page(t.text(s.Filter, v.Options.Zone), len(rows), table); err != nil || v.Options.Format != Table || len(rows) == 0 {
		return more, err
	}
	_, err = fmt.Fprintf(v.Out, "\n%s %s\n", t.deviations(), s.gapText(v.Options.Zone))
	return more, err
}

// limited returns at most f.Limit sums, and whether there are more.
func (v *Sums) limited(ctx context.Context, f audit.Filter, by ...audit.Dimension) (_ []audit.Sum, more bool, err error) {
	limit := f.Limit
	if limit > 0 {
		f.Limit++
	}
	sums, err := v.Records.Sums(ctx, f, by...)
	if more = limit > 0 && len(sums) > limit; more {
		sums = sums[:limit]
	}
	return sums, more, err
}

// page writes a sentence and a table of some rows. Formats for programs have only the table.
func (v *Sums) page(sentence string, rows int, table func() error) error {
	if v.Options.Format != Table {
		return table()
	}
	if _, err := fmt.Fprintln(v.Out, sentence); err != nil || rows == 0 {
		return err
	}
	if _, err := fmt.Fprintln(v.Out); err != nil {
		return err
	}
	return table()
}

func (t totals) deviations() string {
	if t.Deviating == 0 {
		return "Deviations: none."
	}
	return fmt.Sprintf("Deviations: %s sent sooner than the site asks.", counted(t.Deviating, "request"))
}

// worst has the most frequent Sum for each combination of all dimensions but those that it adds.
type worst map[string]audit.Sum

// keyOf joins the first values of a Sum.
func keyOf(values []string) string { return strings.Join(values, "\x00") }

// worst returns for each combination of the first of some dimensions, which rows have, the most frequent Sum.
func (v *Sums) worst(ctx context.Context, f audit.Filter, rows int, by ...audit.Dimension) (worst, error) {
	f.Limit = most
	sums, err := v.Records.Sums(ctx, f, by...)
	w := make(worst)
	for _, s := range sums {
		if key := keyOf(s.Values[:rows]); w[key].Requests == 0 {
			w[key] = s
		}
	}
	return w, err
}

// value returns a text for a row: the value of w for the dimension at an index.
func (w worst) value(i int) func(audit.Sum) string {
	return func(row audit.Sum) string {
		if s, ok := w[keyOf(row.Values)]; ok {
			return s.Values[i]
		}
		return ""
	}
}

// object writes a summary as one JSON object, with its rows in an array.
func (v *Sums) object(s Summary, t totals, table func() error) error {
	b := appendValue([]byte(`{"since":`), s.Filter.Since)
	b = appendValue(append(b, `,"until":`...), s.Filter.Until)
	b = fmt.Appendf(b, `,"agents":%d,"hosts":%d`, t.agents, t.hosts)
	for _, n := range numbers {
		b = appendValue(fmt.Appendf(b, `,"%s":`, n.name), n.of(t.Sum))
	}
	b = append(b, `,"gaps":[`...)
	for i, g := range s.gaps() {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendValue(append(b, `{"began":`...), g.Began)
		b = appendValue(append(b, `,"ended":`...), g.Ended)
		b = fmt.Appendf(b, `,"requests":%d}`, g.Records)
	}
	if _, err := fmt.Fprintf(v.Out, `%s],"rows":`, b); err != nil {
		return err
	}
	if err := table(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(v.Out, "}")
	return err
}

// WouldDeny shows what mode enforce would have blocked of the records of f, by client and host. It returns whether there
// are more rows than f.Limit.
func (v *Sums) WouldDeny(ctx context.Context, f audit.Filter) (more bool, err error) {
	total := f
	total.Limit = 0
	all, err := v.Records.Sums(ctx, total)
	if err != nil || len(all) == 0 {
		return false, err
	}
	f.Decisions = []policy.Outcome{policy.WouldDeny}
	rows, more, err := v.limited(ctx, f, audit.ByClient, audit.ByHost)
	if err != nil {
		return false, err
	}
	rules, err := v.worst(ctx, f, 2, audit.ByClient, audit.ByHost, audit.ByRule)
	if err != nil {
		return false, err
	}
	rule := extra{Column{Name: "rule", Title: "most by", Least: leastText}, rules.value(2)}
	sentence := fmt.Sprintf("Mode enforce would have blocked %s of %s.", Number(all[0].WouldDeny), counted(all[0].Requests, "request"))
	return more, v.page(sentence, len(rows), func() error {
		onlyThese := func(n number) bool { return n.name == "would_deny" } // the other decisions are not selected
		return v.printNumbers(rows, []audit.Dimension{audit.ByClient, audit.ByHost}, onlyThese, rule)
	})
}
