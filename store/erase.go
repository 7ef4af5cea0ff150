package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/seal"
)

// EraseOptions say which records of a client Erase removes, and what the seal keeps about that.
type EraseOptions struct {
	Client       string    // its name; if empty, any
	ClientAddr   string    // its address as recorded, without the port; if empty, any
	Since, Until time.Time // of arrival; zero: no limit
	By, Reason   string    // of the person who erases; the records of erasures have them
	Keep         bool      // leave the erased bytes in unused parts of the file, since Vacuum takes long
}

// Erased is the result of Erase.
type Erased struct {
	Number      int64 `json:"erasure"` // 0: nothing was erased
	Records     int   `json:"records"`
	Overwritten bool  `json:"overwritten"` // the file and its log have no copies of the erased bytes
	Policies    int   `json:"policies"`    // texts that other records rest on, and that name the client
}

// errNoClient keeps Erase from removing all records.
var errNoClient = errors.New("store: Erase needs a client or an address")

// Erasable returns the IDs of the records that o selects, in order.
func (r *Records) Erasable(ctx context.Context, o EraseOptions) ([]audit.ID, error) {
	if o.Client == "" && o.ClientAddr == "" {
		return nil, errNoClient
	}
	q := &query{}
	q.period(audit.Filter{Since: o.Since, Until: o.Until})
	q.in("asker", "askers", "client", o.Client)
	q.in("asker", "askers", "address", o.ClientAddr)
	ids, err := list(ctx, r.read, func(rows *sql.Rows) (id audit.ID, err error) { return id, rows.Scan((*int64)(&id)) },
		"SELECT id FROM records r"+q.where()+" ORDER BY id", q.args...)
	return ids, r.fail("finding the records to erase", err)
}

// Erase removes the records of a client, their part of the counts, and texts that no other record has: the client's name,
// addresses, tags and User-Agents, and the policies by which it was judged. Policies of other records stay, with the names
// of all clients of their time. The hashes of the records stay, and the erasure is kept with its reason, so that audit/seal can
// tell an erasure from a removal. It works in small steps, after it has written the erasure; if it fails, call it again.
// At its end it rewrites the file, unless o.Keep, since SQLite leaves copies of what it moves; writers wait meanwhile.
//
// Erase does not touch JSON lines, exports, backups or the program's log.
func (r *Records) Erase(ctx context.Context, o EraseOptions) (e Erased, err error) {
	ids, err := r.Erasable(ctx, o)
	if err != nil || len(ids) == 0 {
		return e, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { err = r.fail("erasing records", err) }()
	if e.Number, err = r.addErasure(ctx, o, ids); err != nil {
		return e, err
	}
	candidates := newErasedTexts(o)
	for part := range slices.Chunk(ids, eraseStep) {
		if err = r.eraseRows(ctx, part, candidates); err != nil {
			return e, err
		}
		e.Records += len(part)
	}
	if err = r.eraseTexts(ctx, candidates); err != nil {
		return e, err
	}
	if e.Policies, err = r.policiesNaming(ctx, o.Client); err != nil {
		return e, err
	}
	if o.Keep {
		return e, nil
	}
	err = r.Overwrite(ctx)
	e.Overwritten = err == nil
	return e, err
}

// eraseStep is the number of records that one transaction removes.
const eraseStep = 500

func (r *Records) addErasure(ctx context.Context, o EraseOptions, ids []audit.ID) (n int64, err error) {
	err = r.change(ctx, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, "SELECT coalesce(max(n), 0) + 1 FROM seal_erasures").Scan(&n); err != nil {
			return err
		}
		e, err := seal.NewErasure(n, time.Now(), o.By, o.Reason, ids)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO seal_erasures (n, entry, ids) VALUES (?, ?, ?)", n, string(e.Text), e.IDs)
		return err
	})
	return n, err
}

