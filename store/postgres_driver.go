package store

import (
	"context"
	"database/sql/driver"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// numberedConnector connects to PostgreSQL for texts with the placeholders of SQLite, so that both databases get the
// same texts.
type numberedConnector struct{ driver.Connector }

func (c numberedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return numberedConn{conn.(*stdlib.Conn)}, nil
}

type numberedConn struct{ *stdlib.Conn }

func (c numberedConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	return c.Conn.PrepareContext(ctx, numbered(text))
}

func (c numberedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	if len(args) > 0 { // else it may be a file of statements with comments
		text = numbered(text)
	}
	return c.Conn.ExecContext(ctx, text, translated(args))
}

func (c numberedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.QueryContext(ctx, numbered(text), translated(args))
}

// translated returns args as PostgreSQL takes them.
func translated(args []driver.NamedValue) []driver.NamedValue {
	for i := range args {
		args[i].Value = postgresValue(args[i].Value)
	}
	return args
}

// postgresValue returns v as PostgreSQL takes it: truth as a number, as SQLite has it, and text in UTF-8 without NUL.
func postgresValue(v any) any {
	switch v := v.(type) {
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	case string:
		return postgresText(v)
	}
	return v
}

// postgresText returns s as PostgreSQL can keep it: NUL becomes %00.
func postgresText(s string) string {
	if utf8.ValidString(s) && !strings.Contains(s, "\x00") {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "%00")
}

// native returns the connection of pgx below a driver connection.
func native(conn any) *pgx.Conn { return conn.(numberedConn).Conn.Conn() }

// numbered replaces the placeholders "?" of SQLite in text by those of PostgreSQL: $1, $2 and so on.
func numbered(text string) string {
	if !strings.Contains(text, "?") {
		return text
	}
	var b strings.Builder
	n := 0
	for part := range strings.SplitSeq(text, "?") {
		if n > 0 {
			b.WriteString("$" + strconv.Itoa(n))
		}
		b.WriteString(part)
		n++
	}
	return b.String()
}
