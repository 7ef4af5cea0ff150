package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

var _ ratelimit.Pauses = (*State)(nil)

const keepPauseSQL = `
INSERT INTO pauses (key, until, source, streak) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET until = excluded.until, source = excluded.source, streak = excluded.streak
WHERE excluded.until > pauses.until`

// pausesKept is the time for which an ended pause is kept. After that it no longer counts for the next one (see
// ratelimit.Pauses).
const pausesKept = time.Hour

// Keep stores p. It replaces the pause of the same key, unless that one ends later.
func (s *State) Keep(p ratelimit.Pause) error {
	_, err := s.exec(context.Background(), keepPauseSQL, p.Key, micros(p.Until), string(p.Source), p.Streak)
	return s.fail("saving the pause of "+p.Key, err)
}

// Kept returns the pauses that are in force or ended less than an hour ago, and deletes the others.
func (s *State) Kept() ([]ratelimit.Pause, error) {
	ctx := context.Background()
	if _, err := s.exec(ctx, "DELETE FROM pauses WHERE until < ?", micros(time.Now().Add(-pausesKept))); err != nil {
		return nil, s.fail("forgetting pauses", err)
	}
	pauses, err := list(ctx, s.read, func(rows *sql.Rows) (p ratelimit.Pause, err error) {
		var until int64
		err = rows.Scan(&p.Key, &until, (*string)(&p.Source), &p.Streak)
		p.Until = timeOf(until)
		return p, err
	}, "SELECT key, until, source, streak FROM pauses ORDER BY key")
	return pauses, s.fail("reading the pauses", err)
}
