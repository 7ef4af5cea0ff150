//go:build linux

package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
)

// kind is how a host behaves.
type kind uint8

const (
	alive   kind = iota
	unnamed      // the DNS server does not know its name
	refused      // a dial is refused
	silent       // a dial gets no answer
	hanging      // a request gets no answer
	reset        // a request ends with a reset
	failing      // every request is answered 503
	kinds
)

// shares says which part of the hosts is of each kind. The rest is alive.
type shares [kinds]float64

// third is the share of dead hosts in a wide crawl: 30 % in all, of which 14 % take as long as the crawler waits.
var third = shares{unnamed: 0.06, refused: 0.06, silent: 0.07, hanging: 0.07, reset: 0.02, failing: 0.02}

// domain is the domain of all hosts.
const domain = ".wide.example"

func hostName(i int) string { return "h" + strconv.Itoa(i) + domain }

// hostNumber returns the number of a host by its name, which may have a port.
func hostNumber(name string) (i int, ok bool) {
	label, _, ok := strings.Cut(strings.ToLower(name), domain)
	if !ok || !strings.HasPrefix(label, "h") {
		return 0, false
	}
	i, err := strconv.Atoi(label[1:])
	return i, err == nil
}

// kindOf returns the kind of the host with number i. Neighbours differ, so that every stretch of hosts has the shares.
func (s *shares) kindOf(i int) kind {
	const golden = 0.6180339887498949
	_, at := math.Modf(float64(i) * golden)
	for k := alive + 1; k < kinds; k++ {
		if at -= s[k]; at < 0 {
			return k
		}
	}
	return alive
}

// host counts the requests to one host.
type host struct {
	mu     sync.Mutex // guards the fields below
	robots int32      // requests for robots.txt
	pages  int32      // other requests
	busy   int32      // of these, those under way
	ended  int64      // when the last of them was answered, in nanoseconds since the start of the web
}

// begin records that a request arrives. It returns the time since the end of the one before, and whether that has not
// ended yet. The first request to a host has no gap.
func (h *host) begin(now int64) (gap time.Duration, first, overlap bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pages++
	h.busy++
	return time.Duration(now - h.ended), h.pages == 1, h.busy > 1
}

func (h *host) end(now int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy--
	h.ended = now
}

// robotsTxt returns the robots.txt of host i. It has about robotsSize bytes, and disallows no page. Hosts that share
// their text have one of 16.
func (o *webOptions) robotsTxt(i int) string {
	var b strings.Builder
	b.WriteString("User-agent: *\n")
	if o.delay > 0 {
		fmt.Fprintf(&b, "Crawl-delay: %g\n", o.delay.Seconds())
	}
	owner := i
	if float64(i%100) < 100*o.shared {
		owner = -(i % 16)
	}
	for n := 0; b.Len() < o.robotsSize; n++ {
		fmt.Fprintf(&b, "Disallow: /private/%d/%d\n", owner, n)
	}
	return b.String()
}
