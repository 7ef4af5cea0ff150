package store

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// TestLargeFile writes RECORDS records of three days over 1,000 hosts, and prints how long the questions take.
func TestLargeFile(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("RECORDS"))
	if err != nil {
		t.Skip("RECORDS is not set to a number of records")
	}
	r := openRecords(t, RecordsOptions{Path: filepath.Join(t.TempDir(), "audit.db")})
	const days = 3
	begin := time.Now()
	template := crawl(100_000, 1000, time.Hour)
	var last audit.Entry
	for i := 0; i < n; i += 500 {
		batch := slices.Clone(template[i%len(template):][:500])
		for j := range batch {
			at := firstDay.Add(days * 24 * time.Hour / time.Duration(n) * time.Duration(i+j))
			e := &batch[j]
			shift := at.Sub(e.Time)
			e.ID, e.Time, e.RobotsFetchedAt = audit.IDAt(at), at, at.Truncate(24*time.Hour)
			if e.EndedAt = e.EndedAt.Add(shift); !e.SentAt.IsZero() {
				e.SentAt = e.SentAt.Add(shift)
			}
		}
		last = batch[len(batch)-1]
		writeRecords(t, r, batch...)
	}
	t.Logf("%.0f records/s", float64(n)/time.Since(begin).Seconds())
	info, err := os.Stat(r.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f bytes per record", float64(info.Size())/float64(n))
	ctx := context.Background()
	end := firstDay.Add(days * 24 * time.Hour)
	denied := []policy.Outcome{policy.Deny}
	list := func(f audit.Filter) error {
		for _, err := range r.Records(ctx, f) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	sums := func(f audit.Filter, by ...audit.Dimension) error {
		_, err := r.Sums(ctx, f, by...)
		return err
	}
	for _, q := range []struct {
		name string
		ask  func() error
	}{
		{"top hosts", func() error { return sums(audit.Filter{Limit: 10}, audit.ByHost) }},
		{"top hosts, 24 h", func() error { return sums(audit.Filter{Limit: 10, Since: end.Add(-24 * time.Hour)}, audit.ByHost) }},
		{"top blocked hosts, 24 h", func() error {
			return sums(audit.Filter{Limit: 10, Since: end.Add(-24 * time.Hour), Decisions: denied}, audit.ByHost)
		}},
		{"top blocked hosts", func() error { return sums(audit.Filter{Limit: 10, Decisions: denied}, audit.ByHost) }},
		{"summary by client, host, rule", func() error {
			return sums(audit.Filter{Limit: 100, Since: end.Add(-24 * time.Hour)}, audit.ByClient, audit.ByHost, audit.ByRule)
		}},
		{"top hosts, not whole hours", func() error {
			return sums(audit.Filter{Limit: 10, Since: end.Add(-23*time.Hour - 59*time.Minute)}, audit.ByHost)
		}},
		{"timeline, 24 h", func() error {
			_, err := r.Timeline(ctx, audit.Filter{Since: end.Add(-24 * time.Hour)}, 15*time.Minute)
			return err
		}},
		{"timeline", func() error { _, err := r.Timeline(ctx, audit.Filter{}, time.Hour); return err }},
		{"list, newest 100", func() error { return list(audit.Filter{Newest: true, Limit: 100}) }},
		{"list, blocked", func() error { return list(audit.Filter{Newest: true, Limit: 100, Decisions: denied}) }},
		{"list, host", func() error { return list(audit.Filter{Newest: true, Limit: 100, Host: "site-7.example"}) }},
		{"list, hosts", func() error { return list(audit.Filter{Newest: true, Limit: 100, Host: "*.example"}) }},
		{"list, client", func() error { return list(audit.Filter{Newest: true, Limit: 100, Client: "shop"}) }},
		{"usage", func() error {
			for _, err := range r.Uses(ctx, audit.Filter{}) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{"record", func() error { _, err := r.Record(ctx, last.ID); return err }},
		{"info", func() error { _, err := r.Info(ctx); return err }},
	} {
		best := time.Hour
		var first time.Duration
		for i := range 5 {
			begin := time.Now()
			if err := q.ask(); err != nil {
				t.Fatalf("%s: %v", q.name, err)
			}
			took := time.Since(begin)
			if i == 0 {
				first = took
			}
			best = min(best, took)
		}
		t.Logf("%-32s %8.2f ms (first %.2f ms)", q.name, float64(best.Microseconds())/1000, float64(first.Microseconds())/1000)
	}
}
