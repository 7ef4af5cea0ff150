package store

import (
	"bytes"
	"compress/flate"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// fileKey identifies the result of a fetch of a robots.txt.
type fileKey struct {
	origin  origin.Origin
	sha256  string
	status  int64
	state   string
	fetched int64
}

// period has the arrival of the first and the last record that a process has noted for a file, in microseconds.
type period struct{ first, last int64 }

// evidenceCache has the evidence that is in the tables. Records.mu guards it.
type evidenceCache struct {
	files    map[fileKey]period
	policies map[string]int64 // the day of used
}

func newEvidenceCache() evidenceCache {
	return evidenceCache{files: make(map[fileKey]period), policies: make(map[string]int64)}
}

func (c *evidenceCache) forget() { *c = newEvidenceCache() }

// seenEvery is the precision of files.last_seen.
const seenEvery = int64(time.Minute / time.Microsecond)

// addEvidence keeps the robots.txt and the policy of e, unless they are kept.
func (b *batch) addEvidence(ctx context.Context, tx transaction, e *audit.Entry) error {
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
func (b *batch) addPolicy(ctx context.Context, tx transaction, p *policy.Policy, day int64) error {
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
	addFileSQL = `INSERT INTO files (used, origin, host, sha256, status, state, availability, flags, truncated,
	content_type, redirects, header, cause, fetched, size, first_seen, last_seen)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	// findFileSQL finds the version to which a fetch belongs if same is 1: the last one that began before. A copy that
	// stays in use after a failure has the time of its own fetch, so versions can begin at the same time.
	findFileSQL = `SELECT id, same FROM (SELECT id, fetched, CASE WHEN sha256 = ? AND status = ? AND state = ?
	AND redirects = ? THEN 1 ELSE 0 END AS same FROM files WHERE origin = ? AND fetched <= ?) AS f
	ORDER BY fetched DESC, CASE WHEN fetched = ? THEN same ELSE 0 END DESC, id DESC LIMIT 1`
	fileSeenSQL = `UPDATE files SET used = max(used, ?), first_seen = min(first_seen, ?), last_seen = max(last_seen, ?)
	WHERE id = ?`

	bodyUsedSQL      = "UPDATE bodies SET used = max(used, ?) WHERE sha256 = ?"
	addRecordBodySQL = "INSERT INTO bodies (sha256, used, client, deflated, body) VALUES (?, ?, ?, ?, ?)"
)

// addFile keeps the version of snap, and notes that e refers to it. It writes last_seen once a minute: see lastSeen.
func (b *batch) addFile(ctx context.Context, tx transaction, e *audit.Entry, snap *robots.Snapshot) error {
	key := fileKey{
		snap.Origin, snap.SHA256, fileStatus(snap.Status, snap.State()), snap.State(), micros(snap.Fetched),
	}
	at := e.ID.Time().UnixMicro()
	seen, known := b.known.files[key]
	if known && at >= seen.first && at-seen.last < seenEvery {
		return nil
	}
	if !known {
		seen = period{at, at}
	}
	day := dayOf(e.ID.Time())
	if err := b.addVersion(ctx, tx, key, snap, at, day); err != nil {
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
	b.known.files[key] = period{min(seen.first, at), max(seen.last, at)}
	return nil
}

// addVersion adds a version that begins with snap, unless snap belongs to the version before.
func (b *batch) addVersion(ctx context.Context, tx transaction, key fileKey, snap *robots.Snapshot, at, day int64) error {
	site, redirects := snap.Origin.String(), listText(audit.MaskedURLs(snap.Redirects))
	var id int64
	var same bool
	err := tx.QueryRowContext(
		ctx, findFileSQL, key.sha256, key.status, key.state, redirects, site, key.fetched, key.fetched,
	).Scan(&id, &same)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if same {
		_, err = tx.ExecContext(ctx, fileSeenSQL, day, at, at, id)
		return err
	}
	_, err = tx.ExecContext(
		ctx, addFileSQL, day, site, snap.Origin.Host(), key.sha256, key.status, key.state, int64(snap.Availability),
		snap.Flags.String(), snap.Truncated, snap.ContentType, redirects, headerLines(snap), snap.Cause, key.fetched,
		len(snap.Body), at, at,
	)
	return err
}

// fileStatus returns the status of a version. A 304 belongs to the version that it validates.
func fileStatus(status int, state string) int64 {
	if status == http.StatusNotModified && state != "stale" {
		return http.StatusOK
	}
	return int64(status)
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

func (b *batch) addBody(ctx context.Context, tx transaction, snap *robots.Snapshot, day int64) error {
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
func (b *batch) makeBodyRoom(ctx context.Context, tx transaction, size int64) (bool, error) {
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
func dropped(ctx context.Context, tx transaction, n int64) error {
	_, err := tx.ExecContext(ctx, droppedSQL, n)
	return err
}

// deflaters keeps *flate.Writer, which take 1.2 MB each.
var deflaters = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.BestSpeed) // the level is valid
	return w
}}

// deflate compresses body (RFC 1951) if that makes it smaller.
func deflate(body []byte) (kept []byte, deflated bool, err error) {
	var buf bytes.Buffer
	w := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	w.Reset(&buf)
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

// Files returns the versions of the robots.txt of all origins of a canonical host without their bodies, in order of their
// first fetches.
func (r *Records) Files(ctx context.Context, host string) (files []audit.File, err error) {
	defer func() { err = r.fail("listing the robots.txt files of "+host, err) }()
	rows, err := list(ctx, r.read, scanFile, "SELECT "+fileColumns+" FROM files WHERE host = ? ORDER BY fetched, first_seen, id", host)
	if err != nil {
		return nil, err
	}
	latest := make(map[origin.Origin]int) // index in files
	for i := range rows {
		f := &rows[i]
		if f.LastSeen, err = r.lastSeen(ctx, f, rows[i+1:]); err != nil {
			return nil, err
		}
		if at, ok := latest[f.Origin]; ok && sameVersion(&files[at], f) { // its first record was written later
			files[at].LastSeen = f.LastSeen
			continue
		}
		latest[f.Origin] = len(files)
		files = append(files, *f)
	}
	return files, nil
}

func sameVersion(a, b *audit.File) bool {
	return a.SHA256 == b.SHA256 && a.Status == b.Status && a.State == b.State && slices.Equal(a.Redirects, b.Redirects)
}

const lastSeenSQL = `SELECT coalesce(max(r.id), 0) FROM records r JOIN verdicts v ON v.id = r.verdict
WHERE r.target IN (SELECT id FROM targets WHERE scheme = ? AND host = ? AND port = ?) AND r.id > ? AND r.id < ?
	AND v.robots_sha256 = ? AND v.robots_state = ? AND v.robots_fetched_at >= ? AND v.robots_fetched_at < ?
	AND CASE WHEN v.robots_status = 304 AND v.robots_state <> 'stale' THEN 200 ELSE v.robots_status END = ?`

// lastSeen returns the arrival of the last record that refers to f, of which the table has the minute. later are the
// files after f.
func (r *Records) lastSeen(ctx context.Context, f *audit.File, later []audit.File) (time.Time, error) {
	end := int64(math.MaxInt64)
	next := slices.IndexFunc(later, func(n audit.File) bool { return n.Origin == f.Origin && n.Fetched.After(f.Fetched) })
	if next >= 0 {
		end = micros(later[next].Fetched)
	}
	var last audit.ID
	err := r.read.QueryRowContext(
		ctx, lastSeenSQL, f.Origin.Scheme(), f.Origin.Host(), int64(f.Origin.Port()), int64(audit.IDAt(f.LastSeen)),
		int64(audit.IDAt(f.LastSeen.Add(time.Duration(seenEvery)*time.Microsecond))), f.SHA256, f.State, micros(f.Fetched), end, int64(f.Status),
	).Scan((*int64)(&last))
	if err != nil || last == 0 {
		return f.LastSeen, err
	}
	return last.Time(), nil
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

// filesOf returns the version of the file of an origin on which rec rests: the last that began before the fetch, or else
// another one with the same text.
func (r *Records) filesOf(ctx context.Context, rec *audit.Record, origin string) ([]audit.File, error) {
	return list(ctx, r.read, scanFile, "SELECT "+fileColumns+` FROM files
		WHERE origin = ? AND sha256 = ? AND status = ? AND state = ?
		ORDER BY CASE WHEN fetched <= ? THEN 0 ELSE 1 END, fetched DESC, id DESC LIMIT 1`,
		origin, rec.RobotsSHA256, fileStatus(rec.RobotsStatus, rec.RobotsState), rec.RobotsState, micros(rec.RobotsFetchedAt))
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
