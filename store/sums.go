package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// A sum is taken from the table hours if the filter permits, and from the records of hours that are not whole.

// sumColumns are those of audit.Sum after its values, over rows with n, waited, bytes, failed and deviating.
const sumColumns = `sum(n), sum(CASE WHEN decision = 'deny' THEN n ELSE 0 END), sum(CASE WHEN decision = 'would_deny' THEN n ELSE 0 END),
	sum(CASE WHEN decision = 'throttle' THEN n ELSE 0 END), sum(failed), sum(deviating), sum(waited), sum(bytes)`

// Sums counts the records that f selects, for each combination of values of the given dimensions.
func (r *Records) Sums(ctx context.Context, f audit.Filter, by ...audit.Dimension) ([]audit.Sum, error) {
	columns := make([]string, len(by))
	for i, d := range by {
		if !slices.Contains(audit.Dimensions, d) {
			return nil, fmt.Errorf("store: records have no dimension %q", d)
		}
		columns[i] = string(d)
	}
	f, err := r.keptPart(ctx, f)
	if err != nil {
		return nil, err
	}
	from, args := sumSources(f, columns)
	names := strings.Join(append(columns, ""), ", ")
	text := "SELECT " + names + sumColumns + " FROM (" + from + ") AS parts"
	if len(columns) > 0 {
		text += " GROUP BY " + strings.Join(columns, ", ") + " ORDER BY sum(n) DESC, " + strings.Join(columns, ", ")
	}
	if f.Limit > 0 {
		text += fmt.Sprintf(" LIMIT %d", f.Limit)
	}
	scan := func(rows *sql.Rows) (audit.Sum, error) { return scanSum(rows, len(by)) }
	sums, err := list(ctx, r.read, scan, text, args...)
	return sums, r.fail("counting records", err)
}

func scanSum(rows *sql.Rows, dimensions int) (s audit.Sum, err error) {
	s.Values = make([]string, dimensions)
	var n [8]sql.NullInt64
	dest := make([]any, 0, dimensions+len(n))
	for i := range s.Values {
		dest = append(dest, &s.Values[i])
	}
	for i := range n {
		dest = append(dest, &n[i])
	}
	err = rows.Scan(dest...)
	s.Requests, s.Blocked, s.WouldDeny, s.Throttled = n[0].Int64, n[1].Int64, n[2].Int64, n[3].Int64
	s.Failed, s.Deviating, s.Bytes = n[4].Int64, n[5].Int64, n[7].Int64
	s.Waited = time.Duration(n[6].Int64) * time.Microsecond
	return s, err
}

// keptPart returns f without the time before the last prune: the row of a day still counts hours that were pruned.
func (r *Records) keptPart(ctx context.Context, f audit.Filter) (audit.Filter, error) {
	var before sql.NullInt64
	if err := r.read.QueryRowContext(ctx, "SELECT max(before) FROM prunes").Scan(&before); err != nil {
		return f, r.fail("counting records", err)
	}
	if pruned := timeOf(before.Int64); f.Since.Before(pruned) {
		f.Since = pruned
	}
	return f, nil
}

// sumSources returns a query of rows with the given columns, decision, n, waited, bytes, failed and deviating.
func sumSources(f audit.Filter, columns []string) (string, []any) {
	if f.Path != "" || f.Tag != "" || f.Rule != "" || len(f.Vias) > 0 || f.After != 0 || slices.Contains(columns, string(audit.ByPath)) {
		return recordSource(f, columns)
	}
	since, until := wholeHours(f)
	if !until.IsZero() && !since.Before(until) {
		return recordSource(f, columns)
	}
	var parts []string
	var args []any
	add := func(text string, values []any) { parts, args = append(parts, text), append(args, values...) }
	for _, period := range hourRanges(since, until) {
		add(hourSource(f, columns, period))
	}
	for _, edge := range edges(f, since, until) {
		add(recordSource(edge, columns))
	}
	return strings.Join(parts, " UNION ALL "), args
}

// hourRange selects rows of hours: see hourKey.
type hourRange struct{ from, to int64 }

// maxHour is after every hour, and its negative before every day.
const maxHour = 1 << 40

