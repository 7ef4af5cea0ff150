package store

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
)

// partitionLock is the key of the advisory lock that one instance holds while it adds a partition.
const partitionLock = migrationLock + 1

// A partition is the table of the records of one day in UTC, by their IDs. Its number is that of the day since 2026.
type partition int64

const dayMicros = int64(24 * time.Hour / time.Microsecond)

func partitionOf(id audit.ID) partition { return partitionAt(id.Time()) }

func partitionAt(t time.Time) partition {
	return partition(t.Sub(audit.ID(0).Time()).Microseconds() / dayMicros)
}

// first returns the first ID of p.
func (p partition) first() audit.ID { return audit.ID(int64(p) * dayMicros * audit.Instances) }

// partitionLayout is the name of the table of a day, in the form of time.Format.
const partitionLayout = "records_20060102"

// table returns the name of the table, such as records_20260301.
func (p partition) table() string { return p.first().Time().Format(partitionLayout) }

// partitions are those that are known to exist.
type partitions struct {
	mu    sync.Mutex
	known map[partition]bool
}

// ensurePartition adds a partition unless it is known.
func (p *Postgres) ensurePartition(ctx context.Context, day partition) error {
	p.partitions.mu.Lock()
	defer p.partitions.mu.Unlock()
	if p.partitions.known[day] {
		return nil
	}
	if err := p.addPartition(ctx, day); err != nil {
		return err
	}
	if p.partitions.known == nil {
		p.partitions.known = make(map[partition]bool)
	}
	p.partitions.known[day] = true
	return nil
}

func (p *Postgres) forgetPartitions() {
	p.partitions.mu.Lock()
	defer p.partitions.mu.Unlock()
	p.partitions.known = nil
}

// addPartition adds a partition, unless it exists. Those who read or write other partitions need not wait.
func (p *Postgres) addPartition(ctx context.Context, day partition) error {
	return p.change(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", partitionLock); err != nil {
			return err
		}
		var exists bool
		if err := tx.QueryRowContext(ctx, "SELECT to_regclass($1) IS NOT NULL", day.table()).Scan(&exists); err != nil || exists {
			return err
		}
		// With the constraint, ATTACH does not look for rows of other days.
		_, err := tx.ExecContext(ctx, fmt.Sprintf(`
CREATE TABLE %[1]s (LIKE records, CONSTRAINT day CHECK (id >= %[2]d AND id < %[3]d));
ALTER TABLE records ATTACH PARTITION %[1]s FOR VALUES FROM (%[2]d) TO (%[3]d);
ALTER TABLE %[1]s DROP CONSTRAINT day`, day.table(), day.first(), (day+1).first()))
		return err
	})
}
