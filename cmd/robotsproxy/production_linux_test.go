package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/pgtest"
	"github.com/robotsproxy/robotsproxy/internal/redistest"
)

// production is what docker-compose.yml starts, as processes: two proxies behind HAProxy with one Redis, one PostgreSQL
// and one CA, and Prometheus. Their configurations are the files that it mounts, with the addresses replaced.
type production struct {
	*shards
	dsn        string
	configs    []string // files of the instances
	prometheus string   // address
}

func newProduction(t *testing.T) *production {
	t.Helper()
	program("haproxy")(t)
	program("prometheus")(t)
	p := &production{shards: startShards(t, 6, clientRobots)}
	secrets := p.makePassword()
	ca := t.TempDir()
	if out, err := exec.Command(binaryPath, "ca", "show", "--data-dir", ca).CombinedOutput(); err != nil {
		t.Fatalf("making the CA: %v\n%s", err, out)
	}
	redis := redistest.Start(t, "--maxmemory", "256mb", "--maxmemory-policy", "noeviction")
	config := substitute(t, "instance.yaml", map[string]string{
		"0.0.0.0:": "127.0.0.1:", "10.213.0.10": "127.0.0.1", "10.0.0.0/8": "127.0.0.0/8", "redis://redis:6379": redis.URL(),
		"/secrets": secrets, "/ca/": ca + "/",
	})
	for range 2 {
		p.configs = append(p.configs, p.start(config+p.egress()))
	}
	p.trust(filepath.Join(ca, "ca.pem"))
	p.balance()
	p.watch()
	return p
}

// substitute returns a file of deploy/ with other addresses and paths, each of which it must contain.
func substitute(t *testing.T, file string, values map[string]string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy", file))
	if err != nil {
		t.Fatal(err)
	}
	s := string(text)
	for old, value := range values {
		if !strings.Contains(s, old) {
			t.Errorf("deploy/%s does not contain %s", file, old)
		}
		s = strings.ReplaceAll(s, old, value)
	}
	return s
}

// makePassword starts PostgreSQL with the user, the database and the password of docker-compose.yml, and returns the
// folder with the password.
func (p *production) makePassword() string {
	p.t.Helper()
	server, dir := pgtest.Start(p.t), p.t.TempDir()
	write := func() string {
		if out, err := exec.Command("sh", "../../deploy/postgres/make-password", dir).CombinedOutput(); err != nil {
			p.t.Fatalf("make-password: %v\n%s", err, out)
		}
		password, err := os.ReadFile(filepath.Join(dir, "password"))
		if err != nil || len(password) != 64 {
			p.t.Fatalf("the password is %q: %v", password, err)
		}
		return string(password)
	}
	password := write()
	if again := write(); again != password {
		p.t.Errorf("a second start has replaced the password")
	}
	server.SQL(p.t, "postgres", fmt.Sprintf("CREATE ROLE robotsproxy LOGIN PASSWORD '%s'", password))
	server.SQL(p.t, "postgres", "CREATE DATABASE robotsproxy OWNER robotsproxy")
	file := filepath.Join(dir, "dsn")
	dsn, err := os.ReadFile(file)
	if err != nil {
		p.t.Fatal(err)
	}
	p.dsn = strings.Replace(strings.TrimSpace(string(dsn)), "@postgres/", "@"+server.Addr()+"/", 1)
	if err := os.WriteFile(file, []byte(p.dsn), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return dir
}

// watch starts Prometheus.
func (p *production) watch() {
	p.t.Helper()
	dir := p.t.TempDir()
	config := substitute(p.t, "prometheus/prometheus.yml", map[string]string{
		"one:3129": p.instances[0].admin, "two:3129": p.instances[1].admin, "15s": "1s",
	})
	for name, text := range map[string]string{"prometheus.yml": config, "rules.yml": substitute(p.t, "prometheus/rules.yml", nil)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	p.prometheus = freeAddress(p.t, "127.0.0.1")
	log := &lockedBuffer{}
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.prometheus)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if p.t.Failed() {
			p.t.Logf("the log of Prometheus:\n%s", log)
		}
	})
}

// query returns the value of a query of Prometheus that has one, else "".
func (p *production) query(expr string) string {
	p.t.Helper()
	resp, err := http.Get("http://" + p.prometheus + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var answer struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		p.t.Fatal(err)
	}
	if len(answer.Data.Result) != 1 {
		return ""
	}
	return fmt.Sprint(answer.Data.Result[0].Value[1])
}

