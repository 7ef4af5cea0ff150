// Package rules reads the language of robots.txt (RFC 9309) and says what a file allows, and by which line.
//
//	set := rules.Parse(body, rules.Options{})
//	agent := set.Agent("NewsBot/2.1 (+https://news.example/bot)")
//	v := agent.Verdict("/private/report?id=1")
//	fmt.Println(v.Allowed, v.Line, v.Rule) // false 2 Disallow: /private/
//
// A file is parsed once into a Ruleset, which is never edited afterwards and may be used by any number of goroutines.
// Ruleset.Agent finds the groups that hold for a crawler; the Agent that it returns is a small value, made to be kept
// for as long as the same crawler asks. Agent.Verdict judges one path and allocates nothing.
//
// Options.Dialect has the file read as another program reads it. Ruleset.Explain tells why a verdict is what it is,
// and Ruleset.Lint what in the file is likely a mistake.
//
// A file is never an error: lines that cannot be understood are passed over, as section 2.3.1.5 asks. The package
// fetches nothing, reads no clock, and does not know which origin a file came from.
package rules

import (
	"slices"
	"time"
	"unsafe"
)

// defaultMaxSize is what section 2.5 asks every crawler to read.
const defaultMaxSize = 500 << 10

// largestSize keeps every offset into a Ruleset's arena within 32 bits, also where each octet becomes three.
const largestSize = 256 << 20

// Options say how a file is read.
type Options struct {
	// MaxSize is the number of octets that are read. If zero or less, 512000, the 500 KiB of section 2.5; at most
	// 256 MiB. A line that would be cut by it is left out: half a pattern would forbid, or allow, more than its
	// author wrote.
	MaxSize int

	// Dialect is whose reading of the language counts. If zero, that of RFC 9309.
	Dialect Dialect

	// RobotsURL is where the file was found. WWWRobotRules alone needs it, to tell the URLs in rules that are of the
	// file's own origin, and to judge those alone. If empty, all URLs are taken to be.
	RobotsURL string

	// ContentType is the Content-Type of the response that brought the file. The file is decoded by the charset in it;
	// where it has none, RobotstxtRB, RobotsCR, MK1996 and GYM2008 take ISO-8859-1 for granted, and the others UTF-8. If
	// empty, the file is text in UTF-8 already. A byte order mark counts more than either.
	ContentType string

	// KeepSource has the Ruleset keep a copy of the whole file, which Ruleset.Lint needs.
	KeepSource bool
}

func (o Options) maxSize() int {
	if o.MaxSize <= 0 {
		return defaultMaxSize
	}
	return min(o.MaxSize, largestSize)
}

// Ruleset is a robots.txt file, compiled. The zero value is an empty file: it allows everything.
//
// All text is kept in one arena, and everything else refers to it by offset, so that a file of ten thousand rules is
// a handful of objects for the garbage collector. From the arena up:
//
//	rules    one per Allow or Disallow line with a pattern, in the order in which a block's nodes need them
//	nodes    the distinct literal prefixes of a block's rules, sorted, each linked to its longest proper prefix
//	blocks   the rules of all groups that have exactly the same agents (2.2.1 merges them); a range of nodes
//	tokens   one per product token, sorted by name, with the blocks that hold for it
//	groups   the groups as they stand in the file, for the answer to "which one?"
//	names    the user-agent lines, and
//	records  the lines of all other kinds, as they stand in the file
//
// Where the first group that fits an agent is the only one that holds (see switches), there is a token for each
// user-agent line instead, in the order in which they are tried, and a block for each group.
type Ruleset struct {
	dialect   Dialect
	truncated bool
	base      string // the origin of the file, where URLs of others are not judged by it
	arena     string
	rules     []rule
	nodes     []node
	blocks    []uint32 // block b has nodes[blocks[b]:blocks[b+1]]
	tokens    []token
	held      []uint32 // token t is held to the blocks held[tokens[t].held:tokens[t+1].held]; tokens ends with a sentinel
	groups    []group
	names     []name
	records   []record
	source    *source // nil without Options.KeepSource
}

// span is a piece of the arena.
type span struct{ start, length uint32 }

// group is a group of the file as it was written.
type group struct {
	line      uint32
	firstRule uint32 // in the parser's rules, which are in the order of the file
	agents    span
}

// name is a user-agent line whose value could be understood.
type name struct {
	line  uint32
	list  uint32 // of user-agent lines that have their delay in common, from 1
	token uint32 // under which it is found
	value span
}

// token is a name under which the file addresses agents, or "*".
type token struct {
	name  span
	held  uint32
	delay milliseconds
}

// milliseconds is a Crawl-delay; noDelay where there is none.
type milliseconds int64

const noDelay milliseconds = -1

// Parse reads a robots.txt file. It never fails: what cannot be understood is passed over. It keeps no part of body.
//
// To have a file that is too long noticed (Ruleset.Truncated) and its last line judged whole or not at all, give it
// at least one octet more than Options.MaxSize.
func Parse(body []byte, opts Options) *Ruleset {
	s := opts.Dialect.switches()
	text, truncated := readableIn(body, opts.maxSize(), opts.decode)
	if s.partialMark && !marked(body) {
		text = withoutPartialMark(text)
	}
	p := parsers.Get().(*parser)
	defer parsers.Put(p)
	p.reset(opts.Dialect, opts.RobotsURL)
	lines := lineReader{rest: text, max: s.maxLine}
	for lines.next() {
		p.line(lines.number, lines.line)
	}
	set := p.compile()
	set.truncated = truncated
	if opts.KeepSource {
		set.source = &source{body: toUTF8(slices.Clone(body), opts), options: opts}
	}
	return set
}

// Dialect returns the reading by which the file was parsed.
func (r *Ruleset) Dialect() Dialect { return r.dialect }

// Truncated reports whether the file was longer than Options.MaxSize, so that its end was not read.
func (r *Ruleset) Truncated() bool { return r.truncated }

// Size returns the octets of memory that r keeps, for a cache's account.
func (r *Ruleset) Size() int {
	return int(unsafe.Sizeof(*r)) + len(r.arena) + r.source.size() +
		cap(r.rules)*int(unsafe.Sizeof(rule{})) +
		cap(r.nodes)*int(unsafe.Sizeof(node{})) +
		cap(r.blocks)*int(unsafe.Sizeof(uint32(0))) +
		cap(r.tokens)*int(unsafe.Sizeof(token{})) +
		cap(r.held)*int(unsafe.Sizeof(uint32(0))) +
		cap(r.groups)*int(unsafe.Sizeof(group{})) +
		cap(r.names)*int(unsafe.Sizeof(name{})) +
		cap(r.records)*int(unsafe.Sizeof(record{}))
}

func (r *Ruleset) text(s span) string { return r.arena[s.start : s.start+s.length] }

func (d milliseconds) duration() (time.Duration, bool) {
	if d == noDelay {
		return 0, false
	}
	return time.Duration(d) * time.Millisecond, true
}
