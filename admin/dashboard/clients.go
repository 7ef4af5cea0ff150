package dashboard

import (
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/onboarding"
)

// clientsPage is the data of clients.html.
type clientsPage struct {
	Crawlers []crawler
	More     bool
	Name     string        // of the crawler that the reader waits for
	Seen     *audit.Record // its last request of the last minutes; nil if there is none
	Live     string        // URL of the stream of its requests
	SetUp    []onboarding.Client
}

// crawler is a row about one crawler.
type crawler struct {
	audit.Sum
	Name string
	Last time.Time // zero: not among the last requests
}

const (
	maxCrawlers = 100
	lastRows    = 2000             // records that are searched for the last request of each crawler
	recently    = 15 * time.Minute // in which a request counts as "going through"
)

// clients shows the crawlers of a period, and how to set one up.
func (h *Handler) clients(v *view) error {
	if h.options.Records == nil {
		return h.notKept()
	}
	p := clientsPage{Name: v.URL.Query().Get("name")}
	if h.options.Proxy != nil {
		scheme, address := h.options.Proxy(v.Request)
		p.SetUp = onboarding.Clients(scheme, address)
	}
	f := audit.Filter{Since: v.period.Since, Until: v.period.Until, Limit: maxCrawlers + 1}
	sums, err := h.options.Records.Sums(v.ctx(), f, audit.ByAgent)
	if err != nil {
		return err
	}
	p.More = len(sums) > maxCrawlers
	last, err := h.lastSeen(v, f)
	if err != nil {
		return err
	}
	for _, s := range sums[:min(len(sums), maxCrawlers)] {
		p.Crawlers = append(p.Crawlers, crawler{Sum: s, Name: s.Values[0], Last: last[s.Values[0]]})
	}
	if p.Name != "" {
		p.Live = link(period{Name: lengths[0].name}, "/live", "agent", p.Name)
		recent := audit.Filter{Since: v.now.Add(-recently), Agent: p.Name, Newest: true, Limit: 1}
		for r, err := range h.options.Records.Records(v.ctx(), recent) {
			if err != nil {
				return err
			}
			seen := *r
			p.Seen = &seen
		}
	}
	return v.render("Clients", "clients.html", p)
}

// lastSeen returns the time of the last request of each crawler, among the last requests of f.
func (h *Handler) lastSeen(v *view, f audit.Filter) (map[string]time.Time, error) {
	last := make(map[string]time.Time)
	f.Newest, f.Limit = true, lastRows
	for r, err := range h.options.Records.Records(v.ctx(), f) {
		if err != nil {
			return nil, err
		}
		if _, ok := last[r.Agent]; !ok {
			last[r.Agent] = r.Time
		}
	}
	return last, nil
}
