package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/pgtest"
	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// postgresConfig returns the configuration of instances that share a database.
func postgresConfig(t *testing.T, dsn string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "dsn")
	if err := os.WriteFile(file, []byte(dsn+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("audit: {store: postgres, dsn_file: %s}\n", file)
}

// robotsFetches returns how often the origin was asked for the robots.txt of b.example.
func (f *fleet) robotsFetches() (n int) {
	for _, r := range f.site.Requests() {
		if r.Target == "/robots.txt" && strings.HasPrefix(r.Host, "b.example") {
			n++
		}
	}
	return n
}

// askAll sends n requests at once, through the instances in turn, for a path that is disallowed, and returns the number
// of each status.
func (f *fleet) askAll(n int) map[int]int {
	f.t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	got := make(map[int]int)
	target := fmt.Sprintf("http://b.example:%d/private", f.site.Port())
	for i := range n {
		all.Go(func() {
			proxy := &url.URL{Scheme: "http", Host: f.instances[i%len(f.instances)].proxy}
			transport := &http.Transport{Proxy: http.ProxyURL(proxy)}
			defer transport.CloseIdleConnections()
			status := 0
			if resp, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get(target); err == nil {
				resp.Body.Close()
				status = resp.StatusCode
			}
			mu.Lock()
			defer mu.Unlock()
			got[status]++
		})
	}
	all.Wait()
	return got
}

// command runs the program against the instance i.
func (f *fleet) command(i int, args ...string) string {
	f.t.Helper()
	cmd := exec.Command(binaryPath, append(args, "--data-dir", f.instances[i].dir)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.t.Fatalf("robotsproxy %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestInstancesFetchOnce asks four instances at the same moment for one host, and then refreshes and purges its
// robots.txt at one of them.
func TestInstancesFetchOnce(t *testing.T) {
	long(t)
	t.Run("postgres", func(t *testing.T) { testFetchOnce(t, postgresConfig(t, pgtest.Database(t))) })
	t.Run("redis", func(t *testing.T) { testFetchOnce(t, redisConfig(redistest.Start(t), "spread")) })
}

func testFetchOnce(t *testing.T, config string) {
	f := newFleet(t, 4, config)
	slowly := func(body string) {
		f.site.SetPage("b.example", "/robots.txt", func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(300 * time.Millisecond)
			fmt.Fprint(w, body)
		})
	}
	slowly("User-agent: *\nDisallow: /private\n")
	if got := f.askAll(200); got[http.StatusForbidden] != 200 {
		t.Errorf("status of 200 requests: %v", got)
	}
	if n := f.robotsFetches(); n != 1 {
		t.Errorf("four instances have asked %d times for one robots.txt, want 1", n)
	}
	host := fmt.Sprintf("http://b.example:%d", f.site.Port())
	for i := range 4 {
		if out := f.command(i, "cache", "ls"); !strings.Contains(out, host) {
			t.Errorf("cache ls of instance %d: %s", i, out)
		}
	}
	slowly("User-agent: *\nDisallow: /private\nDisallow: /more\n")
	f.command(0, "cache", "refresh", host)
	settle(t, "all instances use the refreshed file", func() bool {
		return f.askAll(8)[http.StatusForbidden] == 8 && strings.Contains(f.command(3, "cache", "show", host), "/more")
	})
	if n := f.robotsFetches(); n != 2 {
		t.Errorf("%d fetches after a refresh at one instance, want 2", n)
	}
	f.command(1, "cache", "purge", host)
	time.Sleep(200 * time.Millisecond) // until the others know
	if got := f.askAll(200); got[http.StatusForbidden] != 200 {
		t.Errorf("status of 200 requests after a purge: %v", got)
	}
	if n := f.robotsFetches(); n != 3 {
		t.Errorf("%d fetches after a purge at one instance, want 3", n)
	}
	checkNumbers(t, f)
}

// checkNumbers compares the numbers in the ids of the instances' records.
func checkNumbers(t *testing.T, f *fleet) {
	t.Helper()
	of := make(map[audit.ID]int)
	for i, s := range f.instances {
		for _, r := range s.records(t) {
			number := r.ID % audit.Instances
			if other, taken := of[number]; taken && other != i {
				t.Fatalf("the instances %d and %d have the number %d", other, i, number)
			}
			of[number] = i
		}
	}
	if len(of) != len(f.instances) {
		t.Errorf("%d numbers for %d instances", len(of), len(f.instances))
	}
}

// TestRecordsSurviveAnOutage stops PostgreSQL under load, and starts it: each request that was answered is recorded once.
func TestRecordsSurviveAnOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("stops and starts PostgreSQL under load")
	}
	server := pgtest.Start(t)
	dsn := server.Database(t)
	f := newFleet(t, 2, postgresConfig(t, dsn))
	f.site.SetRobots("b.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private\n"})
	answered := 0
	ask := func(rounds int) {
		for range rounds {
			answered += f.askAll(40)[http.StatusForbidden]
			time.Sleep(20 * time.Millisecond)
		}
	}
	ask(10)
	server.Kill()
	ask(10)
	server.Restart(t)
	ask(10)
	if answered != 30*40 {
		t.Errorf("%d of 1200 requests were answered", answered)
	}
	settle(t, "all records are written", func() bool {
		return pgtest.SQL(t, dsn, "SELECT count(*) FROM records WHERE kind = 1") == fmt.Sprint(answered)
	})
	if got := pgtest.SQL(t, dsn, "SELECT sum(n) FROM hours WHERE hour >= 0"); got != fmt.Sprint(answered) {
		t.Errorf("%s requests are counted, want %d", got, answered)
	}
	f.checkCommands(dsn, answered)
}

