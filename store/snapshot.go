package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
)

const loadSQL = `
SELECT availability, status, redirects, fetched, expires, sha256, body, truncated, content_type, etag, last_modified,
	header, marks, cause, err, stale, since, failures
FROM snapshots LEFT JOIN bodies USING (sha256) WHERE origin = ?`

// Load returns the snapshot last saved for o, with Rules nil and times truncated to microseconds, or
// robots.ErrNoSnapshot. It returns an error if the body does not match its hash: a bit flipped on disk must not allow a
// disallowed path.
func (s *State) Load(ctx context.Context, o origin.Origin) (*robots.Snapshot, error) {
	snap, err := scanSnapshot(s.load.QueryRowContext(ctx, o.String()))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, robots.ErrNoSnapshot
	}
	if err != nil {
		return nil, s.fail("loading the robots.txt of "+o.String(), err)
	}
	snap.Origin = o
	return snap, nil
}

func scanSnapshot(row *sql.Row) (*robots.Snapshot, error) {
	var (
		snap                                  robots.Snapshot
		redirects, marks                      string
		fetched, expires, since, availability int64
		hash, fault                           sql.Null[string]
	)
	err := row.Scan(&availability, &snap.Status, &redirects, &fetched, &expires, &hash, &snap.Body, &snap.Truncated,
		&snap.ContentType, &snap.ETag, &snap.LastModified, &snap.Fields, &marks, &snap.Cause, &fault, &snap.Stale, &since, &snap.Failures)
	if err != nil {
		return nil, err
	}
	if hash.Valid && hash.V != hashOf(snap.Body) {
		return nil, fmt.Errorf("%w: the body %s has another hash", errDamaged, hash.V)
	}
	if snap.Redirects, err = parseList(redirects); err != nil {
		return nil, err
	}
	if snap.Flags, err = parseFlags(marks); err != nil {
		return nil, err
	}
	if err := checkFields(snap.Fields); err != nil {
		return nil, err
	}
	snap.Availability, snap.SHA256 = robots.Availability(availability), hash.V
	snap.Fetched, snap.Expires, snap.Since = timeOf(fetched), timeOf(expires), timeOf(since)
	if fault.Valid {
		snap.Err = errors.New(fault.V)
	}
	return &snap, nil
}

// Save stores snap in place of the previous snapshot of its origin, and c unless it is nil, in one transaction. It also
// stores a new text as a version, until Prune or until there are 50 later ones of its origin; it does not write a known
// text again. It refuses a snapshot with a body that does not match its hash, since other origins with this hash would
// get the body too.
func (s *State) Save(ctx context.Context, snap *robots.Snapshot, c *robots.Change) error {
	err := s.change(ctx, func(tx *sql.Tx) error { return s.save(ctx, tx, snap, c) })
	if err == nil {
		s.limitLog()
	}
	return s.fail("saving the robots.txt of "+snap.Origin.String(), err)
}

// SaveAll implements robots.BatchStore, with one transaction.
func (s *State) SaveAll(ctx context.Context, all []robots.StoreEntry) error {
	err := s.change(ctx, func(tx *sql.Tx) error {
		for _, each := range all {
			if err := s.save(ctx, tx, each.Snapshot, each.Change); err != nil {
				return fmt.Errorf("%s: %w", each.Snapshot.Origin, err)
			}
		}
		return nil
	})
	if err == nil {
		s.limitLog()
	}
	return s.fail(fmt.Sprintf("saving %d robots.txt files", len(all)), err)
}

func (s *State) save(ctx context.Context, tx *sql.Tx, snap *robots.Snapshot, c *robots.Change) error {
	newText, err := s.isNew(ctx, tx, snap)
	if err != nil {
		return err
	}
	need := int64(rowBytes)
	if newText {
		need += int64(len(snap.Body))
	}
	dropped, err := s.makeRoom(ctx, tx, snap, need)
	if err != nil {
		return err
	}
	if dropped && !newText { // the text may have been dropped too
		if newText, err = s.isNew(ctx, tx, snap); err != nil {
			return err
		}
	}
	if newText {
		if err := s.keepBody(ctx, tx, snap); err != nil {
			return err
		}
	}
	if err := s.keepSnapshot(ctx, tx, snap); err != nil {
		return err
	}
	if err := s.keepVersion(ctx, tx, snap); err != nil {
		return err
	}
	return s.keepChange(ctx, tx, c)
}

const (
	hasBodySQL = "SELECT EXISTS (SELECT 1 FROM bodies WHERE sha256 = ? AND body = ?)"
	// addBodySQL replaces a damaged body.
	addBodySQL = "INSERT INTO bodies (sha256, body) VALUES (?, ?) ON CONFLICT (sha256) DO UPDATE SET body = excluded.body"
)

// isNew reports whether snap has a text that is not stored yet.
func (s *State) isNew(ctx context.Context, tx *sql.Tx, snap *robots.Snapshot) (bool, error) {
	if snap.SHA256 == "" && len(snap.Body) == 0 {
		return false, nil
	}
	var kept bool
	err := tx.StmtContext(ctx, s.hasBody).QueryRowContext(ctx, snap.SHA256, text(snap)).Scan(&kept)
	return !kept, err
}

