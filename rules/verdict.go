package rules

import (
	"cmp"
	"math/bits"
	"net/url"
	"slices"
	"strings"
	"time"
	"unsafe"
)

// Agent is the part of a Ruleset for one crawler. It is a small value: find it once with Ruleset.Agent and keep it.
// The zero value allows everything.
type Agent struct {
	set        *Ruleset
	token      int  // in set.tokens, or noToken
	tooComplex bool // the search for its groups was given up; token means nothing
}

// noToken is the token of an agent for which the file has no group.
const noToken = -1

// found reports whether the file has a group for the agent.
func (a Agent) found() bool { return a.set != nil && a.token != noToken && !a.tooComplex }

// Verdict says whether a crawler may access a path, and why.
type Verdict struct {
	Allowed bool

	// TooComplex is set if the verdict took too many steps and was given up. Only files and targets that were made to be
	// slow take so many. Nothing is allowed then, and the other fields are zero.
	TooComplex bool

	Line  int    // line of the rule that decided, from 1; 0 if no rule did
	Rule  string // that rule as written, without its comment, as in "Disallow: /x"
	Group Group  // the group that the rule belongs to
}

// Group is a group of the file, before groups are merged.
type Group struct {
	Line   int    // of its first User-agent line
	Agents string // the values of its User-agent lines, joined with ", "
}

// Token returns the product token by which the file addresses the agent, in lower case: "*" if only the groups for all
// agents apply, "" if no group applies.
func (a Agent) Token() string {
	if !a.found() {
		return ""
	}
	return a.set.text(a.set.tokens[a.token].name)
}

// CrawlDelay returns the largest Crawl-delay for the agent, and whether there is one. The delay of "*" does not apply
// to an agent that the file names, even if its groups have no delay: the rules of "*" do not apply either.
func (a Agent) CrawlDelay() (time.Duration, bool) {
	if !a.found() {
		return 0, false
	}
	return a.set.tokens[a.token].delay.duration()
}

// Verdict judges a target: a path and query as they are sent, or an absolute URL. It ignores scheme, authority and
// fragment. It allocates only for a target of more than 1,000 bytes that is not in normal form.
//
// The longest matching rule decides. An Allow wins a tie with a Disallow, and the earlier line wins a tie of one kind.
// If no rule matches, and for "/robots.txt", the path is allowed (2.2.2). In most other dialects the first matching
// rule decides.
func (a Agent) Verdict(target string) Verdict {
	v, _ := a.verdict(target, 0)
	return v
}

// VerdictOf judges a target that servers may also read in other forms. The first form that is not allowed decides; if
// all are allowed, the verdict is that of the target. All forms together have the steps of one verdict: see
// Verdict.TooComplex.
func (a Agent) VerdictOf(target string, forms []string) Verdict {
	v, steps := a.verdict(target, 0)
	if !v.Allowed {
		return v
	}
	for _, form := range forms {
		var other Verdict
		if other, steps = a.verdict(form, steps); !other.Allowed {
			return other
		}
	}
	return v
}

// VerdictURL judges the path and query of u.
func (a Agent) VerdictURL(u *url.URL) Verdict { return a.Verdict(u.RequestURI()) }

// verdict is Verdict after the given steps for other forms of the target. It returns the steps of all forms.
func (a Agent) verdict(target string, steps int) (Verdict, int) {
	switch {
	case a.tooComplex:
		return Verdict{TooComplex: true}, steps
	case !a.found():
		return Verdict{Allowed: true}, steps
	case a.set.dialect != DialectRFC9309:
		return a.verdictIn(a.set.dialect.switches(), target, steps)
	}
	path := pathOf(target)
	if path == "/robots.txt" {
		return Verdict{Allowed: true}, steps
	}
	if strings.HasPrefix(path, "/") && isNormal(path) {
		return a.judge(path, steps+len(path)/3)
	}
	return a.judgeIn(formNormal, path, steps)
}

// verdictIn is verdict in any dialect.
func (a Agent) verdictIn(s *switches, target string, steps int) (Verdict, int) {
	path := s.pathOf(target)
	if a.set.elsewhere(target) || !s.robotsTxt && path == "/robots.txt" {
		return Verdict{Allowed: true}, steps
	}
	if s.form.isNormal(path) {
		return a.judge(path, steps+len(path)/3)
	}
	return a.judgeIn(s.form, path, steps)
}

// judgeIn is separate from verdict so that only paths that need the buffer pay for it. The string does not outlive the
// buffer: a Verdict refers to the Ruleset's own text.
func (a Agent) judgeIn(f form, path string, steps int) (Verdict, int) {
	var buf [1024]byte
	normal := buf[:0]
	if len(path) > 3*len(buf) { // buf is too small even if each escape becomes one byte
		normal = make([]byte, 0, len(path)+len(path)/8)
	}
	normal = f.appendPath(normal, path)
	steps += (len(path) + len(normal)) / 2
	if f == formNormal && string(normal) == "/robots.txt" {
		return Verdict{Allowed: true}, steps
	}
	return a.judge(unsafe.String(unsafe.SliceData(normal), len(normal)), steps)
}

