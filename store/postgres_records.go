package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/robotsproxy/robotsproxy/audit"
)

// writeLock is the key of the advisory lock that an instance holds while it writes records. So one writes at a time, as
// with SQLite: rows of dictionaries and counts that several need cause no deadlock.
const writeLock = migrationLock + 2

// Records returns the records in p. Of o only MaxSize and ReadOnly count. Close of the Records does not close p.
func (p *Postgres) Records(ctx context.Context, o RecordsOptions) (*Records, error) {
	r := newRecords(o)
	r.file = file{read: p.read, write: p.db, postgres: p}
	r.linkSeals()
	if o.ReadOnly {
		r.write = nil
		return r, nil
	}
	today := partitionAt(time.Now())
	for _, day := range []partition{today, today + 1} {
		if err := p.ensurePartition(ctx, day); err != nil {
			return nil, p.fail("adding a table for a day", err)
		}
	}
	return r, nil
}

// OpenPostgresRecords opens the records in the database that dsn names: see OpenPostgres. It makes no tables. The caller
// must Close the Records. Of o only MaxSize and ReadOnly count.
func OpenPostgresRecords(ctx context.Context, dsn string, o RecordsOptions) (*Records, error) {
	p, err := openPostgres(ctx, dsn, (*Postgres).checkTables)
	if err != nil {
		return nil, err
	}
	r, err := p.Records(ctx, o)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	r.closePostgres = true
	return r, nil
}

