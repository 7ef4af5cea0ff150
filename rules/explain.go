package rules

import (
	"slices"
	"strings"
)

// Explanation is a Verdict with its reasons.
type Explanation struct {
	Verdict Verdict
	Dialect Dialect
	Token   string // by which the file addresses the agent: see Agent.Token
	Path    string // path and query in the normal form of the dialect, as compared with patterns
	Why     Reason
	Matches []Match // the matching rules of the agent, in order of precedence
	Lost    []Match // the matching rules of other agents, in the order of the file
}

// Match is a matching rule.
type Match struct {
	Allow  bool
	Line   int
	Rule   string // as written
	Octets int    // the length that decides; 0 in a dialect in which the first rule decides
	Group  Group
}

// Reason is the reason of a Verdict.
type Reason uint8

const (
	NoGroup      Reason = iota // the file has no group for the agent
	NoMatch                    // no rule of the agent's groups matches
	AlwaysFree                 // "/robots.txt" is allowed whatever the rules say (2.2.2)
	OtherOrigin                // the target is a URL of another origin
	OnlyMatch                  // one rule matches
	LongestMatch               // the rule is longer than the others (2.2.2)
	AllowWinsTie               // the rule is as long as a Disallow (2.2.2)
	EarlierLine                // the rule is as long as a later one of its kind
	FirstMatch                 // the rule matches first, in a dialect in which that decides
	TooComplex                 // the verdict took too many steps
)

// String returns the reason as the end of a sentence.
func (r Reason) String() string {
	return [...]string{
		NoGroup:      "no group is for this agent",
		NoMatch:      "no rule for this agent matches",
		AlwaysFree:   "/robots.txt itself is always allowed",
		OtherOrigin:  "the file is of another origin",
		OnlyMatch:    "no other rule for this agent matches",
		LongestMatch: "it has the most octets of the rules that match",
		AllowWinsTie: "it has as many octets as a Disallow that matches, and Allow wins",
		EarlierLine:  "it has as many octets as another that matches, and stands in front of it",
		FirstMatch:   "it is the first rule that matches",
		TooComplex:   "the verdict takes too many steps, and was given up",
	}[r]
}

// Explain judges a target as Agent.Verdict does, and returns the rules that match it, for the agent and for others. It compares
// every rule of the file, unless the verdict is too complex.
func (r *Ruleset) Explain(userAgent, target string) Explanation {
	a := r.Agent(userAgent)
	e := Explanation{Verdict: a.Verdict(target), Dialect: r.dialect, Token: a.Token(), Path: r.path(target)}
	if e.Verdict.TooComplex {
		e.Why = TooComplex
		return e
	}
	var held []uint32
	if a.found() {
		held = r.held[r.tokens[a.token].held:r.tokens[a.token+1].held]
	}
	var own, others []*rule
	for block := range max(len(r.blocks)-1, 0) {
		if slices.Contains(held, uint32(block)) {
			own = r.appendMatches(own, block, e.Path)
		} else {
			others = r.appendMatches(others, block, e.Path)
		}
	}
	slices.SortFunc(own, (*rule).compare)
	slices.SortFunc(others, func(a, b *rule) int { return int(a.line) - int(b.line) })
	e.Why = r.reason(a, target, e.Path, own)
	e.Matches, e.Lost = r.matchesOf(own), r.matchesOf(others)
	return e
}

// path returns the path of a target in normal form.
func (r *Ruleset) path(target string) string {
	s := r.dialect.switches()
	return string(s.form.appendPath(nil, s.pathOf(target)))
}

// appendMatches appends the matching rules of a block.
func (r *Ruleset) appendMatches(dst []*rule, block int, path string) []*rule {
	w := walk{set: r, path: path}
	for n := r.blocks[block]; n < r.blocks[block+1]; n++ {
		rest, ok := strings.CutPrefix(path, r.prefix(&r.nodes[n]))
		for i := r.nodes[n].rules; ok && i < r.nodes[n+1].rules; i++ {
			if w.matches(&r.rules[i], rest) {
				dst = append(dst, &r.rules[i])
			}
		}
	}
	return dst
}

// reason returns the reason for which the first of own decides. own are the matching rules of the agent, in order of
// precedence.
func (r *Ruleset) reason(a Agent, target, path string, own []*rule) Reason {
	s := r.dialect.switches()
	switch {
	case r.elsewhere(target):
		return OtherOrigin
	case !s.robotsTxt && path == "/robots.txt":
		return AlwaysFree
	case !a.found():
		return NoGroup
	case len(own) == 0:
		return NoMatch
	case own[0].line == own[len(own)-1].line: // a line may have become two rules
		return OnlyMatch
	case s.firstMatch:
		return FirstMatch
	case own[0].weight>>1 != own[1].weight>>1:
		return LongestMatch
	case own[0].allow && slices.ContainsFunc(own, func(x *rule) bool { return !x.allow && x.weight>>1 == own[0].weight>>1 }):
		return AllowWinsTie
	}
	return EarlierLine
}

// matchesOf returns a Match for each line of rules. A line may have become two rules.
func (r *Ruleset) matchesOf(rules []*rule) (matches []Match) {
	first := r.dialect.switches().firstMatch
	for _, x := range rules {
		if n := len(matches); n > 0 && matches[n-1].Line == int(x.line) {
			continue
		}
		m := Match{Allow: x.allow, Line: int(x.line), Rule: r.ruleText(x), Group: r.groupAt(x.line)}
		if !first {
			m.Octets = int(x.weight >> 1)
		}
		matches = append(matches, m)
	}
	return matches
}
