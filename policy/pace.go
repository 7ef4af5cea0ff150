package policy

import (
	"time"

	"github.com/robotsproxy/robotsproxy/rules"
)

// Where the Delay of a Decision comes from: the words of the audit's delay_source. Package ratelimit knows more of them.
const (
	sourceFloor       = "floor"
	sourceCrawlDelay  = "crawl-delay"
	sourceRequestRate = "request-rate"
)

// setDelay sets the delay in force: what the site asks for, up to the operator's maximum, or the operator's floor if
// that is more.
func (p *Policy) setDelay(d *Decision, r Request, agent rules.Agent, now time.Time) {
	d.Delay, d.DelaySource = asked(agent, now)
	limit := p.options.MaxCrawlDelay
	if r.Client.MaxCrawlDelay != 0 {
		limit = r.Client.MaxCrawlDelay
	}
	if limit != 0 && d.Delay > limit {
		d.Clamped = true
		if !p.options.RefuseOverMax {
			d.Delay = limit
		}
	}
	if h := p.host(r.Origin.Host()); h != nil && h.Delay > d.Delay {
		d.Delay, d.DelaySource = h.Delay, sourceFloor
	}
	if hours, ok := agent.VisitTime(); p.options.VisitTime && ok {
		d.Opens = opens(hours, now)
	}
}

// asked returns the larger of the site's Crawl-delay and its Request-rate, that one as the time between two requests:
// "1/5" is five seconds, and "30/1m" two.
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

// opens returns the next moment at which the hours begin, and the zero time while they last. The hours end at the minute
// before To; from 2300 to 0100 they go past midnight, and from any time to itself they last all day.
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
