package rules

import (
	"iter"
	"slices"
	"strings"
)

// node is one literal prefix of a block, and the rules whose pattern begins with it and goes on with a wildcard, the
// end, or nothing. The rules of nodes[i] are rules[nodes[i].rules:nodes[i+1].rules]; nodes ends with a sentinel.
type node struct {
	prefix       uint32
	rules        uint32
	parent       int32 // the node of the longest proper prefix, counted from the block's first; -1 if there is none
	prefixLength uint16
	octets       uint16 // of the longest rule here and at all ancestors
}

// compile makes the Ruleset of what was gathered. It costs n log n, and memory in proportion to the file, whatever the
// agents have in common: rules are not copied for each agent but shared in blocks.
func (p *parser) compile() *Ruleset {
	p.endGroup()
	set := &Ruleset{arena: string(p.arena), groups: exact(p.groups), sitemaps: exact(p.sitemaps)}
	set.addTokens(p.agents, p.delays)
	blockOf := set.addHeld(p.agents)
	set.addRules(p, blockOf)
	return set
}

// addTokens sorts the user-agent lines by name, which brings the lines of one token together (2.2.1), and makes the
// tokens of them. The largest of several delays holds.
func (r *Ruleset) addTokens(agents []agentLine, delays []milliseconds) {
	slices.SortFunc(agents, func(a, b agentLine) int { return strings.Compare(r.text(a.name), r.text(b.name)) })
	count := 0
	for range r.byName(agents) {
		count++
	}
	r.tokens = make([]token, 0, count+1)
	for lines := range r.byName(agents) {
		delay := noDelay
		for _, line := range lines {
			delay = max(delay, delays[line.list])
		}
		r.tokens = append(r.tokens, token{name: lines[0].name, delay: delay})
	}
	r.tokens = append(r.tokens, token{})
}

// byName yields the user-agent lines of each token.
func (r *Ruleset) byName(agents []agentLine) iter.Seq[[]agentLine] {
	return runs(agents, func(a, b agentLine) bool { return r.text(a.name) == r.text(b.name) })
}

// addHeld says which blocks each token is held to, and returns the block of each group.
func (r *Ruleset) addHeld(agents []agentLine) (blockOf []uint32) {
	blockOf, count := r.partition(agents)
	r.blocks = make([]uint32, count+1)
	seen := make([]int, count) // the last token for which a block was seen, counted from 1
	held := make([]uint32, 0, len(agents))
	t := 0
	for lines := range r.byName(agents) {
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

// partition gives groups one block only if they have the same agents, and block 0 to the groups that have none. It
// starts with one block for all and splits, for each token, every block into the groups that have the token and those
// that do not, so that the whole costs one step a user-agent line.
func (r *Ruleset) partition(agents []agentLine) (blockOf []uint32, count int) {
	type split struct {
		token int // the last token that split this block, counted from 1
		into  uint32
	}
	blockOf = make([]uint32, len(r.groups))
	splits := make([]split, 1, 8)
	t := 0
	for lines := range r.byName(agents) {
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

// number renames blocks so that none is empty, except block 0.
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

// addRules sorts the rules of each block by literal prefix, so that the ones which can match a path are found in a
// time that grows with the path, and links them up as nodes.
func (r *Ruleset) addRules(p *parser, blockOf []uint32) {
	p.keys = r.sortKeys(p.keys, p.rules, blockOf)
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

// exact returns a copy of s without room to grow.
func exact[T any](s []T) []T {
	out := make([]T, len(s))
	copy(out, s)
	return out
}

// addRule appends rule to the last of nodes, or to a new one if its prefix differs; its block begins with nodes[first].
func (r *Ruleset) addRule(nodes []node, first int, add *rule) []node {
	prefix := r.literal(add)
	if len(nodes) == first || r.prefix(&nodes[len(nodes)-1]) != prefix {
		n := node{prefix: add.pattern, prefixLength: add.literal, rules: uint32(len(r.rules)), octets: add.octets}
		block := nodes[first:]
		n.parent = int32(len(block)) - 1
		for n.parent >= 0 && !strings.HasPrefix(prefix, r.prefix(&block[n.parent])) {
			n.parent = block[n.parent].parent
		}
		if n.parent >= 0 {
			n.octets = max(n.octets, block[n.parent].octets)
		}
		nodes = append(nodes, n)
	}
	r.rules = append(r.rules, *add)
	return nodes
}

// literal returns what stands before the first wildcard of a rule's pattern.
func (r *Ruleset) literal(x *rule) string { return r.arena[x.pattern : x.pattern+uint32(x.literal)] }

// prefix returns the literal prefix that the rules of a node have in common.
func (r *Ruleset) prefix(n *node) string { return r.arena[n.prefix : n.prefix+uint32(n.prefixLength)] }
