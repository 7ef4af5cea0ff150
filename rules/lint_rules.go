package rules

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// rule checks an Allow or Disallow line.
func (l *linter) rule(f lintField) {
	inGroup := l.inGroup(f)
	l.groups.ended = true
	at := lintPlace{l.number, l.column(f.nameAt)}
	switch {
	case l.glued(f):
	case len(f.value) > 0:
		l.path(f)
	case f.key == keyAllow:
		l.reading(codeReadEmptyAllow, at, readEmptyAllow, "Remove the line, or write the path to allow.",
			"This line has no effect, but in %s it is a rule: "+
				"robotstxt-rb and robots-cr allow everything, mk1996 and gym2008 nothing")
	case l.groups.nothing == nil:
		l.groups.nothing = &at
	}
	if f.key == keyAllow {
		l.reading(codeReadAllow, at, ignoreAllow, "Do not rely on Allow alone.",
			"Allow is unknown in %s, and is ignored")
	}
	if inGroup && len(f.value) > 0 {
		l.relations.add(at, f)
	}
}

// path checks the pattern of a rule.
func (l *linter) path(f lintField) {
	v := f.value
	if v[0] != '/' && v[0] != '*' {
		l.add(codePathNoSlash, f.valueAt, "Write "+quoted(slashed(v))+".",
			"%s begins with neither \"/\" nor \"*\", and no path does, so that the rule matches nothing", quoted(v))
	}
	if i := bytes.IndexFunc(v, isSpaceRune); i >= 0 {
		l.add(codePathSpace, f.valueAt+i, `Write a space as "%20", and each path in a separate line.`,
			"The white space is part of the path: the rule matches %s", quoted(v))
	}
	for i, c := range v {
		if c == '%' && !isEscape(v, i) {
			l.add(codeBadEscape, f.valueAt+i, `Write "%25" for a percent sign.`,
				"The percent sign is not followed by two hexadecimal digits, and is an ordinary character")
			break
		}
	}
	if i := bytes.IndexByte(v, '$'); i >= 0 && i < len(v)-1 {
		l.add(codeDollarMiddle, f.valueAt+i, `Remove the text after it, or write "%24" for a dollar sign.`,
			"\"$\" means the end of a path only at the end of a rule; here it is an ordinary character")
	}
	l.idleWildcard(f)
	l.pathReadings(f)
}

// slashed returns the likely path for a value without a leading slash.
func slashed(value []byte) string {
	if p := pathOf(string(value)); p != string(value) {
		return "/" + strings.TrimPrefix(clipped(p), "/")
	}
	return "/" + clipped(value)
}

// idleWildcard looks for wildcards without effect: a trailing one, since a pattern is open at the end, and one of
// several in a row.
func (l *linter) idleWildcard(f lintField) {
	v := f.value
	if i := bytes.Index(v, []byte("**")); i >= 0 {
		l.add(codeIdleWildcard, f.valueAt+i+1, `Write one "*".`,
			"A wildcard after another has no effect, except that the rule is longer")
		return
	}
	tail := bytes.TrimSuffix(v, []byte("$"))
	if !bytes.HasSuffix(tail, []byte("*")) {
		return
	}
	fix := bytes.TrimSuffix(tail, []byte("*"))
	if len(fix) == 0 {
		fix = []byte("/")
	}
	if before, ok := bytes.CutSuffix(fix, []byte("$")); ok {
		fix = append(bytes.Clone(before), "%24"...) // at the end it would be an anchor
	}
	l.add(codeIdleWildcard, f.valueAt+len(tail)-1, "Write "+quoted(fix)+".",
		"A wildcard at the end has no effect, except that the rule is longer")
}

// relations finds rules that never decide because of other rules for the same agents.
type relations struct {
	rules  []lintRule
	blocks map[string]int // by the names of all agents of a group
	steps  int            // that are left; each is about one byte read
}

// lintRule is a rule, prepared for comparison.
type lintRule struct {
	lintPlace
	text   string
	form   string // see rule.pattern
	ends   bool
	allow  bool
	stars  bool // it is written with a wildcard
	octets int
	block  int // of the rules for exactly the same agents; 0 if they are outside groups
}

func newRelations(size int) relations {
	return relations{blocks: make(map[string]int), steps: 1<<20 + 256*size}
}

