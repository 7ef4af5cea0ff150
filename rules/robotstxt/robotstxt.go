// Package robotstxt offers the exported API of github.com/temoto/robotstxt, the parser that most Go crawlers import,
// over the engine of package rules.
//
//	import "github.com/robotsproxy/robotsproxy/rules/robotstxt" // was "github.com/temoto/robotstxt"
//
//	data, err := robotstxt.FromResponse(resp)
//	allowed := data.TestAgent("/private/report", "NewsBot")
//
// A crawler that changes this line gets RFC 9309 in place of the other parser's reading, a bounded time for every
// verdict, and Group.Verdict, which returns the line that decided. New programs should import package rules.
//
// The differences, and their reasons:
//
//   - Parsing never fails (2.3.1.5). The other parser rejects a whole file for one rule before the first User-agent
//     line, or for one Crawl-delay that is not a number. No function returns a ParseError.
//   - An agent is matched by its whole product token (2.2.1), not by a prefix: "User-agent: Google" does not apply to
//     Googlebot. The agent may also be a User-Agent header, even one that begins with "Mozilla/5.0".
//   - A pattern without a leading slash matches nothing (2.2.2), since no path is without it. The other parser adds it.
//   - The pattern that is longest as written wins, Allow wins a tie, "$" is special only at the end, and paths are
//     compared with normalised percent-encoding (2.2.2, 2.2.3).
//   - "/robots.txt" is always allowed (2.2.2).
//   - The largest of several delays for one agent applies, and the first Host.
//   - 512,000 bytes of a file are read (2.5), without a line that the limit cuts.
//   - A path with a verdict that takes too many steps is not allowed: see rules.Verdict.TooComplex.
//
// WhitespaceChars and ParseError exist only so that programs that refer to them compile.
package robotstxt

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/rules"
)

// WhitespaceChars are the white space of the other package's scanner. This package does not use it.
var WhitespaceChars = []rune{' ', '\t', '\v'}

// maxSize is the size that every crawler must read (section 2.5).
const maxSize = 500 << 10

// RobotsData is a robots.txt file, or the meaning of the status of a response without one. The functions From... return
// it. It is safe for concurrent use if no goroutine writes its fields.
type RobotsData struct {
	Host     string   // the value of the first Host line, or ""
	Sitemaps []string // the values of the Sitemap lines

	set         *rules.Ruleset // nil allows everything
	disallowAll bool
}

// Group is the part of a file for one agent. The zero Group allows everything.
type Group struct {
	Agent      string        // the product token of the group in lower case, "*" for all agents, or "" without a group
	CrawlDelay time.Duration // or 0

	agent       rules.Agent
	disallowAll bool
}

// ParseError is never returned. It exists for programs that refer to it.
type ParseError struct {
	Errs []error
}

// Error returns all errors, one per line.
func (e ParseError) Error() string {
	var b strings.Builder
	b.WriteString("parse error(s):\n")
	for _, err := range e.Errs {
		b.WriteString(err.Error() + "\n")
	}
	return b.String()
}

// FromBytes parses a file. The error is always nil.
func FromBytes(body []byte) (*RobotsData, error) {
	set := rules.Parse(body, rules.Options{})
	return &RobotsData{set: set, Host: set.Host(), Sitemaps: set.Sitemaps()}, nil
}

// FromString parses a file. The error is always nil.
func FromString(body string) (*RobotsData, error) { return FromBytes([]byte(body)) }

// FromStatusAndBytes interprets a response by section 2.3.1: 2xx has rules, 4xx (unavailable) allows everything, and
// 5xx (unreachable) allows nothing. It returns an error for any other status. The caller must follow redirects.
func FromStatusAndBytes(statusCode int, body []byte) (*RobotsData, error) {
	switch statusCode / 100 {
	case 2:
		return FromBytes(body)
	case 4:
		return &RobotsData{}, nil
	case 5:
		return &RobotsData{disallowAll: true}, nil
	}
	return nil, fmt.Errorf("robotstxt: status %d has no meaning for robots.txt", statusCode)
}

// FromStatusAndString is FromStatusAndBytes for a string.
func FromStatusAndString(statusCode int, body string) (*RobotsData, error) {
	return FromStatusAndBytes(statusCode, []byte(body))
}

// FromResponse is FromStatusAndBytes for a response. It reads at most 512,001 bytes of the body, and does not close
// it. It returns nil and no error for a nil response.
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

// TestAgent reports whether an agent may access a path and query. The agent is a product token or a whole User-Agent
// header. For several paths, call FindGroup once.
func (r *RobotsData) TestAgent(path, agent string) bool { return r.FindGroup(agent).Test(path) }

// FindGroup returns the rules for an agent: the groups of its product token, merged, else those of "*", else a Group
// that allows everything (2.2.1). It never returns nil.
func (r *RobotsData) FindGroup(agent string) *Group {
	if r.set == nil {
		return &Group{disallowAll: r.disallowAll}
	}
	a := r.set.Agent(agent)
	delay, _ := a.CrawlDelay()
	return &Group{Agent: a.Token(), CrawlDelay: delay, agent: a}
}

// Test reports whether a path and query is allowed.
func (g *Group) Test(path string) bool { return g.Verdict(path).Allowed }

// Verdict is Test with the line of the file that decided. The other package has no such method.
func (g *Group) Verdict(path string) rules.Verdict {
	if g.disallowAll {
		return rules.Verdict{}
	}
	return g.agent.Verdict(path)
}
