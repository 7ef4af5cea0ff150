package main

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/store"
)

// TestSpacingAgreesWithTheOrigin crawls hosts with different Crawl-delays, and compares each gap that the records prove
// with the one that the origin has measured.
func TestSpacingAgreesWithTheOrigin(t *testing.T) {
	hosts := 1000
	if testing.Short() {
		hosts = 30
	}
	site := robotstest.New(t)
	names := make([]string, hosts)
	resolve := make([]string, hosts)
	for i := range names {
		names[i] = fmt.Sprintf("host-%d.example", i)
		resolve[i] = names[i] + ": 127.0.0.1"
		delay := 20 + i*37%200
		site.SetRobots(names[i], robotstest.Robots{Body: fmt.Sprintf("User-agent: *\nDisallow: /private\nCrawl-delay: 0.%03d\n", delay)})
	}
	s := startSite(t, site, "\n  resolve: {"+strings.Join(resolve, ", ")+"}\npacing: {max_wait: 1m}\n")
	crawlHosts(t, site, names, 6, s.proxy)
	stopped(t, s)

	out, err := exec.Command(binaryPath, "audit", "spacing", "--data-dir", s.dir).Output()
	want := fmt.Sprintf("0 of %s gaps were shorter than required, at %s hosts.\n", thousands(5*hosts), thousands(hosts))
	if err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("audit spacing: %v, %.300s\nwant %s", err, out, want)
	}
	checkGapsOf(t, site, names, openStore(t, s.dir))
	checkShortened(t, s.dir)
}

// thousands returns n with a comma between thousands.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// crawlHosts requests some pages of each host, through the proxies in turn and in random order.
func crawlHosts(t *testing.T, site *robotstest.Site, hosts []string, pages int, proxies ...string) {
	var work []string
	for _, h := range hosts {
		for p := range pages {
			work = append(work, fmt.Sprintf("http://%s:%d/delay/%dms", h, site.Port(), p))
		}
	}
	rand.Shuffle(len(work), func(i, j int) { work[i], work[j] = work[j], work[i] })
	next := make(chan string)
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: proxies[i%len(proxies)]})}}
			defer client.CloseIdleConnections()
			for u := range next {
				resp, err := client.Get(u)
				if err != nil {
					t.Error(err)
					continue
				}
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Errorf("%s: %s, %v", u, resp.Status, err)
				}
			}
		})
	}
	for _, u := range work {
		next <- u
	}
	close(next)
	all.Wait()
}

func stopped(t *testing.T, s *server) {
	t.Helper()
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
}

func openStore(t *testing.T, dir string) *store.Records {
	t.Helper()
	r, err := store.OpenRecords(store.RecordsOptions{Path: filepath.Join(dir, "audit.db"), ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// checkGapsOf compares each gap of the records with that of the origin. The proxy sends before the origin has read the
// request, and has ended after the origin, so the gap at the origin is never shorter.
func checkGapsOf(t *testing.T, site *robotstest.Site, hosts []string, records audit.Reader) {
	t.Helper()
	gaps := map[string][]proof.Gap{}
	for g, err := range proof.Gaps(t.Context(), records, audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if g.Known {
			gaps[g.Lane] = append(gaps[g.Lane], *g)
		}
	}
	var later []time.Duration
	for _, h := range hosts {
		measured := site.Gaps(h)
		if len(measured) != len(gaps[h]) {
			t.Errorf("%s: %d gaps in the records, %d at the origin", h, len(gaps[h]), len(measured))
			continue
		}
		for i, g := range gaps[h] {
			off := measured[i] - g.Length
			later = append(later, off)
			if off < -2*time.Microsecond || measured[i] < g.Required || g.Violation() || g.Contradiction {
				t.Errorf("%s, gap %d: %v at the origin, %v in the records, recorded as %v, required %v, cause %q",
					h, i, measured[i], g.Length, g.Recorded, g.Required, g.Cause)
			}
		}
	}
	slices.Sort(later)
	if len(later) == 0 {
		t.Fatal("no gaps")
	}
	t.Logf("%d gaps; at the origin longer by p50 %v, p99 %v, at most %v", len(later), later[len(later)/2], later[len(later)*99/100], later[len(later)-1])
	if half := later[len(later)/2]; half > 50*time.Millisecond {
		t.Errorf("half of the gaps are more than %v longer at the origin", half)
	}
}

// checkShortened changes the end of one request in the database, so that the gap after it is 10 ms, and expects that
// audit spacing names the next one.
func checkShortened(t *testing.T, dir string) {
	t.Helper()
	var first, second audit.Record
	for rec, err := range openStore(t, dir).Records(t.Context(), audit.Filter{Host: "host-1.example"}) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case first.ID == 0 || rec.SentAt.Before(first.SentAt):
			first, second = *rec, first
		case second.ID == 0 || rec.SentAt.Before(second.SentAt):
			second = *rec
		}
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "audit.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	later := second.SentAt.Sub(first.EndedAt) - 10*time.Millisecond
	_, err = db.Exec("UPDATE records SET ended = ended + ? WHERE id = ?", later.Microseconds(), int64(first.ID))
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(binaryPath, "audit", "spacing", "host-1.example", "--data-dir", dir).Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitNo || !bytes.HasPrefix(out, []byte("1 of 5 gaps was shorter than required")) ||
		!bytes.Contains(out, []byte(second.ID.String()+"\thost-1.example\t0.010 s\t")) {
		t.Errorf("audit spacing after a change: %v\n%s", err, out)
	}
	if out, err = exec.Command(binaryPath, "audit", "spacing", "host-2.example", "--data-dir", dir).Output(); err != nil {
		t.Errorf("audit spacing of another host: %v\n%s", err, out)
	}
}

// TestSpacingOverInstances crawls through two instances that share their pace by Redis, and proves the spacing from the
// records of both.
func TestSpacingOverInstances(t *testing.T) {
	long(t)
	f := newFleet(t, 2, redisConfig(redistest.Start(t), "refuse"))
	hosts := []string{"a.example", "b.example", "c.example"}
	for _, h := range hosts {
		f.site.SetRobots(h, robotstest.Robots{Body: "User-agent: *\nDisallow:\nCrawl-delay: 0.1\n"})
	}
	crawlHosts(t, f.site, hosts, 30, f.instances[0].proxy, f.instances[1].proxy)
	var both merged
	for _, s := range f.instances {
		stopped(t, s)
		both.all = append(both.all, openStore(t, s.dir))
	}
	report, err := proof.Spacing(t.Context(), both, audit.Filter{})
	if err != nil || !report.OK() || len(report.Instances) != 2 || report.Between == 0 || report.Gaps != 3*29 {
		t.Errorf("%+v, %v; want 87 gaps of two instances without a finding", report, err)
	}
	checkGapsOf(t, f.site, hosts, both)
}

// merged are the records of several instances.
type merged struct {
	audit.Reader
	all []*store.Records
}

func (m merged) Records(ctx context.Context, f audit.Filter) iter.Seq2[*audit.Record, error] {
	return func(yield func(*audit.Record, error) bool) {
		var all []audit.Record
		for _, r := range m.all {
			for rec, err := range r.Records(ctx, f) {
				if err != nil {
					yield(nil, err)
					return
				}
				all = append(all, *rec)
			}
		}
		slices.SortFunc(all, func(a, b audit.Record) int { return cmp.Compare(a.ID, b.ID) })
		for i := range all {
			if !yield(&all[i], nil) {
				return
			}
		}
	}
}
