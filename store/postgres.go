package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// Postgres is a PostgreSQL database (15 or later) that several instances share. It is safe for concurrent use.
type Postgres struct {
	db   *sql.DB
	read *sql.DB // for questions about records, so that writers need not wait for long ones
	name string  // for messages: without the user and the password

	partitions partitions
}

const (
	postgresConnections = 16               // of an instance, at most, without those that answer questions about records
	connectTime         = 5 * time.Second  // of one connection, unless the DSN has connect_timeout
	startTime           = 10 * time.Second // for which OpenPostgres waits for a server that starts
)

// OpenPostgres opens the database that dsn names: a URL such as postgres://USER:PASSWORD@HOST/DATABASE?sslmode=require,
// or keywords such as "host=HOST user=USER dbname=DATABASE". What dsn lacks comes from the variables and files of libpq (PGHOST,
// PGPASSWORD, ~/.pgpass). It creates the tables, updates older ones, and refuses those of a newer program. If the server
// does not answer, OpenPostgres tries again for ten seconds. Its errors do not contain the password.
func OpenPostgres(ctx context.Context, dsn string) (*Postgres, error) {
	return openPostgres(ctx, dsn, (*Postgres).migrate)
}

// openPostgres opens the database after begin has succeeded.
func openPostgres(ctx context.Context, dsn string, begin func(*Postgres, context.Context) error) (*Postgres, error) {
	config, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	connector := numberedConnector{stdlib.GetConnector(*config)}
	p := &Postgres{db: postgresPool(connector, postgresConnections), read: postgresPool(connector, readers), name: databaseName(config)}
	for end := time.Now().Add(startTime); ; {
		err := begin(p, ctx)
		if err == nil {
			return p, nil
		}
		if !isAway(err) || time.Now().After(end) || ctx.Err() != nil {
			p.Close()
			return nil, p.fail("opening it", err)
		}
		sleep(ctx, 250*time.Millisecond)
	}
}

// Close closes all connections. Later calls return an error.
func (p *Postgres) Close() error {
	return p.fail("closing the connections", errors.Join(p.read.Close(), p.db.Close()))
}

func postgresPool(c driver.Connector, connections int) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return db
}

// parseDSN does not quote dsn in its errors, since a fault of the syntax may be in the password.
func parseDSN(dsn string) (*pgx.ConnConfig, error) {
	if dsn = strings.TrimSpace(dsn); dsn == "" {
		return nil, errors.New("store: the DSN of PostgreSQL is empty: write a URL such as postgres://USER:PASSWORD@HOST/DATABASE")
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("store: the DSN of PostgreSQL is not valid%s: write a URL such as "+
			"postgres://USER:PASSWORD@HOST/DATABASE, with characters such as / in the password as %%2F, or keywords such as "+
			"host=HOST user=USER dbname=DATABASE", dsnFault(dsn, err))
	}
	if config.ConnectTimeout == 0 || config.ConnectTimeout == 2*time.Minute { // the default of pgx
		config.ConnectTimeout = connectTime
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "robotsproxy"
	}
	config.RuntimeParams["timezone"] = "UTC"
	config.AfterConnect = func(ctx context.Context, c *pgconn.PgConn) error { // an instance that hangs must not stop the others
		return c.Exec(ctx, "SET idle_in_transaction_session_timeout = '10s'").Close()
	}
	return config, nil
}

// dsnFault returns the cause of err in parentheses, unless it may quote a part of the password.
func dsnFault(dsn string, err error) string {
	if _, notURL := url.Parse(dsn); notURL != nil && strings.Contains(dsn, "://") {
		return ""
	}
	_, cause, found := strings.Cut(err.Error(), "`: ")
	if !found || errors.As(err, new(*url.Error)) {
		return ""
	}
	return " (" + cause + ")"
}

func databaseName(c *pgx.ConnConfig) string {
	if strings.HasPrefix(c.Host, "/") {
		return fmt.Sprintf("the database %q of PostgreSQL at %s", c.Database, c.Host)
	}
	return fmt.Sprintf("the database %q of PostgreSQL at %s:%d", c.Database, c.Host, c.Port)
}

// fail adds to err the failed operation, the database and a remedy.
func (p *Postgres) fail(act string, err error) error {
	if err == nil {
		return nil
	}
	if errors.As(err, new(*pgconn.ConnectError)) {
		err = oneLine{err}
	}
	if help := postgresRemedy(err); help != "" {
		return fmt.Errorf("store: %s: %s: %w; %s", p.name, act, err, help)
	}
	return fmt.Errorf("store: %s: %s: %w", p.name, act, err)
}

