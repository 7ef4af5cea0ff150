package rules

import (
	"cmp"
	"slices"
	"strings"
)

// String returns a robots.txt file that says the same, in the plainest way: parsed in the same dialect, it gives every
// agent the same verdicts, by the same rules, and the same delays and fields. Comments, rules that hold for nobody, and
// what was not understood are left out; the lines have other numbers.
func (r *Ruleset) String() string {
	p := printer{set: r, rules: slices.Clone(r.rules), names: r.names, records: r.records}
	slices.SortFunc(p.rules, func(a, b rule) int { return cmp.Compare(a.line, b.line) })
	first := ^uint32(0)
	if len(r.groups) > 0 {
		first = r.groups[0].line
	}
	p.recordsBefore(first)
	for i := range r.groups {
		end := ^uint32(0)
		if i+1 < len(r.groups) {
			end = r.groups[i+1].line
		}
		p.group(end)
	}
	return p.String()
}

// printer writes a file, and keeps what it has not written yet, in the order of the file.
type printer struct {
	strings.Builder
	set     *Ruleset
	rules   []rule
	names   []name
	records []record
	apart   bool // a blank line comes before the next line
}

// write writes a line.
func (p *printer) write(parts ...string) {
	if p.apart && p.Len() > 0 {
		p.WriteByte('\n')
	}
	p.apart = false
	if p.Len() == 0 && parts[0] != "" && parts[0][0] >= 0x80 {
		p.WriteByte('\n') // or it might be taken for a byte order mark
	}
	for _, s := range parts {
		p.WriteString(s)
	}
	p.WriteByte('\n')
}

// recordsBefore writes the records in front of a line.
func (p *printer) recordsBefore(line uint32) {
	for len(p.records) > 0 && p.records[0].line < line {
		x := &p.records[0]
		p.records = p.records[1:]
		if p.set.isNobodys(x) {
			continue
		}
		if x.list == 0 && x.key.ofAgents() && p.set.dialect.switches().groups != groupEndsAtRule {
			p.apart = true // from a group that has been ended by a blank line
		}
		p.write(p.set.text(span{x.text, uint32(x.textLength)}))
	}
}

// isNobodys reports whether a record belongs to user-agent lines none of which was understood. Without them it would
// be somebody else's.
func (r *Ruleset) isNobodys(x *record) bool {
	return x.list > 0 && x.key.ofAgents() && len(r.namesOf(x)) == 0
}

// group writes the group whose lines come before end.
func (p *printer) group(end uint32) {
	names := p.names[:before(p.names, end, func(n name) uint32 { return n.line })]
	rules := p.rules[:before(p.rules, end, func(x rule) uint32 { return x.line })]
	p.names, p.rules = p.names[len(names):], p.rules[len(rules):]
	begun := false
	ruleless := len(names) > 0 && len(rules) == 0
	for len(names) > 0 || len(rules) > 0 {
		switch {
		case len(names) > 0 && (len(rules) == 0 || names[0].line <= rules[0].line):
			if begun {
				p.recordsBefore(names[0].line)
			}
			p.apart = p.apart || !begun
			begun = true
			p.write("User-agent: ", p.set.text(names[0].value))
			names = names[1:]
		default:
			line := rules[0].line
			p.recordsBefore(line)
			p.write(p.set.ruleText(&rules[0]))
			for len(rules) > 0 && rules[0].line == line { // a line may have become two rules
				rules = rules[1:]
			}
		}
	}
	p.recordsBefore(end)
	if s := p.set.dialect.switches(); ruleless && s.empty == emptyIgnored {
		p.write("Disallow:")
	}
}

// before returns how many of s, which are in the order of their lines, come before a line.
func before[T any](s []T, line uint32, of func(T) uint32) int {
	i, _ := slices.BinarySearchFunc(s, line, func(x T, line uint32) int { return cmp.Compare(of(x), line) })
	return i
}
