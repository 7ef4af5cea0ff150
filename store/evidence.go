package store

import (
	"bytes"
	"compress/flate"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// fileKey identifies a version of a robots.txt.
type fileKey struct {
	origin, sha256 string
	status         int64
	state          string
}

// evidenceCache has the evidence that is in the tables. Records.mu guards it.
type evidenceCache struct {
	files    map[fileKey]int64 // the time of a recent last_seen, in microseconds
	policies map[string]int64  // the day of used
}

func newEvidenceCache() evidenceCache {
	return evidenceCache{files: make(map[fileKey]int64), policies: make(map[string]int64)}
}

func (c *evidenceCache) forget() { *c = newEvidenceCache() }

// seenEvery is the precision of files.last_seen.
const seenEvery = int64(time.Minute / time.Microsecond)

// addEvidence keeps the robots.txt and the policy of e, unless they are kept.
func (b *batch) addEvidence(ctx context.Context, tx *sql.Tx, e *audit.Entry) error {
	if snap := e.Evidence.Robots; snap != nil {
		if err := b.addFile(ctx, tx, e, snap); err != nil {
			return fmt.Errorf("keeping the robots.txt of %s: %w", snap.Origin, err)
		}
	}
	if p := e.Evidence.Policy; p != nil {
		if err := b.addPolicy(ctx, tx, p, dayOf(e.ID.Time())); err != nil {
			return fmt.Errorf("keeping the policy %s: %w", p.SHA256(), err)
		}
	}
	return nil
}

const addPolicySQL = `INSERT INTO policies (sha256, used, body) VALUES (?, ?, ?)
ON CONFLICT (sha256) DO UPDATE SET used = max(policies.used, excluded.used)`

// addPolicy keeps the text of p once a day.
func (b *batch) addPolicy(ctx context.Context, tx *sql.Tx, p *policy.Policy, day int64) error {
	if used, ok := b.known.policies[p.SHA256()]; ok && day <= used {
		return nil
	}
	if _, err := tx.ExecContext(ctx, addPolicySQL, p.SHA256(), day, p.Text()); err != nil {
		return err
	}
	if len(b.known.policies) >= maxKnown {
		clear(b.known.policies)
	}
	b.known.policies[p.SHA256()] = day
	return nil
}

const (
	addFileSQL = `INSERT INTO files (hash, used, origin, host, sha256, status, state, availability, flags, truncated, content_type,
	redirects, header, cause, fetched, size, first_seen, last_seen) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (hash) DO UPDATE SET used = max(files.used, excluded.used), last_seen = max(files.last_seen, excluded.last_seen)`
	bodyUsedSQL      = "UPDATE bodies SET used = max(used, ?) WHERE sha256 = ?"
	addRecordBodySQL = "INSERT INTO bodies (sha256, used, client, deflated, body) VALUES (?, ?, ?, ?, ?)"
)

func (b *batch) addFile(ctx context.Context, tx *sql.Tx, e *audit.Entry, snap *robots.Snapshot) error {
	key := fileKey{snap.Origin.String(), snap.SHA256, int64(snap.Status), snap.State()}
	at := e.ID.Time()
	seen, ok := b.known.files[key]
	if ok && at.UnixMicro()-seen < seenEvery {
		return nil
	}
	day := dayOf(at)
	_, err := tx.ExecContext(ctx, addFileSQL, hashOfValues([]any{key.origin, key.sha256, key.status, key.state}), day, key.origin,
		snap.Origin.Host(), key.sha256, key.status, key.state, int64(snap.Availability), snap.Flags.String(), snap.Truncated,
		snap.ContentType, listText(audit.MaskedURLs(snap.Redirects)), headerLines(snap), snap.Cause, micros(snap.Fetched), len(snap.Body), at.UnixMicro(),
		at.UnixMicro())
	if err != nil {
		return err
	}
	if snap.SHA256 != "" {
		if err := b.addBody(ctx, tx, snap, day); err != nil {
			return err
		}
	}
	if len(b.known.files) >= maxKnown {
		clear(b.known.files)
	}
	b.known.files[key] = at.UnixMicro()
	return nil
}

// headerLines returns the header fields of the response that say what the file is and for how long it may be used.
func headerLines(snap *robots.Snapshot) string {
	var lines strings.Builder
	for _, field := range []struct{ name, value string }{
		{"Content-Type", snap.ContentType}, {"ETag", snap.ETag}, {"Last-Modified", snap.LastModified},
	} {
		if field.value != "" {
			fmt.Fprintf(&lines, "%s: %s\r\n", field.name, field.value)
		}
	}
	return lines.String() + snap.Fields
}

func (b *batch) addBody(ctx context.Context, tx *sql.Tx, snap *robots.Snapshot, day int64) error {
	n, err := affected(tx.ExecContext(ctx, bodyUsedSQL, day, snap.SHA256))
	if err != nil || n > 0 {
		return err
	}
	body, deflated, err := deflate(snap.Body)
	if err != nil {
		return err
	}
	room, err := b.makeBodyRoom(ctx, tx, int64(len(body)))
	if err != nil {
		return err
	}
	if !room {
		return dropped(ctx, tx, 1)
	}
	_, err = tx.ExecContext(ctx, addRecordBodySQL, snap.SHA256, day, snap.Client, deflated, body)
	return err
}

const (
	largestShareSQL = `SELECT coalesce(sum(size), 0), coalesce((SELECT client FROM shares ORDER BY size DESC, client LIMIT 1), '')
FROM shares`
	oldestBodySQL = "SELECT sha256 FROM bodies WHERE client = ? ORDER BY used, rowid LIMIT 1"
	droppedSQL    = "UPDATE meta SET value = value + ? WHERE name = 'bodies_dropped'"
)

// bodyShare is the part of RecordsOptions.MaxSize that bodies get.
const bodyShare = 4

// makeBodyRoom drops bodies until there is room for one of the given size: those of the client that takes the most,
// the ones unused for the longest time first. It reports false if the body is larger than all room.
func (b *batch) makeBodyRoom(ctx context.Context, tx *sql.Tx, size int64) (bool, error) {
	most := b.options.MaxSize / bodyShare
	if size > most {
		return false, nil
	}
	for {
		var all int64
		var largest string
		if err := tx.QueryRowContext(ctx, largestShareSQL).Scan(&all, &largest); err != nil || all+size <= most {
			return err == nil, err
		}
		var sha256 string
		if err := tx.QueryRowContext(ctx, oldestBodySQL, largest).Scan(&sha256); err != nil {
			return false, fmt.Errorf("finding a body of %q to drop: %w", largest, err)
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM bodies WHERE sha256 = ?", sha256); err != nil {
			return false, err
		}
		if err := dropped(ctx, tx, 1); err != nil {
			return false, err
		}
	}
}

// dropped counts bodies that are not kept although records refer to them.
func dropped(ctx context.Context, tx *sql.Tx, n int64) error {
	_, err := tx.ExecContext(ctx, droppedSQL, n)
	return err
}

// deflate compresses body (RFC 1951) if that makes it smaller.
func deflate(body []byte) (kept []byte, deflated bool, err error) {
	var buf bytes.Buffer
	w, err := flate.NewWriter(&buf, flate.BestSpeed)
	if err != nil {
		return nil, false, err
	}
	if _, err := w.Write(body); err != nil {
		return nil, false, err
	}
	if err := w.Close(); err != nil {
		return nil, false, err
	}
	if buf.Len() >= len(body) {
		return append([]byte{}, body...), false, nil
	}
	return buf.Bytes(), true, nil
}

// maxBody bounds the size of a decompressed body in bytes. robots.max_size is at most 64 MiB.
const maxBody = 64 << 20

func inflate(kept []byte, deflated bool) ([]byte, error) {
	if !deflated {
		return kept, nil
	}
	return io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(kept)), maxBody))
}

