package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/policy"
)

func TestParseExemption(t *testing.T) {
	cfg := Default()
	cfg.Clients = []Client{{Name: "news"}}
	whole := map[string]string{
		"host": "*.Bücher.example", "path": "/api/*", "client": "news", "effect": "allow",
		"reason": `contract: "12" # &a \u0041 é`, "owner": "{ops}", "until": "2027-06-30",
	}
	got, err := cfg.ParseExemption(whole, now)
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Exemption{
		Host: "*.xn--bcher-kva.example", Path: "/api/*", Client: "news", Effect: policy.EffectAllow,
		Reason: whole["reason"], Owner: "{ops}", Until: time.Date(2027, 7, 1, 0, 0, 0, 0, time.UTC),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ParseExemption (-want +got):\n%s", diff)
	}
	for _, row := range []struct{ key, value, want string }{
		{"host", "", "host: found none, expected a host such as"},
		{"host", "https://a.example/", "host: found"},
		{"path", "api", "path: found \"api\", expected a path such as /api/*"},
		{"path", "/a b", "path: found"},
		{"client", "newz", `client: found "newz", expected the name of one of clients; did you mean news?`},
		{"effect", "", "effect: found none, expected allow or deny"},
		{"effect", "Allow", "effect: found \"Allow\""},
		{"reason", "", "reason: found none, expected a reason"},
		{"reason", "a\nb", "reason: found"},
		{"reason", "a\x00b", "reason: found"},
		{"reason", strings.Repeat("x", 501), "reason: found 501 bytes, expected at most 500"},
		{"owner", "", "owner: found none, expected an owner"},
		{"until", "", "until: found none, expected a date such as 2027-06-30"},
		{"until", "tomorrow", "until: found \"tomorrow\", expected a date such as 2027-06-30, or a time as in RFC 3339"},
		{"until", "2026-05-31", "until: this exemption stopped working at 2026-06-01T00:00:00Z"},
		{"hosst", "a.example", "hosst: unknown key; did you mean host?"},
	} {
		entry := map[string]string{}
		for k, v := range whole {
			entry[k] = v
		}
		entry[row.key] = row.value
		if _, err := cfg.ParseExemption(entry, now); err == nil || !strings.HasPrefix(err.Error(), row.want) {
			t.Errorf("ParseExemption with %s %q: %v, want %q", row.key, row.value, err, row.want)
		}
	}
	_, err = cfg.ParseExemption(nil, now)
	if err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("ParseExemption of nothing: %v, want four problems", err)
	}
}