// judge judges a path in the form of the Ruleset's patterns.
func (a Agent) judge(path string, steps int) (Verdict, int) {
	r := a.set
	w := walk{set: r, path: path, steps: steps}
	for _, block := range r.held[r.tokens[a.token].held:r.tokens[a.token+1].held] {
		w.search(int(block))
	}
	switch {
	case w.spent():
		return Verdict{TooComplex: true}, w.steps
	case w.best == nil:
		return Verdict{Allowed: true}, w.steps
	}
	return r.verdictBy(w.best), w.steps
}

// verdictBy returns the verdict of a rule.
func (r *Ruleset) verdictBy(x *rule) Verdict {
	return Verdict{Allowed: x.allow, Line: int(x.line), Rule: r.ruleText(x), Group: r.groupAt(x.line)}
}

func (r *Ruleset) ruleText(x *rule) string { return r.text(span{x.text, uint32(x.textLength)}) }

// walk searches for the rule that decides.
type walk struct {
	set   *Ruleset
	path  string
	best  *rule
	steps int // that it took
}

// spent reports whether no steps are left. The result of the walk is then not a verdict.
func (w *walk) spent() bool { return w.steps > maxVerdictSteps }

// search finds the rule that decides among best and the rules of a block.
//
// The block's prefixes of path are the last prefix that sorts before path, and its ancestors: every string that sorts
// between a prefix of path and path begins with that prefix. So one binary search finds them. A block costs the
// logarithm of its size, plus the rules with a matching prefix.
func (w *walk) search(block int) {
	if w.steps += blockSteps; w.spent() {
		return
	}
	r := w.set
	first := int(r.blocks[block])
	nodes := r.nodes[first:r.blocks[block+1]]
	i := r.lastBefore(nodes, w.path)
	if i < 0 {
		return
	}
	common := commonPrefix(r.prefix(&nodes[i]), w.path)
	w.steps += bits.Len(uint(len(nodes))) + common/8
	for ; i >= 0; i = int(nodes[i].parent) {
		w.steps++
		n := &nodes[i]
		if w.best != nil && n.weight < w.best.weight {
			break
		}
		if int(n.prefixLength) <= common {
			w.try(r.rules[n.rules:r.nodes[first+i+1].rules], w.path[n.prefixLength:])
		}
	}
}

// try finds the rule that decides among best and the rules of a node. These are in order of precedence, so the first
// match ends the search.
func (w *walk) try(rules []rule, rest string) {
	for j := range rules {
		x := &rules[j]
		w.steps++
		if w.best != nil && w.best.compare(x) < 0 || w.spent() {
			return
		}
		if w.matches(x, rest) {
			w.best = x
			return
		}
	}
}

// lastBefore returns the last node with a prefix that does not sort after path, or -1.
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

// matches reports whether the rest of a path, after the literal prefix of x, matches the rest of its pattern.
func (w *walk) matches(x *rule, rest string) bool {
	if x.literal == x.patternLength {
		return !x.ends || rest == ""
	}
	pattern := w.set.arena[x.pattern+uint32(x.literal) : x.pattern+uint32(x.patternLength)]
	matched, steps := matchWildcards(pattern, rest, x.ends)
	w.steps += steps
	return matched
}

// groupAt returns the group of a line: the last that begins before it.
func (r *Ruleset) groupAt(line uint32) Group {
	byLine := func(g group, line uint32) int { return cmp.Compare(g.line, line) }
	i, found := slices.BinarySearchFunc(r.groups, line, byLine)
	if !found { // a rule in front of all user-agent lines begins its group
		i--
	}
	if i < 0 {
		return Group{}
	}
	g := r.groups[i]
	return Group{Line: int(g.line), Agents: r.text(g.agents)}
}

// commonPrefix returns the length of the common prefix of a and b. It compares eight bytes at a time.
func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if x := first8(a[i:]) ^ first8(b[i:]); x != 0 {
			return i + bits.LeadingZeros64(x)/8
		}
	}
	for ; i < n && a[i] == b[i]; i++ {
	}
	return i
}

// first8 returns the first eight bytes of s as a number with the same order.
func first8(s string) uint64 {
	_ = s[7]
	return uint64(s[0])<<56 | uint64(s[1])<<48 | uint64(s[2])<<40 | uint64(s[3])<<32 |
		uint64(s[4])<<24 | uint64(s[5])<<16 | uint64(s[6])<<8 | uint64(s[7])
}
