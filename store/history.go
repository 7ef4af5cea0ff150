package store

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
)

// ErrNoBody is returned by Body if no text with the hash is stored.
var ErrNoBody = errors.New("store: no body with this hash is kept")

const (
	originsSQL = `
SELECT host, site FROM origins o JOIN snapshots s ON s.origin = o.id ORDER BY host, site LIMIT ?`
	hostOriginsSQL = `
SELECT host, site FROM origins o JOIN snapshots s ON s.origin = o.id WHERE host = ? ORDER BY site LIMIT ?`
	versionsSQL = `
SELECT lower(hex(b.sha256)), octet_length(b.body), status, redirects, first_seen, last_seen
FROM origins o JOIN versions v ON v.origin = o.id JOIN bodies b ON b.id = v.body
WHERE host = ? AND site = ? ORDER BY v.id DESC LIMIT ?`
	changesSQL = `
SELECT time, old_sha256, new_sha256, old_state, new_state FROM origins o JOIN changes c ON c.origin = o.id
WHERE host = ? AND site = ? ORDER BY time DESC, c.id DESC LIMIT ?`
	bodySQL = "SELECT body FROM bodies WHERE sha256 = ?"
)

// Origins returns at most limit origins with a stored snapshot, sorted by host and then by text: those of a canonical
// host, or of all hosts if host is empty.
func (s *State) Origins(ctx context.Context, host string, limit int) ([]origin.Origin, error) {
	text, args := originsSQL, []any{limit}
	if host != "" {
		text, args = hostOriginsSQL, []any{host, limit}
	}
	origins, err := list(ctx, s.read, scanSite, text, args...)
	return origins, s.fail("listing origins", err)
}

func scanSite(rows *sql.Rows) (o origin.Origin, err error) {
	var host, site string
	if err = rows.Scan(&host, &site); err != nil {
		return o, err
	}
	return siteOrigin(host, site)
}

// siteOrigin returns the origin with these columns.
func siteOrigin(host, site string) (origin.Origin, error) {
	scheme, port, _ := strings.Cut(site, ":")
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" {
		host += ":" + port
	}
	return parseOrigin(scheme + "://" + host)
}

// Versions returns at most limit texts of o, the latest first. A text that came back after another has two entries.
func (s *State) Versions(ctx context.Context, o origin.Origin, limit int) ([]robots.Version, error) {
	versions, err := list(ctx, s.read, func(rows *sql.Rows) (robots.Version, error) {
		return scanVersion(rows, o)
	}, versionsSQL, o.Host(), siteOf(o), limit)
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
	changes, err := list(ctx, s.read, func(rows *sql.Rows) (robots.Change, error) {
		return scanChange(rows, o)
	}, changesSQL, o.Host(), siteOf(o), limit)
	return changes, s.fail("listing the changes of "+o.String(), err)
}

func scanChange(rows *sql.Rows, o origin.Origin) (robots.Change, error) {
	c := robots.Change{Origin: o}
	var at int64
	err := rows.Scan(&at, &c.OldSHA256, &c.NewSHA256, &c.OldState, &c.NewState)
	c.Time = timeOf(at)
	return c, err
}

// Body returns the text with this SHA-256, in lower-case hexadecimal, or ErrNoBody.
func (s *State) Body(ctx context.Context, hash string) ([]byte, error) {
	sum, err := hex.DecodeString(hash)
	if err != nil {
		return nil, ErrNoBody
	}
	var body []byte
	err = s.read.QueryRowContext(ctx, bodySQL, sum).Scan(&body)
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
