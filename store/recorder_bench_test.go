package store_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/store"
)

// BenchmarkRecorder writes records of 1,000 hosts as a busy proxy does. One operation is a record.
func BenchmarkRecorder(b *testing.B) {
	for _, way := range []string{"lines", "sqlite", "both"} {
		b.Run(way, func(b *testing.B) {
			var o audit.RecorderOptions
			var err error
			if way != "sqlite" {
				if o.Lines, err = audit.OpenLines(audit.LinesOptions{Path: filepath.Join(b.TempDir(), "audit.jsonl")}); err != nil {
					b.Fatal(err)
				}
			}
			if way != "lines" {
				records, err := store.OpenRecords(store.RecordsOptions{Path: filepath.Join(b.TempDir(), "audit.db")})
				if err != nil {
					b.Fatal(err)
				}
				defer records.Close()
				o.Store = records
			}
			o.Buffer = 5000 // Begin waits for room
			r := audit.NewRecorder(o)
			var ids audit.Sequence
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				rec := busyRecord(&ids, i)
				if err := r.Begin(b.Context(), rec); err != nil {
					b.Fatal(err)
				}
				r.End(rec)
			}
			if err := r.Close(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

func busyRecord(ids *audit.Sequence, i int) *audit.Record {
	now := time.Now()
	return &audit.Record{
		ID: ids.Next(now), Time: now, Client: "local", ClientAddr: fmt.Sprintf("127.0.0.1:%d", 40000+i%16), UserAgent: "NewsBot/1.0",
		Agent: "NewsBot", ProductToken: "newsbot", Method: "GET", Scheme: "https", Host: fmt.Sprintf("www%d.example", i%1000), Port: 443,
		Path: fmt.Sprintf("/news/2026/11/23/a-page-of-the-site-%06d", i), Via: audit.Intercepted, Mode: "enforce", Decision: policy.Allow,
		RobotsSHA256: strings.Repeat("a", 64), RobotsStatus: 200, RobotsState: "found", RobotsFetchedAt: now.Truncate(time.Hour),
		SentAt: now.Add(time.Millisecond), FirstByte: audit.Millis(3 * time.Millisecond), EndedAt: now.Add(5 * time.Millisecond),
		Status: 200, Bytes: 12345, UpstreamAddr: "192.0.2.1:443",
	}
}