// hourRanges covers a period of whole hours by the hours before the first whole day, the days, and the hours after them.
// Zero times are open ends.
func hourRanges(since, until time.Time) []hourRange {
	const day = 24 * time.Hour
	firstDay, lastDay := since.Truncate(day), until.Truncate(day)
	if firstDay.Before(since) {
		firstDay = firstDay.Add(day)
	}
	if !until.IsZero() && !firstDay.Before(lastDay) {
		return []hourRange{{hourOf(since), hourOf(until)}}
	}
	days := hourRange{-maxHour, 0}
	ranges := make([]hourRange, 0, 3)
	if !since.IsZero() {
		days.to = -dayOf(firstDay) + 1
		ranges = append(ranges, hourRange{hourOf(since), hourOf(firstDay)})
	}
	if !until.IsZero() {
		days.from = -dayOf(lastDay) + 1
		ranges = append(ranges, hourRange{hourOf(lastDay), hourOf(until)})
	}
	return append(ranges, days)
}

// wholeHours returns the period of the whole hours of f. Zero times are open ends.
func wholeHours(f audit.Filter) (since, until time.Time) {
	if since = f.Since; !since.IsZero() {
		if since = f.Since.Truncate(time.Hour); since.Before(f.Since) {
			since = since.Add(time.Hour)
		}
	}
	if until = f.Until; !until.IsZero() {
		until = until.Truncate(time.Hour)
	}
	return since, until
}

// edges returns f for the parts of hours before since and from until on.
func edges(f audit.Filter, since, until time.Time) (parts []audit.Filter) {
	if f.Since.Before(since) {
		part := f
		part.Until = since
		parts = append(parts, part)
	}
	if until.Before(f.Until) {
		part := f
		part.Since = until
		parts = append(parts, part)
	}
	return parts
}

// hourSource takes rows from hours, already grouped, since names are long.
func hourSource(f audit.Filter, columns []string, period hourRange) (string, []any) {
	var conditions []string
	var args []any
	add := func(condition string, values ...any) {
		conditions, args = append(conditions, condition), append(args, values...)
	}
	add("hour >= ? AND hour < ?", period.from, period.to)
	named := func(column, condition string, values ...any) {
		add(fmt.Sprintf("%s IN (SELECT id FROM names WHERE %s)", column, condition), values...)
	}
	if f.Host != "" {
		condition, values := hostCondition("name", f.Host)
		named("host", condition, values...)
	}
	if f.Client != "" {
		named("client", "name = ?", f.Client)
	}
	if f.Agent != "" {
		named("agent", "lower(name) = lower(?)", f.Agent)
	}
	if len(f.Decisions) > 0 {
		named("decision", "name IN (?"+strings.Repeat(", ?", len(f.Decisions)-1)+")", anys(f.Decisions)...)
	}
	if len(f.Reasons) > 0 {
		named("reason", "name IN (?"+strings.Repeat(", ?", len(f.Reasons)-1)+")", anys(f.Reasons)...)
	}
	keys := slices.Clone(columns)
	if !slices.Contains(keys, string(audit.ByDecision)) {
		keys = append(keys, string(audit.ByDecision))
	}
	inner := "SELECT " + strings.Join(keys, ", ") + `, sum(n) AS n, sum(waited) AS waited, sum(bytes) AS bytes, sum(failed) AS failed,
	sum(deviating) AS deviating FROM hours`
	inner += " WHERE " + strings.Join(conditions, " AND ")
	inner += " GROUP BY " + strings.Join(keys, ", ")
	var names, joins strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&names, "n_%s.name AS %s, ", key, key)
		fmt.Fprintf(&joins, " JOIN names n_%s ON n_%s.id = h.%s", key, key, key)
	}
	return "SELECT " + names.String() + "n, waited, bytes, failed, deviating FROM (" + inner + ") AS h" + joins.String(), args
}

// recordExpressions are the values of the dimensions over records with their dictionaries.
var recordExpressions = map[audit.Dimension]string{
	audit.ByHost: "t.host", audit.ByPath: "coalesce(r.path, '')", audit.ByClient: "a.client", audit.ByAgent: "a.agent",
	audit.ByRule:   "CASE WHEN v.rule_line = 0 THEN v.rule ELSE 'line ' || v.rule_line || '  ' || v.rule END",
	audit.ByReason: "v.reason", audit.ByDecision: "v.decision",
}

