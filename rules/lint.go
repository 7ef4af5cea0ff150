package rules

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Finding is one thing in a file that is likely not what its author meant.
type Finding struct {
	Line     int      `json:"line"`   // from 1
	Column   int      `json:"column"` // from 1, in characters; a byte order mark is not counted
	Code     string   `json:"code"`   // one of Checks
	Severity Severity `json:"severity"`
	Message  string   `json:"message"` // one sentence
	Fix      string   `json:"fix"`     // what to do about it
}

// Severity says how far what a crawler reads may be from what was meant.
type Severity uint8

// Severities, the least first.
const (
	SeverityInfo    Severity = iota // right by RFC 9309, and read differently by some
	SeverityWarning                 // without effect, or with one that few authors expect
	SeverityError                   // not understood, or lost
)

// String returns "info", "warning" or "error".
func (s Severity) String() string { return [...]string{"info", "warning", "error"}[s] }

// MarshalText writes what String returns.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Lint tells what in the file is likely not what its author meant, in the order of the file. It needs
// Options.KeepSource, and panics without it: no findings would be taken for a file without faults.
//
// Of what dialects read differently it tells all; where Options.Dialect is not RFC9309, only what concerns that one.
//
// Its time and memory are in proportion to the file, but for sorting. To hold that for files made to be slow, the search
// for rules that others always beat is given up after a number of steps that no honest file needs: what is then found
// is still true, and something may be missing.
func (r *Ruleset) Lint() []Finding {
	if r.source == nil {
		panic("rules: Lint of a Ruleset that was parsed without Options.KeepSource")
	}
	l := linter{options: r.source.options, relations: newRelations(len(r.source.body))}
	l.file(r.source.body)
	slices.SortStableFunc(l.findings, func(a, b Finding) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column, cmp.Compare(a.Code, b.Code))
	})
	return l.findings
}

// source is a file as it was given to Parse.
type source struct {
	body    []byte
	options Options
}

func (s *source) size() int {
	if s == nil {
		return 0
	}
	return len(s.body)
}

// linter gathers findings while it goes through a file once. What concerns several rules is found at the end.
type linter struct {
	options  Options
	findings []Finding

	number int    // of the line at hand
	line   []byte // the line at hand

	groups    groupState
	relations relations
	readings  readings
}

// add reports what begins with the octet at of the line at hand.
func (l *linter) add(code string, at int, fix, format string, args ...any) {
	l.addAt(l.number, l.column(at), code, fix, format, args...)
}

func (l *linter) addAt(line, column int, code, fix, format string, args ...any) {
	l.findings = append(l.findings, newFinding(line, column, code, fix, fmt.Sprintf(format, args...)))
}

func newFinding(line, column int, code, fix, message string) Finding {
	return Finding{Line: line, Column: column, Code: code, Severity: severities[code], Message: message, Fix: fix}
}

// column returns the column of an octet of the line at hand.
func (l *linter) column(at int) int { return utf8.RuneCount(l.line[:min(at, len(l.line))]) + 1 }

// quoted returns text as it can be shown within a sentence, at most some 60 characters of it.
func quoted[T octets](text T) string { return fmt.Sprintf("%q", clipped(text)) }

func clipped[T octets](text T) string {
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
