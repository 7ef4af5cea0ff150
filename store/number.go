package store

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// numbers is how many instances can have a number at a time.
const numbers = 1 << 10

const (
	numberTime = 10 * time.Minute // after which the number of an instance that does not renew it is free
	numberStep = time.Minute      // between two renewals
)

// Number is the number of this instance among all that use a Postgres. It may change if PostgreSQL was away for so long
// that another instance could take the number.
type Number struct {
	db     *Postgres
	holder string
	n      atomic.Int64
	end    context.CancelFunc
	done   sync.WaitGroup
}

// Number takes a number from 0 to 1023 that no other instance has, and keeps it until Close, or until the process dies
// and ten minutes have passed. It calls failed for each renewal that fails.
func (p *Postgres) Number(ctx context.Context, failed func(error)) (*Number, error) {
	n := &Number{db: p, holder: rand.Text()}
	if err := n.take(ctx, mathrand.IntN(numbers)); err != nil {
		return nil, p.fail("taking a number for this instance", err)
	}
	life, end := context.WithCancel(context.Background())
	n.end = end
	n.done.Go(func() { n.keep(life, failed) })
	return n, nil
}

// Get returns the number.
func (n *Number) Get() int { return int(n.n.Load()) }

// takeNumberSQL takes the number $1, or the next free one after it. Of two instances that find the same one free, the
// second gets no row.
const takeNumberSQL = `
INSERT INTO instances (number, holder, until)
SELECT n % 1024, $2, clock_timestamp() + $3 * interval '1 microsecond' FROM generate_series($1::integer, $1::integer + 1023) AS n
WHERE NOT EXISTS (SELECT 1 FROM instances WHERE number = n % 1024 AND until >= clock_timestamp() AND holder <> $2)
ORDER BY n LIMIT 1
ON CONFLICT (number) DO UPDATE SET holder = excluded.holder, until = excluded.until
	WHERE instances.until < clock_timestamp() OR instances.holder = excluded.holder
RETURNING number`

const giveNumberSQL = "UPDATE instances SET until = clock_timestamp() + interval '1 minute' WHERE holder = $1"

// take takes the number first, or the next free one.
func (n *Number) take(ctx context.Context, first int) error {
	for range 10 {
		number, err := n.try(ctx, first)
		if err != nil {
			return err
		}
		if number >= 0 {
			n.n.Store(int64(number))
			return nil
		}
		first = mathrand.IntN(numbers)
	}
	return fmt.Errorf("%d instances have one", numbers)
}

// try returns -1 if another instance took the number at the same moment, or if none is free.
func (n *Number) try(ctx context.Context, first int) (int, error) {
	number := -1
	rows, err := n.db.db.QueryContext(ctx, takeNumberSQL, first, n.holder, numberTime.Microseconds())
	if err != nil {
		return -1, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&number); err != nil {
			return -1, err
		}
	}
	return number, rows.Err()
}

// keep renews the number until ctx ends.
func (n *Number) keep(ctx context.Context, failed func(error)) {
	for {
		sleep(ctx, numberStep)
		if ctx.Err() != nil {
			return
		}
		limited, cancel := context.WithTimeout(ctx, connectTime)
		err := n.take(limited, n.Get())
		cancel()
		if err != nil && ctx.Err() == nil {
			failed(n.db.fail("renewing the number of this instance", err))
		}
	}
}

// Close gives the number back. It is free after a minute, so that clocks that differ do not cause equal ids.
func (n *Number) Close() error {
	n.end()
	n.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), connectTime)
	defer cancel()
	_, err := n.db.db.ExecContext(ctx, giveNumberSQL, n.holder)
	return n.db.fail("giving back the number of this instance", err)
}
