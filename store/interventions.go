package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
)

// ReplaceInterventions stores all as the operator's interventions that are in force, in place of those before.
func (s *State) ReplaceInterventions(ctx context.Context, all []policy.Intervention) error {
	err := s.change(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM interventions"); err != nil {
			return err
		}
		for _, i := range all {
			until := sql.NullInt64{Int64: micros(i.Until), Valid: !i.Until.IsZero()}
			_, err := tx.ExecContext(ctx, "INSERT INTO interventions VALUES (?, ?, ?, ?, ?, ?, ?)",
				string(i.Kind), i.Host, int64(i.Delay), i.Reason, i.By, micros(i.Since), until)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return s.fail("saving the interventions", err)
}

// Interventions returns the interventions that are in force, in the order of their beginnings, and deletes those that
// have ended.
func (s *State) Interventions(ctx context.Context) ([]policy.Intervention, error) {
	if _, err := s.exec(ctx, "DELETE FROM interventions WHERE until <= ?", micros(time.Now())); err != nil {
		return nil, s.fail("forgetting interventions", err)
	}
	all, err := list(ctx, s.read, func(rows *sql.Rows) (i policy.Intervention, err error) {
		var since int64
		var until sql.NullInt64
		err = rows.Scan((*string)(&i.Kind), &i.Host, (*int64)(&i.Delay), &i.Reason, &i.By, &since, &until)
		i.Since, i.Until = timeOf(since), timeOf(until.Int64)
		return i, err
	}, "SELECT kind, host, delay, reason, by, since, until FROM interventions ORDER BY since, kind, host")
	return all, s.fail("reading the interventions", err)
}
