package dashboard

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/store"
)

// TestManyRecords writes RECORDS records of the last three days over 1,000 hosts, or takes those of the file in AUDIT_DB,
// and prints how long the pages take.
func TestManyRecords(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("RECORDS"))
	if err != nil {
		t.Skip("RECORDS is not set to a number of records")
	}
	path := os.Getenv("AUDIT_DB")
	if path == "" {
		path = filepath.Join(t.TempDir(), "audit.db")
	}
	_, statErr := os.Stat(path)
	records, err := store.OpenRecords(store.RecordsOptions{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	end := time.Now()
	if os.IsNotExist(statErr) {
		writeMany(t, records, n, end)
	}
	files := oneFile{}
	server := serve(t, Options{Records: records, Files: files, History: files})
	for _, page := range []string{
		"/", "/?range=1h", "/?range=7d", "/decisions", "/decisions?decision=deny", "/decisions?host=site-7.example", "/decisions?agent=NewsBot",
		"/decisions?rule=Disallow:+/private/", "/decisions?path=/private/",
		"/hosts", "/hosts?range=7d", "/hosts/site-7.example", "/hosts/site-7.example?range=7d", "/clients", "/clients?name=NewsBot", "/clients?name=Other", "/settings",
	} {
		var times []time.Duration
		for range 3 {
			begin := time.Now()
			resp, body := get(t, server.URL+page)
			times = append(times, time.Since(begin).Round(time.Millisecond/10))
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s\n%s", page, resp.Status, body)
			}
			time.Sleep(figuresAge)
		}
		t.Logf("%-40s %v", page, times)
	}
}

// writeMany writes n records of the three days before end.
func writeMany(t *testing.T, records *store.Records, n int, end time.Time) {
	t.Helper()
	const days = 3
	agents := []string{"NewsBot", "PriceWatch", "archive-crawler", "linkcheck"}
	entries := make([]audit.Entry, 0, 500)
	for i := range n {
		at := end.Add(-days * 24 * time.Hour).Add(days * 24 * time.Hour / time.Duration(n) * time.Duration(i))
		r := newRecord(audit.IDAt(at), i)
		r.Host, r.Agent, r.UserAgent, r.Client = fmt.Sprintf("site-%d.example", i*7919%1000), agents[i%len(agents)], agents[i%len(agents)]+"/2.1", "news"
		if r.Decision == policy.Allow {
			r.Path = fmt.Sprintf("/articles/2026/11/%d/a-page-of-a-site.html", i%100_000)
			r.SentAt, r.EndedAt, r.PacingMode = at, at.Add(50*time.Millisecond), "local"
			r.DelayRequired, r.DelaySource = audit.Millis(2*time.Second), "crawl-delay"
		}
		if entries = append(entries, audit.Entry{Record: r}); len(entries) == cap(entries) || i == n-1 {
			if err := records.Write(t.Context(), entries); err != nil {
				t.Fatal(err)
			}
			entries = entries[:0]
		}
	}
}
