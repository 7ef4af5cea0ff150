package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
)

// PruneOptions say which records Prune removes.
type PruneOptions struct {
	Before  time.Time // records that arrived before this, which is cut to a whole hour that has begun
	MaxSize int64     // bytes of the file in use: the oldest records go until it is not larger; if zero, no limit
	Why     string    // for the list of prunes
	DryRun  bool      // only count; MaxSize is ignored
}

// Pruned is a result of Prune.
type Pruned struct {
	Time    time.Time `json:"time"`
	Before  time.Time `json:"before"` // no earlier record is left
	Records int64     `json:"records"`
	Why     string    `json:"why"`
}

// recordPruneStep is the number of records that one transaction removes, so that a write waits for milliseconds.
const recordPruneStep = 5000

// Prune removes the oldest records with their counts, and evidence to which no later record refers. Evidence stays until
// a Prune removes records and reaches the end of the day (UTC) after its last use. Prune works in small steps. If it
// fails, what it has removed stays removed.
func (r *Records) Prune(ctx context.Context, o PruneOptions) (Pruned, error) {
	p := Pruned{Time: time.Now().UTC(), Why: o.Why}
	if !o.Before.IsZero() {
		before := o.Before.Truncate(time.Hour)
		if thisHour := p.Time.Truncate(time.Hour); before.After(thisHour) {
			before = thisHour // later records are counted from here on
		}
		if o.DryRun {
			return r.countBefore(ctx, p, before)
		}
		if err := r.pruneBefore(ctx, &p, before); err != nil {
			return p, r.fail("pruning records", err)
		}
	}
	for o.MaxSize > 0 && !o.DryRun {
		size, err := r.usedBytes(ctx)
		if err != nil || size <= o.MaxSize {
			return p, r.fail("pruning records", err)
		}
		next, err := r.nextPrune(ctx)
		if errors.Is(err, audit.ErrNoRecord) {
			return p, nil // the rest is needed
		}
		if err == nil {
			err = r.pruneBefore(ctx, &p, next)
		}
		if err != nil {
			return p, r.fail("pruning records", err)
		}
	}
	return p, nil
}

func (r *Records) countBefore(ctx context.Context, p Pruned, before time.Time) (Pruned, error) {
	p.Before = before
	err := r.read.QueryRowContext(ctx, "SELECT count(*) FROM records WHERE id < ?", int64(audit.IDAt(before))).Scan(&p.Records)
	return p, r.fail("counting records", err)
}

// firstRecord returns the ID of the oldest record, or audit.ErrNoRecord.
func (r *Records) firstRecord(ctx context.Context) (audit.ID, error) {
	var first sql.NullInt64
	err := r.read.QueryRowContext(ctx, "SELECT min(id) FROM records").Scan(&first)
	if err == nil && !first.Valid {
		err = audit.ErrNoRecord
	}
	return audit.ID(first.Int64), err
}

// nextPrune returns the time before which records are removed next to save room, or audit.ErrNoRecord if none may go.
// PostgreSQL gives back the room of whole days.
func (r *Records) nextPrune(ctx context.Context) (time.Time, error) {
	if r.postgres != nil {
		const day = 24 * time.Hour
		first, err := r.firstRecord(ctx)
		next := first.Time().Truncate(day).Add(day)
		if err == nil && next.After(time.Now()) {
			err = audit.ErrNoRecord // the table of a day under way stays
		}
		return next, err
	}
	for _, step := range []int{4 * recordPruneStep, 100} {
		var id audit.ID
		err := r.read.QueryRowContext(ctx, "SELECT id FROM records ORDER BY id LIMIT 1 OFFSET ?", step).Scan((*int64)(&id))
		if !errors.Is(err, sql.ErrNoRows) {
			return id.Time(), err
		}
	}
	return time.Time{}, audit.ErrNoRecord
}

// usedBytes returns the size of the file without free pages.
func (r *Records) usedBytes(ctx context.Context) (int64, error) {
	if r.postgres != nil {
		var size int64
		return size, r.read.QueryRowContext(ctx, sizeSQL).Scan(&size)
	}
	var pages int64
	err := r.read.QueryRowContext(ctx, "SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count").Scan(&pages)
	return pages * pageSize, err
}

// addPruneSQL adds a Pruned, or continues it.
const addPruneSQL = `INSERT INTO prunes (id, time, before, records, why) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET before = excluded.before, records = excluded.records`

const pruneRecordsSQL = "DELETE FROM records WHERE id IN (SELECT id FROM records WHERE id < ? ORDER BY id LIMIT ?)"

func (r *Records) pruneBefore(ctx context.Context, p *Pruned, before time.Time) error {
	end := audit.IDAt(before)
	first, err := r.firstRecord(ctx)
	if errors.Is(err, audit.ErrNoRecord) || err == nil && first >= end {
		return nil
	}
	if err != nil {
		return err
	}
	if err := r.markPruned(ctx, p, before); err != nil {
		return err
	}
	if r.postgres != nil {
		gone, err := r.postgres.dropDays(ctx, before)
		p.Records += gone
		if err != nil {
			return err
		}
	}
	for {
		n, err := r.pruneStep(ctx, p, before)
		if err != nil {
			return err
		}
		if p.Records += n; n < recordPruneStep {
			break
		}
	}
	p.Before = before
	return r.pruneRest(ctx, before)
}

// markPruned records the prune and marks its records as pruned in one transaction, before they are.
func (r *Records) markPruned(ctx context.Context, p *Pruned, before time.Time) error {
	return r.change(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, markPrunedSQL, int64(audit.IDAt(before))); err != nil {
			return err
		}
		return addPrune(ctx, tx, p, before, p.Records)
	})
}

