package rules_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/robotsproxy/robotsproxy/rules"
)

// TestLintVectors checks that lint reports every mistake that other parsers report.
func TestLintVectors(t *testing.T) {
	rows := 0
	for file, vectors := range readVectors(t) {
		for i, v := range vectors {
			if v.Kind != "lint" {
				continue
			}
			rows++
			findings := rules.Lint(v.body(), rules.Options{})
			for _, want := range lintWanted(t, &v) {
				if !want.in(findings) {
					t.Errorf("%s:%d (%s): Lint() = %v, want one of %q in line %d\n%s", file, i+1, v.Name, findings, want.codes, want.line, v.body())
				}
			}
		}
	}
	if rows == 0 {
		t.Error("there is no row of kind lint")
	}
}

// wanted are the codes of which a line must have one. Line 0 is any line.
type wanted struct {
	line  int
	codes []string
}

func (w wanted) in(findings []rules.Finding) bool {
	return slices.ContainsFunc(findings, func(f rules.Finding) bool {
		return (w.line == 0 || f.Line == w.line) && slices.Contains(w.codes, f.Code)
	})
}

// lintWanted returns the findings that a vector expects, by name, or from the reports of Google's parser for each line.
func lintWanted(t *testing.T, v *vector) (want []wanted) {
	t.Helper()
	var names []string
	if json.Unmarshal(v.Expect, &names) == nil {
		codes := map[string]string{"rule_before_user_agent": "outside-group", "crawl_delay_invalid": "crawl-delay-not-number"}
		for _, name := range names {
			want = append(want, wanted{0, []string{codes[name]}})
		}
		return want
	}
	var lines []struct {
		Line         int
		Tag          string
		Typo         bool
		Empty        bool
		Comment      bool
		TooLong      bool `json:"too_long"`
		MissingColon bool `json:"missing_colon"`
	}
	if err := json.Unmarshal(v.Expect, &lines); err != nil {
		t.Fatal(fmt.Errorf("reading what %s expects: %w", v.Name, err))
	}
	for _, line := range lines {
		switch {
		case line.Typo:
			want = append(want, wanted{line.Line, []string{"misspelt-field"}})
		case line.MissingColon:
			want = append(want, wanted{line.Line, []string{"missing-colon"}})
		case line.TooLong:
			want = append(want, wanted{line.Line, []string{"line-too-long"}})
		case line.Tag == "unknown" && !line.Empty && !line.Comment:
			want = append(want, wanted{line.Line, []string{"no-field", "unknown-field", "misspelt-field", "missing-colon"}})
		}
	}
	return want
}
