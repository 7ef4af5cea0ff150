// Package robotstxt offers the exported API of github.com/temoto/robotstxt, the parser that most Go crawlers import, over
// the engine of package rules.
//
//	import "github.com/robotsproxy/robotsproxy/rules/robotstxt" // was "github.com/temoto/robotstxt"
//
//	data, err := robotstxt.FromResponse(resp)
//	allowed := data.TestAgent("/private/report", "NewsBot")
//
// A crawler that changes this line gets RFC 9309 in place of the other parser's reading, a bounded time for every verdict, and
// Group.Verdict, which returns the line that decided. New programs should import package rules.
//
// The differences, and their reasons:
//
//   - A file is never an error (2.3.1.5). The other parser refuses the whole of a file for one rule before the first
//     User-agent line, or one Crawl-delay that is not a number. ParseError exists so that programs that refer to it
//     compile; no function returns one.
//   - An agent is matched by its whole product token (2.2.1), not by its beginning: "User-agent: Google" is not for
//     Googlebot. A whole User-Agent header will do, also one that begins with "Mozilla/5.0".
//   - A pattern without a leading slash matches nothing (2.2.2): no path begins like that. The other parser adds one.
//   - The longest pattern wins as it is written, Allow wins a tie, "$" is special at the end alone, and paths are compared
//     after normalising percent-encoding (2.2.2, 2.2.3).
//   - "/robots.txt" itself is always allowed (2.2.2).
//   - The largest of several delays for one agent holds, and the first Host.
//   - 512,000 octets of a file are read (2.5), and no line that is cut by the limit.
//   - A path whose verdict would take too long is not allowed; rules.Verdict.TooComplex says so.
//
// WhitespaceChars is there so that what names it compiles; changing it changes nothing.
package robotstxt

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/rules"
)

// WhitespaceChars are what the other package's scanner takes for white space in a line.
var WhitespaceChars = []rune{' ', '\t', '\v'}

// maxSize is the size that every crawler must read (section 2.5).
const maxSize = 500 << 10

// RobotsData is a robots.txt file, or what the status of a response says in its place. It is made by one of the functions
// From..., and may be used by several goroutines at once as long as none writes its fields.
type RobotsData struct {
	Host     string   // the value of the Host line, "" if there is none
	Sitemaps []string // the values of the Sitemap lines

	set         *rules.Ruleset // nil allows everything
	disallowAll bool
}

// Group is what a file holds for one agent. The zero Group holds nothing for it: everything is allowed.
type Group struct {
	Agent      string        // the product token of the group in lower case, "*" for everyone's; "" if there is none
	CrawlDelay time.Duration // 0 if there is none

	agent       rules.Agent
	disallowAll bool
}

// ParseError is never returned: a file is never an error. It is here for programs that look for it.
type ParseError struct {
	Errs []error
}

// Error returns all errors, one a line.
func (e ParseError) Error() string {
	var b strings.Builder
	b.WriteString("parse error(s):\n")
	for _, err := range e.Errs {
		b.WriteString(err.Error() + "\n")
	}
	return b.String()
}

// FromBytes reads a file. The error is always nil.
func FromBytes(body []byte) (*RobotsData, error) {
	set := rules.Parse(body, rules.Options{})
	return &RobotsData{set: set, Host: set.Host(), Sitemaps: set.Sitemaps()}, nil
}

// FromString reads a file. The error is always nil.
func FromString(body string) (*RobotsData, error) { return FromBytes([]byte(body)) }

// FromStatusAndBytes makes of a response what section 2.3.1 makes of it: rules of a 2xx, everything allowed of a 4xx
// (unavailable), nothing allowed of a 5xx (unreachable). Any other status is an error; redirects are to be followed
// before.
func FromStatusAndBytes(statusCode int, body []byte) (*RobotsData, error) {
	switch statusCode / 100 {
	case 2:
		return FromBytes(body)
	case 4:
		return &RobotsData{}, nil
	case 5:
		return &RobotsData{disallowAll: true}, nil
	}
	return nil, fmt.Errorf("robotstxt: status %d says nothing about robots.txt", statusCode)
}

// FromStatusAndString is FromStatusAndBytes for a string.
func FromStatusAndString(statusCode int, body string) (*RobotsData, error) {
	return FromStatusAndBytes(statusCode, []byte(body))
}

// FromResponse reads a response, of whose body it reads no more than it needs and which it does not close. No response
// is no data, and no error.
func FromResponse(res *http.Response) (*RobotsData, error) {
	if res == nil {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("robotstxt: reading the body: %w", err)
	}
	return FromStatusAndBytes(res.StatusCode, body)
}

// TestAgent reports whether an agent may access a path, which has its query with it. The agent is a product token or a
// whole User-Agent header. To ask about several paths, keep what FindGroup returns.
func (r *RobotsData) TestAgent(path, agent string) bool { return r.FindGroup(agent).Test(path) }

// FindGroup returns what holds for an agent: the groups of its product token, merged; else those of "*"; else a Group
// that allows everything (2.2.1). It is never nil.
func (r *RobotsData) FindGroup(agent string) *Group {
	if r.set == nil {
		return &Group{disallowAll: r.disallowAll}
	}
	a := r.set.Agent(agent)
	delay, _ := a.CrawlDelay()
	return &Group{Agent: a.Token(), CrawlDelay: delay, agent: a}
}

// Test reports whether a path, which has its query with it, is allowed.
func (g *Group) Test(path string) bool { return g.Verdict(path).Allowed }

// Verdict says the same as Test, and which line of the file decided. The other package has no such method.
func (g *Group) Verdict(path string) rules.Verdict {
	if g.disallowAll {
		return rules.Verdict{}
	}
	return g.agent.Verdict(path)
}
