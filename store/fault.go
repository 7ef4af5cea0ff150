package store

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// fail adds to err the failed operation, the file and a remedy.
func (f *file) fail(act string, err error) error {
	if err == nil {
		return nil
	}
	if f.postgres != nil {
		return f.postgres.fail(act, err)
	}
	if help := remedy(err); help != "" {
		return fmt.Errorf("store: %s: %s: %w; %s", f.path, act, err, help)
	}
	return fmt.Errorf("store: %s: %s: %w", f.path, act, err)
}

// remedy returns advice for the operator, if SQLite's message does not contain it.
func remedy(err error) string {
	if errors.Is(err, errDamaged) {
		return rotten
	}
	if errors.Is(err, errLogAlone) {
		return "copy all files to a folder that you can write, or copy them again with the -shm or after robotsproxy has stopped"
	}
	var fault *sqlite.Error
	if !errors.As(err, &fault) {
		return ""
	}
	switch fault.Code() & 0xff { // the rest of the code has details
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return damaged
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return "the file, its -wal and -shm, and their folder must be writable for the user that robotsproxy runs as"
	case sqlite3.SQLITE_BUSY:
		return "another process is writing to it for too long"
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR:
		return "check whether the disk is full or failing; earlier data is intact"
	}
	return ""
}

// isBusy reports whether err means that another process is writing.
func isBusy(err error) bool {
	var fault *sqlite.Error
	return errors.As(err, &fault) && fault.Code()&0xff == sqlite3.SQLITE_BUSY
}

// errDamaged is for data that SQLite reads without error but that is invalid: SQLite detects torn pages, not flipped
// bits.
var errDamaged = errors.New("the stored data is not what was saved")

// rotten is the remedy for damaged rows: the next Save of that robots.txt replaces them.
const rotten = "the current robots.txt is fetched again and takes its place; if this recurs, the disk is failing: " +
	"stop robotsproxy and move the file, its -wal and -shm to another disk"

const damaged = "the file is damaged and unchanged: stop robotsproxy and move the file, its -wal and -shm away; a new one is created. " +
	"The history in it is lost; current robots.txt files are fetched again"
