package rules

import (
	"fmt"
	"strings"
)

// Dialect is one way to read robots.txt. The zero value is RFC 9309, and the others reproduce programs on which users
// rely.
type Dialect uint8

const (
	// DialectRFC9309 is the standard, with the leniency that section 2.2.4 permits crawlers.
	DialectRFC9309 Dialect = iota
	// DialectGoogle is that of Google's open-source parser: RFC 9309, but nothing is decoded, agents are cut to letters,
	// "_" and "-", a line has one record, "Allow: /d/index.html" also allows "/d/", and "/robots.txt" itself may be
	// disallowed.
	DialectGoogle
	// DialectRobotstxtRB is that of Ruby's robotstxt: in the first group that matches, the first rule that matches.
	DialectRobotstxtRB
	// DialectRobotsCR is that of Crystal's robots.cr, equal to DialectRobotstxtRB.
	DialectRobotsCR
	// DialectWWWRobotRules is that of Perl's WWW::RobotRules: only Disallow, without wildcards, with URLs as values.
	DialectWWWRobotRules
	// DialectMK1996 is the draft of 1996 as Python's robotexclusionrulesparser reads it, without wildcards.
	DialectMK1996
	// DialectGYM2008 is the same parser's mode for the agreement of Google, Yahoo and Microsoft of 2008, with "*" and "$".
	DialectGYM2008
)

// Dialects lists all dialects.
func Dialects() []Dialect {
	return []Dialect{
		DialectRFC9309, DialectGoogle, DialectRobotstxtRB, DialectRobotsCR, DialectWWWRobotRules, DialectMK1996,
		DialectGYM2008,
	}
}

// String returns the name of d, as ParseDialect accepts it.
func (d Dialect) String() string { return d.switches().name }

// ParseDialect returns the dialect with this name.
func ParseDialect(name string) (Dialect, error) {
	var names []string
	for _, d := range Dialects() {
		if d.String() == name {
			return d, nil
		}
		names = append(names, d.String())
	}
	return 0, fmt.Errorf("rules: no dialect %q; it is one of %s", name, strings.Join(names, ", "))
}

// MarshalText returns the result of String.
func (d Dialect) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is ParseDialect.
func (d *Dialect) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDialect(string(text))
	return err
}

// switches hold every difference between dialects. The zero value of each is the RFC's.
type switches struct {
	name     string
	keys     keys
	comments comments
	nul      nul
	agents   agents
	groups   groupEnd
	empty    emptyRules
	form     form
	maxLine  int // if zero, maxLine

	firstMatch    bool // the first matching rule decides, not the longest
	literal       bool // "*" and "$" are ordinary characters
	beforeQuery   bool // "$" also matches before a "?"
	orphans       bool // rules before all groups apply to every agent
	robotsTxt     bool // "/robots.txt" is an ordinary path
	indexPage     bool // "Allow: /d/index.html" allows "/d/" too
	resolve       bool // values are URLs; those of another origin are dropped
	lastDelay     bool // the last Crawl-delay counts, not the largest
	partialMark   bool // a byte order mark may lack its end
	authority     bool // a target without scheme begins with a host
	latin1        bool // the default charset of a response is ISO-8859-1
	dropRuleless  bool // a group without rules is dropped
	defaultLast   bool // groups for "*" come after all others
	mergeDefaults bool // the groups for "*" are merged
}

// keys selects the lines that are records.
type keys uint8

const (
	keysLenient  keys = iota // the RFC's, common misspellings, keys that go on, and a missing colon between two words
	keysStrict               // the RFC's, and "useragent"
	keysDisallow             // User-agent and Disallow alone
	keysAnywhere             // a key anywhere in the line, immediately followed by a colon
)

// comments selects the beginning of a comment.
type comments uint8

const (
	commentsAnywhere   comments = iota // at every "#"
	commentsAfterSpace                 // at a "#" after white space within the value
)

// nul selects the meaning of a NUL.
type nul uint8

const (
	nulSpace  nul = iota // white space
	nulEnds              // the end of the line
	nulDelete            // nothing
)

// agents selects the groups of a crawler.
type agents uint8

const (
	agentsToken    agents = iota // those of its product token, merged; else those for "*", merged
	agentsVerbatim               // the same, but tokens have only letters, "_" and "-"; a name alone is not cut
	agentsEither                 // the first with a value that contains the agent, or that matches within it as a glob
	agentsName                   // the first with a value that occurs in the agent's name, which ends at "/"
	agentsHeader                 // the first with a value that occurs in the User-Agent
)

// merged reports whether all groups of an agent apply, rather than the first.
func (a agents) merged() bool { return a <= agentsVerbatim }

// groupEnd selects the end of a group, besides a user-agent line after its rules.
type groupEnd uint8

const (
	groupEndsAtRule  groupEnd = iota // nothing
	groupEndsAtBlank                 // a blank line
	groupEndsAtField                 // a blank line, and a user-agent line after any other known field
)

// emptyRules selects the meaning of a rule without a pattern.
type emptyRules uint8

const (
	emptyIgnored  emptyRules = iota // ignored
	emptyAllows                     // allows everything
	emptyInverted                   // Disallow allows everything, and Allow disallows everything
)

var table = [...]switches{
	DialectRFC9309: {name: "rfc9309"},
	DialectGoogle: {
		name: "google", nul: nulEnds, agents: agentsVerbatim, form: formWritten, maxLine: 2083*8 - 1,
		robotsTxt: true, indexPage: true, partialMark: true, authority: true,
	},
	DialectRobotstxtRB: rubyReading("robotstxt-rb"),
	DialectRobotsCR:    rubyReading("robots-cr"),
	DialectWWWRobotRules: {
		name: "www-robotrules", keys: keysDisallow, agents: agentsName, groups: groupEndsAtBlank, empty: emptyAllows,
		form: formEncoded, firstMatch: true, literal: true, orphans: true, robotsTxt: true, resolve: true,
		mergeDefaults: true,
	},
	DialectMK1996:  pythonReading("mk1996", true),
	DialectGYM2008: pythonReading("gym2008", false),
}

func rubyReading(name string) switches {
	return switches{
		name: name, keys: keysStrict, comments: commentsAfterSpace, nul: nulDelete, agents: agentsEither, empty: emptyAllows,
		form: formDecodedButDelimiters, firstMatch: true, beforeQuery: true, orphans: true, robotsTxt: true, latin1: true,
	}
}

func pythonReading(name string, literal bool) switches {
	return switches{
		name: name, keys: keysAnywhere, agents: agentsHeader, groups: groupEndsAtField, empty: emptyInverted,
		form: formDecodedButSlash, firstMatch: true, literal: literal, robotsTxt: true, lastDelay: true, latin1: true,
		dropRuleless: true, defaultLast: true,
	}
}

// switches returns the switches of d, or those of the RFC if d is not a dialect.
func (d Dialect) switches() *switches {
	if int(d) >= len(table) {
		d = DialectRFC9309
	}
	return &table[d]
}
