package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
)

// DefaultRecordsSize is RecordsOptions.MaxSize if that is zero.
const DefaultRecordsSize = 10 << 30

// RecordsOptions configure a Records.
type RecordsOptions struct {
	Path     string        // of the file; created if needed, with mode 0600 in a folder of mode 0700
	ReadOnly bool          // open an existing file to ask questions only
	Wait     time.Duration // maximum wait while another process writes; if zero, 5 s
	Strict   bool          // a commit also survives a crash of the machine (SQLite's synchronous FULL)

	// MaxSize is the size in bytes for which the caller calls Prune. The bodies of robots.txt files get a quarter of it. If
	// zero, DefaultRecordsSize.
	MaxSize int64
}

// Records keeps audit records in one SQLite file. It implements audit.Store. Several processes on one machine may write
// to the file.
type Records struct {
	file
	sealTables
	options RecordsOptions

	mu         sync.Mutex // guards the fields below, and write transactions of this process
	generation int64      // of the dictionaries
	dictionaries
	known evidenceCache
	doubt audit.ID             // records up to this may have been committed by a Write that failed
	open  map[audit.ID]counted // open records of this process, as they are counted

	compiled map[string]*sql.Stmt // the frequent statements of Write in SQLite
	args     []any                // of its rows

	rows rowCaches
}

var _ audit.Store = (*Records)(nil)

// file is an SQLite file, or a PostgreSQL database.
type file struct {
	postgres      *Postgres // nil: SQLite
	closePostgres bool      // by Close

	path  string
	wait  time.Duration // maximum wait while another process writes
	write *sql.DB       // one connection; nil if the file is opened to read only
	read  *sql.DB       // up to readers connections, read-only
}

// OpenRecords opens the records at o.Path. The caller must Close them.
func OpenRecords(o RecordsOptions) (*Records, error) {
	if o.Path == "" {
		return nil, errors.New("store: no path for the records")
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("store: finding %s: %w", o.Path, err)
	}
	if o.Wait == 0 {
		o.Wait = 5 * time.Second
	}
	for end := time.Now().Add(o.Wait); ; time.Sleep(again) {
		r := newRecords(o)
		r.file = file{path: path, wait: o.Wait}
		err := r.connect()
		if err == nil {
			r.linkSeals()
			return r, nil
		}
		r.Close()
		if !isBusy(err) || time.Now().After(end) {
			return nil, r.fail("opening the records", err)
		}
	}
}

// newRecords returns a Records without a database.
func newRecords(o RecordsOptions) *Records {
	if o.MaxSize == 0 {
		o.MaxSize = DefaultRecordsSize
	}
	return &Records{
		options: o, doubt: -1, dictionaries: newDictionaries(), known: newEvidenceCache(), open: make(map[audit.ID]counted), rows: newRowCaches(),
	}
}

func (r *Records) linkSeals() {
	r.sealTables = sealTables{r.read, r.file.change, r.file.fail}
}

func (r *Records) connect() (err error) {
	if r.options.ReadOnly {
		return r.connectReader()
	}
	if err = create(r.path); err != nil {
		return err
	}
	settings := []string{
		"_pragma=auto_vacuum(INCREMENTAL)", "_pragma=temp_store(MEMORY)", "_pragma=cache_size(-16000)",
		"_pragma=wal_autocheckpoint(4000)", // pages, 16 MB: indexes write the same pages again and again
		"_pragma=journal_size_limit(67108864)", "_journal_mode=WAL", "_txlock=immediate",
	}
	if r.options.Strict {
		settings = append(settings, "_pragma=synchronous(FULL)")
	}
	if r.write, err = connect(r.path, r.options.Wait, 1, settings...); err != nil {
		return err
	}
	if err = migrate(context.Background(), r.write, recordTables); err != nil {
		return err
	}
	if err = hasten(r.write); err != nil {
		return err
	}
	if r.read, err = connect(r.path, r.options.Wait, readers, "_query_only=1"); err != nil {
		return err
	}
	return r.prepare()
}

// prepare compiles the frequent statements of Write.
func (r *Records) prepare() (err error) {
	texts := append(insertTexts[:], addMinuteSQL, addHourSQL, generationSQL, findFileSQL, addFileSQL, fileSeenSQL, bodyUsedSQL,
		largestShareSQL, addRecordBodySQL,
		r.askers.add, r.targets.add, r.verdicts.add, r.paces.add, r.outcomes.add, r.names.add)
	r.compiled = make(map[string]*sql.Stmt, len(texts))
	for _, text := range texts {
		if r.compiled[text], err = r.write.Prepare(text); err != nil {
			return err
		}
	}
	return nil
}

// transaction is a transaction of Write. Records.mu keeps the compiled statements to one at a time.
type transaction struct {
	*sql.Tx
	compiled map[string]*sql.Stmt // by text; all others are compiled for each use
}

func (tx transaction) ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error) {
	if stmt := tx.compiled[text]; stmt != nil {
		return tx.StmtContext(ctx, stmt).ExecContext(ctx, args...)
	}
	return tx.Tx.ExecContext(ctx, text, args...)
}

func (tx transaction) QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row {
	if stmt := tx.compiled[text]; stmt != nil {
		return tx.StmtContext(ctx, stmt).QueryRowContext(ctx, args...)
	}
	return tx.Tx.QueryRowContext(ctx, text, args...)
}

// connectReader opens a file that another process may be writing, or a copy, also on a medium that cannot be written.
func (r *Records) connectReader() (err error) {
	if _, err = os.Stat(r.path); err != nil {
		return err
	}
	if r.read, err = connect(r.path, r.options.Wait, readers, "mode=ro", "_query_only=1"); err != nil {
		return err
	}
	err = r.checkVersion()
	_, gone := os.Stat(r.path + "-wal")
	if err != nil && errors.Is(gone, fs.ErrNotExist) {
		r.read.Close()
		if r.read, err = connect(r.path, r.options.Wait, readers, "mode=ro", "immutable=1", "_query_only=1"); err != nil {
			return err
		}
		err = r.checkVersion()
	}
	if err != nil && gone == nil {
		if _, missing := os.Stat(r.path + "-shm"); errors.Is(missing, fs.ErrNotExist) {
			return fmt.Errorf("%w: %w", errLogAlone, err)
		}
	}
	return err
}

// errLogAlone means that SQLite needs the -shm to read the -wal, and cannot create it.
var errLogAlone = errors.New("its -wal is here without its -shm, which cannot be created")

// checkVersion refuses a file that this version cannot read.
func (r *Records) checkVersion() error {
	tx, err := r.read.BeginTx(context.Background(), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	version, err := recordTables.version(context.Background(), tx)
	if err != nil {
		return err
	}
	files, err := recordTables.files()
	if err != nil {
		return err
	}
	switch {
	case version > len(files):
		return newerError(version, len(files))
	case version < len(files):
		return fmt.Errorf("an older robotsproxy wrote it (version %d of the tables; this one needs %d): start this "+
			"version's robotsproxy serve once with it", version, len(files))
	}
	return nil
}

// Close ends all operations and closes the file. Later calls return an error.
func (f *file) Close() error {
	if f.closePostgres {
		return f.postgres.Close()
	}
	if f.postgres != nil {
		return nil
	}
	var faults []error
	for _, db := range []*sql.DB{f.read, f.write} { // closing the last connection empties the log
		if db != nil {
			faults = append(faults, db.Close())
		}
	}
	return f.fail("closing the file", errors.Join(faults...))
}
