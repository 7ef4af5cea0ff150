package bench

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestSameAnswers sends a handful of requests each way, as the benchmark does, and makes sure that what is measured is
// what is said: the answers are the same octets, and robotsproxy judges, paces and records where goproxy does not.
func TestSameAnswers(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := newOrigins(t)
			goproxy, robotsproxy := startGoproxy(t, c.goproxy, o), startRobotsproxy(t, o)
			for _, p := range []*process{goproxy, robotsproxy} {
				s := newSide(t, p, o, c.crawl)
				s.round(t, 2*crawlers)
				if s.cost.requests != 2*crawlers {
					t.Errorf("a round of %d requests sent %d", 2*crawlers, s.cost.requests)
				}
			}
			for _, path := range []string{"/", "/page/3", "/stream/5"} {
				a, b := getOnce(t, goproxy, o, c.crawl, path), getOnce(t, robotsproxy, o, c.crawl, path)
				if a.status != 200 || b.status != 200 || !bytes.Equal(a.body, b.body) {
					t.Errorf("%s: goproxy answered %d %q, robotsproxy %d %q", path, a.status, a.body, b.status, b.body)
				}
			}
			if got := getOnce(t, goproxy, o, c.crawl, "/private/1").status; got != 200 {
				t.Errorf("/private/1 through goproxy: status %d, want 200", got)
			}
			if got := getOnce(t, robotsproxy, o, c.crawl, "/private/1").status; got != 403 {
				t.Errorf("/private/1 through robotsproxy: status %d, want 403", got)
			}
			robotsproxy.stop()
			checkRecords(t, robotsproxy, 2*crawlers)
		})
	}
}

func getOnce(t *testing.T, p *process, o *origins, crawl crawl, path string) *answer {
	t.Helper()
	c, err := crawl(o, p, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	a, err := c.get()
	if err != nil {
		t.Fatalf("%s through %s: %v", path, p.cmd.Path, err)
	}
	return a
}

// checkRecords reads what a robotsproxy that has ended wrote down: n requests for page, each judged and paced.
func checkRecords(t *testing.T, p *process, n int) {
	t.Helper()
	lines, err := os.ReadFile(filepath.Join(p.data, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(lines) {
		var r struct {
			Path       string
			Decision   string
			Robots     string `json:"robots_state"`
			PacingMode string `json:"pacing_mode"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if r.Path != page {
			continue
		}
		n--
		if r.Decision != "allow" || r.Robots != "found" || r.PacingMode != "local" {
			t.Fatalf("a request was not judged and paced: %s", line)
		}
	}
	if n != 0 {
		t.Errorf("%d requests for %s were not recorded", n, page)
	}
}
