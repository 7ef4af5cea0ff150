package rules

import (
	"iter"
	"slices"
	"strings"
)

// node is a literal prefix of a block, with the rules whose pattern is that prefix and then a wildcard, the end, or
// nothing. The rules of nodes[i] are rules[nodes[i].rules:nodes[i+1].rules]; nodes ends with a sentinel.
type node struct {
	prefix       uint32
	rules        uint32
	parent       int32  // the node of the longest proper prefix, counted from the block's first; or -1
	weight       uint32 // the largest of the rules here and at all ancestors
	prefixLength uint16
}

// compile makes the Ruleset from the parsed lines. It takes n log n time and linear memory, however many agents share
// rules: rules are in blocks, not copied for each agent.
func (p *parser) compile() *Ruleset {
	p.endGroup()
	set := &Ruleset{
		dialect: p.dialect, arena: string(p.arena), groups: exact(p.groups), names: exact(p.names), records: exact(p.records),
	}
	set.stated = slices.ContainsFunc(set.records, func(x record) bool { return x.key.ofUse() || x.key == keyLicense })
	if p.base != nil {
		set.base = originOf(p.base)
	}
	agents := set.order(p.agents, p.rules)
	set.addTokens(agents, p.delays)
	blockOf := set.addHeld(agents)
	set.addRules(p, blockOf)
	return set
}

