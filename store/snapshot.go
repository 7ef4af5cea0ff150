package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
)

const loadSQL = `
SELECT availability, status, redirects, fetched, fetched + lasts,
	iif(s.body IS NULL, NULL, coalesce(lower(hex(b.sha256)), '')), b.body, truncated,
	coalesce(content_type, 'text/plain; charset=utf-8'), etag, last_modified, header, marks, cause, err, stale, since, failures
FROM origins o JOIN snapshots s ON s.origin = o.id LEFT JOIN bodies b ON b.id = s.body WHERE o.host = ? AND o.site = ?`

// Load returns the snapshot last saved for o, with Rules nil and times truncated to microseconds, or
// robots.ErrNoSnapshot. It returns an error if the body does not match its hash: a bit flipped on disk must not allow a
// disallowed path.
func (s *State) Load(ctx context.Context, o origin.Origin) (*robots.Snapshot, error) {
	snap, err := scanSnapshot(s.load.QueryRowContext(ctx, o.Host(), siteOf(o)))
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

// saving is a snapshot that Save stores.
type saving struct {
	*robots.Snapshot
	origin int64 // the number of the origin; 0 if it has no row
	body   int64 // the number of the text; 0 if it is not stored, or if there is none
}

func (s saving) hasText() bool { return s.SHA256 != "" || len(s.Body) > 0 }

// need returns about how many bytes the file grows by.
func (s saving) need() int64 {
	if s.body != 0 {
		return rowBytes
	}
	return rowBytes + int64(len(s.Body))
}

func (s *State) save(ctx context.Context, tx *sql.Tx, snap *robots.Snapshot, c *robots.Change) (err error) {
	ctx = context.WithoutCancel(ctx) // its end ends tx; the driver has a goroutine for each statement otherwise
	row := saving{Snapshot: snap}
	if row.origin, err = s.findOrigin(ctx, tx, snap.Origin); err != nil {
		return err
	}
	if row.body, err = s.findBody(ctx, tx, row); err != nil {
		return err
	}
	dropped, err := s.makeRoom(ctx, tx, row.origin, snap.Client, row.need())
	if err != nil {
		return err
	}
	if dropped { // perhaps the text too
		if row.body, err = s.findBody(ctx, tx, row); err != nil {
			return err
		}
	}
	if row.body == 0 && row.hasText() {
		if row.body, err = s.keepBody(ctx, tx, snap); err != nil {
			return err
		}
	}
	known := row.origin != 0
	if !known {
		if row.origin, err = s.keepOrigin(ctx, tx, snap); err != nil {
			return err
		}
	}
	if err := s.keepSnapshot(ctx, tx, row); err != nil {
		return err
	}
	if err := s.keepVersion(ctx, tx, row, known); err != nil {
		return err
	}
	return s.keepChange(ctx, tx, row.origin, c)
}

const (
	findOriginSQL = "SELECT id FROM origins WHERE host = ? AND site = ?"
	addOriginSQL  = "INSERT INTO origins (host, site, client, used, size) VALUES (?, ?, ?, ?, 0)"

	findBodySQL = "SELECT id FROM bodies WHERE sha256 = ? AND body = ?"
	// addBodySQL replaces a damaged body.
	addBodySQL = `
INSERT INTO bodies (sha256, body) VALUES (?, ?) ON CONFLICT (sha256) DO UPDATE SET body = excluded.body RETURNING id`
)

// findOrigin returns the number of o, or 0.
func (s *State) findOrigin(ctx context.Context, tx *sql.Tx, o origin.Origin) (int64, error) {
	return scanID(tx.StmtContext(ctx, s.findOriginID).QueryRowContext(ctx, o.Host(), siteOf(o)))
}

// scanID returns the number in row, or 0 if there is no row.
func scanID(row *sql.Row) (n int64, err error) {
	if err = row.Scan(&n); errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return n, err
}

func (s *State) keepOrigin(ctx context.Context, tx *sql.Tx, snap *robots.Snapshot) (int64, error) {
	o := snap.Origin
	result, err := tx.StmtContext(ctx, s.addOrigin).ExecContext(ctx, o.Host(), siteOf(o), snap.Client, micros(time.Now()))
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

// siteOf returns the value of origins.site for o.
func siteOf(o origin.Origin) string {
	if o.Authority() == o.HostPort() {
		return o.Scheme() + ":" + strconv.Itoa(int(o.Port()))
	}
	return o.Scheme()
}

// findBody returns the number of the text of row, or 0 if there is none or if it is not stored.
func (s *State) findBody(ctx context.Context, tx *sql.Tx, row saving) (int64, error) {
	if !row.hasText() {
		return 0, nil
	}
	hash, err := hex.DecodeString(row.SHA256)
	if err != nil {
		return 0, nil // keepBody refuses the text
	}
	return scanID(tx.StmtContext(ctx, s.findBodyID).QueryRowContext(ctx, hash, text(row.Snapshot)))
}

// text returns the body of snap. It is not nil, since nil would be NULL.
func text(snap *robots.Snapshot) []byte {
	if snap.Body == nil {
		return []byte{}
	}
	return snap.Body
}

func (s *State) keepBody(ctx context.Context, tx *sql.Tx, snap *robots.Snapshot) (int64, error) {
	sum := sha256.Sum256(snap.Body)
	if hash := hex.EncodeToString(sum[:]); hash != snap.SHA256 {
		return 0, fmt.Errorf("its body has the hash %s, and not %q", hash, snap.SHA256)
	}
	return scanID(tx.StmtContext(ctx, s.addBody).QueryRowContext(ctx, sum[:], text(snap)))
}

const replaceSQL = `
INSERT INTO snapshots (origin, availability, status, redirects, fetched, lasts, body, truncated, content_type, etag,
	last_modified, header, marks, cause, err, stale, since, failures, client, waited)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, nullif(?, 'text/plain; charset=utf-8'), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (origin) DO UPDATE SET availability = excluded.availability, status = excluded.status, redirects = excluded.redirects,
	fetched = excluded.fetched, lasts = excluded.lasts, body = excluded.body, truncated = excluded.truncated,
	content_type = excluded.content_type, etag = excluded.etag, last_modified = excluded.last_modified, header = excluded.header,
	marks = excluded.marks, cause = excluded.cause, err = excluded.err, stale = excluded.stale, since = excluded.since,
	failures = excluded.failures, client = excluded.client, waited = excluded.waited`

func (s *State) keepSnapshot(ctx context.Context, tx *sql.Tx, snap saving) error {
	var fault sql.Null[string]
	if snap.Err != nil {
		fault = sql.Null[string]{V: snap.Err.Error(), Valid: true}
	}
	fetched := micros(snap.Fetched)
	_, err := tx.StmtContext(ctx, s.replace).ExecContext(ctx, snap.origin, int64(snap.Availability),
		snap.Status, redirectsText(snap.Redirects), fetched, micros(snap.Expires)-fetched,
		number(snap.body), snap.Truncated, snap.ContentType, snap.ETag, snap.LastModified,
		snap.Fields, snap.Flags.String(), snap.Cause, fault, snap.Stale, micros(snap.Since), snap.Failures,
		snap.Client, micros(time.Now())-fetched)
	return err
}

// redirectsText returns the value of a column redirects for list.
func redirectsText(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return listText(list)
}

const (
	prolongSQL = `
UPDATE versions SET last_seen = max(last_seen, ?1)
WHERE origin = ?2 AND id = (SELECT max(id) FROM versions WHERE origin = ?2) AND body = ?3 AND (status = ?4 OR ?4 = 304)`
	addVersionSQL = `
INSERT INTO versions (origin, id, body, status, redirects, first_seen, last_seen)
SELECT ?1, coalesce(max(id), 0) + 1, ?2, ?3, ?4, ?5, ?5 FROM versions WHERE origin = ?1`
	dropVersionsSQL = `
DELETE FROM versions WHERE origin = ?1 AND id <= (SELECT id FROM versions WHERE origin = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)`
)

// maxVersions is the number of texts kept for an origin. A site with another text at every fetch must not fill the
// disk.
const maxVersions = 50

// keepVersion updates the latest version if snap has the same text and status, or adds a version. It ignores the status
// 304, which does not replace the status of the file (RFC 9110 section 15.4.5). The origin may have versions if known.
func (s *State) keepVersion(ctx context.Context, tx *sql.Tx, snap saving, known bool) error {
	if snap.body == 0 || snap.Stale || snap.Flags&robots.WebPage != 0 {
		return nil // no text was fetched; web pages differ at every fetch
	}
	seen := micros(snap.Fetched)
	if known {
		n, err := affected(tx.StmtContext(ctx, s.prolong).ExecContext(ctx, seen, snap.origin, snap.body, snap.Status))
		if err != nil || n > 0 {
			return err
		}
	}
	_, err := tx.StmtContext(ctx, s.addVersion).
		ExecContext(ctx, snap.origin, snap.body, snap.Status, redirectsText(snap.Redirects), seen)
	if err != nil || !known {
		return err
	}
	_, err = tx.StmtContext(ctx, s.dropVersions).ExecContext(ctx, snap.origin, maxVersions)
	return err
}

const addChangeSQL = `
INSERT INTO changes (origin, time, old_sha256, new_sha256, old_state, new_state) VALUES (?, ?, ?, ?, ?, ?)`

func (s *State) keepChange(ctx context.Context, tx *sql.Tx, id int64, c *robots.Change) error {
	if c == nil {
		return nil
	}
	_, err := tx.StmtContext(ctx, s.addChange).
		ExecContext(ctx, id, micros(c.Time), c.OldSHA256, c.NewSHA256, c.OldState, c.NewState)
	return err
}

const deleteSQL = "DELETE FROM snapshots WHERE origin = (SELECT id FROM origins WHERE host = ? AND site = ?)"

// Delete removes the snapshot of o. Its versions and changes stay until Prune.
func (s *State) Delete(ctx context.Context, o origin.Origin) error {
	_, err := s.exec(ctx, deleteSQL, o.Host(), siteOf(o))
	return s.fail("deleting the robots.txt of "+o.String(), err)
}

func hashOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
