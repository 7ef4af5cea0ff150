package rules

import (
	"math"
	"sync"
)

// parser turns records into groups, rules and delays. What it gathers is in the order of the file; compile sorts it.
type parser struct {
	arena    []byte
	rules    []rule
	keys     []sortKey
	nodes    []node
	groups   []group
	agents   []agentLine
	delays   []milliseconds // of each list of user-agent lines, the largest below it
	sitemaps []span

	joined     []byte // the values of the open group's user-agent lines
	groupEnded bool   // a rule has been seen: the next user-agent line starts a group
	listEnded  bool   // a rule or a delay has been seen: the next user-agent line starts a list
}

// parsers keeps what was gathered for the next file: nothing of it is part of a Ruleset.
var parsers = sync.Pool{New: func() any { return new(parser) }}

func (p *parser) reset() {
	*p = parser{
		arena: p.arena[:0], rules: p.rules[:0], keys: p.keys[:0], nodes: p.nodes[:0], groups: p.groups[:0],
		agents: p.agents[:0], delays: p.delays[:0], sitemaps: p.sitemaps[:0], joined: p.joined[:0],
	}
}

// agentLine is a user-agent line whose value could be understood.
type agentLine struct {
	name  span // the product token, in lower case
	group uint32
	list  uint32
}

// line reads the line with this number (2.2).
func (p *parser) line(number int, line []byte) {
	f := parseField(line)
	switch f.key {
	case keyUserAgent:
		p.userAgent(number, f.value)
	case keyAllow, keyDisallow:
		p.rule(number, f)
	case keyCrawlDelay:
		p.crawlDelay(f.value)
	case keySitemap:
		if len(f.value) > 0 {
			p.sitemaps = append(p.sitemaps, p.keep(f.value))
		}
	}
}

// userAgent reads a startgroupline (2.1): one that comes after a rule starts a group, any other joins the open one. A
// value that is no product token starts a group all the same: its rules are nobody's, and must not become those of the
// group before.
func (p *parser) userAgent(number int, value []byte) {
	if len(p.groups) == 0 || p.groupEnded {
		p.endGroup()
		p.groups = append(p.groups, group{line: uint32(number), firstRule: uint32(len(p.rules))})
		p.groupEnded = false
	}
	if len(p.delays) == 0 || p.listEnded {
		p.delays = append(p.delays, noDelay)
		p.listEnded = false
	}
	name, ok := p.tokenName(value)
	if !ok {
		return
	}
	if len(p.joined) > 0 {
		p.joined = append(p.joined, ", "...)
	}
	p.joined = append(p.joined, value...)
	p.agents = append(p.agents, agentLine{name: name, group: uint32(len(p.groups) - 1), list: uint32(len(p.delays) - 1)})
}

// tokenName keeps the name under which a user-agent line's value is found: "*", or the product token that it begins
// with. Anything may follow the token ("Googlebot Images", "FooBot/1.0"), as in Google's parser.
func (p *parser) tokenName(value []byte) (name span, ok bool) {
	if string(value) == "*" {
		return p.keep(value), true
	}
	n := tokenLength(string(value))
	if n == 0 {
		return span{}, false
	}
	start := len(p.arena)
	p.arena = appendLower(p.arena, string(value[:n]))
	return span{uint32(start), uint32(len(p.arena) - start)}, true
}

// rule reads an Allow or Disallow line. Before any group it is ignored (2.2.2). An empty pattern matches no path, but
// it is a rule, and so it ends the list of user-agent lines.
func (p *parser) rule(number int, f field) {
	if len(p.groups) == 0 {
		return
	}
	p.groupEnded, p.listEnded = true, true
	if len(f.value) == 0 {
		return
	}
	text := p.keep(f.text)
	r := rule{line: uint32(number), text: text.start, textLength: uint16(text.length), allow: f.key == keyAllow}
	p.pattern(&r, f.value)
	p.rules = append(p.rules, r)
}

// crawlDelay reads a Crawl-delay line, which has no standard. Departure: the RFC lets no other record end a group
// (2.2.4), and here none does; but files that name one delay under each of several user-agent lines mean one delay for
// each. So a delay belongs to the user-agent lines above it as far as the delay or the rule before those.
func (p *parser) crawlDelay(value []byte) {
	if len(p.delays) == 0 {
		return
	}
	p.listEnded = true
	if d, ok := parseDelay(value); ok {
		list := &p.delays[len(p.delays)-1]
		*list = max(*list, d)
	}
}

// parseDelay reads seconds written as a decimal, and rounds them up to a millisecond. Signs, exponents, units, commas,
// "NaN" and "inf" are all no decimals.
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

// endGroup keeps the open group's agents, now that no more can come.
func (p *parser) endGroup() {
	if len(p.groups) == 0 {
		return
	}
	p.groups[len(p.groups)-1].agents = p.keep(p.joined)
	p.joined = p.joined[:0]
}

// keep copies b into the arena.
func (p *parser) keep(b []byte) span {
	start := len(p.arena)
	p.arena = append(p.arena, b...)
	return span{uint32(start), uint32(len(b))}
}
