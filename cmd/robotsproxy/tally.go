package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/policy"
)

// tally counts what came of a child's requests, for the summary at its end.
type tally struct {
	mu       sync.Mutex // guards what follows
	requests int
	outcomes map[policy.Outcome]int
	failed   int // at the origin, after they were forwarded
	blocked  map[blockedBy]int
	hosts    map[string]time.Duration // time waited for each
	waited   time.Duration
}

// blockedBy is a rule of a host, or what else decided.
type blockedBy struct{ host, rule string }

// maxTally bounds the rules and hosts that are told apart; the totals go on.
const maxTally = 10_000

func newTally() *tally {
	return &tally{outcomes: make(map[policy.Outcome]int), blocked: make(map[blockedBy]int), hosts: make(map[string]time.Duration)}
}

func (t *tally) observe(r *audit.Record) {
	if r.Via == audit.Robots {
		return // ours, and not the child's
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests++
	t.outcomes[r.Decision]++
	waited := time.Duration(r.Waited)
	t.waited += waited
	if _, known := t.hosts[r.Host]; known || r.Host != "" && len(t.hosts) < maxTally {
		t.hosts[r.Host] += waited
	}
	if r.Reason == policy.ReasonUpstream {
		t.failed++
	}
	if r.Decision == policy.Allow || r.Decision == policy.Exempt {
		return
	}
	by := blockedBy{r.Host, string(r.Reason)}
	if r.Rule != "" {
		by.rule = fmt.Sprintf("robots.txt line %d: %s", r.RuleLine, r.Rule)
	}
	if _, known := t.blocked[by]; known || len(t.blocked) < maxTally {
		t.blocked[by]++
	}
}

// report writes what a person wants to know after a crawl by command, or that there was none.
func (t *tally) report(w io.Writer, command string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.requests == 0 {
		fmt.Fprint(w, nothingCame(command))
		return
	}
	refused := t.outcomes[policy.Deny] + t.outcomes[policy.Throttle] + t.outcomes[policy.Error]
	fmt.Fprintf(w, "robotsproxy: %s to %s: %d forwarded, %d blocked, %d told to come back later, %d failed; waited %v\n",
		count(t.requests, "request"), count(len(t.hosts), "host"), t.requests-refused-t.failed,
		t.outcomes[policy.Deny], t.outcomes[policy.Throttle], t.outcomes[policy.Error]+t.failed, t.waited.Round(time.Millisecond))
	if n := t.outcomes[policy.WouldDeny]; n > 0 {
		fmt.Fprintf(w, "robotsproxy: %d of them would have been blocked in mode enforce\n", n)
	}
	t.topBlocked(w)
	if host, waited := t.slowest(); waited > 0 {
		fmt.Fprintf(w, "robotsproxy: slowest host %s: waited %v\n", host, waited.Round(time.Millisecond))
	}
}

// topBlocked lists the rules that blocked most, ten at most.
func (t *tally) topBlocked(w io.Writer) {
	const shown = 10
	all := slices.SortedFunc(maps.Keys(t.blocked), func(a, b blockedBy) int {
		return cmp.Or(t.blocked[b]-t.blocked[a], cmp.Compare(a.host, b.host), cmp.Compare(a.rule, b.rule))
	})
	for _, by := range all[:min(shown, len(all))] {
		fmt.Fprintf(w, "robotsproxy: %6d  %s  %s\n", t.blocked[by], safetext.Text(by.host), safetext.Text(by.rule))
	}
	if rest := len(all) - shown; rest > 0 {
		fmt.Fprintf(w, "robotsproxy:         and %s more\n", count(rest, "rule"))
	}
}

func (t *tally) slowest() (host string, waited time.Duration) {
	for h, d := range t.hosts {
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