// order sorts the user-agent lines in the order of the tokens. If groups are merged, that is by name, so the lines of
// one token are adjacent (2.2.1).
func (r *Ruleset) order(agents []agentLine, rules []rule) []agentLine {
	for i := range r.names {
		r.names[i].token = uint32(len(agents))
	}
	s := r.dialect.switches()
	if s.agents.merged() {
		slices.SortFunc(agents, func(a, b agentLine) int { return strings.Compare(r.text(a.name), r.text(b.name)) })
		return agents
	}
	if s.dropRuleless {
		agents = slices.DeleteFunc(agents, func(a agentLine) bool { return r.ruleless(int(a.group), rules) })
	}
	isDefault := make([]bool, len(r.groups))
	for _, a := range agents {
		isDefault[a.group] = isDefault[a.group] || r.text(a.name) == "*"
	}
	last := func(a agentLine) bool {
		return s.defaultLast && isDefault[a.group] || s.mergeDefaults && r.text(a.name) == "*"
	}
	slices.SortStableFunc(agents, func(a, b agentLine) int { return compareBool(last(a), last(b)) })
	return agents
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// ruleless reports whether a group has no rules.
func (r *Ruleset) ruleless(group int, rules []rule) bool {
	end := uint32(len(rules))
	if group+1 < len(r.groups) {
		end = r.groups[group+1].firstRule
	}
	return r.groups[group].firstRule == end
}

// addTokens makes the tokens of the user-agent lines. The largest of several delays applies.
func (r *Ruleset) addTokens(agents []agentLine, delays []milliseconds) {
	count := 0
	for range r.byToken(agents) {
		count++
	}
	r.tokens = make([]token, 0, count+1)
	for lines := range r.byToken(agents) {
		delay := noDelay
		for _, line := range lines {
			n := &r.names[line.at]
			n.token = uint32(len(r.tokens))
			delay = max(delay, delays[n.list-1])
		}
		r.tokens = append(r.tokens, token{name: lines[0].name, delay: delay})
	}
	r.tokens = append(r.tokens, token{})
}

// byToken yields the user-agent lines of each token.
func (r *Ruleset) byToken(agents []agentLine) iter.Seq[[]agentLine] {
	s := r.dialect.switches()
	return runs(agents, func(a, b agentLine) bool {
		return (s.agents.merged() || s.mergeDefaults && r.text(a.name) == "*") && r.text(a.name) == r.text(b.name)
	})
}

// addHeld sets the blocks that apply to each token, and returns the block of each group.
func (r *Ruleset) addHeld(agents []agentLine) (blockOf []uint32) {
	blockOf, count := r.partition(agents)
	r.blocks = make([]uint32, count+1)
	seen := make([]int, count) // the last token for which a block was seen, counted from 1
	held := make([]uint32, 0, len(agents))
	t := 0
	for lines := range r.byToken(agents) {
		r.tokens[t].held = uint32(len(held))
		t++
		for _, line := range lines {
			if b := blockOf[line.group]; seen[b] != t {
				seen[b] = t
				held = append(held, b)
			}
		}
	}
	r.tokens[t].held = uint32(len(held))
	r.held = exact(held)
	return blockOf
}

// partition gives groups the same block if they have the same agents, and block 0 to groups without agents. It starts
// with one block. For each token it splits every block into the groups with the token and those without. That costs
// one step for each user-agent line.
//
// If groups are not merged, each has a separate block.
func (r *Ruleset) partition(agents []agentLine) (blockOf []uint32, count int) {
	if !r.dialect.switches().agents.merged() {
		blockOf = make([]uint32, len(r.groups))
		for _, a := range agents {
			blockOf[a.group] = a.group + 1
		}
		return number(blockOf, len(blockOf)+1)
	}
	type split struct {
		token int // the last token that split this block, counted from 1
		into  uint32
	}
	blockOf = make([]uint32, len(r.groups))
	splits := make([]split, 1, 8)
	t := 0
	for lines := range r.byToken(agents) {
		t++
		for _, line := range lines {
			b := blockOf[line.group]
			if splits[b].token != t {
				splits[b] = split{token: t, into: uint32(len(splits))}
				splits = append(splits, split{})
			}
			blockOf[line.group] = splits[b].into
		}
	}
	return number(blockOf, len(splits))
}

// number renumbers the blocks so that only block 0 may be empty.
func number(blockOf []uint32, blocks int) ([]uint32, int) {
	names := make([]uint32, blocks)
	count := uint32(1)
	for g, b := range blockOf {
		if b != 0 && names[b] == 0 {
			names[b] = count
			count++
		}
		blockOf[g] = names[b]
	}
	return blockOf, int(count)
}

// addRules sorts the rules of each block by literal prefix and links them as nodes, so that the time to find the rules
// that can match depends on the path only.
func (r *Ruleset) addRules(p *parser, blockOf []uint32) {
	p.keys = r.sortKeys(p, blockOf)
	r.rules = make([]rule, 0, len(p.keys))
	block := uint32(0)
	for _, k := range p.keys {
		for ; block < k.block; block++ {
			r.blocks[block+1] = uint32(len(p.nodes))
		}
		p.nodes = r.addRule(p.nodes, int(r.blocks[block]), &p.rules[k.rule])
	}
	for ; int(block) < len(r.blocks)-1; block++ {
		r.blocks[block+1] = uint32(len(p.nodes))
	}
	p.nodes = append(p.nodes, node{rules: uint32(len(r.rules))})
	r.nodes = exact(p.nodes)
}

// exact returns a copy of s without spare capacity.
func exact[T any](s []T) []T {
	out := make([]T, len(s))
	copy(out, s)
	return out
}

// addRule appends rule to the last node, or to a new node if its prefix differs. Its block begins with nodes[first].
func (r *Ruleset) addRule(nodes []node, first int, add *rule) []node {
	prefix := r.literal(add)
	if len(nodes) == first || r.prefix(&nodes[len(nodes)-1]) != prefix {
		block := nodes[first:]
		parent, weight := int32(len(block))-1, add.weight
		for parent >= 0 && !strings.HasPrefix(prefix, r.prefix(&block[parent])) {
			parent = block[parent].parent
		}
		if parent >= 0 {
			weight = max(weight, block[parent].weight)
		}
		nodes = append(nodes, node{})
		n := &nodes[len(nodes)-1]
		n.prefix, n.prefixLength, n.rules, n.parent, n.weight = add.pattern, add.literal, uint32(len(r.rules)), parent, weight
	}
	r.rules = append(r.rules, *add)
	return nodes
}

// literal returns the part of a rule's pattern before its first wildcard.
func (r *Ruleset) literal(x *rule) string { return r.arena[x.pattern : x.pattern+uint32(x.literal)] }

// prefix returns the literal prefix of a node's rules.
func (r *Ruleset) prefix(n *node) string { return r.arena[n.prefix : n.prefix+uint32(n.prefixLength)] }
