package settings

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Origin is the place that set a value. The zero value is the default.
type Origin struct {
	Source       string // the path of the file, the name of the variable, or the source that was given to Set
	Line, Column int    // in the file, from 1; otherwise 0
}

// String returns "default", "program.yaml:12:9", "PROGRAM_LISTEN" or "--listen".
func (o Origin) String() string {
	switch {
	case o.Source == "":
		return "default"
	case o.Line == 0:
		return o.Source
	}
	return fmt.Sprintf("%s:%d:%d", o.Source, o.Line, o.Column)
}

// Problem is one error in a configuration.
type Problem struct {
	Origin Origin
	Key    string // empty for a problem of the file as a whole
	Text   string // usually "found this, expected that"
}

// Error returns "file:line:column: key: text", which editors can jump to. It is one line, unless Text shows lines to
// add.
func (f Problem) Error() string {
	s := f.Text
	if f.Key != "" {
		s = f.Key + ": " + s
	}
	if f.Origin != (Origin{}) {
		s = f.Origin.String() + ": " + s
	}
	return s
}

// Warning is a value that is accepted and probably not intended.
type Warning Problem

// String returns the warning as Problem.Error does.
func (w Warning) String() string { return Problem(w).Error() }

// maxProblems bounds the problems that are reported. A large file that is no configuration has tens of thousands.
const maxProblems = 100

// Problems are all problems of a configuration.
type Problems []Problem

// Error returns one line for each problem, after a heading if there are several.
func (fs Problems) Error() string {
	if len(fs) == 1 {
		return fs[0].Error()
	}
	var b strings.Builder
	if len(fs) == maxProblems {
		b.WriteString("the first ")
	}
	fmt.Fprintf(&b, "%d faults", len(fs))
	for _, f := range fs {
		b.WriteString("\n" + f.Error())
	}
	return b.String()
}

// sort sorts problems of the file by place, before the others, which keep their order.
func (fs Problems) sort() {
	slices.SortStableFunc(fs, func(a, b Problem) int {
		inFile := func(f Problem) int { return min(f.Origin.Line, 1) }
		return cmp.Or(
			-cmp.Compare(inFile(a), inFile(b)),
			cmp.Compare(a.Origin.Line, b.Origin.Line),
			cmp.Compare(a.Origin.Column, b.Origin.Column),
		)
	})
}

// userinfo matches the part of a URL that may hold a password, also in a URL with a mistake in its scheme or slashes.
var userinfo = regexp.MustCompile(`^([^:/]*:?//|[^:/]*:).*@`)

// Quote quotes a value for a problem. It replaces the user and password of a URL with ***, and cuts the value after 60
// characters.
func Quote(s string) string {
	const most = 60
	s = userinfo.ReplaceAllString(s, "$1***@")
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
