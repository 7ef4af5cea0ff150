package robotstest

import (
	"maps"
	"slices"
	"time"
)

// Paths returns the targets requested from host, sorted and without duplicates. Host is a name without port, as in the
// other methods of this file: one host is one server, for HTTP and HTTPS.
func (s *Site) Paths(host string) []string {
	targets := map[string]bool{}
	for _, r := range s.Requests() {
		if hostName(r.Host) == hostName(host) {
			targets[r.Target] = true
		}
	}
	return slices.Sorted(maps.Keys(targets))
}

// Gaps returns the times between host's requests in order of arrival, without those for /robots.txt. Each is measured
// from the end of all earlier requests to the start of the next. It is negative if they overlap.
func (s *Site) Gaps(host string) []time.Duration {
	requests := s.paced(host)
	var gaps []time.Duration
	for i := 1; i < len(requests); i++ {
		last := slices.MaxFunc(requests[:i], func(a, b Request) int { return a.End.Compare(b.End) })
		gaps = append(gaps, requests[i].Start.Sub(last.End))
	}
	return gaps
}

// Overlap returns two of host's requests that overlapped, if any, without those for /robots.txt.
func (s *Site) Overlap(host string) (first, second Request, found bool) {
	requests := s.paced(host)
	for i, second := range requests {
		for _, first := range requests[:i] {
			if second.Start.Before(first.End) {
				return first, second, true
			}
		}
	}
	return Request{}, Request{}, false
}

// paced returns the requests to host to which a Crawl-delay applies. A request in progress ends now.
func (s *Site) paced(host string) []Request {
	var requests []Request
	for _, r := range s.Requests() {
		if hostName(r.Host) != hostName(host) || r.Target == robotsPath {
			continue
		}
		if r.End.IsZero() {
			r.End = time.Now()
		}
		requests = append(requests, r)
	}
	return requests
}
