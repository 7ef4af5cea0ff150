package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// rowCaches keep rows of dictionaries, which do not change.
type rowCaches struct {
	askers   *rowCache[asker]
	targets  *rowCache[target]
	verdicts *rowCache[verdict]
	paces    *rowCache[pace]
	outcomes *rowCache[outcome]
}

func newRowCaches() rowCaches {
	return rowCaches{
		askers: newRowCache("askers", askerColumns, func(v *asker) []any {
			return []any{
				&v.client, &v.address, &v.tag, &v.purpose, &v.userAgent, &v.sentUserAgent, &v.agent, &v.productToken, &v.signatureAgent,
				&v.keyID,
			}
		}),
		targets: newRowCache("targets", targetColumns, func(v *target) []any {
			return []any{&v.scheme, &v.host, &v.port, &v.lane}
		}),
		verdicts: newRowCache("verdicts", verdictColumns, func(v *verdict) []any {
			return []any{
				&v.method, &v.via, &v.mode, &v.decision, &v.reason, &v.ruleLine, &v.rule, &v.groupLine, &v.groupAgents, &v.exemption,
				&v.intervention, &v.deviation, &v.sha256, &v.status, &v.state, &v.fetched, &v.dialect, &v.policy, &v.rulesVersion,
				&v.usage, &v.price,
			}
		}),
		paces: newRowCache("paces", paceColumns, func(v *pace) []any {
			return []any{&v.delay, &v.source, &v.mode, &v.spacing}
		}),
		outcomes: newRowCache("outcomes", outcomeColumns, func(v *outcome) []any {
			return []any{&v.status, &v.retryAfter, &v.upstream, &v.err}
		}),
	}
}

// rowCache reads rows of a dictionary.
type rowCache[V any] struct {
	query string
	dest  func(*V) []any

	mu   sync.Mutex
	rows map[int64]*V // guarded by mu
}

func newRowCache[V any](table, columns string, dest func(*V) []any) *rowCache[V] {
	query := fmt.Sprintf("SELECT %s FROM %s WHERE id = ?", strings.Join(strings.Fields(columns), ", "), table)
	return &rowCache[V]{query: query, dest: dest, rows: make(map[int64]*V)}
}

func (c *rowCache[V]) get(ctx context.Context, db querier, id int64) (*V, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.rows[id]; ok {
		return v, nil
	}
	v := new(V)
	if err := db.QueryRowContext(ctx, c.query, id).Scan(c.dest(v)...); err != nil {
		return nil, err
	}
	if len(c.rows) >= maxKnown {
		clear(c.rows)
	}
	c.rows[id] = v
	return v, nil
}

// querier is a connection or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// complete returns the record of w.
func (r *Records) complete(ctx context.Context, db querier, w *row) (rec audit.Record, err error) {
	a, err := r.rows.askers.get(ctx, db, w.asker)
	if err != nil {
		return rec, err
	}
	t, err := r.rows.targets.get(ctx, db, w.target)
	if err != nil {
		return rec, err
	}
	v, err := r.rows.verdicts.get(ctx, db, w.verdict)
	if err != nil {
		return rec, err
	}
	p, err := r.rows.paces.get(ctx, db, w.pace)
	if err != nil {
		return rec, err
	}
	o, err := r.rows.outcomes.get(ctx, db, w.outcome)
	if err != nil {
		return rec, err
	}
	return w.record(a, t, v, p, o), nil
}

var rowColumnList = columnList("r", rowColumns)

// Record returns the record with the given ID, or audit.ErrNoRecord.
func (r *Records) Record(ctx context.Context, id audit.ID) (*audit.Record, error) {
	var w row
	err := w.scan(r.read.QueryRowContext(ctx, "SELECT "+rowColumnList+" FROM records r WHERE r.id = ?", int64(id)))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, audit.ErrNoRecord
	}
	if err != nil {
		return nil, r.fail("reading the record "+id.String(), err)
	}
	rec, err := r.complete(ctx, r.read, &w)
	if err != nil {
		return nil, r.fail("reading the record "+id.String(), err)
	}
	return &rec, nil
}

