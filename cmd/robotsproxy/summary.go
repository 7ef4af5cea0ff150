package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/policy"
)

// summary counts the outcomes of a child's requests, and reports them after its end.
type summary struct {
	tag      string     // of the records
	sealed   bool       // the child had no other way than the proxy
	mu       sync.Mutex // guards the fields below
	requests int
	outcomes map[policy.Outcome]int
	failed   int // forwarded, and failed at the origin
	blocked  map[blockedBy]int
	hosts    map[string]time.Duration // time waited, by host
	agents   map[string]int           // requests, by agent; package proxy bounds their number
	waited   time.Duration
	sources  map[string]string // of the Delay in force, by host
}

// blockedBy is a host with the rule, or the other reason, that blocked its requests.
type blockedBy struct{ host, rule string }

// maxSummaryRows bounds the rules and the hosts that are counted separately. The totals include all.
const maxSummaryRows = 10_000

func newSummary() *summary {
	return &summary{
		outcomes: make(map[policy.Outcome]int), blocked: make(map[blockedBy]int), hosts: make(map[string]time.Duration),
		agents: make(map[string]int), sources: make(map[string]string),
	}
}

func (s *summary) observe(r *audit.Record) {
	if r.Via == audit.Robots {
		return // a request of the proxy
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	s.outcomes[r.Decision]++
	s.agents[cmp.Or(r.Agent, "no agent")]++
	waited := time.Duration(r.Waited)
	s.waited += waited
	if _, known := s.hosts[r.Host]; known || r.Host != "" && len(s.hosts) < maxSummaryRows {
		s.hosts[r.Host] += waited
		s.sources[r.Host] = r.DelaySource
	}
	if r.Reason == policy.ReasonUpstream {
		s.failed++
	}
	if r.Decision == policy.Allow || r.Decision == policy.Exempt {
		return
	}
	by := blockedBy{r.Host, cmp.Or(r.Rule, string(r.Reason))}
	if r.RuleLine > 0 {
		by.rule = fmt.Sprintf("robots.txt line %d: %s", r.RuleLine, r.Rule)
	}
	if _, known := s.blocked[by]; known || len(s.blocked) < maxSummaryRows {
		s.blocked[by]++
	}
}

// progress returns the number of requests that have ended, and of those that were blocked.
func (s *summary) progress() (requests, blocked int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests, s.outcomes[policy.Deny]
}

// delayText returns the name and the value of the Delay of host for the status line, and "" without one.
func (s *summary) delayText(host string, d time.Duration) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := "delay"
	switch s.sources[host] {
	case "crawl-delay":
		name = "Crawl-delay"
	case "request-rate":
		name = "Request-rate"
	}
	if d <= 0 {
		return ""
	}
	return " (" + name + " " + seconds(d) + ")"
}

// report writes the summary of the requests of command, or a warning if there were none.
func (s *summary) report(w io.Writer, command string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests == 0 {
		fmt.Fprint(w, noRequestsWarning(command, s.sealed))
		return
	}
	refused := s.outcomes[policy.Deny] + s.outcomes[policy.Throttle] + s.outcomes[policy.Error]
	fmt.Fprintf(w, "robotsproxy: %s to %s: %d forwarded, %d blocked, %d told to come back later, %d failed; waited %v\n",
		count(s.requests, "request"), count(len(s.hosts), "host"), s.requests-refused-s.failed,
		s.outcomes[policy.Deny], s.outcomes[policy.Throttle], s.outcomes[policy.Error]+s.failed,
		s.waited.Round(time.Millisecond))
	if n := s.outcomes[policy.WouldDeny]; n > 0 {
		fmt.Fprintf(w, "robotsproxy: %d of them would have been blocked in mode enforce\n", n)
	}
	s.reportAgents(w)
	s.reportBlocked(w)
	if host, waited := s.slowest(); waited > 0 {
		fmt.Fprintf(w, "robotsproxy: slowest host %s: waited %v\n", host, waited.Round(time.Millisecond))
	}
}

// reportAgents lists the programs that sent the requests, the ten most active ones first.
func (s *summary) reportAgents(w io.Writer) {
	const shown = 10
	all := slices.SortedFunc(maps.Keys(s.agents), func(a, b string) int {
		return cmp.Or(s.agents[b]-s.agents[a], cmp.Compare(a, b))
	})
	parts := make([]string, 0, shown+1)
	for _, agent := range all[:min(shown, len(all))] {
		parts = append(parts, fmt.Sprintf("%s %d", safetext.Text(agent), s.agents[agent]))
	}
	if rest := len(all) - shown; rest > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", rest))
	}
	fmt.Fprintf(w, "robotsproxy: agents: %s\n", strings.Join(parts, ", "))
}

// reportBlocked lists the ten rules that blocked the most requests.
func (s *summary) reportBlocked(w io.Writer) {
	const shown = 10
	all := slices.SortedFunc(maps.Keys(s.blocked), func(a, b blockedBy) int {
		return cmp.Or(s.blocked[b]-s.blocked[a], cmp.Compare(a.host, b.host), cmp.Compare(a.rule, b.rule))
	})
	for _, by := range all[:min(shown, len(all))] {
		fmt.Fprintf(w, "robotsproxy: %6d  %s  %s\n", s.blocked[by], safetext.Text(by.host), safetext.Text(by.rule))
	}
	if rest := len(all) - shown; rest > 0 {
		fmt.Fprintf(w, "robotsproxy:         and %s more\n", count(rest, "rule"))
	}
}

func (s *summary) slowest() (host string, waited time.Duration) {
	for h, d := range s.hosts {
		if d > waited || d == waited && h < host {
			host, waited = h, d
		}
	}
	return host, waited
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
