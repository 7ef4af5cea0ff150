package rules

import (
	"slices"
	"strings"
)

// groupState is the state of the groups before the current line.
type groupState struct {
	open    bool   // a user-agent line has been seen
	ended   bool   // a rule has been seen: the next user-agent line starts a group
	blank   bool   // a blank line has been seen since the last record of the group
	split   bool   // the group has been reported for it
	between string // the last record of another kind after the group's last user-agent line, or ""
	line    int    // of the group's first user-agent line
	agents  []agentName
	rules   int        // index in relations.rules of the group's first rule
	nothing *lintPlace // the group's first Disallow without a value

	first map[string]int // the line of the group that names an agent first
	star  *lintPlace     // the first "*"
}

// lintPlace is a position in the file.
type lintPlace struct{ line, column int }

// agentName is an agent of a group.
type agentName struct {
	lintPlace
	name string // in lower case
}

// userAgent checks a user-agent line.
func (l *linter) userAgent(f lintField) {
	g := &l.groups
	switch {
	case !g.open || g.ended:
		l.endGroup()
		g.open, g.ended, g.blank, g.split, g.line = true, false, false, false, l.number
	case g.between != "":
		l.add(codeGroupNotSplit, f.nameAt,
			`Add a rule to the group above to separate the two, such as "Disallow:", which allows everything.`,
			"This agent joins the group of line %d, and the rules below apply to both, since %s does not end a group%s",
			g.line, g.between, l.but("it does in", endAtField))
	}
	l.blankLine(f)
	g.between = ""
	if !l.glued(f) {
		l.agentName(f)
	}
}

// agentName checks the value of a user-agent line.
func (l *linter) agentName(f lintField) {
	at := lintPlace{l.number, l.column(f.valueAt)}
	if len(f.value) == 0 {
		l.add(codeAgentEmpty, f.nameAt, `Write a product token, or "*" for all agents.`,
			"This line has no value, and the rules below apply to no agent")
		return
	}
	if isStar(f.value) {
		if len(f.value) > 1 {
			l.add(codeAgentNotToken, f.valueAt+1, `Write "User-agent: *".`,
				"This program and Google read \"*\", but other crawlers read no agent in this line")
		}
		l.named(agentName{at, "*"})
		return
	}
	value := string(f.value)
	n := tokenLength(value)
	switch {
	case n == 0:
		l.add(codeAgentNotToken, f.valueAt, `Write a product token, as in "User-agent: NewsBot", or "*" for all agents.`,
			"%s does not begin with a product token, and the rules below apply to no agent", quoted(value))
		return
	case n < len(value):
		l.add(codeAgentNotToken, f.valueAt+n, "Write "+quoted("User-agent: "+clipped(value[:n]))+".",
			"Only %s counts: %s is not part of a product token", quoted(value[:n]), quoted(value[n:]))
	case strings.ContainsFunc(value, isNoLetter):
		l.reading(codeReadToken, at, cutTokens,
			"Choose a product token of letters, \"_\" and \"-\" (RFC 9309 section 2.2.1).",
			"In %s %s ends at its first character that is not an ASCII letter, \"_\" or \"-\"", quoted(value))
	}
	l.named(agentName{at, string(appendLower(nil, value[:n]))})
}

func isNoLetter(r rune) bool {
	return r >= 0x80 || r != '_' && r != '-' && (lowerASCII(byte(r)) < 'a' || lowerASCII(byte(r)) > 'z')
}

// named adds an agent to the group.
func (l *linter) named(a agentName) {
	g := &l.groups
	if g.first == nil {
		g.first = make(map[string]int)
	}
	switch line, ok := g.first[a.name]; {
	case !ok:
		g.first[a.name] = g.line
	case line == g.line:
		l.addAt(a.line, a.column, codeAgentRepeated, "Remove the line.", "%s is named twice in this group", quoted(a.name))
	default:
		l.addAt(a.line, a.column, codeAgentRepeated, "Move the rules into one group.",
			"%s has a group in line %d, and the two are merged (RFC 9309 section 2.2.1)%s",
			quoted(a.name), line, l.but("only the first applies in", takeFirstOf(a.name)))
	}
	switch {
	case a.name == "*" && g.star == nil:
		g.star = &a.lintPlace
	case a.name != "*" && g.star != nil:
		l.reading(codeReadStarFirst, *g.star, takeStarFirst, "Move the group to the end of the file.",
			"The group for all agents comes before a named one, and in %s the first that matches decides")
	}
	g.agents = append(g.agents, a)
}

// blankLine reports the first blank line within a group, before the current record.
func (l *linter) blankLine(f lintField) {
	g := &l.groups
	if !g.blank || g.split {
		return
	}
	g.blank = false
	if names := l.names(endAtBlank); names != "" {
		g.split = true
		l.add(codeGroupSplit, f.nameAt, "Remove the blank lines within the group.",
			"The blank line above is within a group, which it ends in %s", names)
	}
}

// inGroup returns whether the current record belongs to a group, and reports it if not.
func (l *linter) inGroup(f lintField) bool {
	if !l.groups.open {
		l.add(codeOutsideGroup, f.nameAt, `Add a User-agent line before it: "User-agent: *" for all agents.`,
			"There is no User-agent line before this line, so it applies to no agent%s",
			l.but("a rule applies to all agents in", keepOrphans))
		return false
	}
	l.blankLine(f)
	return true
}

// endGroup checks a complete group.
func (l *linter) endGroup() {
	g := &l.groups
	rules := l.relations.rules[g.rules:]
	if g.nothing != nil && len(rules) > 0 {
		l.reading(codeReadEmptyDisallow, *g.nothing, emptyStops, "Remove the line.",
			"This line has no effect beside other rules, but in %s it allows everything that no earlier rule matches")
	}
	names := make([]string, len(g.agents))
	for i, a := range g.agents {
		names[i] = a.name
	}
	if i := slices.Index(names, "*"); i >= 0 && slices.ContainsFunc(names, func(n string) bool { return n != "*" }) {
		a := g.agents[i]
		l.addAt(a.line, a.column, codeStarAmong, "Remove the names, or move them to a separate group.",
			"The group names agents, but applies to all agents")
	}
	l.relations.endGroup(names, rules)
	g.agents, g.nothing, g.rules = nil, nil, len(l.relations.rules)
}
