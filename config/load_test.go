package config

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/internal/settings"
	"github.com/robotsproxy/robotsproxy/policy"
)

var update = flag.Bool("update", false, "write testdata/broken.txt anew")

func TestEveryFaultAtOnce(t *testing.T) {
	env := []string{"ROBOTSPROXY_GRACE=2h", "ROBOTSPROXY_CLIENTS=lab", "HOME=/home/op"}
	overrides := []Override{{"log.format", "xml", "--log-format"}, {"egress.resolve", "a.example", "--resolve"}, {"no.such", "1", "--no-such"}}
	_, _, err := load(Options{Path: "testdata/broken.yaml", Env: env, Overrides: overrides}, now, 1000)
	if err == nil {
		t.Fatal("load(testdata/broken.yaml) = nil, want faults")
	}
	got := err.Error() + "\n"
	if *update {
		if err := os.WriteFile("testdata/broken.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/broken.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("load(testdata/broken.yaml) (-want +got):\n%s", diff)
	}
}

// TestManyEmptyEntries checks that the checks of a large file end, with a bounded number of faults.
func TestManyEmptyEntries(t *testing.T) {
	_, _, got := loadText(t, "clients: ["+strings.Repeat("{},", 1<<20/3-10)+"]", Options{})
	if want := "config: the first 100 faults\nf:1:11: clients[0].name: found none"; !strings.HasPrefix(got, want) || len(got) > 50_000 {
		t.Errorf("load = %.300s... (%d bytes), want it to begin %s", got, len(got), want)
	}
}

func TestMissingFile(t *testing.T) {
	_, _, err := Load(Options{Path: "testdata/nowhere.yaml"})
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load(nowhere.yaml) = %v, want one that says it does not exist", err)
	}
}

func TestOrder(t *testing.T) {
	cfg, warnings, faults := loadText(t, "grace: 1s\nrobots: {ttl: 1h, timeout: 1s}\nlisten: 127.0.0.1:1\n", Options{
		Env:       []string{"ROBOTSPROXY_ROBOTS_TTL=2h", "ROBOTSPROXY_ROBOTS_TIMEOUT=", "ROBOTSPROXY_LISTEN=127.0.0.1:2"},
		Overrides: []Override{{"listen", "127.0.0.1:3", "--listen"}, {"listen", "127.0.0.1:4", "--listen"}},
	})
	if faults+warnings != "" {
		t.Fatal(faults, warnings)
	}
	want := map[string]string{
		"grace":          "1s f:1:8",
		"robots.ttl":     "2h ROBOTSPROXY_ROBOTS_TTL",
		"robots.timeout": "1s f:2:28",
		"listen":         "127.0.0.1:4 --listen",
		"mode":           "enforce default",
	}
	for _, v := range cfg.Values() {
		from := v.Origin.String()
		if v.Origin.Line > 0 {
			from = fmt.Sprintf("f:%d:%d", v.Origin.Line, v.Origin.Column)
		}
		if w, asked := want[v.Key]; asked && v.Text+" "+from != w {
			t.Errorf("%s = %s %s, want %s", v.Key, v.Text, from, w)
		}
	}
}

func TestEnv(t *testing.T) {
	cfg, warnings, faults := loadText(t, "egress: {ports: [1], resolve: {x.example: 10.0.0.1}}\n", Options{Env: []string{
		"ROBOTSPROXY_MODE=report",
		"ROBOTSPROXY_ADMIN_LISTEN=127.0.0.1:9",
		"ROBOTSPROXY_ROBOTS_ERROR_TTL=90s",
		"ROBOTSPROXY_ROBOTS_SERVE_FROM_CACHE=false",
		"ROBOTSPROXY_ROBOTS_MAX_SIZE=1MB",
		"ROBOTSPROXY_EGRESS_PORTS=80, 443,8000-8080",
		"ROBOTSPROXY_EGRESS_ALLOW_ADDRESSES=127.0.0.1,10.0.0.0/8",
		"ROBOTSPROXY_EGRESS_RESOLVE=A.example=127.0.0.1,b.example=::1",
		"ROBOTSPROXY_AUDIT_JSONL=records.jsonl",
		"ROBOTSPROXY_LISTN=x",
		"ROBOTSPROXY_SERVICE_HOST=10.0.0.1",
		"OTHER_LISTEN=x",
	}})
	if faults != "" {
		t.Fatal(faults)
	}
	want := Default()
	want.DataDir = "/home/op/.local/state/robotsproxy"
	want.Mode = policy.Report
	want.Admin.Listen = "127.0.0.1:9"
	want.Robots.ErrorTTL = 90 * time.Second
	want.Robots.ServeFromCache = false
	want.Robots.MaxSize = 1_000_000
	want.Egress.Ports = []PortRange{{80, 80}, {443, 443}, {8000, 8080}}
	want.Egress.AllowAddresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8")}
	want.Egress.Resolve = map[string]netip.Addr{"a.example": netip.MustParseAddr("127.0.0.1"), "b.example": netip.MustParseAddr("::1")}
	want.Audit.JSONL = "records.jsonl"
	if diff := cmp.Diff(want, *cfg, compare); diff != "" {
		t.Errorf("load (-want +got):\n%s", diff)
	}
	wantWarnings := "ROBOTSPROXY_LISTN: unknown variable, ignored; did you mean ROBOTSPROXY_LISTEN?\n" +
		"ROBOTSPROXY_SERVICE_HOST: unknown variable, ignored"
	if warnings != wantWarnings {
		t.Errorf("warnings =\n%s\nwant\n%s", warnings, wantWarnings)
	}
}