// erasedTexts are rows of dictionaries that erased records had. They go if no other record has them.
type erasedTexts struct {
	client string // whose name also goes from the bodies that it is charged for, if it has no records left
	names  map[string]bool

	askers, outcomes, verdicts map[int64]bool
}

func newErasedTexts(o EraseOptions) *erasedTexts {
	return &erasedTexts{
		client: o.Client, names: make(map[string]bool),
		askers: make(map[int64]bool), outcomes: make(map[int64]bool), verdicts: make(map[int64]bool),
	}
}

// eraseRows removes records, and subtracts them from the counts.
func (r *Records) eraseRows(ctx context.Context, ids []audit.ID, texts *erasedTexts) error {
	b := newBatch(r)
	marks, args := "?"+strings.Repeat(", ?", len(ids)-1), make([]any, len(ids))
	for i, id := range ids {
		args[i] = int64(id)
	}
	return r.change(ctx, func(opened *sql.Tx) error {
		tx := transaction{opened, r.compiled}
		if err := b.checkGeneration(ctx, tx); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, "SELECT "+rowColumnList+" FROM records r WHERE id IN ("+marks+")", args...)
		if err != nil {
			return err
		}
		found, err := scanRows(rows)
		if err != nil {
			return err
		}
		for i := range found {
			if err := b.uncount(ctx, tx, &found[i], texts); err != nil {
				return err
			}
		}
		if err := b.writeCounts(ctx, tx); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "DELETE FROM records WHERE id IN ("+marks+")", args...)
		return err
	})
}

func scanRows(rows *sql.Rows) (found []row, err error) {
	defer rows.Close()
	for rows.Next() {
		var w row
		if err := w.scan(rows); err != nil {
			return nil, err
		}
		found = append(found, w)
	}
	return found, rows.Err()
}

// uncount subtracts w from the counts, and notes its texts.
func (b *batch) uncount(ctx context.Context, tx transaction, w *row, texts *erasedTexts) error {
	rec, err := b.complete(ctx, tx, w)
	if err != nil {
		return err
	}
	texts.askers[w.asker], texts.outcomes[w.outcome], texts.verdicts[w.verdict] = true, true, true
	texts.names[rec.Client], texts.names[rec.Agent], texts.names[audit.RuleText(rec.RuleLine, rec.Rule)] = true, true, true
	if rec.Via == audit.Robots {
		return nil
	}
	c, err := b.counted(ctx, tx, &audit.Entry{Record: rec}, dayOf(rec.ID.Time()))
	if err == nil {
		b.counts.add(c, -1)
	}
	return err
}

// unusedNames is the condition that no count refers to a row of names.
const unusedNames = `NOT EXISTS (SELECT 1 FROM hours WHERE names.id IN (client, agent, host, decision, reason, rule))
	AND NOT EXISTS (SELECT 1 FROM minutes WHERE names.id IN (decision, reason))`

