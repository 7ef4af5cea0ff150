package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
)

const (
	sharedOriginsSQL = "SELECT origin FROM snapshots WHERE ($1 = '' OR host = $1) AND deleted = 0 ORDER BY host, origin LIMIT $2"
	sharedVersionSQL = `
SELECT sha256, length(body), status, redirects, first_seen, last_seen
FROM snapshot_versions JOIN snapshot_bodies USING (sha256) WHERE origin = $1 ORDER BY id DESC LIMIT $2`
	sharedChangesSQL = `
SELECT time, old_sha256, new_sha256, old_state, new_state FROM snapshot_changes
WHERE origin = $1 ORDER BY time DESC, id DESC LIMIT $2`
	sharedBodySQL = "SELECT body FROM snapshot_bodies WHERE sha256 = $1"
)

// Origins returns the origins with a snapshot of any instance: see State.Origins.
func (s *SharedFiles) Origins(ctx context.Context, host string, limit int) ([]origin.Origin, error) {
	origins, err := listShared(ctx, s, "listing origins", scanOrigin, sharedOriginsSQL, host, limit)
	if err != nil {
		return s.local.Origins(ctx, host, limit)
	}
	return origins, nil
}

func scanOrigin(rows *sql.Rows) (origin.Origin, error) {
	var name string
	if err := rows.Scan(&name); err != nil {
		return origin.Origin{}, err
	}
	return parseOrigin(name)
}

// Versions returns the texts of o that any instance has fetched: see State.Versions.
func (s *SharedFiles) Versions(ctx context.Context, o origin.Origin, limit int) ([]robots.Version, error) {
	scan := func(rows *sql.Rows) (robots.Version, error) { return scanVersion(rows, o) }
	versions, err := listShared(ctx, s, "listing the versions of "+o.String(), scan, sharedVersionSQL, o.String(), limit)
	if err != nil {
		return s.local.Versions(ctx, o, limit)
	}
	return versions, nil
}

// Changes returns the changes of o that any instance has seen: see State.Changes.
func (s *SharedFiles) Changes(ctx context.Context, o origin.Origin, limit int) ([]robots.Change, error) {
	scan := func(rows *sql.Rows) (robots.Change, error) { return scanChange(rows, o) }
	changes, err := listShared(ctx, s, "listing the changes of "+o.String(), scan, sharedChangesSQL, o.String(), limit)
	if err != nil {
		return s.local.Changes(ctx, o, limit)
	}
	return changes, nil
}

// Body returns the text with this SHA-256: see State.Body.
func (s *SharedFiles) Body(ctx context.Context, hash string) (body []byte, err error) {
	err = s.ask(ctx, "reading the body "+hash, func(ctx context.Context) error {
		return s.db.db.QueryRowContext(ctx, sharedBodySQL, hash).Scan(&body)
	})
	if err != nil || hashOf(body) != hash {
		return s.local.Body(ctx, hash)
	}
	return body, nil
}

func listShared[T any](
	ctx context.Context, s *SharedFiles, act string, scan func(*sql.Rows) (T, error), text string, args ...any,
) (all []T, err error) {
	err = s.ask(ctx, act, func(ctx context.Context) (err error) {
		all, err = list(ctx, s.db.db, scan, text, args...)
		return err
	})
	return all, err
}

// pruneSharedSQL deletes what is older than $1, at most $2 rows at a time, and then bodies without a row that refers to
// them. Instances that prune at the same time skip each other's rows.
var pruneSharedSQL = []string{
	"DELETE FROM snapshots WHERE origin IN (SELECT origin FROM snapshots WHERE fetched < $1 LIMIT $2 FOR UPDATE SKIP LOCKED)",
	"DELETE FROM snapshot_versions WHERE id IN (SELECT id FROM snapshot_versions WHERE last_seen < $1 LIMIT $2 FOR UPDATE SKIP LOCKED)",
	"DELETE FROM snapshot_changes WHERE id IN (SELECT id FROM snapshot_changes WHERE time < $1 LIMIT $2 FOR UPDATE SKIP LOCKED)",
	`DELETE FROM snapshot_bodies WHERE sha256 IN (SELECT sha256 FROM snapshot_bodies AS b WHERE $1::bigint > 0
	AND NOT EXISTS (SELECT 1 FROM snapshots AS s WHERE s.sha256 = b.sha256)
	AND NOT EXISTS (SELECT 1 FROM snapshot_versions AS v WHERE v.sha256 = b.sha256) LIMIT $2 FOR UPDATE SKIP LOCKED)`,
}

// Prune deletes what all instances keep in PostgreSQL from before the given time: see State.Prune.
func (s *SharedFiles) Prune(ctx context.Context, before time.Time) (gone int64, err error) {
	for _, text := range pruneSharedSQL {
		for n := int64(pruneStep); n == pruneStep; gone += n {
			result, err := s.db.db.ExecContext(ctx, text, micros(before), pruneStep)
			if err != nil {
				return gone, s.db.fail("pruning", err)
			}
			if n, err = result.RowsAffected(); err != nil {
				return gone, s.db.fail("pruning", err)
			}
		}
	}
	return gone, nil
}

// notice tells the other instances that the snapshot of an origin was saved or deleted.
type notice struct {
	sender  string // an instance
	origin  origin.Origin
	deleted bool
}

func (n notice) String() string {
	return n.sender + " " + strconv.FormatBool(n.deleted) + " " + n.origin.String()
}

func parseNotice(text string) (n notice, err error) {
	words := strings.Split(text, " ")
	if len(words) != 3 {
		return n, fmt.Errorf("%d words instead of three", len(words))
	}
	n.sender = words[0]
	if n.deleted, err = strconv.ParseBool(words[1]); err != nil {
		return n, err
	}
	n.origin, err = origin.Parse(words[2])
	return n, err
}

// obey calls changed for a notice of another instance. A deleted snapshot is deleted from local too.
func obey(ctx context.Context, text, receiver string, local *State, changed func(o origin.Origin, before time.Time)) {
	n, err := parseNotice(text)
	if err != nil || n.sender == receiver { // an error: the text is of another program
		return
	}
	now := time.Now()
	if n.deleted {
		_ = local.Delete(ctx, n.origin) // it counts only without the other instances
	}
	changed(n.origin, now)
}

// Watch calls changed for each snapshot that another instance has saved or deleted, until ctx ends: snapshots fetched before
// the given time may no longer count. It calls lost if it may have missed some, also at its begin. A deleted snapshot is
// deleted from the State too.
func (s *SharedFiles) Watch(ctx context.Context, changed func(o origin.Origin, before time.Time), lost func()) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { s.outage.watch(ctx, func() error { return s.works(ctx) }, lost) })
	for ctx.Err() == nil {
		_ = s.listen(ctx, lost, changed) // questions report the failures of PostgreSQL
		sleep(ctx, sharedRetry)
	}
}

func (s *SharedFiles) works(ctx context.Context) error {
	return s.ask(ctx, "trying it again", s.db.db.PingContext)
}

func (s *SharedFiles) listen(ctx context.Context, begun func(), changed func(origin.Origin, time.Time)) error {
	conn, err := s.db.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(driver any) error {
		raw := native(driver)
		defer raw.Close(context.WithoutCancel(ctx)) // it listens: no other question may use it
		if _, err := raw.Exec(ctx, "LISTEN robotsproxy_files"); err != nil {
			return err
		}
		begun()
		for {
			message, err := raw.WaitForNotification(ctx)
			if err != nil {
				return err
			}
			obey(ctx, message.Payload, s.sender, s.local, changed)
		}
	})
}
