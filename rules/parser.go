package rules

import (
	"bytes"
	"math"
	"net/url"
	"slices"
	"sync"
)

// parser turns records into groups, rules and delays, in the order of the file. compile sorts them.
type parser struct {
	*switches
	dialect Dialect
	base    *url.URL // of values that are URLs, or nil

	arena   []byte
	rules   []rule
	keys    []sortKey
	nodes   []node
	groups  []group
	names   []name
	agents  []agentLine
	delays  []milliseconds // of each list of user-agent lines
	records []record

	field      field  // of the current line
	joined     []byte // the values of the open group's user-agent lines
	addressed  bool   // a user-agent line has been seen
	open       bool   // the next rule belongs to a group
	groupEnded bool   // the next user-agent line starts a group
	listEnded  bool   // the next user-agent line starts a list
}

// parsers is a pool: a Ruleset refers to no part of a parser.
var parsers = sync.Pool{New: func() any { return new(parser) }}

func (p *parser) reset(d Dialect, robotsURL string) {
	*p = parser{
		switches: d.switches(), dialect: d,
		arena: p.arena[:0], rules: p.rules[:0], keys: p.keys[:0], nodes: p.nodes[:0],
		groups: p.groups[:0], names: p.names[:0], agents: p.agents[:0], delays: p.delays[:0], records: p.records[:0],
		joined: p.joined[:0],
	}
	if p.resolve && robotsURL != "" {
		p.base, _ = url.Parse(robotsURL)
	}
}

// agentLine is a user-agent line, by its name.
type agentLine struct {
	name  span // in lower case
	group uint32
	at    uint32 // in names
}

// line parses the line with this number (2.2).
func (p *parser) line(number int, line []byte) {
	if p.switches.groups != groupEndsAtRule && len(trimSpace(line)) == 0 {
		p.open, p.groupEnded, p.listEnded = false, true, true
		return
	}
	f := &p.field
	if p.dialect != DialectRFC9309 {
		*f = p.parseField(line)
		p.add(number, f)
		return
	}
	f.parse(line)
	if f.key == keyUserAgent {
		p.userAgentLine(number, f)
		return
	}
	p.add(number, f)
}

// userAgentLine adds a user-agent record and those that follow in its line: see field.cut.
func (p *parser) userAgentLine(number int, f *field) {
	next := f.cut()
	p.add(number, f)
	for next != nil {
		f.parse(next)
		next = nil
		if f.key == keyCrawlDelay {
			next = f.cut()
		}
		p.add(number, f)
	}
}

// add adds a record to the rules, groups and delays.
func (p *parser) add(number int, f *field) {
	switch f.key {
	case keyUserAgent:
		p.addressed = true
		p.userAgent(number, f.value())
	case keyAllow, keyDisallow:
		p.rule(number, f)
	default:
		p.record(number, f)
	}
}

// userAgent parses a startgroupline (2.1). After a rule it starts a group; otherwise it joins the open one. A value
// that is not a product token also starts a group: its rules apply to no agent, and must not join the previous group.
func (p *parser) userAgent(number int, value []byte) {
	if !p.open || p.groupEnded {
		p.startGroup(number)
	}
	if len(p.delays) == 0 || p.listEnded {
		p.delays = append(p.delays, noDelay)
		p.listEnded = false
	}
	name, ok := p.agentName(value)
	if !ok {
		return
	}
	p.agents = append(p.agents, agentLine{name: name, group: uint32(len(p.groups) - 1), at: uint32(len(p.names))})
	p.names = append(p.names, p.named(number, value))
}

func (p *parser) startGroup(number int) {
	p.endGroup()
	p.groups = append(p.groups, group{line: uint32(number), firstRule: uint32(len(p.rules))})
	p.open, p.groupEnded, p.listEnded = true, false, true
}

// named stores the value of a user-agent line, after those of its group.
func (p *parser) named(number int, value []byte) name {
	if len(p.joined) > 0 {
		p.joined = append(p.joined, ", "...)
	}
	// The offset is relative to joined, which is not in the arena yet.
	n := name{line: uint32(number), list: uint32(len(p.delays)), value: span{uint32(len(p.joined)), uint32(len(value))}}
	p.joined = append(p.joined, value...)
	return n
}

// isStar reports whether the value of a user-agent line is "*". Departure: white space and text may follow, as in
// Google's parser. If "* (all)" named no agent, the rules below would apply to none.
func isStar(value []byte) bool {
	return len(value) > 0 && value[0] == '*' && (len(value) == 1 || isSpace(value[1]))
}