// Body returns the body with this SHA-256, in lower-case hexadecimal, or audit.ErrNoFile. It returns an error if the
// stored bytes have another hash.
func (r *Records) Body(ctx context.Context, sha256 string) ([]byte, error) {
	var kept []byte
	var deflated bool
	err := r.read.QueryRowContext(ctx, "SELECT body, deflated FROM bodies WHERE sha256 = ?", sha256).Scan(&kept, &deflated)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, audit.ErrNoFile
	}
	if err != nil {
		return nil, r.fail("reading the body "+sha256, err)
	}
	body, err := inflate(kept, deflated)
	if err != nil || hashOf(body) != sha256 {
		err = fmt.Errorf("%w: %w: it has another hash", audit.ErrChanged, errDamaged)
	}
	if err != nil {
		return nil, r.fail("reading the body "+sha256, err)
	}
	return body, nil
}

const fileColumns = `origin, sha256, status, state, availability, flags, truncated, content_type, redirects, header, cause, fetched, size,
	first_seen, last_seen`

func scanFile(rows *sql.Rows) (f audit.File, err error) {
	var name, flags, redirects string
	var availability, fetched, first, last int64
	err = rows.Scan(&name, &f.SHA256, &f.Status, &f.State, &availability, &flags, &f.Truncated, &f.ContentType, &redirects, &f.Header,
		&f.Cause, &fetched, &f.Size, &first, &last)
	if err != nil {
		return f, err
	}
	f.Availability = fetch.Availability(availability)
	f.Fetched, f.FirstSeen, f.LastSeen = timeOf(fetched), timeOf(first), timeOf(last)
	if name != "" { // else it is a file of the operator
		if f.Origin, err = parseOrigin(name); err != nil {
			return f, err
		}
	}
	if f.Flags, err = parseFlags(flags); err != nil {
		return f, err
	}
	f.Redirects, err = parseList(redirects)
	return f, err
}

