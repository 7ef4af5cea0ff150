package main

import (
	"encoding/json"
	"io"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/rules"
)

// The parts of a SARIF 2.1.0 log that lint writes. Section numbers are those of the OASIS standard.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct { // 3.14
		Tool struct {
			Driver sarifDriver `json:"driver"`
		} `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifDriver struct { // 3.19
		Name    string      `json:"name"`
		Version string      `json:"version"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct { // 3.49
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
		Configuration    struct {
			Level string `json:"level"`
		} `json:"defaultConfiguration"`
	}
	sarifResult struct { // 3.27
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifLocation struct { // 3.28
		Physical struct {
			Artifact struct {
				URI string `json:"uri"`
			} `json:"artifactLocation"`
			Region struct {
				StartLine   int `json:"startLine"`
				StartColumn int `json:"startColumn"`
			} `json:"region"`
		} `json:"physicalLocation"`
	}
)

// sarifLevels are the words of section 3.27.10.
var sarifLevels = map[rules.Severity]string{
	rules.SeverityInfo: "note", rules.SeverityWarning: "warning", rules.SeverityError: "error",
}

func showSARIF(w io.Writer, all []linted) error {
	run := sarifRun{ColumnKind: "unicodeCodePoints", Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "robotsproxy", Version: buildVersion()}
	index := map[string]int{}
	for i, c := range rules.Checks() {
		index[c.Code] = i
		rule := sarifRule{ID: c.Code, ShortDescription: sarifText{c.Summary}}
		rule.Configuration.Level = sarifLevels[c.Severity]
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, rule)
	}
	for _, file := range all {
		for _, f := range file.findings {
			result := sarifResult{
				RuleID: f.Code, RuleIndex: index[f.Code], Level: sarifLevels[f.Severity],
				Message: sarifText{f.Message + ". " + f.Fix},
			}
			var at sarifLocation
			at.Physical.Artifact.URI = sarifURI(file.name)
			at.Physical.Region.StartLine, at.Physical.Region.StartColumn = f.Line, f.Column
			result.Locations = []sarifLocation{at}
			run.Results = append(run.Results, result)
		}
	}
	e := json.NewEncoder(safetext.JSONWriter(w))
	e.SetIndent("", "  ")
	return e.Encode(sarifLog{
		Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run},
	})
}

// sarifURI returns the URI reference of a file (3.4.3): relative if its name is.
func sarifURI(name string) string {
	if strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://") {
		return name
	}
	u := url.URL{Path: filepath.ToSlash(name)}
	if filepath.IsAbs(name) {
		u.Scheme = "file"
	}
	return u.String()
}
