package rules

import (
	"slices"
	"strings"
)

// Explanation is a Verdict with all that led to it.
type Explanation struct {
	Verdict Verdict
	Dialect Dialect
	Token   string // under which the file addresses the agent, as Agent.Token returns it
	Path    string // what was compared with the patterns: the path and query in the dialect's one form
	Why     Reason
	Matches []Match // the agent's rules that match, in the order in which they would decide
	Lost    []Match // the rules that match as well, and are for other agents, in the order of the file
}

// Match is a rule whose pattern matches.
type Match struct {
	Allow  bool
	Line   int
	Rule   string // as written
	Octets int    // what the longest is longest by; 0 in a dialect in which the first rule decides
	Group  Group
}

// Reason says why a Verdict is what it is.
type Reason uint8

const (
	NoGroup      Reason = iota // no group of the file is for the agent
	NoMatch                    // no rule of the agent's groups matches
	AlwaysFree                 // "/robots.txt" is allowed whatever the rules say (2.2.2)
	OtherOrigin                // the target is a URL that the file does not speak of
	OnlyMatch                  // one rule alone matches
	LongestMatch               // the rule has more octets than the others (2.2.2)
	AllowWinsTie               // the rule has as many octets as a Disallow (2.2.2)
	EarlierLine                // the rule has as many octets as another of its kind, in front of which it stands
	FirstMatch                 // the rule is the first that matches, and in this dialect that decides
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
	}[r]
}

// Explain judges a target as Agent.Verdict does for an agent, and says by which rules, and which others might have been
// expected to decide. It looks at every rule of the file.
func (r *Ruleset) Explain(userAgent, target string) Explanation {
	a := r.Agent(userAgent)
	e := Explanation{Verdict: a.Verdict(target), Dialect: r.dialect, Token: a.Token(), Path: r.path(target)}
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

// path returns the path of a target in the form in which it is compared.
func (r *Ruleset) path(target string) string {
	s := r.dialect.switches()
	return string(s.form.appendPath(nil, s.pathOf(target)))
}

// appendMatches appends the rules of a block that match a path.
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

// reason says why the first of own decides, which are the agent's rules that match, in their order.
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

// matchesOf makes what is told of rules. A line that became two rules is told once.
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