func (r *relations) add(at lintPlace, f lintField) {
	form, octets, ends := appendPattern(nil, f.value)
	kind := "Disallow: "
	if f.key == keyAllow {
		kind = "Allow: "
	}
	r.rules = append(r.rules, lintRule{
		lintPlace: at, text: kind + clipped(f.value), form: string(form), ends: ends,
		allow: f.key == keyAllow, stars: bytes.IndexByte(f.value, '*') >= 0, octets: octets,
	})
}

// endGroup assigns the rules of a group to a block. Groups for the same agents are one block (2.2.1).
func (r *relations) endGroup(names []string, rules []lintRule) {
	if len(names) == 0 {
		return
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	key := strings.Join(names, "\n")
	block, ok := r.blocks[key]
	if !ok {
		block = len(r.blocks) + 1
		r.blocks[key] = block
	}
	for i := range rules {
		rules[i].block = block
	}
}

// unite compares the rules of each block.
func (l *linter) unite() {
	rules := l.relations.rules
	slices.SortStableFunc(rules, func(a, b lintRule) int { return a.block - b.block })
	for block := range runs(rules, func(a, b lintRule) bool { return a.block == b.block }) {
		if block[0].block != 0 {
			l.compare(block)
		}
	}
}

// twin is the key that is equal for two rules that match the same paths.
type twin struct {
	form string
	ends bool
}

// compare compares the rules of a block, in the order of the file.
func (l *linter) compare(rules []lintRule) {
	l.complexity(rules)
	twins := make(map[twin][2]*lintRule)
	byLength, byOrder := newCovers(rules, hasStars, byPrecedence), newCovers(rules, isPrefix, byLine)
	for i := range rules {
		r := &rules[i]
		key := twin{r.form, r.ends}
		seen := twins[key]
		same, other := seen[kindOf(r)], seen[1-kindOf(r)]
		switch {
		case same != nil:
			l.addAt(r.line, r.column, codeDuplicate, "Remove one of the two.",
				"Line %d has the same rule: %s", same.line, quoted(same.text))
		case other != nil:
			l.contradicting(r, other)
		default:
			l.idle(r, byLength, byOrder)
		}
		if same == nil {
			seen[kindOf(r)] = r
			twins[key] = seen
		}
	}
}

// lintPath is the length of the path for which the steps of a verdict are estimated. Few URLs are longer.
const lintPath = 2000

// complexity finds the rule of a block with which a verdict may be given up. See maxVerdictSteps.
func (l *linter) complexity(rules []lintRule) {
	steps := 0
	for i := range rules {
		r := &rules[i]
		if r.literal() == len(r.form) {
			continue
		}
		before := steps
		steps += (segmentSteps+2)*strings.Count(r.form, "*") + lintPath/scanned
		if before <= maxVerdictSteps && steps > maxVerdictSteps {
			l.addAt(r.line, r.column, codeTooComplex, "Write prefixes, or fewer wildcards.",
				"With this rule and those before it, a verdict on a path of %d bytes may take too many steps; "+
					"such a path is refused", lintPath)
		}
	}
}

func kindOf(r *lintRule) int {
	if r.allow {
		return 1
	}
	return 0
}

func (l *linter) contradicting(r, other *lintRule) {
	wins, why := r, "it is longer"
	if byPrecedence(other, r) < 0 {
		wins = other
	}
	if r.octets == other.octets {
		why = "Allow wins a tie"
	}
	l.addAt(r.line, r.column, codeContradicting, "Remove one of the two.",
		"Line %d has the opposite rule for the same paths, %s; line %d wins, since %s", other.line, quoted(other.text),
		wins.line, why)
}

// idle looks for a rule that decides wherever r matches.
func (l *linter) idle(r *lintRule, byLength, byOrder *covers) {
	if c := byLength.find(r, &l.relations.steps); c != nil {
		l.addAt(r.line, r.column, codeUnreachable,
			"Remove the rule, or make it longer than that of line "+strconv.Itoa(c.line)+".",
			"The rule of line %d, %s, matches all paths that this one matches, and always wins", c.line, quoted(c.text))
		return
	}
	if c := byOrder.find(r, &l.relations.steps); c != nil && c.allow != r.allow {
		l.reading(codeReadFirst, r.lintPlace, takeFirstRuleIf(c.allow),
			"Put the longer rule first, so that all dialects agree.",
			"In %s the first rule that matches decides, which is %s in line %d; "+
				"by RFC 9309 this one decides, since it is longer",
			quoted(c.text), c.line)
	}
}