// changeRecords calls steps in one transaction on conn. No other instance writes records meanwhile.
func (p *Postgres) changeRecords(ctx context.Context, steps func(conn *sql.Conn, tx *sql.Tx) error) error {
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", writeLock); err != nil {
		return err
	}
	if err := steps(conn, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// writePostgres writes entries as Records.change does for SQLite.
func (b *batch) writePostgres(ctx context.Context, entries []audit.Entry) error {
	err := b.tryPostgres(ctx, entries)
	fault := (*pgconn.PgError)(nil)
	if !errors.As(err, &fault) || fault.Code != noPartition && fault.Code != isStored {
		return err
	}
	b.forget()
	b.known.forget()
	*b = *newBatch(b.Records)
	return b.tryPostgres(ctx, entries)
}

const (
	noPartition = "23514" // of a day without a table: another instance has dropped it
	isStored    = "23505"
)

func (b *batch) tryPostgres(ctx context.Context, entries []audit.Entry) error {
	if err := b.postgres.addPartitions(ctx, entries); err != nil {
		return fmt.Errorf("adding a table for a day: %w", err)
	}
	err := b.postgres.changeRecords(ctx, func(conn *sql.Conn, tx *sql.Tx) error {
		b.conn = conn
		return b.write(ctx, transaction{Tx: tx}, entries)
	})
	if err != nil {
		b.postgres.forgetPartitions()
		for i := range entries { // it may have been committed, and its answer lost
			b.doubt = max(b.doubt, entries[i].ID)
		}
	}
	return err
}

// addPartitions adds the tables for entries, and those of the days after them.
func (p *Postgres) addPartitions(ctx context.Context, entries []audit.Entry) error {
	days := make(map[partition]bool)
	for i := range entries {
		days[partitionOf(entries[i].ID)] = true
	}
	for _, day := range slices.Sorted(maps.Keys(days)) {
		for _, each := range []partition{day, day + 1} {
			if err := p.ensurePartition(ctx, each); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle finds the entries that an earlier Write has committed although it returned an error, so that they are not
// counted twice.
func (b *batch) settle(ctx context.Context, tx transaction, entries []audit.Entry) error {
	var ids []any
	for i := range entries {
		if entries[i].ID <= b.doubt {
			ids = append(ids, int64(entries[i].ID))
		}
	}
	for some := range slices.Chunk(ids, 500) {
		if err := b.settleSome(ctx, tx, some); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) settleSome(ctx context.Context, tx transaction, ids []any) error {
	text := "SELECT " + rowColumnList + " FROM records r WHERE r.id IN (?" + strings.Repeat(", ?", len(ids)-1) + ")"
	scan := func(rows *sql.Rows) (w row, err error) { return w, w.scan(rows) }
	stored, err := list(ctx, tx, scan, text, ids...)
	if err != nil {
		return err
	}
	for i := range stored {
		w := &stored[i]
		rec, err := b.complete(ctx, tx, w)
		if err != nil {
			return err
		}
		var c counted
		if rec.Via != audit.Robots {
			if c, err = b.counted(ctx, tx, &audit.Entry{Record: rec}, dayOf(w.id.Time())); err != nil {
				return err
			}
		}
		b.open[w.id] = c
	}
	return nil
}

// copyRows adds the rows of b, in place of those with the same IDs.
func (b *batch) copyRows(ctx context.Context, tx *sql.Tx) error {
	columns := strings.Fields(rowColumns)
	latest := make(map[int64][]any)
	for values := range slices.Chunk(b.args, len(columns)) {
		for i, value := range values {
			if s, ok := value.(string); ok {
				values[i] = postgresText(s)
			}
		}
		latest[values[0].(int64)] = values
	}
	var again []any
	for id := range b.open {
		again = append(again, int64(id))
	}
	for some := range slices.Chunk(again, 500) {
		text := "DELETE FROM records WHERE id IN (?" + strings.Repeat(", ?", len(some)-1) + ")"
		if _, err := tx.ExecContext(ctx, text, some...); err != nil {
			return err
		}
	}
	rows := make([][]any, 0, len(latest))
	for _, id := range slices.Sorted(maps.Keys(latest)) {
		rows = append(rows, latest[id])
	}
	return b.conn.Raw(func(driver any) error {
		_, err := native(driver).CopyFrom(ctx, pgx.Identifier{"records"}, columns, pgx.CopyFromRows(rows))
		return err
	})
}

const (
	addMinutesSQL = `INSERT INTO minutes (minute, decision, reason, n)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])
ON CONFLICT (minute, decision, reason) DO UPDATE SET n = minutes.n + excluded.n`
	addHoursSQL = `INSERT INTO hours (hour, decision, host, client, agent, reason, rule, n, waited, bytes, failed, deviating)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
	$9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[])
ON CONFLICT (hour, decision, host, client, agent, reason, rule) DO UPDATE SET n = hours.n + excluded.n,
	waited = hours.waited + excluded.waited, bytes = hours.bytes + excluded.bytes, failed = hours.failed + excluded.failed,
	deviating = hours.deviating + excluded.deviating`
)

// addCounts is writeCounts with one statement for each table, in the order of the keys.
func (b *batch) addCounts(ctx context.Context, tx *sql.Tx) error {
	minutes, hours := make([][]int64, 4), make([][]int64, 12)
	for _, k := range slices.SortedFunc(maps.Keys(b.counts.minutes), compareMinutes) {
		if n := b.counts.minutes[k]; n != 0 {
			appendEach(minutes, k.minute, k.decision, k.reason, n)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(b.counts.hours), compareHours) {
		if t := b.counts.hours[k]; t != (tally{}) {
			appendEach(hours, k.hour, k.decision, k.host, k.client, k.agent, k.reason, k.rule, t.n, t.waited, t.bytes, t.failed, t.deviating)
		}
	}
	if err := addColumns(ctx, tx, addMinutesSQL, minutes); err != nil {
		return err
	}
	return addColumns(ctx, tx, addHoursSQL, hours)
}

func appendEach(columns [][]int64, values ...int64) {
	for i, v := range values {
		columns[i] = append(columns[i], v)
	}
}

func addColumns(ctx context.Context, tx *sql.Tx, text string, columns [][]int64) error {
	if len(columns[0]) == 0 {
		return nil
	}
	args := make([]any, len(columns))
	for i, c := range columns {
		args[i] = c
	}
	_, err := tx.ExecContext(ctx, text, args...)
	return err
}

func compareMinutes(a, b minuteKey) int {
	return cmp.Or(cmp.Compare(a.minute, b.minute), cmp.Compare(a.decision, b.decision), cmp.Compare(a.reason, b.reason))
}

func compareHours(a, b hourKey) int {
	return cmp.Or(cmp.Compare(a.hour, b.hour), cmp.Compare(a.decision, b.decision), cmp.Compare(a.host, b.host),
		cmp.Compare(a.client, b.client), cmp.Compare(a.agent, b.agent), cmp.Compare(a.reason, b.reason), cmp.Compare(a.rule, b.rule))
}

// sizeSQL asks for the size of all tables with their indexes, in bytes.
const sizeSQL = `SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace`

// dropDays drops the tables of whole days before the given time, and returns the number of their records.
func (p *Postgres) dropDays(ctx context.Context, before time.Time) (gone int64, err error) {
	tables, err := list(ctx, p.db, func(rows *sql.Rows) (name string, err error) { return name, rows.Scan(&name) }, partitionsSQL)
	if err != nil {
		return 0, err
	}
	for _, table := range tables {
		day, err := time.Parse(partitionLayout, table)
		if err != nil || day.AddDate(0, 0, 1).After(before) {
			continue
		}
		err = p.changeRecords(ctx, func(_ *sql.Conn, tx *sql.Tx) error {
			var n int64
			if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n); err != nil {
				return err
			}
			// A question that reads for long must not make writers wait for this.
			if _, err := tx.ExecContext(ctx, "SET LOCAL lock_timeout = '2s'; DROP TABLE "+table); err != nil {
				return err
			}
			gone += n
			return nil
		})
		if err != nil {
			return gone, err
		}
	}
	p.forgetPartitions()
	return gone, nil
}

// partitionsSQL lists the tables of days, the oldest first.
const partitionsSQL = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'records'::regclass ORDER BY 1"
