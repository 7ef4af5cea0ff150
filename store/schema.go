package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
)

// migrations bring a database from each version to the next: the first file makes version 1 of an empty database. A file
// that has been released is never edited; what it got wrong is mended by the next.
//
//go:embed migrations/*.sql
var migrations embed.FS

// applicationID tells our databases from those of others ("RPst"; PRAGMA application_id).
const applicationID = 0x52507374

// migrate brings the database up to date, or leaves it as it was. It writes the version even where there is nothing to do:
// so a database that cannot be written is found at the start, and not by the first Save. Of several processes that open a
// new file one makes the tables, and the others find them.
func migrate(ctx context.Context, db *sql.DB) error {
	files, err := fs.Glob(migrations, "migrations/*.sql") // in order, since the names are numbers of one length
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after Commit there is nothing to take back
	done, err := schemaVersion(ctx, tx)
	if err != nil {
		return err
	}
	if done > len(files) {
		return fmt.Errorf("it is of a newer robotsproxy (version %d of the tables, and this one knows %d): run that one, or move the file away", done, len(files))
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

// schemaVersion returns how many migrations the database has seen. A database that is neither ours nor empty is refused.
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