// Records returns the records that f selects in order of their IDs, or in reverse order if f.Newest. A record is valid
// until the next one.
func (r *Records) Records(ctx context.Context, f audit.Filter) iter.Seq2[*audit.Record, error] {
	return func(yield func(*audit.Record, error) bool) {
		if err := r.each(ctx, f, func(rec *audit.Record) bool { return yield(rec, nil) }); err != nil {
			yield(nil, r.fail("reading records", err))
		}
	}
}

// pageRows is the number of rows that Records reads at once. It holds no connection while the caller uses them.
const pageRows = 1000

// each calls do with the records that f selects until it returns false.
func (r *Records) each(ctx context.Context, f audit.Filter, do func(*audit.Record) bool) error {
	targets, err := r.fewTargets(ctx, f.Host)
	if err != nil {
		return err
	}
	for left := f.Limit; ; {
		f.Limit = pageRows
		if left > 0 {
			f.Limit = min(pageRows, left)
		}
		page, err := r.page(ctx, f, targets)
		if err != nil {
			return err
		}
		for i := range page {
			rec, err := r.complete(ctx, r.read, &page[i])
			if err != nil {
				return err
			}
			if !do(&rec) {
				return nil
			}
		}
		if left -= len(page); len(page) < f.Limit || left == 0 {
			return nil
		}
		f.After = page[len(page)-1].id
	}
}

// maxMerged is the number of targets of which a page merges the records. The index has those of one target in order.
const maxMerged = 20

// fewTargets returns the ids of the targets of a host or a pattern, or nil if they are many.
func (r *Records) fewTargets(ctx context.Context, pattern string) ([]int64, error) {
	if pattern == "" {
		return nil, nil
	}
	condition, args := hostCondition("host", pattern)
	scan := func(rows *sql.Rows) (id int64, err error) { return id, rows.Scan(&id) }
	ids, err := list(ctx, r.read, scan, fmt.Sprintf("SELECT id FROM targets WHERE %s LIMIT %d", condition, maxMerged+1), args...)
	if len(ids) > maxMerged {
		return nil, err
	}
	return append([]int64{}, ids...), err
}

// page returns the first rows that f selects, at most f.Limit. targets are those of f.Host, unless it is nil.
func (r *Records) page(ctx context.Context, f audit.Filter, targets []int64) ([]row, error) {
	text, args := pageQuery(f, targets)
	if text == "" {
		return nil, nil
	}
	return list(ctx, r.read, func(rows *sql.Rows) (w row, err error) { return w, w.scan(rows) }, text, args...)
}

func pageQuery(f audit.Filter, targets []int64) (text string, args []any) {
	order := fmt.Sprintf(" ORDER BY id LIMIT %d", f.Limit)
	if f.Newest {
		order = fmt.Sprintf(" ORDER BY id DESC LIMIT %d", f.Limit)
	}
	if targets == nil {
		q := newOrderedQuery(f)
		return "SELECT " + rowColumnList + " FROM records r" + q.where() + order, q.args
	}
	f.Host = ""
	parts := make([]string, len(targets))
	for i, target := range targets {
		q := newQuery(f)
		q.add("r.target = ?", target)
		parts[i] = "SELECT * FROM (SELECT " + rowColumnList + " FROM records r" + q.where() + order + fmt.Sprintf(") AS part%d", i)
		args = append(args, q.args...)
	}
	if len(parts) == 0 {
		return "", nil
	}
	return strings.Join(parts, " UNION ALL ") + order, args
}

// query is the condition of a Filter on the rows of records r. Dictionaries are searched first, since they are small.
type query struct {
	target     string // the expression for the target
	conditions []string
	args       []any
}

func newQuery(f audit.Filter) *query {
	q := &query{target: "r.target"}
	return q.build(f)
}

// newOrderedQuery is newQuery for many targets: it prevents the use of their index, which would need a sort.
func newOrderedQuery(f audit.Filter) *query {
	q := &query{target: "+r.target"}
	return q.build(f)
}

