package rules

import "strings"

// Closed reports whether the agent may access no path: it has no Allow rule, and a Disallow rule that matches every path. It
// returns the verdict of that rule. It is for callers that cannot see a path, such as a proxy that opens a tunnel. A site that
// allows a single page is not closed, nor is one that disallows only "/$", the root. "/robots.txt" does not count.
//
// If the search for the agent's groups took too many steps (see Verdict.TooComplex), Closed returns true. It reads each rule of the
// agent once.
func (a Agent) Closed() (Verdict, bool) {
	if a.tooComplex {
		return Verdict{TooComplex: true}, true
	}
	if a.set == nil {
		return Verdict{Allowed: true}, false
	}
	r := a.set
	var closes *rule
	for _, block := range r.held[r.tokens[a.token].held:r.tokens[a.token+1].held] {
		first, end := r.nodes[r.blocks[block]].rules, r.nodes[r.blocks[block+1]].rules
		for i := range r.rules[first:end] {
			x := &r.rules[first:end][i]
			if x.allow {
				return Verdict{Allowed: true}, false
			}
			if r.matchesAll(x) && (closes == nil || x.compare(closes) < 0) {
				closes = x
			}
		}
	}
	if closes == nil {
		return Verdict{Allowed: true}, false
	}
	return r.verdictBy(closes), true
}

// matchesAll reports whether the pattern of x matches every path: "/", "*", or a star up to the end. Trailing stars are not
// stored, so "/*" is "/" here.
func (r *Ruleset) matchesAll(x *rule) bool {
	rest := strings.TrimPrefix(r.text(span{x.pattern, uint32(x.patternLength)}), "/")
	if x.ends {
		return rest == "*"
	}
	return rest == ""
}