// text returns the body of snap. It is not nil, since nil would be NULL.
func text(snap *robots.Snapshot) []byte {
	if snap.Body == nil {
		return []byte{}
	}
	return snap.Body
}

func (s *State) keepBody(ctx context.Context, tx *sql.Tx, snap *robots.Snapshot) error {
	if hash := hashOf(snap.Body); hash != snap.SHA256 {
		return fmt.Errorf("its body has the hash %s, and not %q", hash, snap.SHA256)
	}
	_, err := tx.StmtContext(ctx, s.addBody).ExecContext(ctx, snap.SHA256, text(snap))
	return err
}

const replaceSQL = `
INSERT INTO snapshots (origin, host, availability, status, redirects, fetched, expires, sha256, truncated, content_type, etag,
	last_modified, header, marks, cause, err, stale, since, failures, client, saved)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (origin) DO UPDATE SET availability = excluded.availability, status = excluded.status, redirects = excluded.redirects,
	fetched = excluded.fetched, expires = excluded.expires, sha256 = excluded.sha256, truncated = excluded.truncated,
	content_type = excluded.content_type, etag = excluded.etag, last_modified = excluded.last_modified, header = excluded.header,
	marks = excluded.marks, cause = excluded.cause, err = excluded.err, stale = excluded.stale, since = excluded.since,
	failures = excluded.failures, client = excluded.client, saved = excluded.saved`

func (s *State) keepSnapshot(ctx context.Context, tx *sql.Tx, snap *robots.Snapshot) error {
	var fault sql.Null[string]
	if snap.Err != nil {
		fault = sql.Null[string]{V: snap.Err.Error(), Valid: true}
	}
	_, err := tx.StmtContext(ctx, s.replace).ExecContext(ctx, snap.Origin.String(), snap.Origin.Host(), int64(snap.Availability),
		snap.Status, listText(snap.Redirects), micros(snap.Fetched), micros(snap.Expires),
		sql.Null[string]{V: snap.SHA256, Valid: snap.SHA256 != ""}, snap.Truncated, snap.ContentType, snap.ETag, snap.LastModified,
		snap.Fields, snap.Flags.String(), snap.Cause, fault, snap.Stale, micros(snap.Since), snap.Failures,
		snap.Client, micros(time.Now()))
	return err
}

const (
	prolongSQL = `
UPDATE versions SET last_seen = max(last_seen, ?1)
WHERE id = (SELECT max(id) FROM versions WHERE origin = ?2) AND sha256 = ?3 AND (status = ?4 OR ?4 = 304)`
	addVersionSQL = `
INSERT INTO versions (origin, sha256, status, redirects, header, first_seen, last_seen) VALUES (?1, ?2, ?3, ?4, '', ?5, ?5)`
	dropVersionsSQL = `
DELETE FROM versions WHERE origin = ?1 AND id <= (SELECT id FROM versions WHERE origin = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)`
)

// maxVersions is the number of texts kept for an origin. A site with another text at every fetch must not fill the
// disk.
const maxVersions = 50

// keepVersion updates the latest version if snap has the same text and status, or adds a version. It ignores the status
// 304, which does not replace the status of the file (RFC 9110 section 15.4.5).
func (s *State) keepVersion(ctx context.Context, tx *sql.Tx, snap *robots.Snapshot) error {
	if snap.SHA256 == "" || snap.Stale || snap.Flags&robots.WebPage != 0 {
		return nil // no text was fetched; web pages differ at every fetch
	}
	name, seen := snap.Origin.String(), micros(snap.Fetched)
	result, err := tx.StmtContext(ctx, s.prolong).ExecContext(ctx, seen, name, snap.SHA256, snap.Status)
	if err != nil {
		return err
	}
	if known, err := result.RowsAffected(); err != nil || known > 0 {
		return err
	}
	_, err = tx.StmtContext(ctx, s.addVersion).ExecContext(ctx, name, snap.SHA256, snap.Status, listText(snap.Redirects), seen)
	if err != nil {
		return err
	}
	_, err = tx.StmtContext(ctx, s.dropVersions).ExecContext(ctx, name, maxVersions)
	return err
}

const addChangeSQL = `
INSERT INTO changes (origin, host, time, old_sha256, new_sha256, old_state, new_state) VALUES (?, ?, ?, ?, ?, ?, ?)`

func (s *State) keepChange(ctx context.Context, tx *sql.Tx, c *robots.Change) error {
	if c == nil {
		return nil
	}
	_, err := tx.StmtContext(ctx, s.addChange).ExecContext(ctx, c.Origin.String(), c.Origin.Host(), micros(c.Time), c.OldSHA256, c.NewSHA256, c.OldState, c.NewState)
	return err
}

const deleteSQL = "DELETE FROM snapshots WHERE origin = ?"

// Delete removes the snapshot of o. Its versions and changes stay until Prune.
func (s *State) Delete(ctx context.Context, o origin.Origin) error {
	_, err := s.exec(ctx, deleteSQL, o.String())
	return s.fail("deleting the robots.txt of "+o.String(), err)
}

func hashOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
