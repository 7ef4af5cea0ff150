package dashboard

import (
	"fmt"
	"net/url"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/auditquery"
)

// period is the time that a page shows. It begins with a whole hour unless the reader chose a moment, since counts of
// whole hours are kept.
type period struct {
	Name         string // of a length up to now; empty if the reader chose moments
	Label        string
	Since, Until time.Time // an Until of zero is now
	URL          string    // of the page with this period
	Current      bool
}

// lengths are the periods to choose from. The first is the usual one.
var lengths = []struct {
	name, label string
	length      time.Duration
}{
	{"24h", "Last 24 hours", 24 * time.Hour},
	{"1h", "Last hour", time.Hour},
	{"7d", "Last 7 days", 7 * 24 * time.Hour},
	{"30d", "Last 30 days", 30 * 24 * time.Hour},
	{"365d", "Last year", 365 * 24 * time.Hour},
}

// readPeriod returns the period in the query of a URL: range, or since and until.
func readPeriod(q url.Values, now time.Time) (p period, err error) {
	if q.Get("since") != "" || q.Get("until") != "" {
		if p.Since, err = auditquery.Moment("since", q.Get("since"), now); err == nil {
			p.Until, err = auditquery.Moment("until", q.Get("until"), now)
		}
		if err == nil && !p.Until.IsZero() && !p.Since.Before(p.Until) {
			err = fmt.Errorf("since %q is not before until %q", q.Get("since"), q.Get("until"))
		}
		if err != nil {
			return period{}, &fault{400, err.Error()}
		}
		p.Label = "From " + p.Since.Format("2 Jan 15:04")
		if !p.Until.IsZero() {
			p.Label += " to " + p.Until.Format("2 Jan 15:04")
		}
		return p, nil
	}
	name := q.Get("range")
	if name == "" {
		name = lengths[0].name
	}
	for _, l := range lengths {
		if l.name == name {
			return period{Name: name, Label: l.label, Since: now.Add(-l.length).Truncate(time.Hour)}, nil
		}
	}
	return period{}, &fault{400, fmt.Sprintf("range %.40q is not one of 1h, 24h, 7d, 30d and 365d", name)}
}

// periods returns the periods to choose from, with the URLs of the same page.
func periods(q url.Values, now time.Time) (all []period) {
	current, _ := readPeriod(q, now)
	for _, l := range lengths {
		next := url.Values{}
		for name, values := range q {
			next[name] = values
		}
		for _, name := range []string{"since", "until", "after"} {
			next.Del(name)
		}
		next.Set("range", l.name)
		all = append(all, period{Name: l.name, Label: l.label, URL: "?" + next.Encode(), Current: current.Name == l.name})
	}
	return all
}

// end returns the end of p at now.
func (p period) end(now time.Time) time.Time {
	if p.Until.IsZero() {
		return now
	}
	return p.Until
}

// Query returns the parameters that select p.
func (p period) Query() url.Values {
	q := url.Values{}
	if p.Name == "" && p.Since.IsZero() && p.Until.IsZero() {
		return q // of a page without a period
	}
	if p.Name != "" {
		if p.Name != lengths[0].name {
			q.Set("range", p.Name)
		}
		return q
	}
	q.Set("since", p.Since.UTC().Format(time.RFC3339))
	if !p.Until.IsZero() {
		q.Set("until", p.Until.UTC().Format(time.RFC3339))
	}
	return q
}
