// Package store keeps what must outlive the process in one SQLite file: the robots.txt of every origin, the texts that it
// has had, and what changed when.
//
//	s, err := store.Open(store.Options{Path: "state.db"})
//	defer s.Close()
//	err = s.Save(ctx, snap, nil)      // State is a robots.Store
//	snap, err = s.Load(ctx, snap.Origin)
//
// Open makes the file where there is none and brings an older one up to date; a file of a newer program is refused. What
// Save has returned for survives a killed process. When the machine itself stops, the last moments may be missing, and
// the file is sound all the same (SQLite's write-ahead log with synchronous NORMAL). Several processes may share a file
// on one machine, but not over a network file system. A copy of the file alone, without its -wal, is no backup.
//
// A text is kept once, by its SHA-256, however many origins have it. Nothing goes away by itself: call Prune now and
// then. A damaged file is reported and never removed. The package does not read rules, and asks no origin for anything.
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

	"github.com/robotsproxy/robotsproxy/robots"
)

// Options configure a State.
type Options struct {
	Path string        // of the file, made with mode 0600 where there is none, and its folder with 0700
	Wait time.Duration // for another process that is writing; if zero, 5 s
}

// State is the database of one instance's state. It is safe for concurrent use: reads do not wait for writes, and writes
// come one after the other.
type State struct {
	path  string
	wait  time.Duration
	write *sql.DB // one connection
	read  *sql.DB // up to readers connections, on which nothing can be written

	load, hasBody, addBody, replace, prolong, addVersion, dropVersions, addChange *sql.Stmt
}

var _ robots.Store = (*State)(nil)

// readers is how many questions are answered at once. Each costs a connection with a page cache of its own, up to 2 MB.
const readers = 4

// Open opens the database at o.Path. The State must be closed.
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
	for end := time.Now().Add(o.Wait); ; time.Sleep(again) {
		s := &State{path: path, wait: o.Wait}
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

// again is how long Open rests where SQLite did not wait by itself: while others turn a new file to write-ahead logging,
// or the last of them empties the log, it says at once that the file is busy, whatever its time-out
// (https://sqlite.org/wal.html#sometimes_queries_return_sqlite_busy_in_wal_mode).
const again = 5 * time.Millisecond

func (s *State) open() (err error) {
	if err = create(s.path); err != nil {
		return err
	}
	if s.write, err = connect(s.path, s.wait, 1, "_journal_mode=WAL", "_txlock=immediate"); err != nil {
		return err
	}
	if err = migrate(context.Background(), s.write); err != nil {
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

// create makes an empty file with its mode, since SQLite would let everybody read it. A file that is there is not even
// opened: to close it again would drop the locks that this process holds on it (fcntl(2)).
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

// connect returns a pool of n connections that are kept, each with settings of its own beside those that all have.
func connect(path string, wait time.Duration, n int, settings ...string) (*sql.DB, error) {
	settings = append(settings,
		"_busy_timeout="+strconv.FormatInt(wait.Milliseconds(), 10),
		"_synchronous=NORMAL", "_foreign_keys=1",
		"_pragma=journal_size_limit(67108864)", // what a burst of writes has left of the log is given back
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

// hasten leaves the waiting to begin, which heeds contexts. While the tables are made SQLite does it.
func hasten(db *sql.DB) error {
	_, err := db.Exec("PRAGMA busy_timeout = 20")
	return err
}

// prepare compiles what is asked often.
func (s *State) prepare() (err error) {
	for _, each := range []struct {
		stmt **sql.Stmt
		db   *sql.DB
		text string
	}{
		{&s.load, s.read, loadSQL},
		{&s.hasBody, s.write, hasBodySQL},
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

// Close ends what is under way and closes the file. Who asks afterwards gets an error.
func (s *State) Close() error {
	var faults []error
	for _, db := range []*sql.DB{s.read, s.write} { // the last connection empties the log
		if db != nil {
			faults = append(faults, db.Close())
		}
	}
	return s.fail("closing the database", errors.Join(faults...))
}
