package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mustLoad loads a file of the given text.
func mustLoad(t *testing.T, text string, more Options) *Config {
	t.Helper()
	cfg, _, faults := loadText(t, text, more)
	if faults != "" {
		t.Fatal(faults)
	}
	return cfg
}

func changes(t *testing.T, before, after *Config) (merged *Config, lines string) {
	t.Helper()
	merged, all, err := before.merge(after, now)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, c := range all {
		texts = append(texts, c.String())
	}
	return merged, strings.Join(texts, "\n")
}

func TestMerge(t *testing.T) {
	flag := Options{Overrides: []Override{{Key: "grace", Value: "1s", Source: "--grace"}}}
	before := mustLoad(t, "listen: 127.0.0.1:1\nmode: report\nredis: {url: redis://u:secret@h:1}\n", flag)
	after := mustLoad(t, `listen: 127.0.0.1:2
redis: {url: redis://u:other@h:1}
grace: 5s
exemptions:
  - {host: a.example, path: /x, effect: deny, reason: r, owner: o}
`, flag)
	merged, lines := changes(t, before, after)
	const want = `listen: 127.0.0.1:1 -> 127.0.0.1:2 (needs a restart)
mode: report -> enforce
redis.url: redis://u:xxxxx@h:1 -> redis://u:xxxxx@h:1 (needs a restart)
+ exemptions deny a.example /x`
	if lines != want {
		t.Errorf("changes:\n%s\nwant:\n%s", lines, want)
	}
	wanted := *after
	wanted.Listen, wanted.Redis = before.Listen, before.Redis
	if diff := cmp.Diff(wanted, *merged, compare); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}
	if _, again := changes(t, merged, after); strings.Count(again, "\n") != 1 || strings.Count(again, "restart") != 2 {
		t.Errorf("what still needs a restart is reported as\n%s", again)
	}
	if _, back := changes(t, merged, before); strings.Contains(back, "restart") {
		t.Errorf("what needs no restart any more is reported as\n%s", back)
	}
}

// A configuration that is right by itself may be wrong with the values that need a restart.
func TestMergeChecks(t *testing.T) {
	before := mustLoad(t, `listen: 0.0.0.0:1
identity: {contact: "mailto:a@b.example"}
clients:
  - {name: lab, cidr: [10.0.0.0/8]}
`, Options{})
	after := mustLoad(t, "listen: 127.0.0.1:1\n", Options{})
	_, _, err := before.merge(after, now)
	if err == nil || !strings.Contains(err.Error(), "with the values that need a restart: 2 faults") ||
		!strings.Contains(err.Error(), "can be reached by others, expected a list of clients") {
		t.Errorf("merge = %v", err)
	}
}

// A default that depends on another value follows it.
func TestMergeOfDefaults(t *testing.T) {
	before := mustLoad(t, "limits: {connections: 100}\n", Options{})
	if before.Limits.Tunnels != 100 {
		t.Fatalf("tunnels: %d", before.Limits.Tunnels)
	}
	merged, _ := changes(t, before, mustLoad(t, "limits: {connections: 9000}\n", Options{}))
	if merged.Limits.Tunnels != Default().Limits.Tunnels {
		t.Errorf("tunnels: %d", merged.Limits.Tunnels)
	}
}

// LoadFor takes a file with faults in other keys.
func TestLoadFor(t *testing.T) {
	for _, row := range []struct{ name, file, fault, warning string }{
		{"no fault", "data_dir: /d\n", "", ""},
		{"a fault elsewhere", "data_dir: /d\nmode: enfroce\nadmin: {listen: 127.0.0.1:7}\n", "", "mode: found"},
		{"a fault of a key", "data_dir: /d\nadmin: {listen: x}\n", "admin.listen: found", ""},
		{"a misspelt section", "data_dir: /d\nadmim: {listen: 127.0.0.1:7}\n", "did you mean admin?", ""},
		{"no YAML", "data_dir: /d\nmode: [\n", "not YAML", ""},
	} {
		cfg, warnings, err := LoadFor(Options{Path: write(t, row.file)}, "data_dir", "admin", "admin.listen")
		if (err != nil) != (row.fault != "") || err != nil && !strings.Contains(err.Error(), row.fault) {
			t.Errorf("%s: %v, want %q", row.name, err, row.fault)
		}
		if err == nil && cfg.DataDir != "/d" {
			t.Errorf("%s: %+v", row.name, cfg)
		}
		if (len(warnings) > 0) != (row.warning != "") || len(warnings) > 0 && !strings.Contains(warnings[0].String(), row.warning) {
			t.Errorf("%s: warnings %v", row.name, warnings)
		}
	}
}