func (q *query) build(f audit.Filter) *query {
	q.period(f)
	q.targets(f)
	q.in("asker", "askers", "client", f.Client)
	if f.Agent != "" {
		q.add("r.asker IN (SELECT id FROM askers WHERE lower(agent) = lower(?))", f.Agent)
	}
	q.in("asker", "askers", "tag", f.Tag)
	q.verdicts(f)
	if f.Path != "" {
		q.add("substr(coalesce(r.path, ''), 1, ?) = ?", len([]rune(f.Path)), f.Path)
	}
	return q
}

func (q *query) add(condition string, args ...any) {
	q.conditions = append(q.conditions, condition)
	q.args = append(q.args, args...)
}

func (q *query) where() string {
	if len(q.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(q.conditions, " AND ")
}

func (q *query) period(f audit.Filter) {
	if !f.Since.IsZero() {
		q.add("r.id >= ?", int64(audit.IDAt(f.Since)))
	}
	if !f.Until.IsZero() {
		q.add("r.id < ?", int64(audit.IDAt(f.Until)))
	}
	switch {
	case f.After == 0:
	case f.Newest:
		q.add("r.id < ?", int64(f.After))
	default:
		q.add("r.id > ?", int64(f.After))
	}
}

func (q *query) targets(f audit.Filter) {
	if f.Host == "" {
		return
	}
	condition, args := hostCondition("host", f.Host)
	q.add(q.target+" IN (SELECT id FROM targets WHERE "+condition+")", args...)
}

// hostCondition returns the condition that a column has a host of a pattern: see policy.MatchHost.
func hostCondition(column, pattern string) (string, []any) {
	if pattern == "*" {
		return column + " <> ''", nil
	}
	suffix, isPattern := strings.CutPrefix(pattern, "*")
	if !isPattern {
		return column + " = ?", []any{pattern}
	}
	n := len(suffix)
	return fmt.Sprintf("(length(%s) > %d AND substr(%s, length(%s) - %d) = ?)", column, n, column, column, n-1), []any{suffix}
}

func (q *query) in(column, table, field, value string) {
	if value != "" {
		q.add(fmt.Sprintf("r.%s IN (SELECT id FROM %s WHERE %s = ?)", column, table, field), value)
	}
}

func (q *query) verdicts(f audit.Filter) {
	var conditions []string
	var args []any
	add := func(column string, values ...any) {
		conditions = append(conditions, column+" IN (?"+strings.Repeat(", ?", len(values)-1)+")")
		args = append(args, values...)
	}
	if len(f.Decisions) > 0 {
		add("decision", anys(f.Decisions)...)
	}
	if len(f.Reasons) > 0 {
		add("reason", anys(f.Reasons)...)
	}
	if f.Rule != "" {
		conditions = append(conditions, "lower(rule) = lower(?)")
		args = append(args, f.Rule)
	}
	switch {
	case hasAllVias(f): // also records with another value, which a person may have inserted
	case len(f.Vias) > 0:
		add("via", anys(f.Vias)...)
	case refusesOnly(f):
		q.add("r.kind = 1")
	default:
		q.add("(r.kind IS NULL OR r.kind = 1)")
	}
	if len(conditions) == 0 {
		return
	}
	q.add("r.verdict IN (SELECT id FROM verdicts WHERE "+strings.Join(conditions, " AND ")+")", args...)
}

func hasAllVias(f audit.Filter) bool {
	return !slices.ContainsFunc([]audit.Via{audit.Plain, audit.Intercepted, audit.Tunnel, audit.Robots}, func(v audit.Via) bool {
		return !slices.Contains(f.Vias, v)
	})
}

// refusesOnly reports whether f selects no allowed record, so that the index of refusals helps.
func refusesOnly(f audit.Filter) bool {
	for _, d := range f.Decisions {
		if d == policy.Allow {
			return false
		}
	}
	return len(f.Decisions) > 0
}

func anys[S ~string](list []S) []any {
	all := make([]any, len(list))
	for i, s := range list {
		all[i] = string(s)
	}
	return all
}
