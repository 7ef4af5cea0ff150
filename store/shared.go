package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
)

// SharedFiles keeps the robots.txt of every origin in PostgreSQL for several instances, and in the State of this one. If
// PostgreSQL fails, it goes on with the State, and asks PostgreSQL again after five seconds.
type SharedFiles struct {
	db      *Postgres
	local   *State
	options SharedOptions
	outage  outage
	sender  string // of notices
}

// SharedOptions configure SharedFiles and ExchangedFiles.
type SharedOptions struct {
	ClaimTime time.Duration // after which the claim of a dead instance ends; if zero, 5 s
	Failed    func(error)   // is called after each failure of PostgreSQL or the Exchange. Required
}

var _ robots.SharedStore = (*SharedFiles)(nil)

const (
	sharedPatience = 2 * time.Second // for one question to PostgreSQL
	sharedRetry    = 5 * time.Second // after a failure
)

// Share returns the files in p, with local for the time in which p does not answer.
func (p *Postgres) Share(local *State, o SharedOptions) *SharedFiles {
	return &SharedFiles{db: p, local: local, options: o.withDefaults(), outage: newOutage(), sender: rand.Text()}
}

func (o SharedOptions) withDefaults() SharedOptions {
	if o.ClaimTime == 0 {
		o.ClaimTime = 5 * time.Second
	}
	return o
}

// errSkipped says that PostgreSQL was not asked since it has just failed.
var errSkipped = errors.New("store: PostgreSQL has failed less than five seconds ago")

// ask calls f with the patience for one question, unless PostgreSQL has just failed.
func (s *SharedFiles) ask(ctx context.Context, act string, f func(context.Context) error) error {
	if s.outage.isOn() {
		return errSkipped
	}
	limited, cancel := context.WithTimeout(ctx, sharedPatience)
	defer cancel()
	err := f(limited)
	if err == nil || errors.Is(err, sql.ErrNoRows) || ctx.Err() != nil {
		return err
	}
	if !errors.Is(err, errDamaged) {
		s.outage.begin()
	}
	err = s.db.fail(act, err)
	s.options.Failed(err)
	return err
}

const loadSharedSQL = `
SELECT availability, status, redirects, fetched, expires, sha256, body, truncated, content_type, etag, last_modified,
	header, marks, cause, err, stale, since, failures
FROM snapshots LEFT JOIN snapshot_bodies USING (sha256) WHERE origin = $1`

// Load returns the snapshot last saved for o by any instance: see State.Load. Without PostgreSQL it returns that of this
// instance.
func (s *SharedFiles) Load(ctx context.Context, o origin.Origin) (*robots.Snapshot, error) {
	var snap *robots.Snapshot
	err := s.ask(ctx, "loading the robots.txt of "+o.String(), func(ctx context.Context) (err error) {
		snap, err = scanSnapshot(s.db.db.QueryRowContext(ctx, loadSharedSQL, o.String()))
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, robots.ErrNoSnapshot
	}
	own, ownErr := s.local.Load(ctx, o)
	if err != nil {
		if ownErr == nil && !errors.Is(err, errDamaged) {
			s.outage.miss()
		}
		return own, ownErr
	}
	if ownErr == nil && own.Fetched.After(snap.Fetched) { // it could not be saved in PostgreSQL
		return own, nil
	}
	snap.Origin = o
	return snap, nil
}

// Save stores snap and c in PostgreSQL and in the State: see State.Save. It does not replace a snapshot that another
// instance has fetched later. It returns the error of the State.
func (s *SharedFiles) Save(ctx context.Context, snap *robots.Snapshot, c *robots.Change) error {
	_ = s.ask(ctx, "saving the robots.txt of "+snap.Origin.String(), func(ctx context.Context) error {
		return s.db.change(ctx, func(tx *sql.Tx) error { return s.save(ctx, tx, snap, c) })
	}) // ask has reported it
	return s.local.Save(ctx, snap, c)
}

const (
	// addSharedBodySQL locks the row, so that Prune cannot delete it before the transaction ends.
	addSharedBodySQL = `
INSERT INTO snapshot_bodies (sha256, body) VALUES ($1, $2)
ON CONFLICT (sha256) DO UPDATE SET body = excluded.body WHERE snapshot_bodies.body <> excluded.body`
	replaceSharedSQL = `
INSERT INTO snapshots (origin, host, availability, status, redirects, fetched, expires, sha256, truncated, content_type, etag,
	last_modified, header, marks, cause, err, stale, since, failures)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
ON CONFLICT (origin) DO UPDATE SET availability = excluded.availability, status = excluded.status, redirects = excluded.redirects,
	fetched = excluded.fetched, expires = excluded.expires, sha256 = excluded.sha256, truncated = excluded.truncated,
	content_type = excluded.content_type, etag = excluded.etag, last_modified = excluded.last_modified, header = excluded.header,
	marks = excluded.marks, cause = excluded.cause, err = excluded.err, stale = excluded.stale, since = excluded.since,
	failures = excluded.failures
WHERE snapshots.fetched <= excluded.fetched`
	prolongSharedSQL = `
UPDATE snapshot_versions SET last_seen = greatest(last_seen, $1)
WHERE id = (SELECT max(id) FROM snapshot_versions WHERE origin = $2) AND sha256 = $3 AND (status = $4 OR $4 = 304)`
	addSharedVersionSQL = `
INSERT INTO snapshot_versions (origin, sha256, status, redirects, first_seen, last_seen) VALUES ($1, $2, $3, $4, $5, $5)`
	dropSharedVersionsSQL = `
DELETE FROM snapshot_versions WHERE origin = $1
	AND id <= (SELECT id FROM snapshot_versions WHERE origin = $1 ORDER BY id DESC LIMIT 1 OFFSET $2)`
	addSharedChangeSQL = `
INSERT INTO snapshot_changes (origin, time, old_sha256, new_sha256, old_state, new_state) VALUES ($1, $2, $3, $4, $5, $6)`
	notifySQL = "SELECT pg_notify('robotsproxy_files', $1)"
)

func (s *SharedFiles) save(ctx context.Context, tx *sql.Tx, snap *robots.Snapshot, c *robots.Change) error {
	if snap.SHA256 != "" {
		if hash := hashOf(snap.Body); hash != snap.SHA256 {
			return fmt.Errorf("its body has the hash %s, and not %q", hash, snap.SHA256)
		}
		if _, err := tx.ExecContext(ctx, addSharedBodySQL, snap.SHA256, text(snap)); err != nil {
			return err
		}
	}
	result, err := tx.ExecContext(ctx, replaceSharedSQL, sharedRow(snap)...)
	if err != nil {
		return err
	}
	if saved, err := result.RowsAffected(); err != nil || saved == 0 {
		return err
	}
	if err := keepSharedVersion(ctx, tx, snap); err != nil {
		return err
	}
	if c != nil {
		_, err := tx.ExecContext(ctx, addSharedChangeSQL, c.Origin.String(), micros(c.Time), c.OldSHA256, c.NewSHA256, c.OldState, c.NewState)
		if err != nil {
			return err
		}
	}
	_, err = tx.ExecContext(ctx, notifySQL, notice{s.sender, snap.Origin, false}.String())
	return err
}

func sharedRow(snap *robots.Snapshot) []any {
	var fault []byte
	if snap.Err != nil {
		fault = []byte(snap.Err.Error())
	}
	return []any{
		snap.Origin.String(), snap.Origin.Host(), int64(snap.Availability), snap.Status, listText(snap.Redirects),
		micros(snap.Fetched), micros(snap.Expires),
		sql.Null[string]{V: snap.SHA256, Valid: snap.SHA256 != ""},
		snap.Truncated,
		[]byte(snap.ContentType), []byte(snap.ETag), []byte(snap.LastModified), []byte(snap.Fields), snap.Flags.String(),
		snap.Cause, fault, snap.Stale, micros(snap.Since), snap.Failures,
	}
}

// keepSharedVersion is keepVersion for PostgreSQL.
func keepSharedVersion(ctx context.Context, tx *sql.Tx, snap *robots.Snapshot) error {
	if snap.SHA256 == "" || snap.Stale || snap.Flags&robots.WebPage != 0 {
		return nil
	}
	name, seen := snap.Origin.String(), micros(snap.Fetched)
	result, err := tx.ExecContext(ctx, prolongSharedSQL, seen, name, snap.SHA256, snap.Status)
	if err != nil {
		return err
	}
	if known, err := result.RowsAffected(); err != nil || known > 0 {
		return err
	}
	if _, err = tx.ExecContext(ctx, addSharedVersionSQL, name, snap.SHA256, snap.Status, listText(snap.Redirects), seen); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, dropSharedVersionsSQL, name, maxVersions)
	return err
}

