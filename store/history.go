package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
)

// ErrNoBody is returned by Body if no text with the hash is stored.
var ErrNoBody = errors.New("store: no body with this hash is kept")

const (
	originsSQL     = "SELECT origin FROM snapshots ORDER BY host, origin LIMIT ?"
	hostOriginsSQL = "SELECT origin FROM snapshots WHERE host = ? ORDER BY origin LIMIT ?"
	versionsSQL    = `
SELECT sha256, length(body), status, redirects, first_seen, last_seen FROM versions JOIN bodies USING (sha256)
WHERE origin = ? ORDER BY id DESC LIMIT ?`
	changesSQL = `
SELECT origin, time, old_sha256, new_sha256, old_state, new_state FROM changes
WHERE host = ? AND origin = ? ORDER BY time DESC, id DESC LIMIT ?`
	bodySQL = "SELECT body FROM bodies WHERE sha256 = ?"
)

// Origins returns at most limit origins with a stored snapshot, sorted by host and then by text: those of a canonical
// host, or of all hosts if host is empty.
func (s *State) Origins(ctx context.Context, host string, limit int) ([]origin.Origin, error) {
	text, args := originsSQL, []any{limit}
	if host != "" {
		text, args = hostOriginsSQL, []any{host, limit}
	}
	origins, err := list(ctx, s.read, scanOrigin, text, args...)
	return origins, s.fail("listing origins", err)
}

// Versions returns at most limit texts of o, the latest first. A text that came back after another has two entries.
func (s *State) Versions(ctx context.Context, o origin.Origin, limit int) ([]robots.Version, error) {
	versions, err := list(ctx, s.read, func(rows *sql.Rows) (robots.Version, error) {
		return scanVersion(rows, o)
	}, versionsSQL, o.String(), limit)
	return versions, s.fail("listing the versions of "+o.String(), err)
}

func scanVersion(rows *sql.Rows, o origin.Origin) (robots.Version, error) {
	v := robots.Version{Origin: o}
	var redirects string
	var first, last int64
	err := rows.Scan(&v.SHA256, &v.Size, &v.Status, &redirects, &first, &last)
	if err != nil {
		return v, err
	}
	v.FirstSeen, v.LastSeen = timeOf(first), timeOf(last)
	v.Redirects, err = parseList(redirects)
	return v, err
}

// Changes returns at most limit changes of o, the latest first.
func (s *State) Changes(ctx context.Context, o origin.Origin, limit int) ([]robots.Change, error) {
	changes, err := list(ctx, s.read, scanChange, changesSQL, o.Host(), o.String(), limit)
	return changes, s.fail("listing the changes of "+o.String(), err)
}

func scanChange(rows *sql.Rows) (c robots.Change, err error) {
	var name string
	var at int64
	if err = rows.Scan(&name, &at, &c.OldSHA256, &c.NewSHA256, &c.OldState, &c.NewState); err != nil {
		return c, err
	}
	c.Time = timeOf(at)
	c.Origin, err = parseOrigin(name)
	return c, err
}

// Body returns the text with this SHA-256, in lower-case hexadecimal, or ErrNoBody.
func (s *State) Body(ctx context.Context, hash string) ([]byte, error) {
	var body []byte
	err := s.read.QueryRowContext(ctx, bodySQL, hash).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNoBody
	}
	if err == nil && hashOf(body) != hash {
		err = fmt.Errorf("%w: it has another hash", errDamaged)
	}
	if err != nil {
		return nil, s.fail("reading the body "+hash, err)
	}
	return body, nil
}

// lister is a pool of connections or a transaction.
type lister interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// list runs a query and returns the results of scan for its rows.
func list[T any](ctx context.Context, db lister, scan func(*sql.Rows) (T, error), text string, args ...any) ([]T, error) {
	rows, err := db.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

func parseOrigin(name string) (origin.Origin, error) {
	o, err := origin.Parse(name)
	if err != nil {
		return o, fmt.Errorf("%w: the origin %q: %w", errDamaged, name, err)
	}
	return o, nil
}
