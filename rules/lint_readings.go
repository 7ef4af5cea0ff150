package rules

import (
	"bytes"
	"fmt"
	"strings"
)

// readings collects the places that dialects read differently: the first place of each kind, and the number of others.
type readings map[string]*readingAt

type readingAt struct {
	finding Finding
	lines   int // with the same, after the first
	last    int // of them
}

// selection selects dialects by their switches.
type selection func(*switches) bool

// reading adds a place that the selected dialects read differently. format has a verb for their names. Each kind is
// reported once in a file.
func (l *linter) reading(code string, at lintPlace, in selection, fix, format string, args ...any) {
	names := l.names(in)
	if names == "" {
		return
	}
	if l.readings == nil {
		l.readings = make(readings)
	}
	r := l.readings[code]
	switch {
	case r == nil:
		r = &readingAt{last: at.line}
		l.readings[code] = r
	case at.line != r.last:
		r.lines, r.last = r.lines+1, at.line
	}
	if r.finding.Code == "" || at.line < r.finding.Line { // relations are last, and not in the order of the file
		message := fmt.Sprintf(format, append([]any{names}, args...)...)
		r.finding = newFinding(at.line, at.column, code, fix, message)
	}
}

// names returns the names of the selected dialects, without the RFC's. If Options.Dialect is another, only that one
// counts.
func (l *linter) names(in selection) string {
	asked := Dialects()[1:]
	if l.options.Dialect != DialectRFC9309 {
		asked = []Dialect{l.options.Dialect}
	}
	var names []string
	for _, d := range asked {
		if in(d.switches()) {
			names = append(names, d.String())
		}
	}
	return listed(names)
}

// but returns a clause with the exception of the selected dialects.
func (l *linter) but(clause string, in selection) string {
	names := l.names(in)
	if names == "" {
		return ""
	}
	return "; " + clause + " " + names
}

// listed joins words with commas and "and".
func listed(words []string) string {
	n := len(words) - 1
	if n < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + " and " + words[n]
}

// report adds the readings to the findings.
func (l *linter) report() {
	for _, r := range l.readings {
		f := r.finding
		if r.lines > 0 {
			f.Message += fmt.Sprintf(" (and in %d more lines)", r.lines)
		}
		l.findings = append(l.findings, f)
	}
}

// commentReading looks for a comment without white space before it.
func (l *linter) commentReading(f lintField) {
	i := f.commentAt
	if f.key != keyOther && i < len(l.line) && i > 0 && !isSpace(l.line[i-1]) {
		l.reading(codeReadComment, lintPlace{l.number, l.column(i)}, keepComments,
			`Write a space before the comment, or "%23" for a number sign.`,
			"A comment begins here, but in %s it is part of the value")
	}
}

// pathReadings looks for the parts of a path that dialects read differently.
func (l *linter) pathReadings(f lintField) {
	v := f.value
	if i := bytes.IndexAny(v, "*$"); i >= 0 {
		l.reading(codeReadWildcard, lintPlace{l.number, l.column(f.valueAt + i)}, areLiteral,
			"Write prefixes if you need such crawlers.",
			"This character is a wildcard, but an ordinary character in %s")
	}
	l.escapeReading(f)
	folder := bytes.LastIndexByte(v, '/')
	if f.key == keyAllow && folder >= 0 && bytes.HasPrefix(v[folder:], []byte("/index.htm")) {
		l.reading(codeReadIndex, lintPlace{l.number, l.column(f.valueAt + folder)}, allowFolders,
			"To allow the folder too, add a line for it with \"$\" at its end.",
			"In %s this also allows the folder %s", quoted(v[:folder+1]))
	}
}

// escapeReading looks for the first escape of a character that needs none. normal.go has the reading of RFC 9309.
func (l *linter) escapeReading(f lintField) {
	for i := range f.value {
		if f.value[i] != '%' || !isEscape(f.value, i) {
			continue
		}
		at := lintPlace{l.number, l.column(f.valueAt + i)}
		c := unescape(f.value, i)
		escape, char := quoted(f.value[i:i+3]), quoted(string(rune(c)))
		switch {
		case classes[c]&unreserved != 0:
			l.reading(codeReadEscape, at, keepEscapes, "Write "+char+".", "In %s %s is not decoded and is not the same as %s",
				escape, char)
			return
		case c == '*':
			l.reading(codeReadEscape, at, decodeWildcards, "Write the rule without it if you need such crawlers.",
				"In %s %s is decoded first, and then is a wildcard", escape)
			return
		case classes[c]&reserved != 0 && c != '/':
			in := selection(decodeReserved)
			if strings.IndexByte("&=?", c) >= 0 {
				in = decodeDelimiters
			}
			l.reading(codeReadEscape, at, in, "Write a rule for each of the two forms.",
				"In %s %s is decoded and is the same as %s", escape, char)
			return
		}
	}
}

// Selections of dialects.
func keepComments(s *switches) bool { return s.comments == commentsAfterSpace }
func areLiteral(s *switches) bool   { return s.literal }
func allowFolders(s *switches) bool { return s.indexPage }
func keepEscapes(s *switches) bool  { return s.form == formWritten || s.form == formEncoded }
func decodeReserved(s *switches) bool {
	return s.form == formDecodedButSlash || s.form == formDecodedButDelimiters
}
func decodeWildcards(s *switches) bool  { return decodeReserved(s) && !s.literal }
func decodeDelimiters(s *switches) bool { return s.form == formDecodedButSlash }
func cutTokens(s *switches) bool        { return s.agents == agentsVerbatim }
func takeFirstGroup(s *switches) bool   { return !s.agents.merged() }

// takeFirstRuleIf selects the dialects in which the first rule decides, for a first rule that allows or not: a dialect
// without Allow has another first rule.
func takeFirstRuleIf(allow bool) func(*switches) bool {
	return func(s *switches) bool { return takeFirstRule(s) && !(allow && ignoreAllow(s)) }
}

// takeFirstOf selects the dialects that take the first of several groups with one name. A dialect may merge those of
// "*".
func takeFirstOf(name string) func(*switches) bool {
	return func(s *switches) bool { return takeFirstGroup(s) && !(name == "*" && s.mergeDefaults) }
}

func takeStarFirst(s *switches) bool  { return !s.agents.merged() && !s.defaultLast && !s.mergeDefaults }
func endAtBlank(s *switches) bool     { return s.groups != groupEndsAtRule }
func endAtField(s *switches) bool     { return s.groups == groupEndsAtField }
func takeFirstRule(s *switches) bool  { return s.firstMatch }
func ignoreAllow(s *switches) bool    { return s.keys == keysDisallow }
func keepOrphans(s *switches) bool    { return s.orphans }
func emptyStops(s *switches) bool     { return s.empty != emptyIgnored && s.firstMatch }
func readEmptyAllow(s *switches) bool { return s.empty != emptyIgnored && s.keys != keysDisallow }
