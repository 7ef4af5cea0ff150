package main

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/robotsproxy/robotsproxy/rules"
)

// kind is a kind of difference from Google's parser. docs/conformance.md has the reason of each.
type kind struct {
	name   string
	laxer  bool // rfc9309 may be laxer by it, not only stricter
	google bool // the dialect google has it too
	has    func(d difference) bool
}

// kinds are the listed ones. A minimised difference is of the first that it has the mark of: without the mark the judges
// would agree.
var kinds = []kind{
	{"/robots.txt", true, false, func(d difference) bool { return d.laxer && d.target == "/robots.txt" }},
	{"more than 500 KiB", true, false, func(d difference) bool { return len(d.robots) > 500<<10 }},
	{"a line of more than 16 KiB", true, false, func(d difference) bool { return longest(d.robots) > 16_000 }},
	{"a mark of UTF-16", true, true, func(d difference) bool {
		return bytes.HasPrefix(d.robots, []byte("\xFE\xFF")) || bytes.HasPrefix(d.robots, []byte("\xFF\xFE"))
	}},
	{"bytes before the first line", true, false, func(d difference) bool { return len(d.robots) > 0 && d.robots[0] >= 0x80 }},
	{"a NUL", true, false, func(d difference) bool { return bytes.IndexByte(d.robots, 0) >= 0 }},
	{"records of one line", true, false, func(d difference) bool { return glued.Match(d.robots) }},
	{"an index page", false, false, func(d difference) bool { return !d.laxer && bytes.Contains(d.robots, []byte("/index.htm")) }},
	{"a token", true, false, func(d difference) bool { return token.Match(d.robots) }},
	{"normalisation", true, false, func(d difference) bool {
		return strings.Trim(d.target, plain) != "" || escaped.Match(d.robots)
	}},
}

// plain are the characters that are their own normal form.
const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?[]@!&'()+,;="

var (
	glued   = regexp.MustCompile(`(?im)^[^:\r\n]*user[- ]?agent[^:\r\n]*:[^\r\n]*[\t\v\f ](?:diss?all?ow|diasllow|disallaw|allow|crawl-?delay)[\t\v\f ]*:`)
	token   = regexp.MustCompile(`(?im)user[- ]?agent[^:\r\n]*[: \t][ \t]*(?:[^\r\n]*[0-9.]|[^\r\n]*[^\x00-\x7f])`)
	escaped = regexp.MustCompile(`(?s)[^-A-Za-z0-9._~:/?\[\]@!&'()+,;=*$#\r\n\t ]|:[ \t]*[^ \t\r\n]+[ \t]+[^ \t\r\n]`)
)

// kindOf returns the kind of a minimised difference, or the zero value.
func kindOf(d difference) kind {
	for _, k := range kinds {
		if k.has(d) {
			return k
		}
	}
	return kind{}
}

// listed reports whether a dialect may have a difference of this kind.
func (k kind) listed(dialect rules.Dialect, laxer bool) bool {
	if dialect == rules.DialectGoogle {
		return k.google
	}
	return k.name != "" && (k.laxer || !laxer)
}

// longest returns the length of the longest line.
func longest(robots []byte) (n int) {
	for line := range bytes.SplitSeq(bytes.ReplaceAll(robots, []byte("\r"), []byte("\n")), []byte("\n")) {
		n = max(n, len(line))
	}
	return n
}
