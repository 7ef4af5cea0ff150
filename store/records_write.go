package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
)

// rowsAtOnce are the numbers of records that one statement writes. A statement costs as much as some rows, so a batch
// takes as few as possible.
var rowsAtOnce = [...]int{64, 32, 16, 8, 4, 2, 1}

// insertTexts are the statements for rowsAtOnce.
var insertTexts = func() (texts [len(rowsAtOnce)]string) {
	for i, n := range rowsAtOnce {
		texts[i] = insertRows(n)
	}
	return texts
}()

// insertRows returns a statement that adds or replaces n records.
func insertRows(n int) string {
	columns := strings.Fields(rowColumns)
	marks := "(?" + strings.Repeat(", ?", len(columns)-1) + ")"
	var set []string
	for _, column := range columns[1:] {
		set = append(set, column+" = excluded."+column)
	}
	return fmt.Sprintf("INSERT INTO records (%s) VALUES %s ON CONFLICT (id) DO UPDATE SET %s",
		strings.Join(columns, ", "), marks+strings.Repeat(", "+marks, n-1), strings.Join(set, ", "))
}

// Write keeps all entries with their evidence, or none. An entry replaces an open one of the same ID.
func (r *Records) Write(ctx context.Context, entries []audit.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := newBatch(r)
	err := b.transact(ctx, entries)
	if err != nil {
		r.forget() // ids and evidence of the transaction are not in the tables
		r.known.forget()
		return r.fail("writing records", err)
	}
	b.committed()
	return nil
}

// batch writes entries in one transaction.
type batch struct {
	*Records
	conn   *sql.Conn // of the transaction in PostgreSQL
	counts counts
	open   map[audit.ID]counted // what becomes of Records.open
}

func newBatch(r *Records) *batch {
	clear(r.args)
	r.args = r.args[:0]
	return &batch{Records: r, counts: newCounts(), open: make(map[audit.ID]counted)}
}

func (b *batch) transact(ctx context.Context, entries []audit.Entry) error {
	if b.postgres != nil {
		return b.writePostgres(ctx, entries)
	}
	return b.change(ctx, func(tx *sql.Tx) error { return b.write(ctx, transaction{tx, b.compiled}, entries) })
}

func (b *batch) write(ctx context.Context, tx transaction, entries []audit.Entry) error {
	if err := b.checkGeneration(ctx, tx); err != nil {
		return err
	}
	if err := b.settle(ctx, tx, entries); err != nil {
		return err
	}
	var e audit.Entry // one for all: it is on the heap
	for i := range entries {
		e = entries[i]
		e.Normal()
		if err := b.add(ctx, tx, &e); err != nil {
			return err
		}
		if err := b.addEvidence(ctx, tx, &e); err != nil {
			return err
		}
	}
	if err := b.insert(ctx, tx); err != nil {
		return err
	}
	return b.writeCounts(ctx, tx)
}

const generationSQL = "SELECT value FROM meta WHERE name = 'generation'"

// checkGeneration drops the ids in memory if another process has removed rows that may be in use.
func (b *batch) checkGeneration(ctx context.Context, tx transaction) error {
	var now int64
	if err := tx.QueryRowContext(ctx, generationSQL).Scan(&now); err != nil {
		return err
	}
	if now != b.generation {
		b.forget()
		b.known.forget()
		b.generation = now
	}
	return nil
}

func (b *batch) add(ctx context.Context, tx transaction, e *audit.Entry) (err error) {
	day := dayOf(e.ID.Time())
	w, a, t, v, p, o := split(e)
	if w.asker, err = b.askers.id(ctx, tx, a, day); err != nil {
		return err
	}
	if w.target, err = b.targets.id(ctx, tx, t, day); err != nil {
		return err
	}
	if w.verdict, err = b.verdicts.id(ctx, tx, v, day); err != nil {
		return err
	}
	if w.pace, err = b.paces.id(ctx, tx, p, day); err != nil {
		return err
	}
	if w.outcome, err = b.outcomes.id(ctx, tx, o, day); err != nil {
		return err
	}
	b.args = w.appendTo(b.args)
	return b.count(ctx, tx, e, day)
}

// count counts e, in place of its open entry if there was one.
func (b *batch) count(ctx context.Context, tx transaction, e *audit.Entry, day int64) error {
	before, again := b.open[e.ID]
	if !again {
		before, again = b.Records.open[e.ID]
	}
	if again {
		b.counts.add(before, -1)
		b.open[e.ID] = counted{} // ended
	}
	if e.Via == audit.Robots {
		return nil
	}
	c, err := b.counted(ctx, tx, e, day)
	if err != nil {
		return err
	}
	b.counts.add(c, 1)
	if e.Open {
		b.open[e.ID] = c
	}
	return nil
}

// committed keeps the open entries in memory after the commit.
func (b *batch) committed() {
	for id, c := range b.open {
		if c == (counted{}) {
			delete(b.Records.open, id)
		} else {
			b.Records.open[id] = c
		}
	}
}

// insert writes the rows.
func (b *batch) insert(ctx context.Context, tx transaction) error {
	if b.postgres != nil {
		return b.copyRows(ctx, tx.Tx)
	}
	columns := len(strings.Fields(rowColumns))
	rest := b.args
	for i, n := range rowsAtOnce {
		for size := n * columns; len(rest) >= size; rest = rest[size:] {
			if _, err := tx.ExecContext(ctx, insertTexts[i], rest[:size]...); err != nil {
				return err
			}
		}
	}
	return nil
}

// dayOf returns the number of days since 1970.
func dayOf(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

func hourOf(t time.Time) int64 { return t.Unix() / (60 * 60) }
