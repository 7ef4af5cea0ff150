package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/seal"
)

var _ seal.Log = (*Records)(nil)

// sealTables have the tree of hashes of the records: see audit/seal. They are the same in both databases.
type sealTables struct {
	db       *sql.DB // for reading
	transact func(ctx context.Context, steps func(*sql.Tx) error) error
	explain  func(act string, err error) error
}

const sealStateSQL = `SELECT size, next, pruned FROM seal_state`

// SealState returns the state of the tree, and up to which record all are pruned.
func (t *sealTables) SealState(ctx context.Context) (s seal.State, err error) {
	err = t.db.QueryRowContext(ctx, sealStateSQL).Scan(&s.Size, &s.Next, &s.Pruned)
	if errors.Is(err, sql.ErrNoRows) {
		return s, nil
	}
	return s, t.explain("reading the state of the seals", err)
}

const tilesSQL = `SELECT n, low, high, keep, root, CASE WHEN ? = 1 THEN NULL ELSE data END FROM seal_tiles
	WHERE n >= ? AND n < ? AND high >= ? AND low <= ? ORDER BY n`

// Tiles returns the tiles that q selects in order of their numbers.
func (t *sealTables) Tiles(ctx context.Context, q seal.TileQuery) iter.Seq2[*seal.Tile, error] {
	roots, to, high := 0, q.To, q.High
	if q.Roots {
		roots = 1
	} else if to == 0 {
		to = math.MaxInt64
	}
	if high == 0 {
		high = math.MaxInt64
	}
	return func(yield func(*seal.Tile, error) bool) {
		rows, err := t.db.QueryContext(ctx, tilesSQL, roots, q.From, to, int64(q.Low), int64(high))
		if err != nil {
			yield(nil, t.explain("reading the hashes of the seals", err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			var tile seal.Tile
			var keep int
			err := rows.Scan(&tile.N, &tile.Low, &tile.High, &keep, &tile.Root, &tile.Data)
			tile.Keep = keep == 1
			if !yield(&tile, t.explain("reading the hashes of the seals", err)) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(nil, t.explain("reading the hashes of the seals", err))
		}
	}
}

const (
	makeStateSQL = `INSERT INTO seal_state (single, size, next, pruned) VALUES (1, 0, 0, 0) ON CONFLICT (single) DO NOTHING`
	growSQL      = `UPDATE seal_state SET size = ? WHERE size = ?`
	putTileSQL   = `INSERT INTO seal_tiles (n, low, high, keep, root, data) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (n) DO UPDATE
	SET low = excluded.low, high = excluded.high, keep = excluded.keep, root = excluded.root, data = excluded.data`
)

// AppendTiles writes tiles if the tree has the given number of leaves. Of several processes, the update of the state lets
// one succeed.
func (t *sealTables) AppendTiles(ctx context.Context, tiles []seal.Tile, from, to int64) error {
	return t.failed("writing the hashes of the seals", t.transact(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, makeStateSQL); err != nil {
			return err
		}
		if err := t.moveOne(ctx, tx, growSQL, to, from); err != nil {
			return err
		}
		for _, tile := range tiles {
			keep := 0
			if tile.Keep {
				keep = 1
			}
			_, err := tx.ExecContext(ctx, putTileSQL, tile.N, int64(tile.Low), int64(tile.High), keep, tile.Root, tile.Data)
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

// failed leaves seal.ErrMoved as it is.
func (t *sealTables) failed(act string, err error) error {
	if errors.Is(err, seal.ErrMoved) {
		return err
	}
	return t.explain(act, err)
}

// moveOne changes one row, or returns seal.ErrMoved.
func (t *sealTables) moveOne(ctx context.Context, tx *sql.Tx, text string, args ...any) error {
	result, err := tx.ExecContext(ctx, text, args...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return cmp.Or(err, seal.ErrMoved)
	}
	return nil
}

// Checkpoints returns the notes of all checkpoints.
func (t *sealTables) Checkpoints(ctx context.Context) (notes []string, err error) {
	rows, err := t.db.QueryContext(ctx, `SELECT note FROM seal_checkpoints ORDER BY size`)
	if err != nil {
		return nil, t.explain("reading the checkpoints", err)
	}
	defer rows.Close()
	for rows.Next() {
		var note string
		if err := rows.Scan(&note); err != nil {
			return nil, t.explain("reading the checkpoints", err)
		}
		notes = append(notes, note)
	}
	return notes, t.explain("reading the checkpoints", rows.Err())
}

const (
	nextSQL          = `UPDATE seal_state SET next = ? WHERE size = ?`
	addCheckpointSQL = `INSERT INTO seal_checkpoints (size, note) SELECT CAST(? AS bigint), CAST(? AS text)
	WHERE (SELECT coalesce(max(size), 0) FROM seal_checkpoints) = ?`
	// dropTilesSQL keeps the tiles in which a checkpoint ends, whose root is computed from a part of their leaves.
	dropTilesSQL = `UPDATE seal_tiles SET data = NULL WHERE data IS NOT NULL AND root IS NOT NULL AND keep = 0 AND n < ?
	AND NOT EXISTS (SELECT 1 FROM seal_checkpoints WHERE size > n * 256 AND size < n * 256 + 256)`
)

// AppendCheckpoint adds a checkpoint if the tree has size leaves, and last of them are covered. The update of the state
// makes other processes wait for the end of the transaction.
func (t *sealTables) AppendCheckpoint(ctx context.Context, c *seal.Checkpoint, last int64, next audit.ID) error {
	return t.failed("writing the checkpoint", t.transact(ctx, func(tx *sql.Tx) error {
		if err := t.moveOne(ctx, tx, nextSQL, int64(next), c.Size); err != nil {
			return err
		}
		if err := t.moveOne(ctx, tx, addCheckpointSQL, c.Size, c.Note, last); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, dropTilesSQL, c.Dropped/256)
		return err
	}))
}

const prunesSQL = "SELECT time, before, records, why FROM prunes WHERE before > ? ORDER BY id"

// Prunes returns the prunes of records from the given ID on, in order of their beginnings.
func (t *sealTables) Prunes(ctx context.Context, from audit.ID) ([]seal.Prune, error) {
	scan := func(rows *sql.Rows) (seal.Prune, error) {
		p, err := scanPruned(rows)
		return seal.Prune(p), err
	}
	prunes, err := list(ctx, t.db, scan, prunesSQL, micros(from.Time()))
	return prunes, t.explain("reading the prunes", err)
}

// Erasures returns the erasures after the given number.
func (t *sealTables) Erasures(ctx context.Context, after int64) iter.Seq2[*seal.StoredErasure, error] {
	return func(yield func(*seal.StoredErasure, error) bool) {
		rows, err := t.db.QueryContext(ctx, `SELECT n, entry, ids FROM seal_erasures WHERE n > ? ORDER BY n`, after)
		if err != nil {
			yield(nil, t.explain("reading the erasures", err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			var e seal.StoredErasure
			err := rows.Scan(&e.N, &e.Text, &e.IDs)
			if !yield(&e, t.explain("reading the erasures", err)) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(nil, t.explain("reading the erasures", err))
		}
	}
}

const hiddenSQL = `SELECT r.id FROM records r JOIN verdicts v ON v.id = r.verdict WHERE coalesce(r.kind, 0) <>
	CASE WHEN v.decision <> 'allow' THEN 1 ELSE 0 END + CASE WHEN v.via = 'robots' THEN 2 ELSE 0 END ORDER BY r.id LIMIT 20`

// Hidden returns records whose kind contradicts their decision, so that questions with an index do not find them.
func (r *Records) Hidden(ctx context.Context) ([]audit.ID, error) {
	scan := func(rows *sql.Rows) (id audit.ID, err error) { return id, rows.Scan((*int64)(&id)) }
	ids, err := list(ctx, r.read, scan, hiddenSQL)
	return ids, r.fail("comparing records with their indexes", err)
}

const textsSQL = "SELECT 'body', sha256, body, deflated FROM bodies UNION ALL SELECT 'policy', sha256, body, 0 FROM policies"

// Texts returns the bodies of robots.txt files and the policies. One that cannot be decompressed is empty.
func (r *Records) Texts(ctx context.Context) iter.Seq2[*seal.Text, error] {
	return func(yield func(*seal.Text, error) bool) {
		rows, err := r.read.QueryContext(ctx, textsSQL)
		if err != nil {
			yield(nil, r.fail("reading the texts", err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			var text seal.Text
			var deflated bool
			err := rows.Scan(&text.Kind, &text.SHA256, &text.Data, &deflated)
			if body, damaged := inflate(text.Data, deflated); damaged != nil {
				text.Data = nil
			} else {
				text.Data = body
			}
			if !yield(&text, r.fail("reading the texts", err)) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(nil, r.fail("reading the texts", err))
		}
	}
}

// missingSQL counts the SHA-256 of verdicts of records that a table does not have.
const missingSQL = `SELECT count(DISTINCT %[1]s) FROM verdicts
	WHERE %[1]s <> '' AND %[1]s NOT IN (SELECT sha256 FROM %[2]s) AND id IN (SELECT verdict FROM records)`

// Missing counts the evidence that records refer to and that is not kept.
func (r *Records) Missing(ctx context.Context) (m seal.Missing, err error) {
	for _, of := range []struct {
		column, table string
		n             *int64
	}{
		{"robots_sha256", "bodies", &m.Bodies},
		{"robots_sha256", "files", &m.Versions},
		{"policy_sha256", "policies", &m.Policies},
	} {
		err := r.read.QueryRowContext(ctx, fmt.Sprintf(missingSQL, of.column, of.table)).Scan(of.n)
		if err != nil {
			return m, r.fail("counting missing evidence", err)
		}
	}
	return m, nil
}