// recordSource takes rows from records, one for each.
func recordSource(f audit.Filter, columns []string) (string, []any) {
	q := newQuery(f)
	keys := slices.Clone(columns)
	if !slices.Contains(keys, string(audit.ByDecision)) {
		keys = append(keys, string(audit.ByDecision))
	}
	var names strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&names, "%s AS %s, ", recordExpressions[audit.Dimension(key)], key)
	}
	return "SELECT " + names.String() + `1 AS n, coalesce(r.waited, 0) AS waited, coalesce(r.bytes, 0) AS bytes,
	CASE WHEN v.decision = 'error' OR v.reason = 'upstream' THEN 1 ELSE 0 END AS failed,
	CASE WHEN v.deviation <> '' THEN 1 ELSE 0 END AS deviating
FROM records r JOIN verdicts v ON v.id = r.verdict JOIN targets t ON t.id = r.target JOIN askers a ON a.id = r.asker` + q.where(), q.args
}

// Timeline counts the records that f selects in steps of whole minutes, by decision. It omits steps without records.
func (r *Records) Timeline(ctx context.Context, f audit.Filter, step time.Duration) ([]audit.Point, error) {
	if step < time.Minute || step%time.Minute != 0 {
		return nil, fmt.Errorf("store: a timeline has no steps of %v: only of whole minutes", step)
	}
	text, args := minuteSource(f, int64(step/time.Minute))
	rows, err := r.read.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, r.fail("counting records", err)
	}
	defer rows.Close()
	var points []audit.Point
	for rows.Next() {
		var minute, n int64
		var decision string
		if err := rows.Scan(&minute, &decision, &n); err != nil {
			return nil, r.fail("counting records", err)
		}
		at := time.Unix(minute*60, 0).UTC()
		if len(points) == 0 || !points[len(points)-1].Time.Equal(at) {
			points = append(points, audit.Point{Time: at, Decisions: make(map[policy.Outcome]int64)})
		}
		points[len(points)-1].Decisions[policy.Outcome(decision)] += n
	}
	return points, r.fail("counting records", rows.Err())
}

// minuteSource returns a query of the first minute of each step, the decision, and the number of records.
func minuteSource(f audit.Filter, step int64) (string, []any) {
	if f.Host != "" || f.Client != "" || f.Agent != "" || f.Tag != "" || f.Path != "" || f.Rule != "" || len(f.Vias) > 0 || f.After != 0 {
		q := newQuery(f)
		minute := fmt.Sprintf("((r.id >> %d) / 60000000 + %d)", audit.InstanceBits, audit.FirstMinute)
		return fmt.Sprintf(`SELECT %s / %d * %d AS step, v.decision, count(*) FROM records r JOIN verdicts v ON v.id = r.verdict%s
GROUP BY 1, 2 ORDER BY 1, 2`, minute, step, step, q.where()), q.args
	}
	var conditions []string
	var args []any
	add := func(condition string, values ...any) {
		conditions, args = append(conditions, condition), append(args, values...)
	}
	if !f.Since.IsZero() {
		add("minute >= ?", f.Since.Unix()/60)
	}
	if !f.Until.IsZero() {
		add("minute < ?", f.Until.Add(time.Minute-1).Unix()/60)
	}
	if len(f.Decisions) > 0 {
		add("d.name IN (?"+strings.Repeat(", ?", len(f.Decisions)-1)+")", anys(f.Decisions)...)
	}
	if len(f.Reasons) > 0 {
		add("s.name IN (?"+strings.Repeat(", ?", len(f.Reasons)-1)+")", anys(f.Reasons)...)
	}
	where := ""
	if len(conditions) > 0 {
		where = " WHERE " + strings.Join(conditions, " AND ")
	}
	return fmt.Sprintf(`SELECT minute / %d * %d AS step, d.name, sum(n) FROM minutes JOIN names d ON d.id = decision
JOIN names s ON s.id = reason%s GROUP BY 1, 2 ORDER BY 1, 2`, step, step, where), args
}