// Files returns the versions of the robots.txt of all origins of a canonical host without their bodies, the oldest
// first.
func (r *Records) Files(ctx context.Context, host string) ([]audit.File, error) {
	files, err := list(ctx, r.read, scanFile, "SELECT "+fileColumns+" FROM files WHERE host = ? ORDER BY first_seen, id", host)
	return files, r.fail("listing the robots.txt files of "+host, err)
}

// File returns the robots.txt on which rec rests, with its body, or audit.ErrNoFile.
func (r *Records) File(ctx context.Context, rec *audit.Record) (*audit.File, error) {
	files, err := r.filesOf(ctx, rec, originOf(rec))
	if err == nil && len(files) == 0 {
		files, err = r.filesOf(ctx, rec, origin.Origin{}.String()) // a file of the operator
	}
	if err != nil {
		return nil, r.fail("reading the robots.txt of "+rec.Host, err)
	}
	if len(files) == 0 {
		return nil, audit.ErrNoFile
	}
	f := &files[0]
	if f.SHA256 == "" {
		return f, nil
	}
	f.Body, err = r.Body(ctx, f.SHA256)
	return f, err
}

// filesOf returns the file of rec if it is that of the origin.
func (r *Records) filesOf(ctx context.Context, rec *audit.Record, origin string) ([]audit.File, error) {
	hash := hashOfValues([]any{origin, rec.RobotsSHA256, int64(rec.RobotsStatus), rec.RobotsState})
	return list(ctx, r.read, scanFile, "SELECT "+fileColumns+" FROM files WHERE hash = ?", hash)
}

// Policy returns the text of the policy with this SHA-256, in lower-case hexadecimal, or audit.ErrNoPolicy.
func (r *Records) Policy(ctx context.Context, sha256 string) ([]byte, error) {
	var text []byte
	err := r.read.QueryRowContext(ctx, "SELECT body FROM policies WHERE sha256 = ?", sha256).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, audit.ErrNoPolicy
	}
	return text, r.fail("reading the policy "+sha256, err)
}

// originOf returns the origin of the request of rec as text; "" if it has none.
func originOf(rec *audit.Record) string {
	o, err := origin.New(rec.Scheme, rec.Host, rec.Port)
	if err != nil {
		return ""
	}
	return o.String()
}
