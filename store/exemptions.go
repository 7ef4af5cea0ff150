package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
)

// Exemption is an exemption that an operator has added while the proxy ran.
type Exemption struct {
	policy.Exemption
	ID       int64     // from 1; never used again
	Added    time.Time // to the microsecond
	Reported bool      // MarkReported was called for it
}

// AddExemption stores e as added now, and returns it with its ID.
func (s *State) AddExemption(ctx context.Context, e policy.Exemption, now time.Time) (Exemption, error) {
	added := Exemption{Exemption: e, Added: timeOf(micros(now))}
	err := s.change(ctx, func(tx *sql.Tx) error {
		until := sql.NullInt64{Int64: micros(e.Until), Valid: !e.Until.IsZero()}
		return tx.QueryRowContext(ctx, `INSERT INTO exemptions (host, path, client, effect, reason, owner, added, until)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id`,
			e.Host, e.Path, e.Client, e.Effect, e.Reason, e.Owner, micros(now), until).Scan(&added.ID)
	})
	return added, s.fail("saving an exemption for "+e.Host, err)
}

// RemoveExemption removes the exemption with an ID. It does nothing if there is no such exemption.
func (s *State) RemoveExemption(ctx context.Context, id int64) error {
	_, err := s.exec(ctx, "DELETE FROM exemptions WHERE id = ?", id)
	return s.fail("removing an exemption", err)
}

// MarkReported notes that the log says that an exemption has expired, so that it does not say so again after a restart.
func (s *State) MarkReported(ctx context.Context, id int64) error {
	_, err := s.exec(ctx, "UPDATE exemptions SET reported = 1 WHERE id = ?", id)
	return s.fail("changing an exemption", err)
}

// Exemptions returns all exemptions, expired ones too, in the order in which they were added.
func (s *State) Exemptions(ctx context.Context) ([]Exemption, error) {
	all, err := list(ctx, s.read, func(rows *sql.Rows) (e Exemption, err error) {
		var effect, added int64
		var until sql.NullInt64
		err = rows.Scan(&e.ID, &e.Host, &e.Path, &e.Client, &effect, &e.Reason, &e.Owner, &added, &until, &e.Reported)
		if effect == int64(policy.EffectAllow) {
			e.Effect = policy.EffectAllow
		}
		e.Added, e.Until = timeOf(added), timeOf(until.Int64)
		return e, err
	}, "SELECT id, host, path, client, effect, reason, owner, added, until, reported FROM exemptions ORDER BY id")
	return all, s.fail("reading the exemptions", err)
}
