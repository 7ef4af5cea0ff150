package main

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/rules"
)

// TestSARIF checks a log against the standard's schema: names, required members, enumerations, and that every index and
// reference is valid.
func TestSARIF(t *testing.T) {
	findings := rules.Lint([]byte("Disallow: a\nUser-agent: *\nAllow: /a$b\n"), rules.Options{})
	var out bytes.Buffer
	if err := showSARIF(&out, []linted{{"a b/robots.txt", findings}, {"/tmp/ü.txt", findings}, {"https://a.example/robots.txt", findings}}); err != nil {
		t.Fatal(err)
	}
	var log struct {
		Schema  string `json:"$schema"`
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name, Version string
					Rules         []struct {
						ID                   string
						ShortDescription     struct{ Text string }
						DefaultConfiguration struct{ Level string }
					}
				}
			}
			ColumnKind string
			Results    []struct {
				RuleID    string
				RuleIndex int
				Level     string
				Message   struct{ Text string }
				Locations []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine, StartColumn int }
					}
				}
			}
		}
	}
	for _, name := range []string{"$schema", "shortDescription", "defaultConfiguration", "columnKind", "ruleId", "ruleIndex", "physicalLocation", "artifactLocation", "startColumn"} {
		if !strings.Contains(out.String(), `"`+name+`":`) { // decoding takes any case
			t.Errorf("the log has no %q", name)
		}
	}
	d := json.NewDecoder(&out)
	d.DisallowUnknownFields() // the schema allows no others
	if err := d.Decode(&log); err != nil {
		t.Fatal(err)
	}
	if log.Version != "2.1.0" || !strings.HasSuffix(log.Schema, "sarif-2.1.0.json") || len(log.Runs) != 1 {
		t.Fatalf("version %q, schema %q, %d runs, want 2.1.0 and one run", log.Version, log.Schema, len(log.Runs))
	}
	run, levels := log.Runs[0], []string{"none", "note", "warning", "error"}
	if run.Tool.Driver.Name == "" || run.ColumnKind != "unicodeCodePoints" || len(run.Results) != 3*len(findings) {
		t.Errorf("driver %q, columnKind %q, %d results, want %d", run.Tool.Driver.Name, run.ColumnKind, len(run.Results), 3*len(findings))
	}
	ids := map[string]bool{}
	for _, r := range run.Tool.Driver.Rules {
		if r.ID == "" || ids[r.ID] || r.ShortDescription.Text == "" || !slices.Contains(levels, r.DefaultConfiguration.Level) {
			t.Errorf("rule %+v", r)
		}
		ids[r.ID] = true
	}
	for i, r := range run.Results {
		want := findings[i%len(findings)]
		if rule := run.Tool.Driver.Rules[r.RuleIndex]; rule.ID != r.RuleID || r.RuleID != want.Code || r.Message.Text == "" || !slices.Contains(levels, r.Level) {
			t.Errorf("result %+v of rule %+v, want %+v", r, rule, want)
		}
		if len(r.Locations) != 1 {
			t.Fatalf("%d locations, want 1", len(r.Locations))
		}
		at := r.Locations[0].PhysicalLocation
		if at.Region.StartLine != want.Line || at.Region.StartColumn != want.Column {
			t.Errorf("at %+v, want %d:%d", at, want.Line, want.Column)
		}
		if u, err := url.Parse(at.ArtifactLocation.URI); err != nil || strings.Contains(at.ArtifactLocation.URI, " ") || (i/len(findings) == 1) != (u.Scheme == "file") {
			t.Errorf("URI %q: %v", at.ArtifactLocation.URI, err)
		}
	}
}
