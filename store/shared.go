package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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
	clock   sharedClock
	sender  string // of notices
}

// SharedOptions configure SharedFiles and ExchangedFiles.
type SharedOptions struct {
	ClaimTime time.Duration // after which the claim of a dead instance ends; if zero, 5 s
	Failed    func(error)   // is called after each failure of PostgreSQL or the Exchange. Required
}

var (
	_ robots.SharedStore = (*SharedFiles)(nil)
	_ robots.BatchStore  = (*SharedFiles)(nil)
)

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
FROM snapshots LEFT JOIN snapshot_bodies USING (sha256) WHERE origin = $1 AND deleted = 0`

// Load returns the snapshot last saved for o by any instance: see State.Load. Without PostgreSQL it returns that of this
// instance.
func (s *SharedFiles) Load(ctx context.Context, o origin.Origin) (*robots.Snapshot, error) {
	var snap *robots.Snapshot
	err := s.ask(ctx, "loading the robots.txt of "+o.String(), func(ctx context.Context) error {
		skew, err := s.clock.skew(ctx, s.db.db)
		if err != nil {
			return err
		}
		if snap, err = scanSnapshot(s.db.db.QueryRowContext(ctx, loadSharedSQL, o.String())); err != nil {
			return err
		}
		shift(snap, snap.Fetched.Add(-skew))
		return nil
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
	if ownErr == nil && own.Fetched.After(snap.Fetched) {
		s.share(ctx, "sharing the robots.txt of "+o.String(), []robots.StoreEntry{{Snapshot: own}}) // PostgreSQL could not be used when it was fetched
		return own, nil
	}
	if ownErr == nil && judgedOtherwise(own, snap) {
		return own, nil
	}
	snap.Origin = o
	return snap, nil
}

// Save stores snap and c in PostgreSQL and in the State: see State.Save. It does not replace a snapshot that another
// instance has fetched or deleted later. It returns the error of the State.
func (s *SharedFiles) Save(ctx context.Context, snap *robots.Snapshot, c *robots.Change) error {
	s.share(ctx, "saving the robots.txt of "+snap.Origin.String(), []robots.StoreEntry{{Snapshot: snap, Change: c}})
	return s.local.Save(ctx, snap, c)
}

// SaveAll calls Save for each entry, with one transaction.
func (s *SharedFiles) SaveAll(ctx context.Context, all []robots.StoreEntry) error {
	s.share(ctx, fmt.Sprintf("saving %d robots.txt files", len(all)), all)
	return s.local.SaveAll(ctx, all)
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
	failures = excluded.failures, deleted = 0
WHERE snapshots.fetched <= excluded.fetched`
	// keepSharedVersionSQL is keepVersion for PostgreSQL.
	keepSharedVersionSQL = `
WITH known AS (UPDATE snapshot_versions SET last_seen = greatest(last_seen, $5)
	WHERE id = (SELECT max(id) FROM snapshot_versions WHERE origin = $1) AND sha256 = $2 AND (status = $3 OR $3 = 304) RETURNING 1)
INSERT INTO snapshot_versions (origin, sha256, status, redirects, first_seen, last_seen)
SELECT $1, $2, $3, $4, $5, $5 WHERE NOT EXISTS (SELECT 1 FROM known)`
	dropSharedVersionsSQL = `
DELETE FROM snapshot_versions WHERE origin = $1
	AND id <= (SELECT id FROM snapshot_versions WHERE origin = $1 ORDER BY id DESC LIMIT 1 OFFSET $2)`
	addSharedChangeSQL = `
INSERT INTO snapshot_changes (origin, time, old_sha256, new_sha256, old_state, new_state) VALUES ($1, $2, $3, $4, $5, $6)`
	notifySQL = "SELECT pg_notify('robotsproxy_files', $1)"
)

// share stores all in PostgreSQL. ask reports its failure.
func (s *SharedFiles) share(ctx context.Context, act string, all []robots.StoreEntry) {
	_ = s.ask(ctx, act, func(ctx context.Context) error {
		skew, err := s.clock.skew(ctx, s.db.db)
		if err != nil {
			return err
		}
		conn, err := s.db.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		return conn.Raw(func(driver any) error {
			return pgx.BeginFunc(ctx, native(driver), func(tx pgx.Tx) error { return s.shareIn(ctx, tx, all, skew) })
		})
	})
}

