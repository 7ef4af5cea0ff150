package robots

import (
	"cmp"
	"sync"

	"github.com/robotsproxy/robotsproxy/rules"
)

// RulesFor returns the rules as a dialect reads them: those of Rules for that of RFC 9309, and for any other what the
// body says in it, which is parsed when it is first asked for. Two who ask first at once parse it twice, and get the
// same. Size, which the cache goes by, does not count what is parsed so late.
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
	set, _ := others.LoadOrStore(d, rules.Parse(s.Body, s.reading(d)))
	return set.(*rules.Ruleset)
}

// reading says how Body is parsed in a dialect.
func (s *Snapshot) reading(d rules.Dialect) rules.Options {
	opts := rules.Options{Dialect: d, MaxSize: len(s.Body), ContentType: s.ContentType}
	if s.Truncated {
		opts.MaxSize-- // so that a last line which is cut is seen to be
	}
	if !s.Origin.IsZero() { // or it comes from a file of the operator's, who says what it is in
		opts.RobotsURL = s.Origin.String() + "/robots.txt"
		opts.ContentType = cmp.Or(s.ContentType, "text/plain")
	}
	return opts
}