// TestVariablesAreDistinct: a.b_c and a_b.c would be one variable.
func TestVariablesAreDistinct(t *testing.T) {
	keys := map[string]string{}
	for _, k := range schema.Keys(Default()) {
		name := strings.ReplaceAll(k, ".", "_")
		if keys[name] != "" {
			t.Errorf("%s and %s have one variable", keys[name], k)
		}
		keys[name] = k
	}
}

func TestDataDir(t *testing.T) {
	tests := []struct {
		name string
		env  []string
		uid  int
		want string
	}{
		{"home", []string{"HOME=/home/op"}, 1000, "/home/op/.local/state/robotsproxy"},
		{"XDG", []string{"HOME=/home/op", "XDG_STATE_HOME=/state"}, 1000, "/state/robotsproxy"},
		{"XDG that is not absolute", []string{"HOME=/home/op", "XDG_STATE_HOME=state"}, 1000, "/home/op/.local/state/robotsproxy"},
		{"root", []string{"HOME=/root"}, 0, "/var/lib/robotsproxy"},
		{"root with XDG", []string{"XDG_STATE_HOME=/state"}, 0, "/state/robotsproxy"},
		{"set", []string{"HOME=/home/op", "ROBOTSPROXY_DATA_DIR=/data"}, 1000, "/data"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg, _, err := load(Options{Env: tt.env}, now, tt.uid)
			if err != nil || cfg.DataDir != tt.want {
				t.Fatalf("load(%q, uid %d) = %+v, %v; want DataDir %s", tt.env, tt.uid, cfg, err, tt.want)
			}
		})
	}
	if _, _, err := load(Options{}, now, 1000); err == nil || !strings.HasPrefix(err.Error(), "config: data_dir: expected a path") {
		t.Errorf("load(no HOME) = %v, want a fault of data_dir", err)
	}
}

func TestRelativePaths(t *testing.T) {
	cfg, _, faults := loadText(t, "data_dir: state\nadmin: {token_file: ../token}\naudit: {jsonl: \"-\"}\n", Options{
		Env: []string{"ROBOTSPROXY_ADMIN_TOKEN_FILE=here"},
	})
	if faults != "" {
		t.Fatal(faults)
	}
	if !strings.HasSuffix(cfg.DataDir, "/state") || !strings.HasPrefix(cfg.DataDir, os.TempDir()) {
		t.Errorf("DataDir = %s, want it in the folder of the file", cfg.DataDir)
	}
	if cfg.Admin.TokenFile != "here" {
		t.Errorf("TokenFile = %s, want the variable's, from the working directory", cfg.Admin.TokenFile)
	}
	if cfg.Audit.JSONL != "-" {
		t.Errorf("JSONL = %s, want -", cfg.Audit.JSONL)
	}
}

// FuzzLoad: whatever a file holds, Load says what is wrong or gives a Config whose values, set again as flags, are the
// same Config.
func FuzzLoad(f *testing.F) {
	for _, path := range []string{examplePath, "testdata/broken.yaml"} {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{"", "---\n---\n", "a: *a", "[[[[", "grace: 1w2d3h4m5.5s", "egress: {resolve: {a.example: ::1}, ports: [any]}", "? {a: b}\n: c"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		l := newLoader()
		l.ReadYAML("/nowhere/f", text)
		l.placeData([]string{"HOME=/home/op"}, 1000)
		l.check(now)
		if err := l.Err(); err != nil {
			var faults settings.Problems
			if !errors.As(err, &faults) || faults.Error() == "" || len(faults) > 100 {
				t.Errorf("ReadYAML(%q): %d faults", text, len(faults))
			}
			return
		}
		again := newLoader()
		for _, v := range l.cfg.Values() {
			if !strings.Contains(v.Key, "[") && !isList(v.Key) {
				again.Set(v.Key, v.Text, "again")
			}
		}
		again.cfg.Clients, again.cfg.Hosts, again.cfg.Exemptions = l.cfg.Clients, l.cfg.Hosts, l.cfg.Exemptions
		if err := again.Err(); err != nil {
			t.Fatalf("ReadYAML(%q), values set again: %v", text, err)
		}
		if diff := cmp.Diff(l.cfg, again.cfg, compare); diff != "" {
			t.Errorf("ReadYAML(%q), values set again (-first +again):\n%s", text, diff)
		}
	})
}

func isList(key string) bool { return key == "clients" || key == "hosts" || key == "exemptions" }
