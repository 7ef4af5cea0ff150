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

	Refusals      []Refusal // the most frequent first, maxRefusals at most; Close sets them
	OtherRefusals int64     // URLs that others refuse
	refusals      map[Refusal]int64

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
	maxCounted  = 4096 // refusals until Close
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
	key := Refusal{Reason: r.Reason, Line: r.Line, Rule: r.Rule}
	if h.refusals == nil {
		h.refusals = make(map[Refusal]int64)
	}
	if _, known := h.refusals[key]; !known && len(h.refusals) == maxCounted {
		h.OtherRefusals += r.URLs
		return
	}
	h.refusals[key] += r.URLs
}

// Close keeps the refusals with the most URLs, and adds up the others. The counts are complete before.
func (h *Host) Close() {
	for r, urls := range h.refusals {
		r.URLs = urls
		h.Refusals = append(h.Refusals, r)
	}
	h.refusals = nil
	slices.SortFunc(h.Refusals, func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(b.URLs, a.URLs), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Rule, b.Rule))
	})
	for _, r := range h.Refusals[min(maxRefusals, len(h.Refusals)):] {
		h.OtherRefusals += r.URLs
	}
	h.Refusals = slices.Clone(h.Refusals[:min(maxRefusals, len(h.Refusals))])
	for i := range h.Refusals {
		h.Refusals[i].Rule = strings.Clone(h.Refusals[i].Rule) // so that it does not keep the whole file in memory
	}
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