// shareIn needs two round trips. Each transaction locks first its texts and then its origins, in their order, so that those
// of two instances cannot wait for each other.
func (s *SharedFiles) shareIn(ctx context.Context, tx pgx.Tx, all []robots.StoreEntry, skew time.Duration) error {
	texts := make(map[string]*robots.Snapshot)
	for _, e := range all {
		if e.Snapshot.SHA256 == "" {
			continue
		}
		if hash := hashOf(e.Snapshot.Body); hash != e.Snapshot.SHA256 {
			return fmt.Errorf("%s: its body has the hash %s, and not %q", e.Snapshot.Origin, hash, e.Snapshot.SHA256)
		}
		texts[e.Snapshot.SHA256] = e.Snapshot
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b robots.StoreEntry) int {
		return strings.Compare(a.Snapshot.Origin.String(), b.Snapshot.Origin.String())
	})
	var first, second pgx.Batch
	for _, hash := range slices.Sorted(maps.Keys(texts)) {
		queue(&first, addSharedBodySQL, hash, text(texts[hash]))
	}
	for _, e := range all {
		queue(&first, replaceSharedSQL, sharedRow(e.Snapshot, skew)...).Exec(func(done pgconn.CommandTag) error {
			if done.RowsAffected() > 0 {
				s.queueHistory(&second, e)
			}
			return nil
		})
	}
	if err := tx.SendBatch(ctx, &first).Close(); err != nil {
		return err
	}
	return tx.SendBatch(ctx, &second).Close()
}

func queue(b *pgx.Batch, text string, args ...any) *pgx.QueuedQuery {
	return b.Queue(text, each(args, postgresValue)...)
}

// queueHistory queues the statements that follow the one that has saved e.
func (s *SharedFiles) queueHistory(b *pgx.Batch, e robots.StoreEntry) {
	snap, name := e.Snapshot, e.Snapshot.Origin.String()
	if snap.SHA256 != "" && !snap.Stale && snap.Flags&robots.WebPage == 0 {
		queue(b, keepSharedVersionSQL, name, snap.SHA256, snap.Status, listText(snap.Redirects), micros(snap.Fetched))
		queue(b, dropSharedVersionsSQL, name, maxVersions)
	}
	if c := e.Change; c != nil {
		queue(b, addSharedChangeSQL, name, micros(c.Time), c.OldSHA256, c.NewSHA256, c.OldState, c.NewState)
	}
	queue(b, notifySQL, notice{s.sender, snap.Origin, false}.String())
}

// sharedRow returns the row of snap, with the times by the clock of PostgreSQL.
func sharedRow(snap *robots.Snapshot, skew time.Duration) []any {
	var fault []byte
	if snap.Err != nil {
		fault = []byte(snap.Err.Error())
	}
	since := snap.Since
	if !since.IsZero() {
		since = since.Add(skew)
	}
	return []any{
		snap.Origin.String(), snap.Origin.Host(), int64(snap.Availability), snap.Status, listText(snap.Redirects),
		micros(snap.Fetched.Add(skew)), micros(snap.Expires.Add(skew)),
		sql.Null[string]{V: snap.SHA256, Valid: snap.SHA256 != ""},
		snap.Truncated,
		[]byte(snap.ContentType), []byte(snap.ETag), []byte(snap.LastModified), []byte(snap.Fields), snap.Flags.String(),
		snap.Cause, fault, snap.Stale, micros(since), snap.Failures,
	}
}

// deleteSharedSQL keeps the row until Prune.
const deleteSharedSQL = `
INSERT INTO snapshots (origin, host, availability, status, redirects, fetched, expires, truncated, content_type, etag,
	last_modified, header, marks, cause, stale, since, failures, deleted)
VALUES ($1, $2, 0, 0, '[]', $3, $3, 0, '', '', '', '', '', '', 0, 0, 0, 1)
ON CONFLICT (origin) DO UPDATE SET fetched = greatest(excluded.fetched, snapshots.fetched + 1), sha256 = NULL, deleted = 1`

// Delete removes the snapshot of o for all instances: see State.Delete.
func (s *SharedFiles) Delete(ctx context.Context, o origin.Origin) error {
	err := s.ask(ctx, "deleting the robots.txt of "+o.String(), func(ctx context.Context) error {
		skew, err := s.clock.skew(ctx, s.db.db)
		if err != nil {
			return err
		}
		return s.db.change(ctx, func(tx *sql.Tx) error {
			now := micros(time.Now().Add(skew))
			if _, err := tx.ExecContext(ctx, deleteSharedSQL, o.String(), o.Host(), now); err != nil {
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
