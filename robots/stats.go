package robots

import "sync/atomic"

// Stats are counts since the Cache was made, and the fetches at this moment.
type Stats struct {
	Hits        uint64 // look-ups that were answered from memory
	StoreHits   uint64 // flights that ended with what the Store had
	StaleServed uint64 // look-ups that were answered with a stale copy
	Fetches     uint64 // flights to an origin
	Revalidated uint64 // of those, the ones that were answered with 304
	Failures    uint64 // of those, the ones that brought no answer that opens the site or holds its rules
	HTML        uint64 // of those, the ones that brought a web page in the place of the file
	Changes     uint64 // of a robots.txt
	StoreErrors uint64 // calls of the Store that failed
	Busy        uint64 // fetches that did not begin since too many waited

	Waiting  int // fetches that wait now
	Fetching int // fetches under way now
}

// counts are what Stats shows.
type counts struct {
	hits, storeHits, staleServed, fetches, revalidated, failures, html, changes, storeErrors, busy atomic.Uint64
}

// Stats returns the counts so far.
func (c *Cache) Stats() Stats {
	n := &c.counts
	waiting, fetching := c.queue.load()
	return Stats{
		Hits: n.hits.Load(), StoreHits: n.storeHits.Load(), StaleServed: n.staleServed.Load(), Fetches: n.fetches.Load(),
		Revalidated: n.revalidated.Load(), Failures: n.failures.Load(), HTML: n.html.Load(), Changes: n.changes.Load(),
		StoreErrors: n.storeErrors.Load(), Busy: n.busy.Load(),
		Waiting: waiting, Fetching: fetching,
	}
}

// answered counts what a fetch has brought.
func (n *counts) answered(s *Snapshot) {
	switch {
	case s.Availability == Unreachable:
		n.failures.Add(1)
	case s.revalidated():
		n.revalidated.Add(1)
	}
	if s.Marks&WebPage != 0 {
		n.html.Add(1)
	}
}

// served counts an answer to a look-up.
func (n *counts) served(s *Snapshot) {
	if s.Stale {
		n.staleServed.Add(1)
	}
}
