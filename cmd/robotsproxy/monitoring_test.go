package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/policy"
)

// grafanaDashboard is the part of a dashboard of Grafana that is tested.
type grafanaDashboard struct {
	Title  string
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ H, W, X, Y int }
		Targets []struct{ Expr string }
	}
}

// The dashboard of deploy/grafana and the alerts of deploy/prometheus name only metrics, labels and values that a proxy
// has.
func TestMonitoring(t *testing.T) {
	series := seriesOf(scrapeAll(t))
	for _, expr := range append(panelQueries(t), alertQueries(t)...) {
		checkQuery(t, series, expr)
	}
	for _, wrong := range []string{
		`rate(robotsproxy_request_total[5m])`, `robotsproxy_mode{modus="enforce"}`, `robotsproxy_mode{mode="enforced"}`,
		`sum by (host) (robotsproxy_requests_total)`,
	} {
		if faults := queryFaults(series, wrong); len(faults) == 0 {
			t.Errorf("the test finds no fault in %s", wrong)
		}
	}
}

// panelQueries returns the queries of the dashboard, whose panels must not overlap.
func panelQueries(t *testing.T) (queries []string) {
	t.Helper()
	data, err := os.ReadFile("../../deploy/grafana/robotsproxy.json")
	if err != nil {
		t.Fatal(err)
	}
	var d grafanaDashboard
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	var rows []string
	ids, taken := make(map[int]bool), make(map[[2]int]string)
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Errorf("the panel %s is on that of %s, or beyond column 24", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if len(p.Targets) == 0 {
			t.Errorf("the panel %s has no query", p.Title)
		}
		for _, target := range p.Targets {
			queries = append(queries, target.Expr)
		}
	}
	if want := []string{"Traffic and refusals", "Politeness", "robots.txt", "Records", "Process"}; !slices.Equal(rows, want) {
		t.Errorf("the rows are %q, want %q", rows, want)
	}
	return queries
}

// alertQueries returns the queries of the alerts.
func alertQueries(t *testing.T) (queries []string) {
	t.Helper()
	data, err := os.ReadFile("../../deploy/prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(data), "- alert: ")
	for _, part := range parts[1:] {
		_, expr, _ := strings.Cut(part, "expr: ")
		expr, _, found := strings.Cut(expr, "labels: {severity: ")
		if !found || !strings.Contains(part, "summary: ") || !strings.Contains(part, "description: ") {
			t.Errorf("an alert lacks its query, severity, summary or description:\n%s", part)
		}
		expr, _, _ = strings.Cut(expr, "for: ")
		queries = append(queries, expr)
	}
	if len(queries) < 8 {
		t.Errorf("%d alerts", len(queries))
	}
	return queries
}

// TestQueries has Prometheus check the alerts, and the queries of the dashboard as such.
func TestQueries(t *testing.T) {
	program("promtool")(t)
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", "robotsproxy", "$instance", ".*")
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for i, expr := range panelQueries(t) {
		fmt.Fprintf(&rules, "  - {record: 'query:%d', expr: %q}\n", i, variables.Replace(expr))
	}
	queries := filepath.Join(t.TempDir(), "queries.yml")
	if err := os.WriteFile(queries, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("promtool", "check", "rules", "../../deploy/prometheus/rules.yml", queries).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// seriesOf returns the labels of each metric, with the values that it has.
func seriesOf(text string) map[string]map[string][]string {
	all := make(map[string]map[string][]string)
	for _, line := range regexp.MustCompile(`(?m)^(\w+)(?:\{(.*)\})? \S+$`).FindAllStringSubmatch(text, -1) {
		if all[line[1]] == nil {
			all[line[1]] = make(map[string][]string)
		}
		for _, label := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(line[2], -1) {
			all[line[1]][label[1]] = append(all[line[1]][label[1]], label[2])
		}
	}
	return all
}

// moreValues are values of labels that need not have come up.
var moreValues = map[string][]string{
	"decision": {string(policy.Deny), string(policy.WouldDeny), string(policy.Throttle), string(policy.WouldThrottle), string(policy.Error)},
	"result":   {"unreachable", "error"},
}

var (
	selectorPattern = regexp.MustCompile(`\b((?:robotsproxy|go|process)_\w+)(?:\{([^}]*)\})?`)
	matcherPattern  = regexp.MustCompile(`(\w+)(?:=~|!=|!~|=)"([^"]*)"`)
	byPattern       = regexp.MustCompile(`by \(([^)]*)\)`)
)

func checkQuery(t *testing.T, series map[string]map[string][]string, expr string) {
	t.Helper()
	if !strings.Contains(expr, `up{job="robotsproxy"}`) && !selectorPattern.MatchString(expr) {
		t.Errorf("%s names no metric", expr)
	}
	for _, fault := range queryFaults(series, expr) {
		t.Errorf("%s: %s", expr, fault)
	}
}

// queryFaults returns what a query names that series do not have.
func queryFaults(series map[string]map[string][]string, expr string) (faults []string) {
	labels := []string{"job", "instance"} // those of the target
	for _, selector := range selectorPattern.FindAllStringSubmatch(expr, -1) {
		known, ok := series[selector[1]]
		if !ok {
			faults = append(faults, "there is no metric "+selector[1])
		}
		for label := range known {
			labels = append(labels, label)
		}
		for _, m := range matcherPattern.FindAllStringSubmatch(selector[2], -1) {
			if m[1] == "job" || m[1] == "instance" {
				continue
			}
			values := append(slices.Clone(known[m[1]]), moreValues[m[1]]...)
			for value := range strings.SplitSeq(m[2], "|") {
				if known[m[1]] == nil || !slices.Contains(values, value) {
					faults = append(faults, selector[1]+" has no label "+m[1]+" of value "+value)
				}
			}
		}
	}
	for _, by := range byPattern.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(by[1], ",") {
			if !slices.Contains(labels, strings.TrimSpace(label)) {
				faults = append(faults, "no metric of it has the label "+label)
			}
		}
	}
	return faults
}
