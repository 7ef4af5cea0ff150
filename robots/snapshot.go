// Package robots keeps one true copy of every origin's robots.txt: fetched as RFC 9309 section 2.3 says, once for all who
// ask, and good for a day at most.
//
//	f, err := robots.NewFetcher(robots.FetcherOptions{Transport: transport, UserAgent: "robotsproxy/1.0"})
//	c, err := robots.NewCache(robots.CacheOptions{Fetch: f.Fetch})
//	defer c.Close()
//	snap, err := c.Snapshot(ctx, o)
//	allowed := snap.Rules.Agent("NewsBot").Verdict("/private").Allowed
//
// What the RFC names is a value and not an error: an origin that cannot be reached has a Snapshot, which says so. An error
// is left for a caller who went away and for an address that may not be dialled. A Snapshot is never edited once it is
// out, so any number of requests may hold it while a fresh one takes its place.
//
// The package does not decide whether a request may be sent (package policy), and does not read the rules (package rules).
package robots

import (
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/rules"
)

// Availability is what an attempt to get a robots.txt came to (RFC 9309 section 2.3.1). The zero value refuses.
type Availability uint8

const (
	Unreachable Availability = iota // section 2.3.1.4: every path is disallowed
	Unavailable                     // section 2.3.1.3: every path is allowed
	Found                           // section 2.3.1.1: the rules count
)

// Snapshot is one origin's robots.txt at one moment. It is immutable.
type Snapshot struct {
	Origin       origin.Origin
	Availability Availability
	Status       int            // of the last answer; 0 where there was none, or not the whole of it
	Redirects    []string       // URLs after the first, in order
	Fetched      time.Time      // when the last answer, or the failure, came
	Expires      time.Time      // when it must be asked for again
	SHA256       string         // of Body, in hexadecimal; empty where there was no answer
	Body         []byte         // as received and decoded, cut at the size limit
	Truncated    bool           // Body is cut
	ContentType  string         // of the answer that brought Body, as received
	HTML         bool           // a web page stands in the place of the file: a bot wall, or a "not found" with status 200
	Rules        *rules.Ruleset // never nil; empty unless Found
	Cause        string         // where Unreachable: why, as an error type of RFC 9209 section 2.3
	Err          error          // where Unreachable: the same for our log, with addresses

	failures int      // in a row, before this one
	others   sync.Map // of rules.Dialect to *rules.Ruleset; see RulesFor
}

// State returns the word for the records: found, empty, unavailable, unreachable, html or oversize.
func (s *Snapshot) State() string {
	switch {
	case s.HTML:
		return "html"
	case s.Availability == Unreachable:
		return "unreachable"
	case s.Availability == Unavailable:
		return "unavailable"
	case s.Truncated:
		return "oversize"
	case len(s.Body) == 0:
		return "empty"
	default:
		return "found"
	}
}

// size is about how many octets of memory s keeps. A site can make each part of it large.
func (s *Snapshot) size() int64 {
	n := 512 + len(s.Body) + s.Rules.Size() // 512 for the fields, and the cache's own entry
	for _, u := range s.Redirects {
		n += len(u)
	}
	if s.Err != nil {
		n += len(s.Err.Error())
	}
	return int64(n)
}