// Delete removes the snapshot of o for all instances: see State.Delete.
func (s *SharedFiles) Delete(ctx context.Context, o origin.Origin) error {
	err := s.ask(ctx, "deleting the robots.txt of "+o.String(), func(ctx context.Context) error {
		return s.db.change(ctx, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "DELETE FROM snapshots WHERE origin = $1", o.String()); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, notifySQL, notice{s.sender, o, true}.String())
			return err
		})
	})
	return errors.Join(err, s.local.Delete(ctx, o))
}

const claimSQL = `
INSERT INTO snapshot_claims (origin, holder, until) VALUES ($1, $2, clock_timestamp() + $3 * interval '1 microsecond')
ON CONFLICT (origin) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE snapshot_claims.until < clock_timestamp() OR snapshot_claims.holder = excluded.holder`

// Claim implements robots.SharedStore. The claim is renewed until release is called.
func (s *SharedFiles) Claim(ctx context.Context, o origin.Origin) (release func(), claimed bool) {
	return claimFile(ctx, s, o, s.options.ClaimTime)
}

// AwaitClaim implements robots.SharedStore.
func (s *SharedFiles) AwaitClaim(ctx context.Context, o origin.Origin) { awaitClaim(ctx, s, o) }

func (s *SharedFiles) claim(ctx context.Context, o origin.Origin, holder string) (claimed bool, err error) {
	err = s.ask(ctx, "claiming the robots.txt of "+o.String(), func(ctx context.Context) error {
		result, err := s.db.db.ExecContext(ctx, claimSQL, o.String(), holder, s.options.ClaimTime.Microseconds())
		if err != nil {
			return err
		}
		rows, err := result.RowsAffected()
		claimed = rows > 0
		return err
	})
	return claimed, err
}

const claimedSQL = "SELECT EXISTS (SELECT 1 FROM snapshot_claims WHERE origin = $1 AND until >= clock_timestamp())"

func (s *SharedFiles) isClaimed(ctx context.Context, o origin.Origin) (claimed bool, err error) {
	err = s.ask(ctx, "waiting for the robots.txt of "+o.String(), func(ctx context.Context) error {
		return s.db.db.QueryRowContext(ctx, claimedSQL, o.String()).Scan(&claimed)
	})
	return claimed, err
}

func (s *SharedFiles) unclaim(ctx context.Context, o origin.Origin, holder string) {
	_ = s.ask(ctx, "ending a claim", func(ctx context.Context) error {
		_, err := s.db.db.ExecContext(ctx, "DELETE FROM snapshot_claims WHERE origin = $1 AND holder = $2", o.String(), holder)
		return err
	})
}
