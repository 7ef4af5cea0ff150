package robots

import "sync/atomic"

// Stats are counts since the Cache was made, and the number of fetches at this moment.
type Stats struct {
	Hits        uint64 // look-ups answered from memory
	StoreHits   uint64 // look-ups that read the Store and needed no fetch
	StaleServed uint64 // look-ups answered with a stale copy
	Fetches     uint64
	Revalidated uint64 // fetches answered with 304
	Failures    uint64 // fetches of a file that is unreachable
	HTML        uint64 // fetches of a web page in place of the file
	Changes     uint64 // of a robots.txt
	StoreErrors uint64 // calls of the Store that failed
	Busy        uint64 // fetches that did not begin because too many waited

	Waiting  int // fetches that wait now
	Fetching int // fetches under way now
}

// counts are the counters of Stats.
type counts struct {
	hits, storeHits, staleServed, fetches, revalidated, failures, html, changes, storeErrors, busy atomic.Uint64
}

// Stats returns the current counts.
func (c *Cache) Stats() Stats {
	n := &c.counts
	waiting, fetching := c.queue.counts()
	return Stats{
		Hits: n.hits.Load(), StoreHits: n.storeHits.Load(), StaleServed: n.staleServed.Load(), Fetches: n.fetches.Load(),
		Revalidated: n.revalidated.Load(), Failures: n.failures.Load(), HTML: n.html.Load(), Changes: n.changes.Load(),
		StoreErrors: n.storeErrors.Load(), Busy: n.busy.Load(),
		Waiting: waiting, Fetching: fetching,
	}
}

// answered counts the result of a fetch.
func (n *counts) answered(a *Answer) {
	switch {
	case a.Availability == Unreachable:
		n.failures.Add(1)
	case a.Validated():
		n.revalidated.Add(1)
	}
	if a.Flags&WebPage != 0 {
		n.html.Add(1)
	}
}

// served counts an answer to a look-up.
func (n *counts) served(s *Snapshot) {
	if s.Stale {
		n.staleServed.Add(1)
	}
}
