// Package robots caches the robots.txt files of many origins.
//
//	f, err := fetch.New(fetch.Options{Transport: transport, UserAgent: "robotsproxy/1.0"})
//	c, err := robots.NewCache(robots.CacheOptions{Fetch: f.Fetch})
//	defer c.Close()
//	snap, err := c.Snapshot(ctx, o, robots.Asker{Client: "news", Token: "NewsBot"})
//	allowed := snap.Rules.Agent("NewsBot").Verdict("/private").Allowed
//
// A Cache fetches each file once for all callers that wait for it, keeps it for a day at most, and renews it in the
// background while it is in use. If an origin fails, the last good copy stays in use for a limited time (RFC 9309
// section 2.3.1.4).
//
// An origin that cannot be reached has a Snapshot too, which says so. Snapshot returns an error if the caller leaves,
// if the address may not be dialled, if the upstream proxy fails, or if too many fetches wait. A Snapshot does not
// change, so requests may hold it while a new one replaces it.
//
// Package fetch fetches the files, package rules parses them, and package policy decides whether a request may be sent.
package robots

import (
	"cmp"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/robotsproxy/robotsproxy/robots/fetch"
	"github.com/robotsproxy/robotsproxy/rules"
)

// Types of package fetch that are parts of a Snapshot or arguments of a Cache.
type (
	Answer       = fetch.Answer
	Asker        = fetch.Asker
	Availability = fetch.Availability
	Flags        = fetch.Flags
)

const (
	Unreachable = fetch.Unreachable
	Unavailable = fetch.Unavailable
	Found       = fetch.Found

	WebPage          = fetch.WebPage
	Unauthorized     = fetch.Unauthorized
	TooManyRedirects = fetch.TooManyRedirects
	RedirectLoop     = fetch.RedirectLoop
	Downgraded       = fetch.Downgraded
	RedirectRefused  = fetch.RedirectRefused
)

// Snapshot is the robots.txt of one origin at one moment. It is immutable.
type Snapshot struct {
	// Answer is the response that counts. If Stale, its body and header are those of the last good response, and
	// Status, Cause and Err are those of the last fetch.
	Answer
	Stale bool          // an older copy counts, until the origin gives a better one
	marks atomic.Uint32 // see markRenewing

	Client   string         // Asker.Client of the fetch, for a Store that limits the share of a client
	Rules    *rules.Ruleset // not nil in a Snapshot from a Cache, but for Peek; empty unless Found
	Since    time.Time      // when the failures began; zero unless there is a Cause
	Failures int            // in a row, the last included; 0 unless there is a Cause

	lead   time.Duration            // of Renewal before Expires; 0 if s is not renewed
	others atomic.Pointer[sync.Map] // of rules.Dialect to *rules.Ruleset, for RulesFor; nil until used
}

// The bits of Snapshot.marks.
const (
	markRenewing = 1 << iota // a renewal has begun
	markUsed                 // it has answered a look-up since the last call of Cache.Used
)

