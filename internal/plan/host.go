package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
)

// Host has the counts of the URLs of one origin.
type Host struct {
	Origin origin.Origin
	Lane   string // the hosts of one lane share their pace

	URLs, Allowed, Refused, Unknown int64

	Refusals      []Refusal // the most frequent first, once New has returned; maxRefusals at most
	OtherRefusals int64     // URLs that others refuse

	Delay       time.Duration // between two requests; 0: none is set
	DelaySource string        // as policy.Decision has it
	Time        time.Duration // that the allowed URLs take, by themselves; New sets it

	State string // of the robots.txt, as robots.Snapshot has it; empty if it was not needed
	Cause string // for which the rest is Unknown

	Sitemaps     []string // MaxSitemaps at most
	SitemapCount int
}

// Refusal is what refuses URLs of a host: a line of its robots.txt, or the configuration.
type Refusal struct {
	Reason policy.Reason `json:"reason"`
	Line   int           `json:"line,omitempty"` // of the robots.txt
	Rule   string        `json:"rule,omitempty"` // that line, or the entry of the configuration
	URLs   int64         `json:"urls"`
}

// These bound the memory for one host, whose robots.txt may have thousands of lines.
const (
	maxRefusals = 20
	MaxSitemaps = 10
)

// Count counts one URL by the decision about it.
func (h *Host) Count(d policy.Decision) {
	switch {
	case d.Action == policy.Forward:
		h.URLs++
		h.Allowed++
		if d.Delay > h.Delay {
			h.Delay, h.DelaySource = d.Delay, d.DelaySource
		}
	case d.Reason == policy.ReasonRobotsUnreachable:
		h.CountUnknown(1)
	default:
		h.Refuse(Refusal{Reason: d.Reason, Line: d.Verdict.Line, Rule: ruleOf(d), URLs: 1})
	}
}

// CountUnknown counts URLs about which nothing can be told.
func (h *Host) CountUnknown(urls int64) {
	h.URLs += urls
	h.Unknown += urls
}

// Refuse counts the URLs of r.
func (h *Host) Refuse(r Refusal) {
	h.URLs += r.URLs
	h.Refused += r.URLs
	for i := range h.Refusals {
		known := &h.Refusals[i]
		if known.Reason == r.Reason && known.Line == r.Line && known.Rule == r.Rule {
			known.URLs += r.URLs
			return
		}
	}
	if len(h.Refusals) == maxRefusals {
		h.OtherRefusals += r.URLs
		return
	}
	r.Rule = strings.Clone(r.Rule) // so that it does not keep the whole file in memory
	h.Refusals = append(h.Refusals, r)
}

// ruleOf returns the words that refuse a URL.
func ruleOf(d policy.Decision) string {
	switch d.Reason {
	case policy.ReasonExemption:
		return d.Exemption
	case policy.ReasonHost:
		return d.HostRule
	case policy.ReasonStopped:
		return d.Intervention
	case policy.ReasonUsage:
		return d.Usage
	case policy.ReasonPace:
		return d.DelaySource + " above max_crawl_delay"
	}
	return d.Verdict.Rule
}

// AddSitemaps adds the Sitemap lines of the robots.txt. A line that repeats another does not count.
func (h *Host) AddSitemaps(lines []string) {
	seen := make(map[string]bool, len(lines))
	for _, line := range lines {
		if seen[line] {
			continue
		}
		seen[line] = true
		h.SitemapCount++
		if len(h.Sitemaps) < MaxSitemaps {
			h.Sitemaps = append(h.Sitemaps, strings.Clone(line))
		}
	}
}

func (h *Host) sortRefusals() {
	slices.SortStableFunc(h.Refusals, func(a, b Refusal) int { return cmp.Compare(b.URLs, a.URLs) })
}
