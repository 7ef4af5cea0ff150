package store_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/pgtest"
	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/store"
)

func postgresRecords(tb testing.TB, dsn string) *store.Records {
	tb.Helper()
	records, err := openPostgres(tb, dsn).Records(context.Background(), store.RecordsOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return records
}

// pages returns n complete entries of an instance, the first of which arrives at the given time.
func pages(instance int, at time.Time, n int) []audit.Entry {
	ids := audit.Sequence{Instance: func() int { return instance }}
	entries := make([]audit.Entry, n)
	for i := range entries {
		arrived := at.Add(time.Duration(i) * time.Millisecond).UTC().Truncate(time.Microsecond)
		entries[i].Record = audit.Record{
			ID: ids.Next(arrived), Time: arrived, Client: fmt.Sprintf("client%d", i%7), Agent: "NewsBot", UserAgent: "NewsBot/1.0",
			Method: "GET", Scheme: "https", Host: fmt.Sprintf("h%d.example", i%97), Port: 443, Path: fmt.Sprintf("/page/%d", i),
			Via: audit.Plain, Mode: "enforce", Decision: policy.Allow, Status: 200, Bytes: 1000, EndedAt: arrived.Add(time.Millisecond),
		}
		if i%5 == 0 {
			entries[i].Decision, entries[i].Reason, entries[i].Rule, entries[i].RuleLine = policy.Deny, "robots-disallowed", "Disallow: /page", 3
		}
	}
	return entries
}

// expectSums compares the requests and their sums per minute and hour with n.
func expectSums(t *testing.T, dsn string, n int) {
	t.Helper()
	for _, text := range []string{"SELECT count(*) FROM records", "SELECT sum(n) FROM minutes", "SELECT sum(n) FROM hours WHERE hour >= 0"} {
		if got := pgtest.SQL(t, dsn, text); got != fmt.Sprint(n) {
			t.Errorf("%s: %s, want %d", text, got, n)
		}
	}
}

// TestInstancesWriteAtOnce writes from four instances, which need the same rows of the dictionaries and of the sums, on
// two days.
func TestInstancesWriteAtOnce(t *testing.T) {
	dsn := pgtest.Database(t)
	var all sync.WaitGroup
	midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	for instance := range 4 {
		all.Go(func() {
			p, err := store.OpenPostgres(context.Background(), dsn)
			if err != nil {
				t.Error(err)
				return
			}
			defer p.Close()
			records, err := p.Records(context.Background(), store.RecordsOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			entries := pages(instance, midnight.Add(-time.Second), 2000)
			for i := 0; i < len(entries); i += 100 {
				if err := records.Write(context.Background(), entries[i:i+100]); err != nil {
					t.Errorf("Write of instance %d: %v", instance, err)
				}
			}
		})
	}
	all.Wait()
	expectSums(t, dsn, 8000)
	if got := pgtest.SQL(t, dsn, "SELECT count(*) FROM records_20260301"); got != "4000" {
		t.Errorf("%s requests in the table of the first day, want 4000", got)
	}
	late := pages(9, midnight.AddDate(0, 0, -40), 1) // of a day that has no table
	if err := postgresRecords(t, dsn).Write(context.Background(), late); err != nil {
		t.Errorf("Write of a late record: %v", err)
	}
	if got := pgtest.SQL(t, dsn, "SELECT count(*) FROM targets"); got != "97" {
		t.Errorf("%s hosts, want 97", got)
	}
}

// TestLostCommit loses the answer to a COMMIT, and writes again.
func TestLostCommit(t *testing.T) {
	dsn := pgtest.Database(t)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	relay := redistest.NewRelay(t, u.Host)
	u.Host = relay.Addr()
	records := postgresRecords(t, u.String())
	entries := pages(1, dawn, 100)
	for i := range entries[:10] {
		entries[i].Open = true
	}
	ctx := context.Background()
	if err := records.Write(ctx, entries[:50]); err != nil {
		t.Fatal(err)
	}
	for i := range entries[:10] {
		entries[i].Open = false
		entries[i].Bytes = 2000
	}
	entries = append(entries[:10:10], entries[50:]...)
	relay.Cut("commit")
	if err := records.Write(ctx, entries); err == nil {
		t.Fatal("no error although the answer to the commit was lost")
	}
	if err := records.Write(ctx, entries); err != nil {
		t.Fatal(err)
	}
	if err := records.Write(ctx, pages(1, dawn, 100)[10:50]); err != nil { // once more
		t.Fatal(err)
	}
	expectSums(t, dsn, 100)
	for _, table := range []string{"records", "hours WHERE hour >= 0"} {
		if got := pgtest.SQL(t, dsn, "SELECT sum(bytes) FROM "+table); got != "110000" {
			t.Errorf("%s bytes in %s, want 110000", got, table)
		}
	}
}

// TestRecordsReturnAsWritten reads back a record with each kind of text.
func TestRecordsReturnAsWritten(t *testing.T) {
	records := postgresRecords(t, pgtest.Database(t))
	entry := pages(1, dawn, 1)[0]
	entry.Path, entry.UserAgent, entry.Error = "/\xff\x00?%_\\é", "a'b\"c\\x41\n", "x"
	entry.ClientAddr, entry.Waited, entry.Gap = "[2001:db8::1]:50000", 12_345_000, 1
	if err := records.Write(context.Background(), []audit.Entry{entry}); err != nil {
		t.Fatal(err)
	}
	want := entry.Record
	want.Normal()
	want.Path = strings.ReplaceAll(want.Path, "\x00", "%00")
	got, err := records.Record(context.Background(), entry.ID)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprintf("%+v", *got) != fmt.Sprintf("%+v", want) {
		t.Errorf("Record = %+v\nwant %+v", *got, want)
	}
}

// TestPostgresReturns stops the server under a running Records, which writes again after its return.
func TestPostgresReturns(t *testing.T) {
	server := pgtest.Start(t)
	dsn := server.Database(t)
	records := postgresRecords(t, dsn)
	ctx := context.Background()
	entries := pages(1, dawn, 300)
	if err := records.Write(ctx, entries[:100]); err != nil {
		t.Fatal(err)
	}
	for _, end := range []func(){server.Kill, server.Stop} {
		end()
		if err := records.Write(ctx, entries[100:200]); err == nil {
			t.Error("Write without a server returned no error")
		}
		server.Restart(t)
	}
	var err error
	for range 20 { // each idle connection that broke may cost an attempt
		if err = records.Write(ctx, entries[100:]); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	expectSums(t, dsn, 300)
}

func BenchmarkPostgresWrite(b *testing.B) {
	records := postgresRecords(b, pgtest.Database(b))
	n := 0
	for b.Loop() {
		b.StopTimer()
		entries := pages(1, dawn.Add(time.Duration(n)*time.Second), 1000)
		n++
		b.StartTimer()
		if err := records.Write(context.Background(), entries); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(1000*b.N)/b.Elapsed().Seconds(), "records/s")
}
