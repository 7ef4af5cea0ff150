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
// A file is never an error: lines that cannot be understood are passed over, as section 2.3.1.5 asks. The package
// fetches nothing, reads no clock, and does not know which origin a file came from.
package rules

import (
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
type Ruleset struct {
	arena     string
	rules     []rule
	nodes     []node
	blocks    []uint32 // block b has nodes[blocks[b]:blocks[b+1]]
	tokens    []token
	held      []uint32 // token t is held to the blocks held[tokens[t].held:tokens[t+1].held]; tokens ends with a sentinel
	groups    []group
	sitemaps  []span
	truncated bool
}

// span is a piece of the arena.
type span struct{ start, length uint32 }

// group is a group of the file as it was written.
type group struct {
	line      uint32
	firstRule uint32 // in the parser's rules, which are in the order of the file
	agents    span
}

// token is a product token that the file names, or "*".
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
	text, truncated := readable(body, opts.maxSize())
	p := parsers.Get().(*parser)
	defer parsers.Put(p)
	p.reset()
	lines := lineReader{rest: text}
	for lines.next() {
		p.line(lines.number, lines.line)
	}
	set := p.compile()
	set.truncated = truncated
	return set
}

// Sitemaps returns the values of the file's Sitemap lines, as written and in order. They belong to no group (2.2.4).
func (r *Ruleset) Sitemaps() []string {
	if len(r.sitemaps) == 0 {
		return nil
	}
	urls := make([]string, len(r.sitemaps))
	for i, s := range r.sitemaps {
		urls[i] = r.text(s)
	}
	return urls
}

// Truncated reports whether the file was longer than Options.MaxSize, so that its end was not read.
func (r *Ruleset) Truncated() bool { return r.truncated }

// Size returns the octets of memory that r keeps, for a cache's account.
func (r *Ruleset) Size() int {
	return int(unsafe.Sizeof(*r)) + len(r.arena) +
		cap(r.rules)*int(unsafe.Sizeof(rule{})) +
		cap(r.nodes)*int(unsafe.Sizeof(node{})) +
		cap(r.blocks)*int(unsafe.Sizeof(uint32(0))) +
		cap(r.tokens)*int(unsafe.Sizeof(token{})) +
		cap(r.held)*int(unsafe.Sizeof(uint32(0))) +
		cap(r.groups)*int(unsafe.Sizeof(group{})) +
		cap(r.sitemaps)*int(unsafe.Sizeof(span{}))
}

func (r *Ruleset) text(s span) string { return r.arena[s.start : s.start+s.length] }

func (d milliseconds) duration() (time.Duration, bool) {
	if d == noDelay {
		return 0, false
	}
	return time.Duration(d) * time.Millisecond, true
}
