package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Origin is where a value was set. The zero value is the default.
type Origin struct {
	Source       string // path of the file, name of the variable, or the Source of an Override
	Line, Column int    // in the file; 0 elsewhere
}

// String returns "default", "robotsproxy.yaml:12:9", "ROBOTSPROXY_LISTEN" or "--listen".
func (o Origin) String() string {
	switch {
	case o.Source == "":
		return "default"
	case o.Line == 0:
		return o.Source
	}
	return fmt.Sprintf("%s:%d:%d", o.Source, o.Line, o.Column)
}

// Fault is one thing that is wrong: where, with which key, and what was found and expected.
type Fault struct {
	Origin Origin
	Key    string // empty where it is about the file as a whole
	Text   string
}

// Error returns the fault on one line, which begins as compilers' lines do, so that editors jump to it. A text that
// shows lines to add has more.
func (f Fault) Error() string {
	s := f.Text
	if f.Key != "" {
		s = f.Key + ": " + s
	}
	if f.Origin != (Origin{}) {
		s = f.Origin.String() + ": " + s
	}
	return s
}

// Warning is something that works and is probably not what was meant.
type Warning Fault

// String returns the warning as Fault.Error does.
func (w Warning) String() string { return Fault(w).Error() }

// maxFaults bounds how many faults are reported. A file of nothing else holds tens of thousands, and nobody reads on.
const maxFaults = 100

// Faults are all that is wrong, in the order of the file, then variables and flags. It is the error of Load.
type Faults []Fault

// Error returns one line for each fault, below a heading if there are several.
func (fs Faults) Error() string {
	if len(fs) == 1 {
		return "config: " + fs[0].Error()
	}
	var b strings.Builder
	b.WriteString("config: ")
	if len(fs) == maxFaults {
		b.WriteString("the first ")
	}
	fmt.Fprintf(&b, "%d faults", len(fs))
	for _, f := range fs {
		b.WriteString("\n" + f.Error())
	}
	return b.String()
}

// sort puts faults of the file first, by place, and keeps the order of the others, which have no line.
func (fs Faults) sort() {
	slices.SortStableFunc(fs, func(a, b Fault) int {
		inFile := func(f Fault) int { return min(f.Origin.Line, 1) }
		return cmp.Or(
			-cmp.Compare(inFile(a), inFile(b)),
			cmp.Compare(a.Origin.Line, b.Origin.Line),
			cmp.Compare(a.Origin.Column, b.Origin.Column),
		)
	})
}

// userinfo is where a password stands in a URL, in whatever way that is miswritten.
var userinfo = regexp.MustCompile(`^([^:/]*:?//|[^:/]*:).*@`)

// quote shows what was found, without the password of a URL, and cut where it is too long to read.
func quote(s string) string {
	const most = 60
	s = userinfo.ReplaceAllString(s, "$1***@")
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
