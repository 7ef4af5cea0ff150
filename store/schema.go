package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
)

// Each folder of migrations updates a database from each version to the next: the first file makes version 1 of an empty
// database. A released file is never edited; the next file corrects its errors.
//
//go:embed migrations/*.sql records/*.sql
var migrations embed.FS

// tables are those of one kind of database.
type tables struct {
	folder        string // of the migrations
	applicationID int32  // identifies the kind (PRAGMA application_id)
}

var (
	stateTables  = tables{"migrations", 0x52507374} // "RPst"
	recordTables = tables{"records", 0x52507261}    // "RPra"
)

// files returns the names of the migrations in order.
func (t tables) files() ([]string, error) {
	return fs.Glob(migrations, t.folder+"/*.sql") // sorted: the names are numbers of one length
}

// migrate updates the database, or leaves it unchanged. It writes the version even if the database is current, so that
// a read-only database fails at the start and not at the first Save. If several processes open a new file, one makes
// the tables and the others find them.
func migrate(ctx context.Context, db *sql.DB, t tables) error {
	files, err := t.files()
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	done, err := t.version(ctx, tx)
	if err != nil {
		return err
	}
	if done > len(files) {
		return newerError(done, len(files))
	}
	for _, file := range files[done:] {
		if err := apply(ctx, tx, file); err != nil {
			return fmt.Errorf("bringing it up to date with %s: %w", file, err)
		}
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", t.applicationID, len(files))); err != nil {
		return err
	}
	return tx.Commit()
}

func newerError(version, supported int) error {
	return fmt.Errorf("a newer robotsproxy wrote it (version %d of the tables; this one supports %d): run that one, or "+
		"move the file away", version, supported)
}

// version returns the number of migrations applied. It refuses a database of another kind, unless it is empty.
func (t tables) version(ctx context.Context, tx *sql.Tx) (version int, err error) {
	var id int32
	var tables int
	row := tx.QueryRowContext(ctx, "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_schema) FROM pragma_user_version, pragma_application_id")
	if err := row.Scan(&version, &id, &tables); err != nil {
		return 0, err
	}
	if id != t.applicationID && (tables > 0 || version > 0) {
		return 0, errors.New("it is a database of another program: move it away")
	}
	return version, nil
}

func apply(ctx context.Context, tx *sql.Tx, file string) error {
	text, err := migrations.ReadFile(file)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, string(text))
	return err
}
