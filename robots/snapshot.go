// Package robots keeps one true copy of every origin's robots.txt: fetched as RFC 9309 section 2.3 says, once for all who
// ask, and good for a day at most.
//
//	f, err := robots.NewFetcher(robots.FetcherOptions{Transport: transport, UserAgent: "robotsproxy/1.0"})
//	c, err := robots.NewCache(robots.CacheOptions{Fetch: f.Fetch})
//	defer c.Close()
//	snap, err := c.Snapshot(ctx, o, robots.Asker{Client: "news", Token: "NewsBot"})
//	allowed := snap.Rules.Agent("NewsBot").Verdict("/private").Allowed
//
// What the RFC names is a value and not an error: an origin that cannot be reached has a Snapshot, which says so. An error
// is left for a caller who went away, for an address that may not be dialled, and for a queue that is full. A Snapshot is
// never edited once it is out, so any number of requests may hold it while a fresh one takes its place.
//
// The package does not decide whether a request may be sent (package policy), and does not read the rules (package rules).
package robots

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
	"unique"

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
	Truncated    bool           // Body is cut
	Marks        Marks          // what is worth knowing beside the state
	Stale        bool           // Body is an older copy, which counts while the origin does not give a better one
	flags        atomic.Uint32  // see flagRenewing; here, it takes the room that alignment leaves
	Client       string         // for which it was fetched: the Asker's. A Store learns by it whose share it takes, and need not keep it.
	Status       int            // of the last answer, also where Stale; 0 where there was none, or not the whole of it; 304 where it renewed Body
	Redirects    []string       // URLs after the first, in order
	Fetched      time.Time      // when the answer that counts, or the failure, came; a revalidation (304) is an answer
	Expires      time.Time      // when it must be asked for again
	SHA256       string         // of Body, in hexadecimal; empty unless Found
	Body         []byte         // of a file that was Found, as received and decoded, cut at the size limit
	ContentType  string         // of the answer that brought Body, as received
	ETag         string         // of that answer, for asking again (RFC 9110 section 8.8); empty where it had none
	LastModified string         // the same
	Fields       string         // of that answer, which say for how long it may be used (RFC 9111 section 4.2), as lines of HTTP/1.1
	Rules        *rules.Ruleset // never nil in what a Cache or a Fetcher returns, but Peek; empty unless Found
	Cause        string         // where Unreachable or Stale, or Unavailable since that lasted: why, as an error type of RFC 9209 section 2.3
	Err          error          // the same for our log, with addresses

	Since    time.Time // where there is a Cause: when that began
	Failures int       // in a row, this one included; 0 unless there is a Cause

	renewal time.Time                // see Renewal; zero in what has not been in a Cache
	others  atomic.Pointer[sync.Map] // of rules.Dialect to *rules.Ruleset, for RulesFor; nil until it is needed
}

// The bits of Snapshot.flags.
const (
	flagRenewing = 1 << iota // a renewal has begun
	flagUsed                 // it has answered a look-up since the last call of Cache.Used
)

// State returns the word for the records: found, empty, unavailable, unreachable, html, oversize or stale.
func (s *Snapshot) State() string {
	switch {
	case s.Stale:
		return "stale"
	case s.Marks&WebPage != 0:
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

// Renewal returns when the origin is asked again if somebody needs s then: a little before it expires, in the background,
// and after a failure not before the time that it, or the origin, asked for.
func (s *Snapshot) Renewal() time.Time {
	if s.renewal.IsZero() {
		return s.Expires
	}
	return s.renewal
}

// prepare completes s for the memory of a Cache. It runs before s is anybody else's.
func (s *Snapshot) prepare() *Snapshot {
	if s.Rules == nil {
		s.compile()
	}
	s.ContentType = unique.Make(s.ContentType).Value() // a few for a million files
	return s.schedule()
}

// schedule completes s for whoever only looks at it.
func (s *Snapshot) schedule() *Snapshot {
	last := s.Expires.Sub(s.Fetched) / 10
	switch {
	case s.Stale:
		s.renewal = s.Expires.Add(-grace)
	case last > 0 && s.Since.IsZero():
		s.renewal = s.Expires.Add(-last/2 - rand.N(last/2+1)) // not all that were fetched at once are renewed at once
	}
	return s
}

// compile makes Rules of Body. For a hostile file of 500 KiB that takes ten times its memory, so a Cache lets only a few
// compile at a time: see queue.
func (s *Snapshot) compile() {
	s.Rules = &rules.Ruleset{}
	if s.Availability == Found {
		s.Rules = rules.Parse(s.Body, s.reading(rules.DialectRFC9309))
	}
}

// freshAt reports whether s may be used without asking again. None may be used for more than a day, so that an older time
// to come is a clock's fault.
func (s *Snapshot) freshAt(now time.Time) bool {
	left := s.Expires.Sub(now)
	return left > 0 && left <= longest+grace
}

// dueAt reports whether s should be renewed, and is true for one caller only.
func (s *Snapshot) dueAt(now time.Time) bool {
	return !s.renewal.IsZero() && !now.Before(s.renewal) && s.flags.Or(flagRenewing)&flagRenewing == 0
}

// use marks s as used. It writes only if s is not marked, since many goroutines may use s at once.
func (s *Snapshot) use() {
	if s.flags.Load()&flagUsed == 0 {
		s.flags.Or(flagUsed)
	}
}

// copy returns another Snapshot of the same answer.
func (s *Snapshot) copy() *Snapshot {
	return &Snapshot{
		Origin: s.Origin, Client: s.Client, Availability: s.Availability, Status: s.Status, Redirects: s.Redirects, Fetched: s.Fetched, Expires: s.Expires,
		SHA256: s.SHA256, Body: s.Body, Truncated: s.Truncated, ContentType: s.ContentType, ETag: s.ETag, LastModified: s.LastModified,
		Fields: s.Fields, Marks: s.Marks, Rules: s.Rules, Cause: s.Cause, Err: s.Err, Stale: s.Stale, Since: s.Since, Failures: s.Failures,
	}
}

// size is about how many octets of memory s keeps. A site can make each part of it large.
func (s *Snapshot) size() int64 {
	n := fixedSize + len(s.Body) + s.Rules.Size() + len(s.ContentType) + len(s.ETag) + len(s.LastModified) + len(s.Fields)
	for _, u := range s.Redirects {
		n += len(u)
	}
	if s.Err != nil {
		n += len(s.Err.Error())
	}
	return int64(n)
}

// fixedSize is for the fields of a Snapshot and the cache's own entry.
const fixedSize = 608