// pruneStep removes some of the records of a prune, counts them in its row, and returns their number.
func (r *Records) pruneStep(ctx context.Context, p *Pruned, before time.Time) (n int64, err error) {
	err = r.change(ctx, func(tx *sql.Tx) error {
		n, err = affected(tx.ExecContext(ctx, pruneRecordsSQL, int64(audit.IDAt(before)), recordPruneStep))
		if err != nil {
			return err
		}
		return addPrune(ctx, tx, p, before, p.Records+n)
	})
	return n, err
}

func addPrune(ctx context.Context, tx *sql.Tx, p *Pruned, before time.Time, records int64) error {
	_, err := tx.ExecContext(ctx, addPruneSQL, micros(p.Time), micros(p.Time), micros(before), records, p.Why)
	return err
}

// markPrunedSQL tells audit/seal which records are pruned, before they are.
const markPrunedSQL = `INSERT INTO seal_state (single, size, next, pruned) VALUES (1, 0, 0, ?)
ON CONFLICT (single) DO UPDATE SET pruned = excluded.pruned WHERE seal_state.pruned < excluded.pruned`

// pruneRest removes counts before the given time, and rows that no record since then uses. Rows have only the day of
// their last use, in UTC, and stay until before is not in that day or the next.
func (r *Records) pruneRest(ctx context.Context, before time.Time) error {
	day := dayOf(before)
	counts := []struct {
		table, condition string
		limit            int64
	}{
		{"minutes", "minute < ?", before.Unix() / 60},
		{"hours", "hour >= 0 AND hour < ?", hourOf(before)},
		{"hours", "hour < 0 AND hour > ?", -day},
		{"askers", "used < ?", day - 1},
		{"targets", "used < ?", day - 1},
		{"verdicts", "used < ?", day - 1},
		{"paces", "used < ?", day - 1},
		{"outcomes", "used < ?", day - 1},
		{"names", "used < ?", day - 1},
		{"files", "used < ?", day - 1},
		{"bodies", "used < ?", day - 1},
		{"policies", "used < ?", day - 1},
	}
	for _, c := range counts {
		err := r.change(ctx, func(tx *sql.Tx) error {
			n, err := affected(tx.ExecContext(ctx, fmt.Sprintf("DELETE FROM %s WHERE %s", c.table, c.condition), c.limit))
			if err == nil && n > 0 {
				_, err = tx.ExecContext(ctx, "UPDATE meta SET value = value + 1 WHERE name = 'generation'")
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return r.vacuum(ctx)
}

// vacuum gives free pages back in small steps.
func (r *Records) vacuum(ctx context.Context) error {
	if r.postgres != nil {
		return nil // PostgreSQL uses free pages again
	}
	for before := int64(-1); ; {
		var free int64
		if err := r.write.QueryRowContext(ctx, "PRAGMA freelist_count").Scan(&free); err != nil || free == 0 || free == before {
			return err
		}
		before = free
		if _, err := r.write.ExecContext(ctx, "PRAGMA incremental_vacuum(1000)"); err != nil {
			return err
		}
	}
}

// Loss is a period in which records could not be written and were dropped.
type Loss struct {
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	Records int64     `json:"records"`
}

// AddLoss keeps a Loss.
func (r *Records) AddLoss(ctx context.Context, l Loss) error {
	_, err := r.exec(ctx, "INSERT INTO losses (began, ended, records) VALUES (?, ?, ?)", micros(l.Began), micros(l.Ended), l.Records)
	return r.fail("recording a loss of records", err)
}

// Info describes the state of a Records.
type Info struct {
	First, Last   audit.ID // of the records; 0 if there are none
	Size          int64    // bytes of the file and its log
	BodiesDropped int64    // bodies of robots.txt files that records refer to, and that had no room
	Losses        []Loss   // the oldest first
	Prunes        []Pruned // the oldest first
}

// Info returns the state of the records.
func (r *Records) Info(ctx context.Context) (i Info, err error) {
	defer func() { err = r.fail("reading the state of the records", err) }()
	var first, last sql.NullInt64
	if err = r.read.QueryRowContext(ctx, "SELECT min(id), (SELECT max(id) FROM records) FROM records").Scan(&first, &last); err != nil {
		return i, err
	}
	i.First, i.Last = audit.ID(first.Int64), audit.ID(last.Int64)
	if i.Size, err = r.diskBytes(ctx); err != nil {
		return i, err
	}
	err = r.read.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = 'bodies_dropped'").Scan(&i.BodiesDropped)
	if err != nil {
		return i, err
	}
	if i.Losses, err = list(ctx, r.read, scanLoss, "SELECT began, ended, records FROM losses ORDER BY id"); err != nil {
		return i, err
	}
	i.Prunes, err = list(ctx, r.read, scanPruned, "SELECT time, before, records, why FROM prunes ORDER BY id")
	return i, err
}

// diskBytes returns the size of the file and its log, or of the tables in PostgreSQL.
func (r *Records) diskBytes(ctx context.Context) (size int64, err error) {
	if r.postgres != nil {
		return r.usedBytes(ctx)
	}
	for _, name := range []string{r.path, r.path + "-wal"} {
		if info, err := os.Stat(name); err == nil {
			size += info.Size()
		}
	}
	return size, nil
}

func scanLoss(rows *sql.Rows) (l Loss, err error) {
	var began, ended int64
	err = rows.Scan(&began, &ended, &l.Records)
	l.Began, l.Ended = timeOf(began), timeOf(ended)
	return l, err
}

func scanPruned(rows *sql.Rows) (p Pruned, err error) {
	var at, before int64
	err = rows.Scan(&at, &before, &p.Records, &p.Why)
	p.Time, p.Before = timeOf(at), timeOf(before)
	return p, err
}
