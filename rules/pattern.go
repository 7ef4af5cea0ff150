package rules

import (
	"bytes"
	"strings"
)

// rule is an Allow or Disallow line, compiled.
//
// Its pattern is kept in the form in which it is matched: normalised (see appendOctet), stars that follow a star left
// out, a star at the end left out (a pattern matches from the first octet on, so that it says nothing), and "$" at the
// end turned into ends. A "*" in it is a wildcard, always. Where that form is a part of the line as written, which is
// the rule, it is not kept twice.
type rule struct {
	text          uint32 // the line as written
	pattern       uint32
	line          uint32
	textLength    uint16
	patternLength uint16
	literal       uint16 // octets of the pattern before its first wildcard
	octets        uint16 // octets of the pattern as written, normalised: what the longest match is longest by (2.2.2)
	allow         bool
	ends          bool // the pattern must match up to the end of the path (2.2.3)
}

// compare orders rules so that the first match decides: the most octets, then allow, then the earlier line (2.2.2).
func (r *rule) compare(other *rule) int {
	switch {
	case r.octets != other.octets:
		return int(other.octets) - int(r.octets)
	case r.allow != other.allow:
		if r.allow {
			return -1
		}
		return 1
	}
	return int(r.line) - int(other.line)
}

// pattern compiles the pattern of r, which is the end of the text that was kept last.
func (p *parser) pattern(r *rule, value []byte) {
	written := uint32(len(p.arena) - len(value))
	if isPlain(value) {
		r.pattern, r.patternLength = written, uint16(len(value))
		r.literal, r.octets = r.patternLength, r.patternLength
		return
	}
	start := len(p.arena)
	octets := 0
	p.arena, octets, r.ends = appendPattern(p.arena, value)
	form := p.arena[start:]
	r.pattern, r.patternLength, r.octets = uint32(start), uint16(len(form)), uint16(octets)
	r.literal = r.patternLength
	if i := bytes.IndexByte(form, '*'); i >= 0 {
		r.literal = uint16(i)
	}
	if bytes.HasPrefix(value, form) {
		p.arena = p.arena[:start]
		r.pattern = written
	}
}

// appendPattern appends the form in which a pattern is matched, and counts the octets that it has as written.
func appendPattern(dst, value []byte) (form []byte, octets int, ends bool) {
	start := len(dst)
	if n := len(value) - 1; value[n] == '$' {
		value, octets, ends = value[:n], 1, true
	}
	for i := 0; i < len(value); {
		switch value[i] {
		case '*':
			if n := len(dst); n == start || dst[n-1] != '*' {
				dst = append(dst, '*')
			}
			octets++
			i++
		case '$': // in the middle it is a dollar
			dst = append(dst, "%24"...)
			octets++
			i++
		default:
			before := len(dst)
			dst, i = appendOctet(dst, value, i)
			octets += len(dst) - before
		}
	}
	if n := len(dst); n > start && dst[n-1] == '*' {
		return dst[:n-1], octets, false
	}
	return dst, octets, ends
}

// matchWildcards reports whether path matches pattern, which begins with "*"; with ends, up to its end.
//
// Each literal between two stars is searched for from where the one before it was found, leftmost, and that is enough:
// whatever a later start would leave over, the leftmost leaves too. So each octet of the path is passed once, whatever
// the number of stars, where a matcher that goes back costs path times pattern, or is exponential.
func matchWildcards(pattern, path string, ends bool) bool {
	for {
		pattern = pattern[1:]
		n := strings.IndexByte(pattern, '*')
		if n < 0 {
			break
		}
		i := strings.Index(path, pattern[:n])
		if i < 0 {
			return false
		}
		path, pattern = path[i+n:], pattern[n:]
	}
	if ends {
		return strings.HasSuffix(path, pattern)
	}
	return strings.Contains(path, pattern)
}
