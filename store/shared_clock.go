package store

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"
)

// sharedClock compares the clock of PostgreSQL with that of this machine, once a minute. The times of snapshots in PostgreSQL
// are by its clock, so that it does not matter if the clocks of the instances differ.
type sharedClock struct{ last atomic.Pointer[measuredSkew] }

type measuredSkew struct {
	skew time.Duration
	at   time.Time
}

// skew returns by how much the clock of PostgreSQL is ahead, in whole seconds: it is 0 if both are in step, and times are
// exact then.
func (c *sharedClock) skew(ctx context.Context, db *sql.DB) (time.Duration, error) {
	if last := c.last.Load(); last != nil && time.Since(last.at) < time.Minute {
		return last.skew, nil
	}
	var there int64
	sent := time.Now()
	const question = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
	if err := db.QueryRowContext(ctx, question).Scan(&there); err != nil {
		return 0, err
	}
	here := sent.Add(time.Since(sent) / 2)
	skew := timeOf(there).Sub(here.Round(0)).Round(time.Second) // by the wall clock
	c.last.Store(&measuredSkew{skew, time.Now()})
	return skew, nil
}
