package audit

import (
	"slices"
	"strings"

	"github.com/robotsproxy/robotsproxy/policy"
)

// Selects reports whether f selects r, without regard to f.After and f.Limit.
func (f *Filter) Selects(r *Record) bool {
	switch {
	case !f.Since.IsZero() && r.Time.Before(f.Since), !f.Until.IsZero() && !r.Time.Before(f.Until):
		return false
	case f.Host != "" && !policy.MatchHost(f.Host, r.Host):
		return false
	case f.Client != "" && f.Client != r.Client, f.Agent != "" && !strings.EqualFold(f.Agent, r.Agent), f.Tag != "" && f.Tag != r.Tag:
		return false
	case !strings.HasPrefix(r.Path, f.Path), f.Rule != "" && !strings.EqualFold(f.Rule, r.Rule):
		return false
	case len(f.Vias) == 0 && r.Via == Robots:
		return false
	}
	return has(f.Decisions, r.Decision) && has(f.Reasons, r.Reason) && has(f.Vias, r.Via)
}

// has reports whether v is in selected, or selected is empty.
func has[T comparable](selected []T, v T) bool {
	return len(selected) == 0 || slices.Contains(selected, v)
}