// agentName stores the name of a user-agent line. With tokens that is "*", or the token at the beginning of the value;
// anything may follow it ("Googlebot Images", "FooBot/1.0"), as in Google's parser.
func (p *parser) agentName(value []byte) (name span, ok bool) {
	n := len(value)
	switch agents := p.switches.agents; {
	case agents.merged() && isStar(value):
		n = 1
	case agents == agentsToken:
		n = tokenLength(string(value))
	case agents == agentsVerbatim:
		n = lettersLength(string(value))
	}
	if n == 0 && (p.switches.agents.merged() || p.switches.agents == agentsHeader) {
		return span{}, false
	}
	start := len(p.arena)
	p.arena = appendLower(p.arena, string(value[:n]))
	return span{uint32(start), uint32(len(p.arena) - start)}, true
}

// rule parses an Allow or Disallow line. It ignores a line before any group (2.2.2). In the RFC's reading an empty
// pattern matches no path, but it is a rule, so it ends the list of user-agent lines.
func (p *parser) rule(number int, f *field) {
	if !p.open {
		if !p.orphans || p.addressed {
			return
		}
		p.userAgent(number, []byte("*"))
	}
	p.groupEnded, p.listEnded = true, true
	allow := f.key == keyAllow
	value := f.value()
	if len(value) == 0 {
		switch p.empty {
		case emptyIgnored:
			return
		case emptyAllows:
			allow = true
		case emptyInverted:
			allow = !allow
		}
	}
	var resolved []byte
	if p.resolve && !isPath(value) {
		var ok bool
		if resolved, ok = p.resolved(value); !ok {
			return
		}
	}
	text := p.keep(f.text)
	written := uint32(len(p.arena) - len(value))
	if resolved != nil {
		value, written = resolved, notWritten
	}
	p.addRule(number, text, allow, value, written)
	if p.beforeQuery || p.indexPage {
		p.addOthers(number, text, allow, value)
	}
}

// addRule compiles a rule.
func (p *parser) addRule(number int, text span, allow bool, value []byte, written uint32) {
	p.rules = append(p.rules, rule{})
	r := &p.rules[len(p.rules)-1]
	r.line, r.text, r.textLength, r.allow = uint32(number), text.start, uint16(text.length), allow
	p.pattern(r, value, written)
}

// addOthers adds the further rules that a dialect reads in a line.
func (p *parser) addOthers(number int, text span, allow bool, value []byte) {
	if before, ok := bytes.CutSuffix(value, []byte("$")); ok && p.beforeQuery {
		p.addRule(number, text, allow, slices.Concat(before, []byte("?")), notWritten)
	}
	if !p.indexPage || !allow {
		return
	}
	if i := bytes.LastIndexByte(value, '/'); i >= 0 && bytes.HasPrefix(value[i:], []byte("/index.htm")) {
		p.addRule(number, text, allow, slices.Concat(value[:i+1], []byte("$")), notWritten)
	}
}

// crawlDelay parses a Crawl-delay line. The field has no standard, and in the RFC no other record ends a group
// (2.2.4). But files with one delay after each of several user-agent lines mean one delay for each. Departure: a delay
// applies to the user-agent lines above it, up to the previous delay or rule.
func (p *parser) crawlDelay(value []byte) {
	d, ok := parseDelay(value)
	if !ok {
		return
	}
	list := &p.delays[len(p.delays)-1]
	if p.lastDelay {
		*list = d
	} else {
		*list = max(*list, d)
	}
}

// parseDelay parses decimal seconds and rounds them up to a millisecond. It refuses signs, exponents, units, commas,
// "NaN" and "inf".
func parseDelay(s []byte) (d milliseconds, ok bool) {
	const largest = math.MaxInt64 / 1_000_000 // that a time.Duration holds
	unit := milliseconds(1000)                // of the digit just read
	roundUp := milliseconds(0)
	point, digits := false, false
	for _, c := range s {
		switch {
		case c == '.' && !point:
			point = true
		case c < '0' || c > '9':
			return 0, false
		case !point:
			digits = true
			d = min(d*10+milliseconds(c-'0')*unit, largest/10)
		default:
			digits = true
			unit /= 10
			d += milliseconds(c-'0') * unit
			if unit == 0 && c != '0' {
				roundUp = 1
			}
		}
	}
	return d + roundUp, digits
}

// endGroup stores the agents of the open group.
func (p *parser) endGroup() {
	if len(p.groups) == 0 {
		return
	}
	g := &p.groups[len(p.groups)-1]
	g.agents = p.keep(p.joined)
	p.joined = p.joined[:0]
	for i := len(p.names) - 1; i >= 0 && p.names[i].line >= g.line; i-- {
		p.names[i].value.start += g.agents.start
	}
}

// keep copies b into the arena.
func (p *parser) keep(b []byte) span {
	start := len(p.arena)
	p.arena = append(p.arena, b...)
	return span{uint32(start), uint32(len(b))}
}
