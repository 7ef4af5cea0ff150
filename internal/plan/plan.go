// Package plan foresees a crawl: what becomes of the URLs of a list, and how long the rest takes at the allowed pace.
//
//	spool, err := plan.NewSpool()
//	err = plan.Lines(list, func(n int64, line string) error { ...; return spool.Add(o, target) })
//	for _, site := range spool.Sites() {
//		h := plan.Host{Origin: site.Origin, Lane: site.Origin.Host()}
//		for target, err := range spool.Targets(site) {
//			h.Count(judge.Decide(...))
//		}
//		hosts = append(hosts, h)
//	}
//	p := plan.New(hosts, plan.Pace{Connections: 4, MaxConcurrent: 8, Response: time.Second / 2})
//
// The memory depends on the number of origins, not on that of URLs. The package sends no requests, reads no clock, and
// makes no decisions.
package plan

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Pace is how a crawl is paced: by the crawler, and by the proxy as package ratelimit does.
type Pace struct {
	Connections   int           // of the crawler
	MaxConcurrent int           // requests at once to a host without a Delay; 0: no limit
	DefaultDelay  time.Duration // between the starts of two requests to a host without a Delay
	SpacingStart  bool          // a Delay counts from the start of the request before
	Response      time.Duration // assumed to pass from the start of a request to its end
}

// takes returns the time for a number of requests to a host with this Delay.
func (p Pace) takes(requests int64, delay time.Duration) time.Duration {
	switch {
	case delay > 0 && p.SpacingStart:
		return times(requests, max(delay, p.Response))
	case delay > 0:
		return times(requests, plus(delay, p.Response))
	}
	atOnce := max(1, min(requests, int64(p.Connections)))
	if p.MaxConcurrent > 0 {
		atOnce = min(atOnce, int64(p.MaxConcurrent))
	}
	return times(requests, max(p.DefaultDelay, p.Response/time.Duration(atOnce)))
}

// Plan is what becomes of all URLs of a list.
type Plan struct {
	Hosts []Host // those that take longest first; then by name

	URLs, Allowed, Refused, Unknown int64
	UnknownHosts                    int // of Hosts, those with Unknown URLs

	Time    time.Duration // of the whole crawl
	Longest Lane          // zero if nothing is allowed
	Busy    time.Duration // the least time in which the connections make all requests
	Rest    time.Duration // the time without the Longest
}

// Lane is the URLs that share one pace.
type Lane struct {
	Name    string
	Allowed int64
	Delay   time.Duration // the longest of its hosts
	Source  string        // of Delay
	Time    time.Duration
}

// New returns the plan for hosts, and sets Host.Time. A crawl takes at least as long as its longest lane, and as the
// connections need for all requests; the larger of the two is Plan.Time.
func New(hosts []Host, pace Pace) *Plan {
	p := &Plan{Hosts: hosts}
	lanes := make(map[string]*Lane)
	for i := range hosts {
		h := &hosts[i]
		h.Time = pace.takes(h.Allowed, h.Delay)
		p.add(h)
		l := lanes[h.Lane]
		if l == nil {
			l = &Lane{Name: h.Lane}
			lanes[h.Lane] = l
		}
		l.add(h)
	}
	slices.SortFunc(hosts, func(a, b Host) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Origin.Host(), b.Origin.Host()),
			cmp.Compare(a.Origin.String(), b.Origin.String()))
	})
	p.measure(lanes, pace)
	return p
}

func (p *Plan) add(h *Host) {
	p.URLs += h.URLs
	p.Allowed += h.Allowed
	p.Refused += h.Refused
	p.Unknown += h.Unknown
	if h.Unknown > 0 {
		p.UnknownHosts++
	}
}

func (l *Lane) add(h *Host) {
	l.Allowed += h.Allowed
	l.Time = plus(l.Time, h.Time)
	if h.Allowed > 0 && h.Delay > l.Delay {
		l.Delay, l.Source = h.Delay, h.DelaySource
	}
}

// measure sets the times of p.
func (p *Plan) measure(lanes map[string]*Lane, pace Pace) {
	var next time.Duration // the longest but one
	for _, l := range lanes {
		if l.Time > p.Longest.Time || l.Time == p.Longest.Time && l.Allowed > 0 && (p.Longest.Name == "" || l.Name < p.Longest.Name) {
			next, p.Longest = p.Longest.Time, *l
		} else {
			next = max(next, l.Time)
		}
	}
	busy := func(requests int64) time.Duration {
		return times(requests, pace.Response) / time.Duration(max(1, pace.Connections))
	}
	p.Busy = busy(p.Allowed)
	p.Time = max(p.Longest.Time, p.Busy)
	p.Rest = max(next, busy(p.Allowed-p.Longest.Allowed))
}

// times returns n times d, or the longest Duration if that overflows. Neither may be negative.
func times(n int64, d time.Duration) time.Duration {
	if d > 0 && n > math.MaxInt64/int64(d) {
		return math.MaxInt64
	}
	return time.Duration(n) * d
}

// plus returns a+b, or the longest Duration if that overflows. Neither may be negative.
func plus(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
