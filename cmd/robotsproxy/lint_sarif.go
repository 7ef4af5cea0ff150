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

// sarifLevels are the words of section 3.27.10 of SARIF 2.1.0, an OASIS standard.
var sarifLevels = map[rules.Severity]string{
	rules.SeverityInfo: "note", rules.SeverityWarning: "warning", rules.SeverityError: "error",
}

// showSARIF writes a log with one run (section 3.14). Its driver (3.19) has a rule for each check.
func showSARIF(w io.Writer, all []linted) error {
	type object = map[string]any
	checks, results := []object{}, []object{}
	index := map[string]int{}
	for i, c := range rules.Checks() {
		index[c.Code] = i
		checks = append(checks, object{ // 3.49
			"id": c.Code, "shortDescription": object{"text": c.Summary},
			"defaultConfiguration": object{"level": sarifLevels[c.Severity]},
		})
	}
	for _, file := range all {
		for _, f := range file.findings {
			place := object{ // 3.29
				"artifactLocation": object{"uri": sarifURI(file.name)},
				"region":           object{"startLine": f.Line, "startColumn": f.Column},
			}
			results = append(results, object{ // 3.27
				"ruleId": f.Code, "ruleIndex": index[f.Code], "level": sarifLevels[f.Severity],
				"message": object{"text": f.Message + ". " + f.Fix}, "locations": []object{{"physicalLocation": place}},
			})
		}
	}
	e := json.NewEncoder(safetext.JSONWriter(w))
	e.SetIndent("", "  ")
	return e.Encode(object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []object{{
			"tool":       object{"driver": object{"name": "robotsproxy", "version": buildVersion(), "rules": checks}},
			"columnKind": "unicodeCodePoints", "results": results,
		}},
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
