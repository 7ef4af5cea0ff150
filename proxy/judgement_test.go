package proxy

import (
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

func TestCostly(t *testing.T) {
	snapshot := func(body string) *robots.Snapshot {
		return &robots.Snapshot{Answer: robots.Answer{Availability: robots.Found}, Rules: rules.Parse([]byte(body), rules.Options{})}
	}
	const small = "User-agent: *\nDisallow: /private\n"
	large, long := small+strings.Repeat("Allow: /*!\n", 31_936), "/"+strings.Repeat("a", 60_000)
	for _, row := range []struct {
		name   string
		snap   *robots.Snapshot
		target string
		agent  string
		want   bool
	}{
		{"no file", nil, long, long, false},
		{"a small file", snapshot(small), "/a/b?c", "NewsBot/1.0", false},
		{"a small file and a long path", snapshot(small), long, "NewsBot/1.0", true},
		{"a large file", snapshot(large), "/a/b?c", "NewsBot/1.0", true},
		{"a large file and a long User-Agent", snapshot(large), "/a", long, true},
	} {
		j := judgement{snap: row.snap, request: policy.Request{Target: row.target, UserAgent: row.agent}}
		if got := j.costly(); got != row.want {
			t.Errorf("%s: costly() = %v, want %v", row.name, got, row.want)
		}
	}
}
