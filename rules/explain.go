package rules

import (
	"slices"
	"strings"
)

// Explanation is a Verdict with its reasons.
type Explanation struct {
	Verdict     Verdict
	Dialect     Dialect
	Token       string // by which the file addresses the agent: see Agent.Token
	Path        string // path and query in the normal form of the dialect, as compared with patterns
	Why         Reason
	Matches     []Match // the matching rules of the agent, in order of precedence
	OtherAgents []Match // the matching rules of other agents, in the order of the file
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
	ReasonNoGroup      Reason = iota // the file has no group for the agent
	ReasonNoMatch                    // no rule of the agent's groups matches
	ReasonRobotsTxt                  // "/robots.txt" is always allowed (2.2.2)
	ReasonOtherOrigin                // the target is a URL of another origin
	ReasonOnlyMatch                  // one rule matches
	ReasonLongestMatch               // the rule is longer than the others (2.2.2)
	ReasonAllowWinsTie               // the rule is as long as a Disallow (2.2.2)
	ReasonEarlierLine                // the rule is as long as a later one of its kind
	ReasonFirstMatch                 // the rule matches first, in a dialect in which that decides
	ReasonTooComplex                 // the verdict took too many steps
)

// String returns the reason as the end of a sentence.
func (r Reason) String() string {
	return [...]string{
		ReasonNoGroup:      "no group applies to this agent",
		ReasonNoMatch:      "no rule for this agent matches",
		ReasonRobotsTxt:    "/robots.txt itself is always allowed",
		ReasonOtherOrigin:  "the file is of another origin",
		ReasonOnlyMatch:    "no other rule for this agent matches",
		ReasonLongestMatch: "it has the most octets of the rules that match",
		ReasonAllowWinsTie: "it has as many octets as a Disallow that matches, and Allow wins",
		ReasonEarlierLine:  "it has as many octets as another that matches, and comes first",
		ReasonFirstMatch:   "it is the first rule that matches",
		ReasonTooComplex:   "the verdict takes too many steps, and was given up",
	}[r]
}

// Explain judges a target as Agent.Verdict does, and returns the rules that match it, for the agent and for others. It
// compares every rule of the file, unless the verdict is too complex.
func (a Agent) Explain(target string) Explanation {
	r := a.set
	if r == nil {
		r = new(Ruleset)
	}
	e := Explanation{Verdict: a.Verdict(target), Dialect: r.dialect, Token: a.Token(), Path: r.path(target)}
	if e.Verdict.TooComplex {
		e.Why = ReasonTooComplex
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
	e.Matches, e.OtherAgents = r.matchesOf(own), r.matchesOf(others)
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
		return ReasonOtherOrigin
	case !s.robotsTxt && path == "/robots.txt":
		return ReasonRobotsTxt
	case !a.found():
		return ReasonNoGroup
	case len(own) == 0:
		return ReasonNoMatch
	case own[0].line == own[len(own)-1].line: // a line may have become two rules
		return ReasonOnlyMatch
	case s.firstMatch:
		return ReasonFirstMatch
	case own[0].weight>>1 != own[1].weight>>1:
		return ReasonLongestMatch
	case own[0].allow && slices.ContainsFunc(own, func(x *rule) bool {
		return !x.allow && x.weight>>1 == own[0].weight>>1
	}):
		return ReasonAllowWinsTie
	}
	return ReasonEarlierLine
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
