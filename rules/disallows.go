package rules

import "strings"

// DisallowsAll reports whether the agent may access no path: it has no Allow rule, and a Disallow rule that matches
// every path. It returns the verdict of that rule. It is for callers that cannot see a path, such as a proxy that
// opens a tunnel. It returns false for a site that allows a single page, and for one that disallows only "/$", the
// root. "/robots.txt" does not count.
//
// If the search for the agent's groups took too many steps (see Verdict.TooComplex), DisallowsAll returns true. It
// reads each rule of the agent once.
func (a Agent) DisallowsAll() (Verdict, bool) {
	if a.tooComplex {
		return Verdict{TooComplex: true}, true
	}
	if !a.found() {
		return Verdict{Allowed: true}, false
	}
	r := a.set
	var decides *rule
	for _, block := range r.held[r.tokens[a.token].held:r.tokens[a.token+1].held] {
		first, end := r.nodes[r.blocks[block]].rules, r.nodes[r.blocks[block+1]].rules
		for i := range r.rules[first:end] {
			x := &r.rules[first:end][i]
			if x.allow {
				return Verdict{Allowed: true}, false
			}
			if r.matchesAll(x) && (decides == nil || x.compare(decides) < 0) {
				decides = x
			}
		}
	}
	if decides == nil {
		return Verdict{Allowed: true}, false
	}
	return r.verdictBy(decides), true
}

// matchesAll reports whether the pattern of x matches every path: "/", "*", or a star up to the end. Trailing stars
// are not stored, so "/*" is "/" here.
func (r *Ruleset) matchesAll(x *rule) bool {
	rest := strings.TrimPrefix(r.text(span{x.pattern, uint32(x.patternLength)}), "/")
	if x.ends {
		return rest == "*"
	}
	return rest == ""
}
