package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/rules"
)

// lintText prints findings as text: those that change what is allowed first, then by severity.
type lintText struct {
	all      bool // each place, and the findings of severity info
	readings bool // the findings named reading-
	summary  bool // of several files, by code
}

// show prints the findings of all files.
func (t lintText) show(w io.Writer, files []linted) error {
	if t.summary && !t.all {
		return t.byCode(w, files)
	}
	for _, file := range files {
		if err := t.file(w, file); err != nil {
			return err
		}
	}
	return nil
}

// shows reports whether a finding is printed.
func (t lintText) shows(f rules.Finding) bool {
	if isReading(f) {
		return t.readings
	}
	return t.all || f.Severity != rules.SeverityInfo
}

// isReading reports whether a finding is about other dialects.
func isReading(f rules.Finding) bool { return strings.HasPrefix(f.Code, "reading-") }

// file prints the findings of a file: each place, or the first of each code with the lines of the others.
func (t lintText) file(w io.Writer, file linted) error {
	name := safetext.Text(file.name)
	found, hidden := t.found(file)
	for _, same := range found {
		for i, f := range same {
			if i > 0 && !t.all {
				break
			}
			_, err := fmt.Fprintf(w, "%s:%d:%d: %v: %s [%s]\n    %s\n", name, f.Line, f.Column,
				f.Severity, safetext.Text(f.Message), f.Code, safetext.Text(f.Fix))
			if err != nil {
				return err
			}
		}
		if len(same) == 1 || t.all {
			continue
		}
		if _, err := fmt.Fprintf(w, "    The same in %s.\n", linesOf(same[1:])); err != nil {
			return err
		}
	}
	if hidden == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "%s: %s of severity info; --all shows them\n", name, counted(int64(hidden), "finding"))
	return err
}

// found returns the findings of a file that are printed, in the order of the text and by code, and the number of those
// that --all would show.
func (t lintText) found(file linted) (found [][]rules.Finding, hidden int) {
	for _, f := range file.findings {
		i := slices.IndexFunc(found, func(same []rules.Finding) bool { return same[0].Code == f.Code })
		switch {
		case !t.shows(f):
			if !isReading(f) {
				hidden++
			}
		case i >= 0:
			found[i] = append(found[i], f)
		default:
			found = append(found, []rules.Finding{f})
		}
	}
	slices.SortStableFunc(found, func(a, b []rules.Finding) int { return compareFindings(a[0], b[0]) })
	return found, hidden
}

// compareFindings orders findings by consequence.
func compareFindings(a, b rules.Finding) int {
	switch x, y := decides[a.Code], decides[b.Code]; {
	case x && !y:
		return -1
	case y && !x:
		return 1
	}
	return cmp.Compare(b.Severity, a.Severity)
}

// decides has the codes of the checks that may change what is allowed.
var decides = func() map[string]bool {
	m := map[string]bool{}
	for _, c := range rules.Checks() {
		m[c.Code] = c.Decides
	}
	return m
}()

// linesOf names the first lines of findings of one code.
func linesOf(findings []rules.Finding) string {
	const most = 5
	var lines []string
	for _, f := range findings {
		if line := strconv.Itoa(f.Line); !slices.Contains(lines[max(len(lines)-1, 0):], line) {
			lines = append(lines, line)
		}
	}
	switch n := len(lines); {
	case n == 1:
		return "line " + lines[0]
	case n > most:
		return "lines " + strings.Join(lines[:most], ", ") + " and " + strconv.Itoa(n-most) + " more"
	default:
		return "lines " + strings.Join(lines[:n-1], ", ") + " and " + lines[n-1]
	}
}

// lintCount is a row of the summary.
type lintCount struct {
	finding       rules.Finding // the first
	file          string        // of the first
	files, places int
}

// byCode prints how many files and places have each finding, with the first place.
func (t lintText) byCode(w io.Writer, files []linted) error {
	counts, hidden, wrong := t.count(files)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(counts) > 0 {
		fmt.Fprintln(table, "severity\tcode\tfiles\tplaces\tfirst")
	}
	for _, c := range counts {
		fmt.Fprintf(table, "%v\t%s\t%d\t%d\t%s:%d:%d\n", c.finding.Severity, c.finding.Code, c.files, c.places,
			safetext.Text(c.file), c.finding.Line, c.finding.Column)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	text := fmt.Sprintf("%s, %d with an error", counted(int64(len(files)), "file"), wrong)
	if hidden > 0 {
		text += fmt.Sprintf("; %s of severity info", counted(int64(hidden), "finding"))
	}
	_, err := fmt.Fprintln(w, text+"; --all lists each place")
	return err
}

// count returns a row for each code, the number of findings that --all would add, and the number of files with an
// error.
func (t lintText) count(files []linted) (counts []*lintCount, hidden, wrong int) {
	byCode := map[string]*lintCount{}
	for _, file := range files {
		found, more := t.found(file)
		hidden += more
		if file.hasError() {
			wrong++
		}
		for _, same := range found {
			c := byCode[same[0].Code]
			if c == nil {
				c = &lintCount{finding: same[0], file: file.name}
				byCode[same[0].Code] = c
				counts = append(counts, c)
			}
			c.files++
			c.places += len(same)
		}
	}
	slices.SortStableFunc(counts, func(a, b *lintCount) int {
		return cmp.Or(compareFindings(a.finding, b.finding), cmp.Compare(b.files, a.files), cmp.Compare(a.finding.Code, b.finding.Code))
	})
	return counts, hidden, wrong
}
