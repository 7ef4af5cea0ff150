package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
)

// migrations update a database from each version to the next: the first file makes version 1 of an empty database. A
// released file is never edited; the next file corrects its errors.
//
//go:embed migrations/*.sql
var migrations embed.FS

// applicationID identifies databases of this package ("RPst"; PRAGMA application_id).
const applicationID = 0x52507374

// migrate updates the database, or leaves it unchanged. It writes the version even if the database is current, so that
// a read-only database fails at the start and not at the first Save. If several processes open a new file, one makes
// the tables and the others find them.
func migrate(ctx context.Context, db *sql.DB) error {
	files, err := fs.Glob(migrations, "migrations/*.sql") // sorted: the names are numbers of one length
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	done, err := schemaVersion(ctx, tx)
	if err != nil {
		return err
	}
	if done > len(files) {
		return fmt.Errorf("a newer robotsproxy wrote it (version %d of the tables; this one supports %d): run that one, or "+
			"move the file away", done, len(files))
	}
	for _, file := range files[done:] {
		if err := apply(ctx, tx, file); err != nil {
			return fmt.Errorf("bringing it up to date with %s: %w", file, err)
		}
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, len(files))); err != nil {
		return err
	}
	return tx.Commit()
}

// schemaVersion returns the number of migrations applied. It refuses a database of another program, unless it is empty.
func schemaVersion(ctx context.Context, tx *sql.Tx) (version int, err error) {
	var id, tables int
	row := tx.QueryRowContext(ctx, "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_schema) FROM pragma_user_version, pragma_application_id")
	if err := row.Scan(&version, &id, &tables); err != nil {
		return 0, err
	}
	if id != applicationID && (tables > 0 || version > 0) {
		return 0, fmt.Errorf("it is a database of another program: move it away")
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
