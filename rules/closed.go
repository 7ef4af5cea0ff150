package rules

import "strings"

// Closed reports whether the agent may access nothing at all: it has no Allow rule, and a Disallow rule that matches every
// path, whose verdict is returned. It is for who can see no path, such as a proxy whose client asks for a tunnel. An
// agent that is allowed a single page is not shut out, nor is one to whom only "/$", the root, is disallowed. The path
// "/robots.txt" does not count.
//
// An agent whose groups could not be found (see Verdict.TooComplex) is shut out. Closed looks at each rule of the agent once.
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

// matchesAll reports whether the pattern of x matches every path: "/" or "*", or a star up to the end. Stars at the end
// are not kept, so "/*" is "/" here.
func (r *Ruleset) matchesAll(x *rule) bool {
	rest := strings.TrimPrefix(r.text(span{x.pattern, uint32(x.patternLength)}), "/")
	if x.ends {
		return rest == "*"
	}
	return rest == ""
}
