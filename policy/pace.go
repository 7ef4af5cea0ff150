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
// longer, be it configured or that of an intervention. It reports whether the site's delay exceeds the maximum and the
// operator refuses such sites.
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
	slow := p.slow(r.Origin.Host(), now)
	d.Slow = slow != nil
	if slow != nil && slow.Delay > d.Delay {
		d.Delay, d.DelaySource = slow.Delay, sourceFloor
		d.note(slow)
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
	if !ok || !during(rate.During, now) {
		return delay, source
	}
	if d := rate.Per / time.Duration(rate.Requests); d > delay {
		delay, source = d, sourceRequestRate
	}
	return delay, source
}

// during reports whether now, in UTC, is in the hours. They end before the minute To. Hours from 2300 to 0100 extend
// past midnight; hours with From equal to To last all day.
func during(h rules.Hours, now time.Time) bool {
	const day = 24 * time.Hour
	at := now.Sub(now.Truncate(day)) // Truncate counts from midnight in UTC
	if h.From >= h.To {
		return h.From <= at || at < h.To
	}
	return h.From <= at && at < h.To
}
