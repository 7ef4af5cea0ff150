package store_test

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/pgtest"
	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/store"
)

func openPostgres(tb testing.TB, dsn string) *store.Postgres {
	tb.Helper()
	p, err := store.OpenPostgres(context.Background(), dsn)
	if err != nil {
		tb.Fatalf("OpenPostgres: %v", err)
	}
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return p
}

// TestInstancesCreateTheTablesAtOnce opens an empty database eight times at the same moment.
func TestInstancesCreateTheTablesAtOnce(t *testing.T) {
	dsn := pgtest.Database(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			p, err := store.OpenPostgres(context.Background(), dsn)
			if err != nil {
				t.Error(err)
				return
			}
			p.Close()
		})
	}
	all.Wait()
	openPostgres(t, dsn)
}

func TestNewerPostgresIsRefused(t *testing.T) {
	dsn := pgtest.Database(t)
	openPostgres(t, dsn)
	pgtest.SQL(t, dsn, "UPDATE robotsproxy_schema SET version = 999")
	_, err := store.OpenPostgres(context.Background(), dsn)
	if err == nil || !strings.Contains(err.Error(), "a newer robotsproxy wrote it (version 999") {
		t.Errorf("OpenPostgres = %v, want an error about a newer robotsproxy", err)
	}
	if got := pgtest.SQL(t, dsn, "SELECT version FROM robotsproxy_schema"); got != "999" {
		t.Errorf("version %s after the refusal", got)
	}
}

// TestPostgresErrors expects what an operator must do, and never the password.
func TestPostgresErrors(t *testing.T) {
	good := pgtest.Database(t)
	u, err := url.Parse(good)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*url.URL)) string {
		c := *u
		change(&c)
		return c.String()
	}
	for name, each := range map[string]struct{ dsn, want string }{
		"wrong password":      {with(func(u *url.URL) { u.User = url.UserPassword("postgres", "hunter2:/x") }), "check the user and the password"},
		"unknown user":        {with(func(u *url.URL) { u.User = url.UserPassword("nosuch", "hunter2:/x") }), "check the user and the password"},
		"no such database":    {with(func(u *url.URL) { u.Path = "/nosuch" }), "create the database"},
		"TLS required":        {with(func(u *url.URL) { u.RawQuery = "sslmode=require" }), "refused TLS"},
		"unknown option":      {with(func(u *url.URL) { u.RawQuery = "sslmode=sometimes" }), "sslmode"},
		"a bad escape":        {"postgres://robots:hunter2%zz@localhost/db", "not valid"},
		"an unescaped secret": {"postgres://robots:hunter2/x:y@localhost/db", ""},
		"keywords":            {"host=localhost password='hunter2", "not valid"},
		"nothing":             {" \n", "is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			_, err := store.OpenPostgres(ctx, each.dsn)
			if err == nil {
				t.Fatal("no error")
			}
			if text := err.Error(); !strings.Contains(text, each.want) || strings.Contains(text, "hunter2") || strings.Contains(text, "\n") || strings.Contains(text, pgtest.Password) {
				t.Errorf("error %q, want one with %q and without the password", text, each.want)
			}
		})
	}
}

func TestKeywordDSN(t *testing.T) {
	u, err := url.Parse(pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	openPostgres(t, "host=127.0.0.1 port="+u.Port()+" user=postgres dbname="+u.Path[1:]+" password='"+pgtest.Password+"'\n")
}

// TestSlowPostgresDoesNotHoldTheFiles delays each answer by longer than SharedFiles waits.
func TestSlowPostgresDoesNotHoldTheFiles(t *testing.T) {
	store.Long(t)
	files, relay := shareOverRelay(t)
	snap := found(mustOrigin(t, "https://a.example"), file, dawn)
	if err := files.Save(context.Background(), snap, nil); err != nil {
		t.Fatal(err)
	}
	relay.Delay(5 * time.Second)
	for range 3 { // the second and third do not ask
		begin := time.Now()
		got, err := files.Load(context.Background(), snap.Origin)
		if err != nil || got.SHA256 != snap.SHA256 {
			t.Fatalf("Load = %v, %v, want the snapshot of state.db", got, err)
		}
		if d := time.Since(begin); d > 4*time.Second {
			t.Errorf("Load took %v", d)
		}
	}
}

func shareOverRelay(t *testing.T) (*store.SharedFiles, *redistest.Relay) {
	t.Helper()
	u, err := url.Parse(pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	relay := redistest.NewRelay(t, u.Host)
	u.Host = relay.Addr()
	files := openPostgres(t, u.String()).Share(fresh(t), store.SharedOptions{Failed: func(err error) { t.Log(err) }})
	return files, relay
}
