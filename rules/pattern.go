package rules

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strings"
)

// rule is an Allow or Disallow line, compiled.
//
// Its pattern is stored in the form in which it is matched: normalised (see form), without stars that follow a star,
// without a trailing star (which has no effect), and with a "$" at the end as ends. A "*" after the literal prefix is
// always a wildcard. If this form is part of the line as written, as for most rules, it is not stored twice.
type rule struct {
	text          uint32 // the line as written
	pattern       uint32
	line          uint32
	weight        uint32 // the rule with the largest decides
	textLength    uint16
	patternLength uint16
	literal       uint16 // length of the pattern before its first wildcard
	allow         bool
	ends          bool // the pattern must match up to the end of the path (2.2.3)
}

// compare orders rules so that the first match decides: by weight, then the earlier line.
func (r *rule) compare(other *rule) int {
	if r.weight != other.weight {
		return cmp.Compare(other.weight, r.weight)
	}
	return int(r.line) - int(other.line)
}

// weigh sets the weight of r: the length of its normalised pattern, then Allow before Disallow (2.2.2). If the first
// rule decides, the line alone counts.
func (r *rule) weigh(firstMatch bool, octets int) {
	r.weight = uint32(octets) << 1
	if r.allow {
		r.weight |= 1
	}
	if firstMatch {
		r.weight = math.MaxUint32 - r.line
	}
}

// pattern compiles the pattern of r. If it is the end of the text that was stored last, written is its offset.
func (p *parser) pattern(r *rule, value []byte, written uint32) {
	if written != notWritten && isPlain(value) {
		r.pattern, r.patternLength, r.literal = written, uint16(len(value)), uint16(len(value))
		r.weigh(p.firstMatch, len(value))
		return
	}
	start := len(p.arena)
	octets := 0
	if p.form == formNormal {
		p.arena, octets, r.ends = appendPattern(p.arena, value)
	} else {
		p.arena, octets, r.ends = p.appendPattern(p.arena, value)
	}
	form := p.arena[start:]
	r.weigh(p.firstMatch, octets)
	r.pattern, r.patternLength, r.literal = uint32(start), uint16(len(form)), uint16(len(form))
	if i := bytes.IndexByte(form, '*'); i >= 0 && !p.literal {
		r.literal = uint16(i)
	}
	if written != notWritten && bytes.HasPrefix(value, form) {
		p.arena = p.arena[:start]
		r.pattern = written
	}
}

// notWritten is the offset of a pattern that is not part of a line.
const notWritten = math.MaxUint32

// appendPattern is the function appendPattern for another form than the RFC's.
func (s *switches) appendPattern(dst, value []byte) (form []byte, octets int, ends bool) {
	start := len(dst)
	dst = s.form.appendPattern(dst, value)
	octets = len(dst) - start
	if s.literal || octets == 0 {
		return dst, octets, false
	}
	// An encoded "$" ends a pattern if everything is decoded first.
	if last := len(dst) - 1; dst[last] == '$' && (value[len(value)-1] == '$' || s.form == formDecodedButSlash) {
		dst, ends = dst[:last], true
	}
	dst = dst[:start+len(collapseStars(dst[start:]))]
	if n := len(dst); n > start && dst[n-1] == '*' {
		return dst[:n-1], octets, false
	}
	return dst, octets, ends
}

// collapseStars removes stars that follow a star.
func collapseStars(b []byte) []byte {
	return slices.CompactFunc(b, func(a, b byte) bool { return a == '*' && b == '*' })
}

// appendPattern appends the form in which a pattern is matched, and returns the length that decides.
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

// matchWildcards reports whether path matches pattern, which begins with "*"; with ends, up to its end. It also
// returns the steps that it took.
//
// It searches each literal between two stars leftmost, after the previous one. That suffices: a later match leaves no
// more of the path than the leftmost one. So it reads each byte of the path once, whatever the number of stars. A
// matcher that backtracks costs path times pattern, or exponential time.
func matchWildcards(pattern, path string, ends bool) (matched bool, steps int) {
	steps = len(pattern) / scanned
	for {
		pattern = pattern[1:]
		steps += segmentSteps
		n := strings.IndexByte(pattern, '*')
		if n < 0 {
			break
		}
		i, more := index(path, pattern[:n])
		steps += more
		if i < 0 {
			return false, steps
		}
		path, pattern = path[i+n:], pattern[n:]
	}
	if ends || pattern == "" {
		return strings.HasSuffix(path, pattern), steps
	}
	i, more := index(path, pattern)
	return i >= 0, steps + more
}