// Two proxies behind HAProxy keep one pace, fetch each robots.txt once, record into one database, sign with one CA, and are
// watched by Prometheus.
func TestProduction(t *testing.T) {
	long(t)
	p := newProduction(t)
	p.checkOperatorNames()
	p.checkCAOfCrawlers()

	p.crawl()
	time.Sleep(lasting(time.Second))
	p.served(time.Now())
	p.halt()
	used := make(map[int]bool)
	for host, homes := range p.homes(time.Time{}) {
		used[homes[0]] = true
		if len(homes) != 1 {
			t.Errorf("%s was requested by the instances %v, want one", host, homes)
		}
		checkGaps(t, host, slices.Sorted(slices.Values(p.site.Gaps(host))))
	}
	if len(used) != 2 {
		t.Errorf("the instances %v were used, want both", used)
	}
	p.checkSent(time.Now(), func(string) bool { return false })
	p.checkFetches()
	p.checkRecords()
}

// checkOperatorNames requests the metrics by the names that Prometheus uses.
func (p *production) checkOperatorNames() {
	p.t.Helper()
	for name, want := range map[string]int{"one:3129": http.StatusOK, "two:3129": http.StatusOK, "other:3129": http.StatusMisdirectedRequest} {
		req, err := http.NewRequest(http.MethodGet, "http://"+p.instances[0].admin+"/metrics", nil)
		if err != nil {
			p.t.Fatal(err)
		}
		req.Host = name
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			p.t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			p.t.Errorf("the operator's listener as %s: %s, want %d", name, resp.Status, want)
		}
	}
}

// checkCAOfCrawlers gets the CA through HAProxy, as the crawler of docker-compose.yml does.
func (p *production) checkCAOfCrawlers() {
	p.t.Helper()
	resp, err := http.Get("http://" + p.proxy + "/ca.pem")
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	want, fault := exec.Command(binaryPath, "ca", "export", "--config", p.configs[1], "--data-dir", p.instances[1].dir).Output()
	if err != nil || fault != nil || string(got) != string(want) {
		p.t.Errorf("HAProxy gives the CA %q (%v), and the second instance has %q (%v)", got, err, want, fault)
	}
}

// checkRecords compares the answers with the records in PostgreSQL, with what the command finds there, and with the
// metrics.
func (p *production) checkRecords() {
	p.t.Helper()
	resp, err := p.client(0).Get(fmt.Sprintf("https://%s:%d/private/x", p.hosts[0], p.site.TLSPort()))
	if err != nil {
		p.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		p.t.Errorf("a page that robots.txt disallows: %s", resp.Status)
	}
	const ofClients = " FROM records WHERE kind IS NULL OR kind = 1"
	requests := fmt.Sprint(len(p.answered) + 1)
	settle(p.t, "recorded in PostgreSQL", func() bool { return pgtest.SQL(p.t, p.dsn, "SELECT count(*)"+ofClients) == requests })
	if got := pgtest.SQL(p.t, p.dsn, fmt.Sprintf("SELECT count(DISTINCT id %% %d)", audit.Instances)+ofClients); got != "2" {
		p.t.Errorf("%s instances have recorded, want 2", got)
	}
	for i, config := range p.configs {
		out, err := exec.Command(binaryPath, "audit", "list", "--config", config, "--data-dir", p.instances[i].dir, "--decision", "deny", "--format", "jsonl").CombinedOutput()
		if err != nil || strings.Count(string(out), "/private/x") != 1 {
			p.t.Errorf("the refused requests by the configuration of instance %d: %v\n%s", i, err, out)
		}
	}
	settle(p.t, "scraped", func() bool { return p.query("sum(robotsproxy_requests_total)") == requests })
	for expr, want := range map[string]string{
		`count(up{job="robotsproxy"} == 1)`: "2", `min(robotsproxy_redis_up)`: "1", `min(robotsproxy_instances)`: "2", `count(ALERTS)`: "",
	} {
		if got := p.query(expr); got != want {
			p.t.Errorf("Prometheus has %s = %q, want %q", expr, got, want)
		}
	}
}

// The configuration of deploy/kubernetes is valid.
func TestKubernetesConfig(t *testing.T) {
	dir := t.TempDir()
	dsn := filepath.Join(dir, "dsn")
	if err := os.WriteFile(dsn, []byte("postgres://robotsproxy@postgres/robotsproxy\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(binaryPath, "ca", "show", "--data-dir", filepath.Join(dir, "ca")).CombinedOutput(); err != nil {
		t.Fatalf("making the CA: %v\n%s", err, out)
	}
	file := filepath.Join(dir, "config.yaml")
	text := substitute(t, "kubernetes/config.yaml", map[string]string{"/secrets/dsn/dsn": dsn, "/secrets/ca/": dir + "/ca/", "/data/": dir + "/"})
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(binaryPath, "validate", "--config", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
