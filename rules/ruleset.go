// Package rules parses robots.txt (RFC 9309) and judges paths by it: allowed or not, and by which line.
//
//	set := rules.Parse(body, rules.Options{})
//	agent := set.Agent("NewsBot/2.1 (+https://news.example/bot)")
//	v := agent.Verdict("/private/report?id=1")
//	fmt.Println(v.Allowed, v.Line, v.Rule) // false 2 Disallow: /private/
//
// Allowed answers for one URL in one call. To ask about several, parse the file once: Parse returns a Ruleset, which is
// immutable and safe for concurrent use. Ruleset.Agent finds the groups for a crawler. An Agent is a small value: keep
// it as long as the same crawler asks. Agent.Verdict judges one path and allocates nothing.
//
// Options.Dialect selects the reading of another program. Agent.Explain gives the reasons of a verdict, and Lint the
// likely mistakes in a file.
//
// Beside github.com/temoto/robotstxt 1.1.2, parsing files of the shape of real ones, with one verdict for each:
//
//	                                   rules   temoto
//	time                               1       4 to 6
//	allocations for each file          10      1,900
//	bytes kept for each byte of file   2.8     7.8
//
//	cd bench && go test -run '^$' -bench 'RobotsReal|RobotsMemory' .
//
// DialectGoogle gives the same verdicts as Google's C++ parser on 4,231 real files, and the default differs from it in
// the kinds that docs/conformance.md lists, which also has WWW::RobotRules and protego:
//
//	make differential GOOGLE_ROBOTSTXT=folder
//
// Parsing never fails: lines that are not understood are ignored, as section 2.3.1.5 requires. The package fetches
// nothing, reads no clock, and does not know the origin of a file.
package rules

import (
	"strings"
	"time"
	"unsafe"
)

// defaultMaxSize is the size that every crawler must read (section 2.5).
const defaultMaxSize = 500 << 10

// largestSize keeps every offset into a Ruleset's arena within 32 bits, even if each byte becomes three.
const largestSize = 256 << 20

// Options configure Parse and Lint. The zero value is RFC 9309.
type Options struct {
	// MaxSize is the number of bytes that are read. If zero or less, 512000, the 500 KiB of section 2.5; at most 256 MiB.
	// A line across the limit is ignored: half a pattern would match more than its author wrote.
	MaxSize int

	// Dialect selects a reading of the language. If zero, that of RFC 9309.
	Dialect Dialect

	// RobotsURL is the URL of the file. Only DialectWWWRobotRules uses it: it ignores rules with URLs of another origin,
	// and does not judge such targets. If empty, it takes all URLs for the file's origin.
	RobotsURL string

	// ContentType is the Content-Type of the response with the file. Its charset decodes the file. If it has no charset,
	// DialectRobotstxtRB, DialectRobotsCR, DialectMK1996 and DialectGYM2008 assume ISO-8859-1, and the others UTF-8. If
	// ContentType is empty, the file is in UTF-8. A byte order mark takes precedence.
	ContentType string
}

func (o Options) maxSize() int {
	if o.MaxSize <= 0 {
		return defaultMaxSize
	}
	return min(o.MaxSize, largestSize)
}

// Ruleset is a robots.txt file, compiled. The zero value is an empty file: it allows everything.
//
// All text is in one arena, and everything else refers to it by offset, so a file of ten thousand rules is few objects
// for the garbage collector. From the arena up:
//
//	rules    one per Allow or Disallow line with a pattern, in the order in which a block's nodes need them
//	nodes    the distinct literal prefixes of a block's rules, sorted, each linked to its longest proper prefix
//	blocks   the rules of all groups that have exactly the same agents (2.2.1 merges them); a range of nodes
//	tokens   one per product token, sorted by name, with the blocks that apply to it
//	groups   the groups in the order of the file, for Verdict.Group
//	names    the user-agent lines, and
//	records  all other lines, in the order of the file
//
// If only the first matching group of an agent applies (see switches), there is a token for each user-agent line
// instead, in the order in which they are tried, and a block for each group.
type Ruleset struct {
	dialect   Dialect
	truncated bool
	stated    bool   // it has a record of use or a License
	base      string // the origin of the file, if it does not judge URLs of other origins
	arena     string
	rules     []rule
	nodes     []node
	blocks    []uint32 // block b has nodes[blocks[b]:blocks[b+1]]
	tokens    []token
	held      []uint32 // token t is held to the blocks held[tokens[t].held:tokens[t+1].held]; tokens ends with a sentinel
	groups    []group
	names     []name
	records   []record
}

// span is a piece of the arena.
type span struct{ start, length uint32 }

// group is a group of the file as written.
type group struct {
	line      uint32
	firstRule uint32 // in the parser's rules, which are in the order of the file
	agents    span
}

// name is a user-agent line that was understood.
type name struct {
	line  uint32
	list  uint32 // of user-agent lines that have their delay in common, from 1
	token uint32 // under which it is found
	value span
}

// token is a name by which the file addresses agents, or "*".
type token struct {
	name  span
	held  uint32
	delay milliseconds
}

// milliseconds is a Crawl-delay; noDelay means that the file has no delay.
type milliseconds int64

const noDelay milliseconds = -1

// Allowed reports whether the robots.txt file body allows a crawler to access url, by RFC 9309. The user agent is a
// product token or a whole User-Agent header. The url is absolute, such as "https://site.example/a?b=c", or a path and
// query, such as "/a?b=c". Allowed does not check that the file is that of the url's origin.
//
// For any other url, such as "site.example/a", Allowed returns false: no rule can match it. It also returns false if
// the verdict takes too many steps (see Verdict.TooComplex). For the rule that decided, use Agent.Verdict.
func Allowed(body []byte, userAgent, url string) bool {
	scheme, _, absolute := strings.Cut(url, "://")
	if !strings.HasPrefix(url, "/") && !(absolute && isScheme(scheme)) {
		return false
	}
	return Parse(body, Options{}).Agent(userAgent).Verdict(url).Allowed
}

// Parse parses a robots.txt file. It never fails: it ignores lines that it does not understand. It keeps no part of
// body.
//
// If a file may be longer than Options.MaxSize, give Parse at least one byte more. Then Ruleset.Truncated reports it,
// and the last line is read whole or not at all.
func Parse(body []byte, opts Options) *Ruleset {
	p := parsers.Get().(*parser)
	defer parsers.Put(p)
	p.reset(opts.Dialect, opts.RobotsURL)
	lines, truncated := opts.lines(body)
	for lines.next() {
		p.line(lines.number, lines.line)
	}
	set := p.compile()
	set.truncated = truncated
	return set
}

// Dialect returns the dialect by which the file was parsed.
func (r *Ruleset) Dialect() Dialect { return r.dialect }

// Truncated reports whether the file was longer than Options.MaxSize.
func (r *Ruleset) Truncated() bool { return r.truncated }

// Size returns the bytes of memory that r occupies.
func (r *Ruleset) Size() int {
	return int(unsafe.Sizeof(*r)) + len(r.arena) +
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
