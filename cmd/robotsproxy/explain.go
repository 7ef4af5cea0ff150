package main

import (
	"fmt"
	"strings"

	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/rules"
)

// explanation is a rules.Explanation for the output.
type explanation struct {
	Dialect     rules.Dialect `json:"dialect"`
	Token       string        `json:"token"` // of the group that applies
	Path        string        `json:"path"`  // in the form that is compared with patterns
	Why         string        `json:"why"`
	Matches     []match       `json:"matches"` // rules of the agent, in order of precedence
	OtherAgents []match       `json:"lost"`    // rules of other agents
}

type match struct {
	Line        int    `json:"line"`
	Rule        string `json:"rule"`
	Octets      int    `json:"octets,omitempty"`
	GroupLine   int    `json:"group_line"`
	GroupAgents string `json:"group_agents"`
}

func explained(e rules.Explanation) *explanation {
	return &explanation{
		Dialect: e.Dialect, Token: safetext.UTF8(e.Token), Path: safetext.UTF8(e.Path), Why: e.Why.String(),
		Matches: matchesOf(e.Matches), OtherAgents: matchesOf(e.OtherAgents),
	}
}

func matchesOf(all []rules.Match) []match {
	matches := make([]match, len(all))
	for i, m := range all {
		matches[i] = match{
			Line: m.Line, Rule: safetext.UTF8(m.Rule), Octets: m.Octets,
			GroupLine: m.Group.Line, GroupAgents: safetext.UTF8(m.Group.Agents),
		}
	}
	return matches
}

// text returns the lines after the answer, or "" if e is nil.
func (e *explanation) text() string {
	if e == nil {
		return ""
	}
	var b strings.Builder
	agents := "no group"
	if e.Token != "" {
		agents = "the group of " + safetext.Text(e.Token)
	}
	fmt.Fprintf(&b, "  why: %s (%s, %s)\n", e.Why, e.Dialect, agents)
	fmt.Fprintf(&b, "  path: %s\n", safetext.Text(e.Path))
	for _, m := range e.Matches {
		fmt.Fprintf(&b, "  matches: %s\n", m.text())
	}
	for _, m := range e.OtherAgents {
		fmt.Fprintf(&b, "  for others: %s\n", m.text())
	}
	return b.String()
}

func (m match) text() string {
	s := fmt.Sprintf("line %d: %s", m.Line, safetext.Text(m.Rule))
	if m.Octets > 0 {
		s += fmt.Sprintf(", %d octets", m.Octets)
	}
	return fmt.Sprintf("%s (group of %s, line %d)", s, safetext.Text(m.GroupAgents), m.GroupLine)
}