// checkCommands asks both instances about the n records of refused requests in the database.
func (f *fleet) checkCommands(dsn string, n int) {
	f.t.Helper()
	file := filepath.Join(f.t.TempDir(), "dsn")
	if err := os.WriteFile(file, []byte(dsn), 0o600); err != nil {
		f.t.Fatal(err)
	}
	for i := range f.instances {
		cmd := exec.Command(binaryPath, "audit", "list", "--format", "jsonl", "--decision", "deny", "--data-dir", f.instances[i].dir)
		cmd.Env = append(os.Environ(), "ROBOTSPROXY_AUDIT_STORE=postgres", "ROBOTSPROXY_AUDIT_DSN_FILE="+file)
		out, err := cmd.Output()
		if err != nil {
			f.t.Fatalf("audit list: %v", err)
		}
		if got := strings.Count(string(out), "\n"); got != n {
			f.t.Errorf("audit list has %d lines, want %d", got, n)
		}
	}
}

// TestProofsOverPostgres replays, measures, seals and verifies the records of two instances, and then changes and removes
// one by SQL.
func TestProofsOverPostgres(t *testing.T) {
	long(t)
	dsn := pgtest.Database(t)
	f := newFleet(t, 2, postgresConfig(t, dsn)+redisConfig(redistest.Start(t), "refuse"))
	hosts := []string{"b.example", "c.example"}
	for _, h := range hosts {
		f.site.SetRobots(h, robotstest.Robots{Body: "User-agent: *\nDisallow: /private\nCrawl-delay: 0.05\n"})
	}
	crawlHosts(t, f.site, hosts, 15, f.instances[0].proxy, f.instances[1].proxy)
	f.askAll(20)
	settle(t, "all records are written", func() bool {
		return pgtest.SQL(t, dsn, "SELECT count(*) FROM records WHERE open IS NULL AND kind IS NULL OR kind = 1") == "50"
	})
	f.expect(0, "50 of 50 decisions come out the same", "replay")
	f.expect(0, "0 of 28 gaps were shorter than required, at 2 hosts, over 2 instances", "spacing")
	f.expect(0, "", "seal")
	f.expect(0, "Sound: ", "verify")

	const refused = "(SELECT %s(id) FROM records WHERE kind = 1)"
	pgtest.SQL(t, dsn, "UPDATE records SET path = '/other' WHERE id = "+fmt.Sprintf(refused, "min"))
	pgtest.SQL(t, dsn, "DELETE FROM records WHERE id = "+fmt.Sprintf(refused, "max"))
	f.expect(1, "Not sound: 1 record was changed, 1 record was removed.", "verify")
	f.expect(1, "48 of 49 decisions come out the same", "replay")
}

// expect runs an audit command on the records of all instances, and compares its exit status and output.
func (f *fleet) expect(code int, text string, args ...string) {
	f.t.Helper()
	dir := f.instances[0].dir
	args = append([]string{"audit"}, append(args, "--data-dir", dir, "--config", filepath.Join(filepath.Dir(dir), "config.yaml"))...)
	cmd := exec.Command(binaryPath, args...)
	out, _ := cmd.CombinedOutput() // the exit status is compared
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), text) {
		f.t.Errorf("%s ends with %d, want %d and %q:\n%s", strings.Join(args, " "), got, code, text, out)
	}
}

// TestInstancesWithoutPostgres stops the server of running instances: each goes on with what it has, and fetches for
// itself.
func TestInstancesWithoutPostgres(t *testing.T) {
	long(t)
	server := pgtest.Start(t)
	f := newFleet(t, 2, postgresConfig(t, server.Database(t)))
	server.Stop()
	f.site.SetRobots("b.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private\n"})
	if got := f.askAll(20); got[http.StatusForbidden] != 20 {
		t.Errorf("status of 20 requests without PostgreSQL: %v", got)
	}
	if n := f.robotsFetches(); n != 2 {
		t.Errorf("%d fetches without PostgreSQL, want one of each instance", n)
	}
	server.Restart(t)
	if got := f.askAll(20); got[http.StatusForbidden] != 20 {
		t.Errorf("status of 20 requests after the return: %v", got)
	}
	for _, s := range f.instances {
		if strings.Contains(s.log.String(), pgtest.Password) {
			t.Error("the log contains the password of PostgreSQL")
		}
	}
}
