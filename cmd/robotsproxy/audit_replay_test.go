package main

import (
	"database/sql"
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

const replayConfig = `
  resolve: {"*.example": 127.0.0.1}
identity: {name: ProxyBot}
hosts:
  - {host: off.example, mode: off}
  - {host: report.example, mode: report}
  - {host: lax.example, dialect: google}
  - {host: tunnel.example, intercept: tunnel}
  - {host: slow.example, delay: 20ms}
deny_hosts: [denied.example]
exemptions:
  - {host: a.example, path: /private/ok, effect: allow, reason: "asked", owner: ops, until: 2999-01-01}
  - {host: a.example, path: /licensed, effect: allow, reason: "licensed", owner: legal, until: 2999-01-01}
  - {host: a.example, path: /closed, effect: deny, reason: "asked", owner: ops}
usage: enforce
clients: [{name: news, cidr: [127.0.0.0/8], product_token: NewsBot, purpose: train-ai}]
`

// command runs a command on the data folder of s, and returns its output and exit status.
func (s *server) command(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	cmd := exec.Command(binaryPath, append(args, "--data-dir", s.dir)...)
	text, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", args, err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// TestReplayOfACrawl crawls in every way that a decision depends on. All decisions come out the same, and a record that
// was changed in the database is named.
func TestReplayOfACrawl(t *testing.T) {
	long(t)
	site := robotstest.New(t)
	const rules = "User-agent: *\nDisallow: /\n\nUser-agent: NewsBot\nDisallow: /private/\nDisallow: /*?id=\nCrawl-delay: 0.01\nContent-Usage: /ai/ train-ai=n\n"
	for _, host := range []string{"a", "off", "report", "lax", "tunnel", "slow", "stopped", "bypassed"} {
		site.SetRobots(host+".example", robotstest.Robots{Body: rules})
	}
	for _, path := range []string{"/reserved", "/licensed"} { // the header alone says so
		site.SetPage("", path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Robots-Tag", "noindex, NewsBot: noai")
			w.Header().Set("Content-Usage", "search=n")
		})
	}
	site.SetRobots("page.example", robotstest.Robots{Body: "<!doctype html><html><body>Log in</body></html>"})
	site.SetRobots("moved.example", robotstest.Robots{Redirect: fmt.Sprintf("http://a.example:%d/page", site.Port())})
	site.SetRobots("rate.example", robotstest.Robots{Body: "User-agent: *\nRequest-rate: 100/1s\n"})
	site.SetRobots("broken.example", robotstest.Robots{Status: 503})
	s := startSite(t, site, replayConfig)
	crawl := func(hosts ...string) {
		for _, host := range hosts {
			for _, target := range []string{
				"/", "/private/x", "/private/ok/1", "/closed", "/x?id=1", "/x?", "/x?token=abc", "/private/?token=abc", "/x;jsessionid=1", "/ai/x", "/reserved", "/licensed",
				"/robots.txt", "/status/503", "/a/../private/y", "//private/z", "/%ff",
			} {
				s.exchange(t, fmt.Sprintf("GET http://%[1]s.example:%[2]d%[3]s HTTP/1.1\r\nHost: %[1]s.example:%[2]d\r\n"+
					"User-Agent: NewsBot/1.0\r\nConnection: close\r\n\r\n", host, site.Port(), target), "")
			}
		}
	}
	order := func(args ...string) {
		t.Helper()
		if out, code := s.command(t, args...); code != 0 {
			t.Fatalf("%v: %d: %s", args, code, out)
		}
	}
	crawl("a", "off", "report", "lax", "slow", "denied", "page", "moved", "rate", "broken")
	order("stop", "stopped.example", "--reason", "asked")
	order("slow", "slow.example", "30ms", "--reason", "asked")
	order("bypass", "bypassed.example", "--reason", "asked", "--for", "1h")
	crawl("stopped", "slow", "bypassed")
	order("resume", "stopped.example")
	order("resume", "bypassed.example")
	crawl("stopped", "bypassed")
	for _, host := range []string{"tunnel", "a"} {
		curl := exec.Command("curl", "-sk", "-o", os.DevNull, "-x", "http://"+s.proxy, fmt.Sprintf("https://%s.example:%d/private/x", host, site.TLSPort()))
		_ = curl.Run() // some are refused
	}
	records := s.allRecords(t)
	if len(records) < 200 {
		t.Fatalf("%d records", len(records))
	}
	out, code := s.command(t, "audit", "replay")
	if code != 0 || !strings.Contains(out, " come out the same.") || strings.Contains(out, "not kept") {
		t.Fatalf("%d: %s", code, out)
	}
	t.Logf("%s", out)
	for _, want := range []string{"a.example,/reserved,deny,usage-preference", "report.example,/reserved,would_deny,report", "a.example,/licensed,exempt,exemption"} {
		if rows := byHeader(records); !slices.Contains(rows, want) {
			t.Errorf("%q has no %q", rows, want)
		}
	}
	for _, row := range []struct{ sql, field string }{
		{"UPDATE records SET verdict = (SELECT verdict FROM records r JOIN verdicts v ON v.id = r.verdict WHERE v.decision = 'allow' LIMIT 1) WHERE id = ?", "decision"},
		{"UPDATE bodies SET body = CAST('User-agent: *' AS BLOB), deflated = 0", "evidence"},
		{"UPDATE policies SET body = CAST('{}' AS BLOB)", "evidence"},
	} {
		t.Run(row.field, func(t *testing.T) {
			copied := &server{dir: t.TempDir()}
			if err := os.CopyFS(copied.dir, os.DirFS(s.dir)); err != nil {
				t.Fatal(err)
			}
			list, _ := s.command(t, "audit", "list", "--reason", "robots", "--limit", "1", "--format", "csv")
			rows, err := csv.NewReader(strings.NewReader(list)).ReadAll()
			if err != nil || len(rows) < 2 {
				t.Fatalf("%v: %s", err, list)
			}
			change(t, copied.dir, row.sql, rows[1][0])
			out, code := copied.command(t, "audit", "replay", "--format", "csv")
			if code != 1 || !strings.Contains(out, rows[1][0]) || !strings.Contains(out, row.field) {
				t.Errorf("%d: %.2000s", code, out)
			}
		})
	}
}

// byHeader returns host, path, decision and reason of the records that the header of a response decided.
func byHeader(records []audit.Record) (rows []string) {
	for _, r := range records {
		if r.ByHeader() {
			rows = append(rows, fmt.Sprintf("%s,%s,%s,%s", r.Host, r.Path, r.Decision, r.Reason))
		}
	}
	return rows
}

func change(t *testing.T, dir, statement, id string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "audit.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var args []any
	if strings.Contains(statement, "?") {
		parsed, err := audit.ParseID(id)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, int64(parsed))
	}
	if _, err := db.Exec(statement, args...); err != nil {
		t.Fatal(err)
	}
}
