package store

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// fail says which act failed, on which file, and what helps.
func (s *State) fail(act string, err error) error {
	if err == nil {
		return nil
	}
	if help := remedy(err); help != "" {
		return fmt.Errorf("store: %s: %s: %w; %s", s.path, act, err, help)
	}
	return fmt.Errorf("store: %s: %s: %w", s.path, act, err)
}

// remedy says what an operator can do about err, where SQLite's own words do not.
func remedy(err error) string {
	if errors.Is(err, errDamaged) {
		return rotten
	}
	var fault *sqlite.Error
	if !errors.As(err, &fault) {
		return ""
	}
	switch fault.Code() & 0xff { // the rest of the code is details
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return damaged
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return "the file, its -wal and -shm, and their folder must be writable for the user that robotsproxy runs as"
	case sqlite3.SQLITE_BUSY:
		return "another process is writing to it for too long"
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR:
		return "see whether the disk is full or failing; what was kept before is untouched"
	}
	return ""
}

// isBusy reports whether err is that another process is writing.
func isBusy(err error) bool {
	var fault *sqlite.Error
	return errors.As(err, &fault) && fault.Code()&0xff == sqlite3.SQLITE_BUSY
}

// errDamaged is for what SQLite reads and we cannot: it finds torn pages only, and not a bit that fell over.
var errDamaged = errors.New("what is kept is not what was saved")

// rotten is for a part of the file: the next Save of that robots.txt writes it again.
const rotten = "what is in force is fetched again and takes its place; if there is more of this, the disk is failing: " +
	"stop robotsproxy and move the file, its -wal and -shm to another"

const damaged = "the file is damaged, and was left as it is: stop robotsproxy and move the file, its -wal and -shm away, and a new one is made; " +
	"what it held of the past is lost to robotsproxy, and what is in force is fetched again"
