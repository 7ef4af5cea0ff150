package rules

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unsafe"
)

// Agent is what a Ruleset holds for one crawler. It is a small value; find it once with Ruleset.Agent and keep it. The
// zero value is held to nothing.
type Agent struct {
	set   *Ruleset
	token int // in set.tokens
}

// Verdict is the answer to whether a crawler may access a path, and why.
type Verdict struct {
	Allowed bool
	Line    int    // where the rule that decided stands in the file, from 1; 0 if none did
	Rule    string // that rule as written, without its comment, as in "Disallow: /x"
	Group   Group  // the group that the rule belongs to
}

// Group is a group as it stands in the file, before groups are merged.
type Group struct {
	Line   int    // of its first User-agent line
	Agents string // the values of its User-agent lines, joined with ", "
}

// Token returns the product token under which the file addresses the agent, in lower case: "*" where only the groups
// for everyone hold, "" where none does.
func (a Agent) Token() string {
	if a.set == nil {
		return ""
	}
	return a.set.text(a.set.tokens[a.token].name)
}

// CrawlDelay returns the largest Crawl-delay that the file has for the agent, and whether it has one. The delay of "*"
// does not hold for an agent that is named, even if no delay is given with its name: neither do the rules of "*".
func (a Agent) CrawlDelay() (time.Duration, bool) {
	if a.set == nil {
		return 0, false
	}
	return a.set.tokens[a.token].delay.duration()
}

// Verdict judges a target: a path with its query as it is sent, or an absolute URL, of which scheme, authority and
// fragment do not count. It allocates only where a target of more than 1,000 octets is not in normal form.
//
// The rule with the most octets among those that match decides, Allow if it ties with Disallow, and the earlier line
// if two of one kind tie; where no rule matches, and for "/robots.txt" itself, the path is allowed (2.2.2).
func (a Agent) Verdict(target string) Verdict {
	if a.set == nil {
		return Verdict{Allowed: true}
	}
	path := pathOf(target)
	if strings.HasPrefix(path, "/") && isNormal(path) {
		return a.judge(path)
	}
	return a.judgeNormalised(path)
}

// judgeNormalised is apart from Verdict so that only paths which need the buffer pay for it. The string does not
// outlive the buffer: a Verdict is made of the Ruleset's own text.
func (a Agent) judgeNormalised(path string) Verdict {
	var buf [1024]byte
	normal := appendPath(buf[:0], path)
	return a.judge(unsafe.String(unsafe.SliceData(normal), len(normal)))
}

// judge judges a path in normal form.
func (a Agent) judge(path string) Verdict {
	if path == "/robots.txt" {
		return Verdict{Allowed: true}
	}
	r := a.set
	var best *rule
	for _, block := range r.held[r.tokens[a.token].held:r.tokens[a.token+1].held] {
		best = r.search(int(block), path, best)
	}
	if best == nil {
		return Verdict{Allowed: true}
	}
	return Verdict{
		Allowed: best.allow,
		Line:    int(best.line),
		Rule:    r.text(span{best.text, uint32(best.textLength)}),
		Group:   r.groupOf(best),
	}
}

// search returns the rule that decides about path among best and those of a block.
//
// The prefixes of path that the block has are all ancestors of the last prefix that sorts before path, or that prefix
// itself: what sorts between a prefix of path and path begins with that prefix too. So one binary search finds them,
// and a block costs the logarithm of its size, plus the rules that begin as path does.
func (r *Ruleset) search(block int, path string, best *rule) *rule {
	first := int(r.blocks[block])
	nodes := r.nodes[first:r.blocks[block+1]]
	i := r.lastBefore(nodes, path)
	if i < 0 {
		return best
	}
	common := commonPrefix(r.prefix(&nodes[i]), path)
	for ; i >= 0; i = int(nodes[i].parent) {
		n := &nodes[i]
		if best != nil && n.octets < best.octets {
			break
		}
		if int(n.prefixLength) > common {
			continue
		}
		// The first match ends a node's search, since its rules are in the order in which they decide.
		rules := r.rules[n.rules:r.nodes[first+i+1].rules]
		rest := path[n.prefixLength:]
		for j := range rules {
			if best != nil && best.compare(&rules[j]) < 0 {
				break
			}
			if r.matches(&rules[j], rest) {
				best = &rules[j]
				break
			}
		}
	}
	return best
}

// lastBefore returns the last node whose prefix does not sort after path, or -1.
func (r *Ruleset) lastBefore(nodes []node, path string) int {
	low, high := 0, len(nodes)
	for low < high {
		middle := int(uint(low+high) >> 1)
		if r.prefix(&nodes[middle]) <= path {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low - 1
}

// matches reports whether what is left of a path behind the literal prefix of x matches what is left of its pattern.
func (r *Ruleset) matches(x *rule, rest string) bool {
	if x.literal == x.patternLength {
		return !x.ends || rest == ""
	}
	pattern := r.arena[x.pattern+uint32(x.literal) : x.pattern+uint32(x.patternLength)]
	return matchWildcards(pattern, rest, x.ends)
}

// groupOf returns the group in which a rule stands: the last that begins before it.
func (r *Ruleset) groupOf(x *rule) Group {
	i, _ := slices.BinarySearchFunc(r.groups, x.line, func(g group, line uint32) int { return cmp.Compare(g.line, line) })
	g := r.groups[i-1]
	return Group{Line: int(g.line), Agents: r.text(g.agents)}
}

func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
