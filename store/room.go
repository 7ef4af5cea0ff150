package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
)

// DefaultMaxSize is Options.MaxSize if that is zero.
const DefaultMaxSize = 1 << 30

const pageSize = 4096 // SQLite's default

// limits divide Options.MaxSize.
type limits struct {
	pages int64 // of the file that may be in use
	log   int64 // bytes of the write-ahead log
	step  int64 // bytes that may be added before the pages are counted again
}

func newLimits(maxSize int64) limits {
	log := min(maxSize/8, 64<<20)
	return limits{pages: (maxSize - log) / pageSize, log: log, step: min(maxSize/64, 1<<20)}
}

// rowBytes is about what a row of snapshots takes without its text and its header.
const rowBytes = 1000

const (
	pagesSQL = "SELECT page_count, page_count - freelist_count FROM pragma_page_count, pragma_freelist_count"

	shareSQL   = "SELECT coalesce((SELECT size FROM shares WHERE client = ?), 0)"
	largestSQL = "SELECT client, size FROM shares WHERE size = (SELECT max(size) FROM shares) LIMIT 1"
	oldestSQL  = `
SELECT o.origin, o.used, coalesce(s.saved, 0), coalesce(s.client, o.client) FROM origins o LEFT JOIN snapshots s ON s.origin = o.origin
WHERE o.client = ?1 AND o.origin <> ?2 ORDER BY o.used LIMIT 1`
	spareSQL = "UPDATE origins SET used = ? WHERE origin = ?"
	passSQL  = `
UPDATE origins SET client = ?1 WHERE origin = ?2
	AND coalesce((SELECT size FROM shares WHERE client = ?1), 0) + size < (SELECT size FROM shares WHERE client = origins.client)`

	dropSnapshotSQL = "DELETE FROM snapshots WHERE origin = ?"
	dropTextsSQL    = "DELETE FROM versions WHERE origin = ?"
	dropChangesSQL  = "DELETE FROM changes WHERE host = ? AND origin = ?"
	dropOldestSQL   = `
DELETE FROM versions WHERE id = (SELECT min(id) FROM versions WHERE origin = ?1) AND id <> (SELECT max(id) FROM versions WHERE origin = ?1)`
)

// maxDropped is how many origins one Save drops at most.
const maxDropped = 1000

// makeRoom drops origins until there is room for snap, of which need bytes are new. It reports whether it dropped any.
func (s *State) makeRoom(ctx context.Context, tx *sql.Tx, snap *robots.Snapshot, need int64) (dropped bool, err error) {
	if s.grown += need; s.grown < s.limits.step {
		return false, nil
	}
	for range maxDropped {
		_, used, err := countPages(ctx, tx)
		if err != nil {
			return dropped, err
		}
		if used+(need+s.limits.step)/pageSize <= s.limits.pages {
			break
		}
		found, err := s.dropOne(ctx, tx, snap, need)
		if err != nil || !found {
			return dropped, err
		}
		dropped = true
	}
	s.grown = 0
	return dropped, nil
}

// countPages returns how many pages the file has, and how many of them are in use.
func countPages(ctx context.Context, tx *sql.Tx) (all, used int64, err error) {
	err = tx.QueryRowContext(ctx, pagesSQL).Scan(&all, &used)
	return all, used, err
}

// dropOne takes the client that takes the most with what snap adds, and of its origins the one that it has not used for
// the longest time, but not that of snap. It drops the origin, or finds that it was used since, or charges it to
// another client that has had it fetched since and takes less. If there is no such origin, an old text of the origin of
// snap goes. It reports whether it found anything.
func (s *State) dropOne(ctx context.Context, tx *sql.Tx, snap *robots.Snapshot, need int64) (bool, error) {
	client, err := s.largest(ctx, tx, snap.Client, need)
	if err != nil {
		return false, err
	}
	var name, latest string
	var used, saved int64
	err = tx.QueryRowContext(ctx, oldestSQL, client, snap.Origin.String()).Scan(&name, &used, &saved, &latest)
	if errors.Is(err, sql.ErrNoRows) {
		n, err := affected(tx.ExecContext(ctx, dropOldestSQL, snap.Origin.String()))
		return n > 0, err
	}
	if err != nil {
		return false, err
	}
	o, err := parseOrigin(name)
	if err != nil {
		return false, err
	}
	if s.used(o) {
		saved = micros(time.Now())
	}
	if saved > used {
		_, err := tx.ExecContext(ctx, spareSQL, saved, name)
		return true, err
	}
	if latest != client {
		if passed, err := pass(ctx, tx, o, latest); err != nil || passed {
			return true, err
		}
	}
	return true, drop(ctx, tx, o)
}

