package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"
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

// rowBytes is about what an origin takes without its text.
const rowBytes = 400

const (
	pagesSQL = "SELECT page_count, page_count - freelist_count FROM pragma_page_count, pragma_freelist_count"

	shareSQL   = "SELECT coalesce((SELECT size FROM shares WHERE client = ?), 0)"
	largestSQL = "SELECT client, size FROM shares WHERE size = (SELECT max(size) FROM shares) LIMIT 1"
	oldestSQL  = `
SELECT o.id, o.host, o.site, o.used, coalesce(s.fetched + s.waited, 0), coalesce(s.client, o.client)
FROM origins o LEFT JOIN snapshots s ON s.origin = o.id
WHERE o.client = ?1 AND o.id <> ?2 ORDER BY o.used LIMIT 1`
	spareSQL = "UPDATE origins SET used = ? WHERE id = ?"
	passSQL  = `
UPDATE origins SET client = ?1 WHERE id = ?2
	AND coalesce((SELECT size FROM shares WHERE client = ?1), 0) + size < (SELECT size FROM shares WHERE client = origins.client)`

	dropSnapshotSQL = "DELETE FROM snapshots WHERE origin = ?"
	dropTextsSQL    = "DELETE FROM versions WHERE origin = ?"
	dropChangesSQL  = "DELETE FROM changes WHERE origin = ?"
	dropOldestSQL   = `
DELETE FROM versions WHERE origin = ?1 AND id = (SELECT min(id) FROM versions WHERE origin = ?1)
	AND id <> (SELECT max(id) FROM versions WHERE origin = ?1)`
)

// maxDropped is how many origins one Save drops at most.
const maxDropped = 1000

// makeRoom drops origins until there is room for need bytes that the origin with the number own adds for client. It
// reports whether it dropped any.
func (s *State) makeRoom(
	ctx context.Context, tx *sql.Tx, own int64, client string, need int64,
) (dropped bool, err error) {
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
		found, err := s.dropOne(ctx, tx, own, client, need)
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

// dropOne takes the client that takes the most with the bytes that adder needs, and of its origins the one that it has
// not used for the longest time, but not own. It drops the origin, or finds that it was used since, or charges it to
// another client that has had it fetched since and takes less. If there is no such origin, an old text of own goes. It
// reports whether it found anything.
func (s *State) dropOne(ctx context.Context, tx *sql.Tx, own int64, adder string, need int64) (bool, error) {
	client, err := s.largest(ctx, tx, adder, need)
	if err != nil {
		return false, err
	}
	var host, site, latest string
	var id, used, saved int64
	err = tx.QueryRowContext(ctx, oldestSQL, client, own).Scan(&id, &host, &site, &used, &saved, &latest)
	if errors.Is(err, sql.ErrNoRows) {
		n, err := affected(tx.ExecContext(ctx, dropOldestSQL, own))
		return n > 0, err
	}
	if err != nil {
		return false, err
	}
	o, err := siteOrigin(host, site)
	if err != nil {
		return false, err
	}
	if s.used(o) {
		saved = micros(time.Now())
	}
	if saved > used {
		_, err := tx.ExecContext(ctx, spareSQL, saved, id)
		return true, err
	}
	if latest != client {
		if passed, err := pass(ctx, tx, id, latest); err != nil || passed {
			return true, err
		}
	}
	return true, drop(ctx, tx, id)
}

// pass charges an origin to another client, if that takes less, without the history that it did not bring about.
func pass(ctx context.Context, tx *sql.Tx, id int64, client string) (bool, error) {
	if _, err := tx.ExecContext(ctx, dropChangesSQL, id); err != nil {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, dropVersionsSQL, id, 1); err != nil {
		return false, err
	}
	n, err := affected(tx.ExecContext(ctx, passSQL, client, id))
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

// drop forgets an origin: what is in force, its texts and its changes.
func drop(ctx context.Context, tx *sql.Tx, id int64) error {
	for _, text := range []string{dropSnapshotSQL, dropTextsSQL, dropChangesSQL} {
		if _, err := tx.ExecContext(ctx, text, id); err != nil {
			return fmt.Errorf("dropping an origin: %w", err)
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
			found, err := s.dropOne(ctx, tx, 0, "", 0)
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
