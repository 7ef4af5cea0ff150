package rules

import (
	"cmp"
	"slices"
	"strings"
)

// String returns an equivalent robots.txt file in canonical form. Parsed in the same dialect, it gives every agent the
// same verdicts by the same rules, and the same delays and fields. It omits comments, rules that apply to no agent,
// and lines that were not understood. Line numbers differ.
func (r *Ruleset) String() string { return r.print(false) }

// Understood is String without the fields that this package does not read. For a web page in place of a
// robots.txt, it prints only lines that apply.
func (r *Ruleset) Understood() string { return r.print(true) }

func (r *Ruleset) print(understood bool) string {
	p := printer{understood: understood, set: r, rules: slices.Clone(r.rules), names: r.names, records: r.records}
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

// printer writes a file. It keeps the parts that are not written yet, in the order of the file.
type printer struct {
	strings.Builder
	understood bool // omit fields that are not read
	set        *Ruleset
	rules      []rule
	names      []name
	records    []record
	apart      bool // a blank line must precede the next line
}

// write writes a line.
func (p *printer) write(parts ...string) {
	if p.apart && p.Len() > 0 {
		p.WriteByte('\n')
	}
	p.apart = false
	if p.Len() == 0 && parts[0] != "" && parts[0][0] >= 0x80 {
		p.WriteByte('\n') // it could be taken for a byte order mark
	}
	for _, s := range parts {
		p.WriteString(s)
	}
	p.WriteByte('\n')
}

// recordsBefore writes the records before a line.
func (p *printer) recordsBefore(line uint32) {
	for len(p.records) > 0 && p.records[0].line < line {
		x := &p.records[0]
		p.records = p.records[1:]
		if p.set.lacksAgents(x) || p.understood && (x.key == keyOther || x.key == keyLicense) {
			continue
		}
		if x.list == 0 && x.key.ofAgents() && p.set.dialect.switches().groups != groupEndsAtRule {
			p.apart = true // a blank line has ended the group
		}
		p.write(p.set.text(span{x.text, uint32(x.textLength)}))
	}
}

// lacksAgents reports whether no user-agent line of a record was understood. Without those lines the record would
// apply to other agents.
func (r *Ruleset) lacksAgents(x *record) bool {
	return x.list > 0 && x.key.ofAgents() && len(r.namesOf(x)) == 0
}

// group writes the group that ends before the line end.
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

// before returns how many of s precede a line. s is in the order of lines.
func before[T any](s []T, line uint32, of func(T) uint32) int {
	i, _ := slices.BinarySearchFunc(s, line, func(x T, line uint32) int { return cmp.Compare(of(x), line) })
	return i
}