// pass charges o to another client, if that takes less, without the history that it did not bring about.
func pass(ctx context.Context, tx *sql.Tx, o origin.Origin, client string) (bool, error) {
	name := o.String()
	if _, err := tx.ExecContext(ctx, dropChangesSQL, o.Host(), name); err != nil {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, dropVersionsSQL, name, 1); err != nil {
		return false, err
	}
	n, err := affected(tx.ExecContext(ctx, passSQL, client, name))
	return n > 0, err
}

func affected(result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// largest returns the client that takes the most, if client is given need bytes more.
func (s *State) largest(ctx context.Context, tx *sql.Tx, client string, need int64) (string, error) {
	var own, most int64
	if err := tx.QueryRowContext(ctx, shareSQL, client).Scan(&own); err != nil {
		return "", err
	}
	var largest string
	err := tx.QueryRowContext(ctx, largestSQL).Scan(&largest, &most)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", err
	}
	if own > 0 && own+need >= most {
		return client, nil
	}
	return largest, nil
}

// drop forgets o: what is in force, its texts and its changes.
func drop(ctx context.Context, tx *sql.Tx, o origin.Origin) error {
	for _, each := range []struct {
		text string
		args []any
	}{
		{dropSnapshotSQL, []any{o.String()}},
		{dropTextsSQL, []any{o.String()}},
		{dropChangesSQL, []any{o.Host(), o.String()}},
	} {
		if _, err := tx.ExecContext(ctx, each.text, each.args...); err != nil {
			return fmt.Errorf("dropping %s: %w", o, err)
		}
	}
	return nil
}

// limitLog empties the write-ahead log if it is too long. SQLite itself does so only if no reader is active.
func (s *State) limitLog() {
	info, err := os.Stat(s.path + "-wal")
	if err != nil || info.Size() <= s.limits.log {
		return
	}
	_, _ = s.write.Exec("PRAGMA wal_checkpoint(TRUNCATE)") // if a reader is slow, the next call tries again
}

// Size returns how many bytes the file and its write-ahead log take.
func (s *State) Size() (bytes int64) {
	for _, name := range []string{s.path, s.path + "-wal"} {
		if info, err := os.Stat(name); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}

// Shrink drops origins until the file is within Options.MaxSize, as each Save does for itself, and rewrites the file if
// more of it is free than a few pages: if it was larger before, or MaxSize was. That takes room on the disk for a copy,
// and some seconds for a large file, in which others cannot write.
func (s *State) Shrink(ctx context.Context) error {
	for {
		all, used, err := s.dropSome(ctx)
		switch {
		case err != nil:
			return s.fail("dropping old origins", err)
		case used > s.limits.pages:
			continue
		case all <= s.limits.pages+s.limits.pages/8:
			return nil
		}
		_, err = s.write.ExecContext(ctx, "VACUUM")
		if err == nil {
			_, err = s.write.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
		}
		return s.fail("making the file smaller", err)
	}
}

// dropSome drops a few origins if too many pages are in use, and counts the pages.
func (s *State) dropSome(ctx context.Context) (all, used int64, err error) {
	err = s.change(ctx, func(tx *sql.Tx) error {
		for range pruneStep {
			if all, used, err = countPages(ctx, tx); err != nil || used <= s.limits.pages {
				return err
			}
			found, err := s.dropOne(ctx, tx, &robots.Snapshot{}, 0)
			if err != nil {
				return err
			}
			if !found {
				used = 0 // what is in use is something else
				return nil
			}
		}
		return nil
	})
	return all, used, err
}