// eraseTexts removes texts that only erased records had. It changes the generation, so that other processes forget
// their ids.
func (r *Records) eraseTexts(ctx context.Context, texts *erasedTexts) error {
	defer r.forget()
	return r.change(ctx, func(tx *sql.Tx) error {
		for _, text := range []string{
			"DELETE FROM hours WHERE n <= 0", "DELETE FROM minutes WHERE n <= 0",
			"UPDATE meta SET value = value + 1 WHERE name = 'generation'",
		} {
			if _, err := tx.ExecContext(ctx, text); err != nil {
				return err
			}
		}
		if err := dropUnused(ctx, tx, "askers", "asker", texts.askers); err != nil {
			return err
		}
		if err := dropUnused(ctx, tx, "outcomes", "outcome", texts.outcomes); err != nil {
			return err
		}
		if err := dropUnused(ctx, tx, "verdicts", "verdict", texts.verdicts); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, dropPoliciesSQL); err != nil {
			return err
		}
		if err := r.dischargeClient(ctx, tx, texts.client); err != nil {
			return err
		}
		for name := range texts.names {
			if _, err := tx.ExecContext(ctx, "DELETE FROM names WHERE name = ? AND "+unusedNames, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// dropPoliciesSQL removes the policies on which no record rests.
const dropPoliciesSQL = `DELETE FROM policies WHERE sha256 NOT IN
	(SELECT policy_sha256 FROM verdicts WHERE id IN (SELECT verdict FROM records))`

// policiesNaming counts the policies that have client as a text.
func (r *Records) policiesNaming(ctx context.Context, client string) (n int, err error) {
	if client == "" {
		return 0, nil
	}
	var name strings.Builder
	e := json.NewEncoder(&name)
	e.SetEscapeHTML(false) // as policy.Policy.Text has it
	if err := e.Encode(client); err != nil {
		return 0, err
	}
	quoted := []byte(strings.TrimSuffix(name.String(), "\n"))
	rows, err := r.read.QueryContext(ctx, "SELECT body FROM policies")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var text sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&text); err != nil {
			return 0, err
		}
		if bytes.Contains(text, quoted) {
			n++
		}
	}
	return n, rows.Err()
}

// dropUnused removes rows of a dictionary to which no record refers. It reads all records once.
func dropUnused(ctx context.Context, tx *sql.Tx, table, column string, ids map[int64]bool) error {
	var all []string
	for id := range ids {
		all = append(all, fmt.Sprint(id))
	}
	for part := range slices.Chunk(all, 10_000) {
		in := strings.Join(part, ", ")
		_, err := tx.ExecContext(ctx, fmt.Sprintf("DELETE FROM %s WHERE id IN (%s) AND id NOT IN (SELECT %s FROM records WHERE %s IN (%s))",
			table, in, column, column, in))
		if err != nil {
			return err
		}
	}
	return nil
}

// dischargeClient removes the name of a client without records from the bodies that it is charged for, and from the sums
// of days, which also have its pruned records.
func (r *Records) dischargeClient(ctx context.Context, tx *sql.Tx, client string) error {
	var left bool
	err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM askers WHERE client = ?)", client).Scan(&left)
	if err != nil || left || client == "" {
		return err
	}
	for _, text := range []string{
		"DELETE FROM hours WHERE client IN (SELECT id FROM names WHERE name = ?)",
		`INSERT INTO shares (client, size) SELECT '', size FROM shares WHERE client = ?
			ON CONFLICT (client) DO UPDATE SET size = shares.size + excluded.size`,
		"DELETE FROM shares WHERE client = ?",
		"UPDATE bodies SET client = '' WHERE client = ?",
	} {
		if _, err := tx.ExecContext(ctx, text, client); err != nil {
			return err
		}
	}
	return nil
}

// Overwrite rewrites the file without its unused parts and empties its log, so that no copy of a deleted byte is left in
// them. It needs as much free disk as the file takes. It fails if another process reads for longer than the wait.
// PostgreSQL's own log and its archives keep copies for as long as they are kept.
func (r *Records) Overwrite(ctx context.Context) error {
	for end := time.Now().Add(r.wait); ; time.Sleep(again) {
		err := r.overwrite(ctx)
		if err == nil || !isBusy(err) && !errors.Is(err, errLogInUse) || time.Now().After(end) || ctx.Err() != nil {
			return err
		}
	}
}

// errLogInUse means that the log of the file cannot be emptied yet.
var errLogInUse = errors.New("another process reads the file, so its log keeps copies of what was erased: " +
	"run the command again, or stop that process")

func (r *Records) overwrite(ctx context.Context) error {
	if r.postgres != nil {
		_, err := r.write.ExecContext(ctx, "VACUUM (FULL) records, askers, outcomes, verdicts, policies, names, hours, minutes, bodies, shares")
		return err
	}
	if _, err := r.write.ExecContext(ctx, "VACUUM"); err != nil {
		return err
	}
	var busy, inLog, moved int
	if err := r.write.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &inLog, &moved); err != nil {
		return err
	}
	if busy != 0 {
		return errLogInUse
	}
	return nil
}
