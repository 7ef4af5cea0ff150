package rules

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Finding is a likely mistake in a file.
type Finding struct {
	Line     int      `json:"line"`   // from 1
	Column   int      `json:"column"` // from 1, in characters; a byte order mark is not counted
	Code     string   `json:"code"`   // one of Checks
	Severity Severity `json:"severity"`
	Message  string   `json:"message"` // one sentence
	Fix      string   `json:"fix"`     // how to correct it
}

// Severity ranks a Finding by its consequence.
type Severity uint8

// The severities, in ascending order.
const (
	SeverityInfo    Severity = iota // correct by RFC 9309, but some parsers read it differently
	SeverityWarning                 // has no effect, or an unexpected one
	SeverityError                   // is not understood, or is lost
)

// String returns "info", "warning" or "error".
func (s Severity) String() string { return [...]string{"info", "warning", "error"}[s] }

// MarshalText returns the result of String.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Lint returns the likely mistakes in a robots.txt file, in the order of the file. The options are those of Parse.
//
// It reports the differences of all dialects, or, if Options.Dialect is not DialectRFC9309, those of that dialect.
//
// Time and memory are linear in the size of the file, except for sorting. The search for rules that never decide ends
// after a number of steps that ordinary files do not need. If it ends early, the findings are correct but may be
// incomplete.
func Lint(body []byte, opts Options) []Finding {
	body = toUTF8(body, opts)
	l := linter{options: opts, relations: newRelations(len(body))}
	l.file(body)
	slices.SortStableFunc(l.findings, func(a, b Finding) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column, cmp.Compare(a.Code, b.Code))
	})
	return l.findings
}

// linter collects findings in one pass over a file. It compares rules at the end.
type linter struct {
	options  Options
	findings []Finding

	number int    // of the current line
	line   []byte // the current line

	groups    groupState
	relations relations
	readings  readings
}

// add reports a finding at the byte offset at of the current line.
func (l *linter) add(code string, at int, fix, format string, args ...any) {
	l.addAt(l.number, l.column(at), code, fix, format, args...)
}

func (l *linter) addAt(line, column int, code, fix, format string, args ...any) {
	l.findings = append(l.findings, newFinding(line, column, code, fix, fmt.Sprintf(format, args...)))
}

func newFinding(line, column int, code, fix, message string) Finding {
	return Finding{Line: line, Column: column, Code: code, Severity: severities[code], Message: message, Fix: fix}
}

// column returns the column of a byte of the current line.
func (l *linter) column(at int) int { return utf8.RuneCount(l.line[:min(at, len(l.line))]) + 1 }

// quoted returns text for use in a sentence, cut to about 60 characters.
func quoted[T byteseq](text T) string { return fmt.Sprintf("%q", clipped(text)) }

func clipped[T byteseq](text T) string {
	const most = 60
	if len(text) <= most {
		return string(text)
	}
	n := most
	for n > most-utf8.UTFMax && !utf8.RuneStart(text[n]) {
		n--
	}
	return string(text[:n]) + "..."
}
