//go:build linux

package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// crawl visits hosts with many clients at once.
type crawl struct {
	web         *web
	first, last int  // hosts, last excluded
	pages       int  // of each host
	rounds      bool // the first pages of all hosts, then the second; else all pages of a host in a row
	connections int
	ramp        time.Duration // in which the connections begin, one after the other
	client      func() client

	fetched []atomic.Bool // hosts of which a page was fetched
}

// visited is the result of a crawl.
type visited struct {
	took      time.Duration
	pages     int             // fetched
	living    int             // hosts
	fetched   int             // living hosts of which a page was fetched
	latencies []time.Duration // of the requests to living hosts, sorted
	overload  int             // requests that the proxy refused because of its limits
	failed    map[string]int  // other requests to living hosts that were not answered 200, by the cause
}

func (c *crawl) run() *visited {
	c.fetched = make([]atomic.Bool, len(c.web.state))
	parts := make([]visited, c.connections)
	var next atomic.Int64
	var running sync.WaitGroup
	begun := time.Now()
	for i := range parts {
		running.Go(func() {
			time.Sleep(c.ramp * time.Duration(i) / time.Duration(c.connections))
			c.work(&next, &parts[i])
		})
	}
	running.Wait()
	return c.sum(parts, time.Since(begun))
}

// work makes visits until all are made.
func (c *crawl) work(next *atomic.Int64, v *visited) {
	own := c.client()
	defer own.close()
	v.failed = make(map[string]int)
	hosts := c.last - c.first
	for {
		n := int(next.Add(1) - 1)
		switch {
		case c.rounds && n < hosts*c.pages:
			c.visit(own, c.first+n%hosts, n/hosts, v)
		case !c.rounds && n < hosts:
			for page := range c.pages {
				c.visit(own, c.first+n, page, v)
			}
		default:
			return
		}
	}
}

func (c *crawl) visit(own client, host, page int, v *visited) {
	begun := time.Now()
	status, reason, err := own.get(host, fmt.Sprintf("/page/%d", page))
	if reason == "overload" {
		v.overload++
	}
	if c.web.kindOf(host) != alive {
		return
	}
	v.latencies = append(v.latencies, time.Since(begun))
	switch {
	case err != nil:
		v.failed[err.Error()]++
	case status == 200:
		v.pages++
		c.fetched[host].Store(true)
	case reason != "overload":
		v.failed[fmt.Sprintf("%d %s", status, reason)]++
	}
}

func (c *crawl) sum(parts []visited, took time.Duration) *visited {
	sum := &visited{took: took, failed: make(map[string]int)}
	for i := range parts {
		sum.add(&parts[i])
	}
	for i := c.first; i < c.last; i++ {
		if c.web.kindOf(i) == alive {
			sum.living++
		}
		if c.fetched[i].Load() {
			sum.fetched++
		}
	}
	slices.Sort(sum.latencies)
	return sum
}

// add adds the result of a part of a crawl. The latencies are not sorted then.
func (v *visited) add(part *visited) {
	v.took += part.took
	v.pages += part.pages
	v.living += part.living
	v.fetched += part.fetched
	v.latencies = append(v.latencies, part.latencies...)
	v.overload += part.overload
	for cause, n := range part.failed {
		v.failed[cause] += n
	}
}

// rate returns pages per second.
func (v *visited) rate() float64 { return float64(v.pages) / v.took.Seconds() }

// quantile returns the time within which the share q of the requests to living hosts was answered.
func (v *visited) quantile(q float64) time.Duration {
	if len(v.latencies) == 0 {
		return 0
	}
	return v.latencies[min(int(q*float64(len(v.latencies))), len(v.latencies)-1)]
}

func (v *visited) millis(q float64) float64 { return float64(v.quantile(q).Microseconds()) / 1000 }

func (v *visited) failures() (n int) {
	for _, of := range v.failed {
		n += of
	}
	return n
}