// State returns the word for the records: found, empty, unavailable, unreachable, html, oversize or stale.
func (s *Snapshot) State() string {
	switch {
	case s.Stale:
		return "stale"
	case s.Flags&WebPage != 0:
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

// Renewal returns the time from which a look-up renews s in the background. It is a little before Expires. After a
// failure it is Expires, so that the origin has the time that it asked for.
func (s *Snapshot) Renewal() time.Time {
	return s.Expires.Add(-s.lead)
}

// NewSnapshot returns the Snapshot of a kept Answer, to judge requests again by it.
func NewSnapshot(a Answer) *Snapshot {
	s := &Snapshot{Answer: a}
	return s.prepare()
}

// RulesFor returns the rules of s in the dialect d. It parses the body at the first call for a dialect other than that
// of Rules. The memory of those rules is not counted by the cache.
func (s *Snapshot) RulesFor(d rules.Dialect) *rules.Ruleset {
	if d == s.Rules.Dialect() || s.Availability != Found {
		return s.Rules
	}
	others := s.others.Load()
	if others == nil {
		s.others.CompareAndSwap(nil, new(sync.Map))
		others = s.others.Load()
	}
	if set, ok := others.Load(d); ok {
		return set.(*rules.Ruleset)
	}
	set, _ := others.LoadOrStore(d, parse(&s.Answer, d)) // the first of concurrent callers wins
	return set.(*rules.Ruleset)
}

// Lines returns the lines of the body of s with their numbers, as in a Verdict of RulesFor(d). See rules.Lines.
func (s *Snapshot) Lines(d rules.Dialect) iter.Seq2[int, []byte] {
	return rules.Lines(s.Body, options(&s.Answer, d))
}

// parse returns the rules of a, which are empty unless it is Found. For a hostile file of 500 KiB that takes ten times
// the memory of the file, so a Cache limits concurrent calls: see queue.
func parse(a *Answer, d rules.Dialect) *rules.Ruleset {
	if a.Availability != Found {
		return &rules.Ruleset{}
	}
	return rules.Parse(a.Body, options(a, d))
}

// options are those by which the body of a is parsed in the dialect d.
func options(a *Answer, d rules.Dialect) rules.Options {
	opts := rules.Options{Dialect: d, MaxSize: len(a.Body), ContentType: a.ContentType}
	if a.Truncated {
		opts.MaxSize-- // so that rules sees that the last line is cut
	}
	if !a.Origin.IsZero() { // else it is a file of the operator
		opts.RobotsURL = a.Origin.String() + "/robots.txt"
		opts.ContentType = cmp.Or(a.ContentType, "text/plain")
	}
	return opts
}

// prepare completes s for the memory of a Cache. It is called before other goroutines see s.
func (s *Snapshot) prepare() *Snapshot {
	if s.Rules == nil {
		s.Rules = parse(&s.Answer, rules.DialectRFC9309)
	}
	s.ContentType = unique.Make(s.ContentType).Value() // a few values in a million files
	return s.schedule()
}

// schedule sets the time of the renewal. It is random, so that files fetched at one time are not renewed at one time.
func (s *Snapshot) schedule() *Snapshot {
	last := s.Expires.Sub(s.Fetched) / 10
	switch {
	case s.Stale:
		s.lead = grace
	case last > 0 && s.Since.IsZero():
		s.lead = last/2 + rand.N(last/2+1)
	}
	return s
}

// freshAt reports whether s may be used without asking again. An expiry after more than a day is the fault of a clock.
func (s *Snapshot) freshAt(now time.Time) bool {
	left := s.Expires.Sub(now)
	return left > 0 && left <= fetch.MaxTTL+grace
}

// dueAt reports whether s should be renewed. It is true for one caller only.
func (s *Snapshot) dueAt(now time.Time) bool {
	return s.lead > 0 && !now.Before(s.Renewal()) && s.marks.Or(markRenewing)&markRenewing == 0
}

// use marks s as used. It writes only if s is not marked, since many goroutines may use s at once.
func (s *Snapshot) use() {
	if s.marks.Load()&markUsed == 0 {
		s.marks.Or(markUsed)
	}
}

// copy returns a Snapshot with the exported fields of s.
func (s *Snapshot) copy() *Snapshot {
	return &Snapshot{
		Answer: s.Answer, Stale: s.Stale, Client: s.Client, Rules: s.Rules, Since: s.Since, Failures: s.Failures,
	}
}

// size returns about how many bytes of memory s takes. A site can make each part of it large.
func (s *Snapshot) size() int64 {
	n := fixedSize + len(s.Body) + s.Rules.Size()
	n += len(s.ContentType) + len(s.ETag) + len(s.LastModified) + len(s.Fields)
	for _, u := range s.Redirects {
		n += len(u)
	}
	if s.Err != nil {
		n += len(s.Err.Error())
	}
	return int64(n)
}

// fixedSize is the size of a Snapshot and of its entries in the cache.
const fixedSize = 608
