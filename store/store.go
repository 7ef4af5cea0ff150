// Package store keeps what survives a restart, in two databases. State has the robots.txt of every origin, its past texts
// and its changes, the pauses of hosts, and the operator's exemptions and interventions. Records has the audit records,
// with the evidence for them.
//
//	s, err := store.Open(store.Options{Path: "state.db"})
//	err = s.Save(ctx, snap, nil)      // State is a robots.Store
//	snap, err = s.Load(ctx, snap.Origin)
//
//	r, err := store.OpenRecords(store.RecordsOptions{Path: "audit.db"})
//	err = r.Write(ctx, entries)       // Records is an audit.Store
//
// Both are SQLite files. Records can be in PostgreSQL instead, with the robots.txt files that several instances share: see
// OpenPostgres.
//
// Opening creates a file if it does not exist, updates an older one, and refuses one of a newer program. Saved data
// survives the end of the process. If the machine crashes, the last writes may be lost, unless RecordsOptions.Strict is
// set, but the file stays valid (SQLite's write-ahead log). Several processes on one machine may share a file, but not
// over a network file system. A copy of the file without its -wal is not a backup.
//
// A text is stored once, by its SHA-256. Data does not expire: the caller must call Prune regularly. Options.MaxSize
// bounds state.db, which the clients share. A damaged file is reported and never removed. The package does not parse
// rules and makes no requests.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
)

// Options configure a State.
type Options struct {
	Path string        // of the file; created if needed, with mode 0600 in a folder of mode 0700
	Wait time.Duration // maximum wait while another process writes; if zero, 5 s

	// MaxSize is the maximum size in bytes of the file and its write-ahead log, without the last text saved. If there is
	// no room, Save drops the least recently used origins of the client that takes the most. If zero, DefaultMaxSize.
	MaxSize int64

	// Used reports whether an origin was used since the last call for it. Save does not drop such an origin. If nil, Save
	// goes by the times of Save alone.
	Used func(origin.Origin) bool
}

// State is the database of one instance. It is safe for concurrent use: reads do not wait for writes, and writes run
// one after another.
type State struct {
	file
	limits limits
	used   func(origin.Origin) bool
	grown  int64 // bytes since makeRoom counted the pages; guarded by the transaction on write

	load, findOriginID, addOrigin, findBodyID, addBody, replace, prolong, addVersion, dropVersions, addChange *sql.Stmt
}

var _ robots.BatchStore = (*State)(nil)

// readers is the number of concurrent reads. Each needs a connection with a page cache of up to 2 MB.
const readers = 4

// Open opens the database at o.Path. The caller must Close the State.
func Open(o Options) (*State, error) {
	if o.Path == "" {
		return nil, errors.New("store: no path for the database")
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("store: finding %s: %w", o.Path, err)
	}
	if o.Wait == 0 {
		o.Wait = 5 * time.Second
	}
	if o.MaxSize == 0 {
		o.MaxSize = DefaultMaxSize
	}
	if o.Used == nil {
		o.Used = func(origin.Origin) bool { return false }
	}
	for end := time.Now().Add(o.Wait); ; time.Sleep(again) {
		s := &State{file: file{path: path, wait: o.Wait}, limits: newLimits(o.MaxSize), used: o.Used}
		err := s.open()
		if err == nil {
			return s, nil
		}
		s.Close()
		if !isBusy(err) || time.Now().After(end) {
			return nil, s.fail("opening the database", err)
		}
	}
}

// again is the time that Open waits if SQLite did not wait: while other processes switch a new file to write-ahead
// logging, or the last one empties the log, SQLite returns busy at once, regardless of its timeout
// (https://sqlite.org/wal.html#sometimes_queries_return_sqlite_busy_in_wal_mode).
const again = 5 * time.Millisecond

func (s *State) open() (err error) {
	if err = create(s.path); err != nil {
		return err
	}
	log := []string{
		fmt.Sprintf("_pragma=journal_size_limit(%d)", s.limits.log), // truncates the log after a burst of writes
		fmt.Sprintf("_pragma=wal_autocheckpoint(%d)", min(1000, max(16, s.limits.log/2/pageSize))),
	}
	if s.write, err = connect(s.path, s.wait, 1, append(log, "_journal_mode=WAL", "_txlock=immediate")...); err != nil {
		return err
	}
	if err = migrate(context.Background(), s.write, stateTables); err != nil {
		return err
	}
	if err = hasten(s.write); err != nil {
		return err
	}
	if s.read, err = connect(s.path, s.wait, readers, "_query_only=1"); err != nil {
		return err
	}
	return s.prepare()
}

// create makes an empty file with mode 0600, since SQLite would make it readable to all users. It does not open an
// existing file: closing it would release the locks that this process holds on it (fcntl(2)).
func create(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// connect returns a pool of n permanent connections with the given settings and the common ones.
func connect(path string, wait time.Duration, n int, settings ...string) (*sql.DB, error) {
	settings = append(settings,
		"_busy_timeout="+strconv.FormatInt(wait.Milliseconds(), 10),
		"_synchronous=NORMAL", "_foreign_keys=1",
		"_dqs=0", "_defensive=1", "_error_rc=1",
	)
	file := url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(path), "/"), RawQuery: strings.Join(settings, "&")}
	connector, err := sqlite.NewConnector(file.String())
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, nil
}

// hasten reduces SQLite's wait, so that begin waits instead, which respects contexts. Migrations use SQLite's wait.
func hasten(db *sql.DB) error {
	_, err := db.Exec("PRAGMA busy_timeout = 20")
	return err
}

// prepare compiles the frequent statements.
func (s *State) prepare() (err error) {
	for _, each := range []struct {
		stmt **sql.Stmt
		db   *sql.DB
		text string
	}{
		{&s.load, s.read, loadSQL},
		{&s.findOriginID, s.write, findOriginSQL},
		{&s.addOrigin, s.write, addOriginSQL},
		{&s.findBodyID, s.write, findBodySQL},
		{&s.addBody, s.write, addBodySQL},
		{&s.replace, s.write, replaceSQL},
		{&s.prolong, s.write, prolongSQL},
		{&s.addVersion, s.write, addVersionSQL},
		{&s.dropVersions, s.write, dropVersionsSQL},
		{&s.addChange, s.write, addChangeSQL},
	} {
		if *each.stmt, err = each.db.Prepare(each.text); err != nil {
			return err
		}
	}
	return nil
}
