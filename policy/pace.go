package policy

import (
	"time"

	"github.com/robotsproxy/robotsproxy/rules"
)

// Sources of Decision.Delay, as in the audit's delay_source. Package ratelimit has more.
const (
	sourceFloor       = "floor"
	sourceCrawlDelay  = "crawl-delay"
	sourceRequestRate = "request-rate"
)

// setDelay sets the delay in force: the site's, up to the operator's maximum, or the operator's floor if that is
// longer. It reports whether the site's delay exceeds the maximum and the operator refuses such sites.
func (p *Policy) setDelay(d *Decision, r Request, agent rules.Agent, now time.Time) (over bool) {
	d.Delay, d.DelaySource = asked(agent, now)
	limit := p.options.MaxCrawlDelay
	if r.Client.MaxCrawlDelay != 0 {
		limit = r.Client.MaxCrawlDelay
	}
	if limit != 0 && d.Delay > limit {
		over = p.options.RefuseOverMax
		if !over {
			d.Delay, d.Clamped = limit, true
		}
	}
	if h := p.host(r.Origin.Host()); h != nil && h.Delay > d.Delay {
		d.Delay, d.DelaySource = h.Delay, sourceFloor
	}
	if hours, ok := agent.VisitTime(); p.options.VisitTime && ok {
		d.Opens = opens(hours, now)
		d.Closes, d.Reopens = closes(hours, d.Opens, now)
	}
	return over
}

// asked returns the longer of the site's Crawl-delay and the interval of its Request-rate: "1/5" is five seconds,
// "30/1m" two.
func asked(agent rules.Agent, now time.Time) (delay time.Duration, source string) {
	if d, ok := agent.CrawlDelay(); ok && d > 0 {
		delay, source = d, sourceCrawlDelay
	}
	rate, ok := agent.RequestRate()
	if !ok || !opens(rate.During, now).IsZero() {
		return delay, source
	}
	if d := rate.Per / time.Duration(rate.Requests); d > delay {
		delay, source = d, sourceRequestRate
	}
	return delay, source
}

// opens returns the next time at which the hours begin, or the zero time during the hours. The hours end before the
// minute To. Hours from 2300 to 0100 extend past midnight; hours with From equal to To last all day.
func opens(h rules.Hours, now time.Time) time.Time {
	now = now.UTC()
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC)
	at := now.Sub(midnight)
	inside := h.From <= at && at < h.To
	if h.From >= h.To {
		inside = h.From <= at || at < h.To
	}
	switch {
	case inside:
		return time.Time{}
	case at < h.From:
		return midnight.Add(h.From)
	default:
		return midnight.AddDate(0, 0, 1).Add(h.From)
	}
}

// closes returns the end of the current hours and their next start. If opens is not zero, it returns the end of the
// hours that begin then. Both are zero if the hours never end.
func closes(h rules.Hours, opens, now time.Time) (end, again time.Time) {
	const day = 24 * time.Hour
	length := (h.To - h.From + day) % day
	if length == 0 {
		return time.Time{}, time.Time{}
	}
	if !opens.IsZero() {
		return opens.Add(length), opens.Add(day)
	}
	began := now.UTC().Truncate(day).Add(h.From)
	if began.After(now) {
		began = began.Add(-day) // yesterday
	}
	return began.Add(length), began.Add(day)
}
