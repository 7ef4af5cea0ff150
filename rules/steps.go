package rules

import "strings"

// A step takes about four nanoseconds. Verdicts count their steps, so that a file and a target that were made to be
// slow cannot occupy the program.
const (
	maxVerdictSteps = 750_000 // for the verdict on one target, in all its forms
	maxAgentSteps   = 250_000 // of the search for the groups of one User-Agent

	blockSteps     = 6  // a block that is searched, besides its nodes and rules
	segmentSteps   = 3  // a literal between two stars, besides the search for it
	candidateSteps = 32 // a word of a User-Agent that may be a product token
	scanned        = 64 // bytes that are scanned or compared in one step
)

// index returns the index of sub, which is not empty, in s, or -1, and the steps that the search took. Their number is
// linear in the lengths of both.
func index(s, sub string) (at, steps int) {
	last := len(s) - len(sub)
	for i := 0; i <= last; i++ {
		if steps > 8+i/16 { // many places in s begin like sub
			at, more := indexLinear(s[i:], sub)
			if at >= 0 {
				at += i
			}
			return at, steps + more
		}
		skipped := strings.IndexByte(s[i:last+1], sub[0])
		if skipped < 0 {
			return -1, steps + 1 + (last+1-i)/scanned
		}
		i += skipped
		steps += 2 + (skipped+len(sub))/scanned
		if s[i:i+len(sub)] == sub {
			return i, steps
		}
	}
	return -1, steps
}

// indexLinear is index with a time that does not depend on the content of s and sub.
func indexLinear(s, sub string) (at, steps int) {
	if len(sub) < scanned { // strings.Index compares that many bytes at once
		at = strings.Index(s, sub)
		steps = (1 + len(sub)/16) * passed(s, sub, at) / 8
		return at, steps
	}
	at = knuthMorrisPratt(s, sub)
	return at, len(sub)/2 + passed(s, sub, at)
}

// passed returns the number of bytes of s that a search for sub read before it ended at index at.
func passed(s, sub string, at int) int {
	if at < 0 {
		return len(s)
	}
	return at + len(sub)
}

// knuthMorrisPratt returns the index of sub in s, or -1. It reads each byte of both at most twice.
func knuthMorrisPratt(s, sub string) int {
	// For each prefix of sub, the length of its longest proper suffix that is also a prefix.
	borders := make([]uint16, len(sub))
	n := 0
	for i := 1; i < len(sub); i++ {
		n = extend(sub, borders, n, sub[i])
		borders[i] = uint16(n)
	}
	n = 0
	for i := range len(s) {
		if n = extend(sub, borders, n, s[i]); n == len(sub) {
			return i + 1 - n
		}
	}
	return -1
}

// extend returns the length of the longest beginning of sub that ends with c, after one of length n.
func extend(sub string, borders []uint16, n int, c byte) int {
	for n > 0 && sub[n] != c {
		n = int(borders[n-1])
	}
	if sub[n] == c {
		n++
	}
	return n
}