// oneLine is an error with the lines of its text in one. A cause is named once, although the driver repeats it if it
// tries an address with TLS and without.
type oneLine struct{ error }

func (e oneLine) Error() string {
	first, rest, _ := strings.Cut(e.error.Error(), ":\n\t")
	if rest == "" {
		return first
	}
	return first + ": " + strings.Join(slices.Compact(strings.Split(rest, "\n\t")), "; ")
}

func (e oneLine) Unwrap() error { return e.error }

// postgresRemedy returns advice for the operator, by the code of PostgreSQL (appendix A of its manual).
func postgresRemedy(err error) string {
	if errors.Is(err, errDamaged) {
		return rotten
	}
	fault := (*pgconn.PgError)(nil)
	switch {
	case !errors.As(err, &fault):
		return ""
	case strings.HasPrefix(fault.Code, "28"):
		return "check the user and the password in the file of audit.dsn_file, and pg_hba.conf of the server"
	case fault.Code == "3D000":
		return "create the database, with createdb, or correct its name"
	case fault.Code == "42501":
		return "the user of audit.dsn_file must own the database, or have CREATE on its schema"
	case fault.Code == "25006":
		return "the server is a standby or read-only: name its primary, with target_session_attrs=read-write"
	case strings.HasPrefix(fault.Code, "53"):
		return "the server lacks disk space, memory or connections"
	}
	return ""
}

// isAway reports whether err means that the server does not answer, or that it starts or stops.
func isAway(err error) bool {
	fault := (*pgconn.PgError)(nil)
	if errors.As(err, &fault) {
		return strings.HasPrefix(fault.Code, "57P") || strings.HasPrefix(fault.Code, "08") || fault.Code == "53300"
	}
	return errors.As(err, new(*net.OpError))
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// postgresMigrations update a database from each version to the next, as migrations do for SQLite.
//
//go:embed postgres/*.sql
var postgresMigrations embed.FS

// migrationLock is the key of the advisory lock that one instance holds while it updates the tables ("RPst").
const migrationLock = 0x52507374

const makeVersionSQL = `
CREATE TABLE IF NOT EXISTS robotsproxy_schema (single integer PRIMARY KEY CHECK (single = 1), version integer NOT NULL)`

// migrate updates the database, or leaves it unchanged. If several instances start at once, one makes the tables and the
// others find them.
func (p *Postgres) migrate(ctx context.Context) error {
	files, err := fs.Glob(postgresMigrations, "postgres/*.sql") // sorted: the names are numbers of one length
	if err != nil {
		return err
	}
	return p.change(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", migrationLock); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, makeVersionSQL); err != nil {
			return err
		}
		done, err := postgresVersion(ctx, tx, len(files))
		if err != nil {
			return err
		}
		for _, file := range files[done:] {
			text, err := postgresMigrations.ReadFile(file)
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, string(text)); err != nil {
				return fmt.Errorf("bringing it up to date with %s: %w", file, err)
			}
		}
		if done == len(files) {
			return nil
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO robotsproxy_schema VALUES (1, $1) "+
			"ON CONFLICT (single) DO UPDATE SET version = excluded.version", len(files))
		return err
	})
}

// postgresVersion returns the version of the tables. It refuses one beyond supported.
func postgresVersion(ctx context.Context, tx *sql.Tx, supported int) (version int, err error) {
	err = tx.QueryRowContext(ctx, "SELECT version FROM robotsproxy_schema").Scan(&version)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if version > supported {
		return 0, fmt.Errorf("a newer robotsproxy wrote it (version %d of the tables; this one supports %d): run that one, or "+
			"name another database", version, supported)
	}
	return version, err
}

// checkTables refuses a database without the tables of this version. It changes nothing.
func (p *Postgres) checkTables(ctx context.Context) error {
	files, err := fs.Glob(postgresMigrations, "postgres/*.sql")
	if err != nil {
		return err
	}
	return p.change(ctx, func(tx *sql.Tx) error {
		var made bool
		if err := tx.QueryRowContext(ctx, "SELECT to_regclass('robotsproxy_schema') IS NOT NULL").Scan(&made); err != nil {
			return err
		}
		if !made {
			return errors.New("it has no tables of robotsproxy: robotsproxy serve makes them at its start")
		}
		version, err := postgresVersion(ctx, tx, len(files))
		if err == nil && version < len(files) {
			return fmt.Errorf("an older robotsproxy wrote it (version %d of the tables; this one needs %d): start this "+
				"version's robotsproxy serve once with it", version, len(files))
		}
		return err
	})
}

// change calls steps in one transaction.
func (p *Postgres) change(ctx context.Context, steps func(*sql.Tx) error) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if err := steps(tx); err != nil {
		return err
	}
	return tx.Commit()
}
