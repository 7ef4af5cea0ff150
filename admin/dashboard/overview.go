package dashboard

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// overviewPage is the data of overview.html.
type overviewPage struct {
	*figures
	Empty  bool   // nothing has come through yet
	Listen string // the proxy's URL, for the first lines to paste
	Active int
	Rows   []audit.Record // the last requests
	Queues map[string]int // of the slow hosts, now
}

// figures are the counts of a period.
type figures struct {
	Total       audit.Sum
	Hosts       int
	Unreachable int // of the hosts
	Chart       chart
	Lists       []ranking
	Slow        []slowHost
}

// slowHost is a host for which requests wait long.
type slowHost struct {
	audit.Sum
	Delay time.Duration // of its last request
	P95   time.Duration // of the waits of its last requests
}

// waitRows is the number of requests of which P95 is taken.
const waitRows = 200

// ranking is a list of the values of a dimension that were blocked most.
type ranking struct {
	Title     string
	Dimension audit.Dimension
	Rows      []rank
}

type rank struct {
	Value string
	Count int64
	Part  int // of the first row, in percent
}

// chart is the timeline of a period, for the script.
type chart struct {
	Step   int64      `json:"step"` // seconds
	Times  []int64    `json:"times"`
	Series [4][]int64 `json:"series"` // allowed, throttled, blocked, failed
}

const (
	rankRows     = 5
	overviewRows = 10
	chartPoints  = 120
)

// overview shows what was decided in a period.
func (h *Handler) overview(v *view) error {
	state := h.options.State()
	p := overviewPage{Listen: state.Listen, Active: state.Active}
	if h.options.Records == nil {
		return h.notKept()
	}
	var err error
	if p.figures, err = h.overviews.get(v, h.figures); err != nil {
		return err
	}
	if p.Rows, err = h.lastOf(v, audit.Filter{}, overviewRows); err != nil {
		return err
	}
	p.Queues = make(map[string]int)
	for _, s := range p.Slow {
		p.Queues[s.Values[0]] = h.lane(s.Values[0]).Waiting
	}
	p.Empty = len(p.Rows) == 0
	return v.render("Overview", "overview.html", p)
}

// figures counts the records of the period of v. Its questions are answered at the same time, since each reads all counts
// of the period.
func (h *Handler) figures(v *view) (*figures, error) {
	n := &figures{Lists: []ranking{
		{Title: "Most blocked hosts", Dimension: audit.ByHost},
		{Title: "Most blocked crawlers", Dimension: audit.ByAgent},
		{Title: "Rules that block most", Dimension: audit.ByRule},
	}}
	f := audit.Filter{Since: v.period.Since, Until: v.period.Until}
	var errs [4]error
	var asked sync.WaitGroup
	asked.Go(func() { errs[0] = h.countHosts(v, f, n) })
	asked.Go(func() { n.Chart, errs[1] = h.chart(v, f) })
	asked.Go(func() { errs[2] = h.rank(v, f, &n.Lists[1]) })
	asked.Go(func() { errs[3] = h.rank(v, f, &n.Lists[2]) })
	asked.Wait()
	return n, errors.Join(errs[:]...)
}

// countHosts counts all records of f, its hosts, and what was blocked of each.
func (h *Handler) countHosts(v *view, f audit.Filter, n *figures) error {
	sums, err := h.options.Records.Sums(v.ctx(), f, audit.ByHost, audit.ByReason)
	if err != nil {
		return err
	}
	hosts := make(map[string]*audit.Sum)
	for _, s := range sums {
		host := hosts[s.Values[0]]
		if host == nil {
			host = &audit.Sum{Values: s.Values[:1]}
			hosts[s.Values[0]] = host
		}
		add(host, s)
		add(&n.Total, s)
		if s.Values[1] == string(policy.ReasonRobotsUnreachable) {
			n.Unreachable++
		}
	}
	n.Hosts = len(hosts)
	n.Lists[0].Rows = mostBlocked(hosts)
	n.Slow, err = h.slowHosts(v, slowest(hosts))
	return err
}

// add adds the counts of s to sum.
func add(sum *audit.Sum, s audit.Sum) {
	sum.Requests += s.Requests
	sum.Blocked += s.Blocked
	sum.WouldDeny += s.WouldDeny
	sum.Throttled += s.Throttled
	sum.Failed += s.Failed
	sum.Waited += s.Waited
}

// mostBlocked returns the hosts that were blocked most.
func mostBlocked(hosts map[string]*audit.Sum) (rows []rank) {
	for host, s := range hosts {
		if n := s.Blocked + s.WouldDeny; n > 0 {
			rows = append(rows, rank{Value: host, Count: n})
		}
	}
	slices.SortFunc(rows, func(a, b rank) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Value, b.Value)) })
	rows = rows[:min(len(rows), rankRows)]
	for i := range rows {
		rows[i].Part = int(100 * rows[i].Count / rows[0].Count)
	}
	return rows
}

// rank lists the values that were blocked most.
func (h *Handler) rank(v *view, f audit.Filter, list *ranking) error {
	f.Decisions, f.Limit = []policy.Outcome{policy.Deny, policy.WouldDeny}, rankRows
	sums, err := h.options.Records.Sums(v.ctx(), f, list.Dimension)
	for _, s := range sums {
		list.Rows = append(list.Rows, rank{s.Values[0], s.Requests, int(100 * s.Requests / max(1, sums[0].Requests))})
	}
	return err
}

// slowest returns the hosts for which requests waited longest on average.
func slowest(all map[string]*audit.Sum) (slow []audit.Sum) {
	mean := func(s audit.Sum) time.Duration { return s.Waited / time.Duration(max(1, s.Requests)) }
	for _, s := range all {
		if mean(*s) >= leastWait {
			slow = append(slow, *s)
		}
	}
	slices.SortFunc(slow, func(a, b audit.Sum) int {
		return cmp.Or(cmp.Compare(mean(b), mean(a)), cmp.Compare(a.Values[0], b.Values[0]))
	})
	return slow[:min(len(slow), rankRows)]
}

// slowHosts adds the waits of the last requests to sums.
func (h *Handler) slowHosts(v *view, sums []audit.Sum) (all []slowHost, err error) {
	for _, s := range sums {
		rows, err := h.lastOf(v, audit.Filter{Since: v.period.Since, Until: v.period.Until, Host: s.Values[0]}, waitRows)
		if err != nil {
			return nil, err
		}
		host := slowHost{Sum: s}
		host.Delay, _ = h.lane(s.Values[0]).delay(rows)
		var waits []time.Duration
		for i := range rows {
			if !rows[i].SentAt.IsZero() {
				waits = append(waits, time.Duration(rows[i].Waited))
			}
		}
		if slices.Sort(waits); len(waits) > 0 {
			host.P95 = waits[(len(waits)-1)*95/100]
		}
		all = append(all, host)
	}
	return all, nil
}

// chart returns the timeline of f, with a point for each step.
func (h *Handler) chart(v *view, f audit.Filter) (c chart, err error) {
	until := v.period.end(v.now)
	if f.Since, err = h.begin(v, f, until); err != nil {
		return c, err
	}
	step := chartStep(until.Sub(f.Since))
	f.Since, f.Until = f.Since.Truncate(step), until.Truncate(time.Minute).Add(time.Minute)
	points, err := h.options.Records.Timeline(v.ctx(), f, step)
	if err != nil {
		return c, err
	}
	c.Step = int64(step / time.Second)
	at := make(map[int64]map[policy.Outcome]int64, len(points))
	for _, p := range points {
		at[p.Time.Unix()] = p.Decisions
	}
	for t := f.Since; t.Before(f.Until); t = t.Add(step) {
		d := at[t.Unix()]
		c.Times = append(c.Times, t.Unix())
		for i, n := range []int64{
			d[policy.Allow] + d[policy.Exempt], d[policy.Throttle] + d[policy.WouldThrottle], d[policy.Deny] + d[policy.WouldDeny], d[policy.Error],
		} {
			c.Series[i] = append(c.Series[i], n)
		}
	}
	return c, nil
}

// begin returns the time of the first record of f, so that a chart of the first days is not empty for the most part. A
// quarter of an hour is the least.
func (h *Handler) begin(v *view, f audit.Filter, until time.Time) (time.Time, error) {
	since := f.Since
	f.Limit = 1
	for r, err := range h.options.Records.Records(v.ctx(), f) {
		if err != nil {
			return since, err
		}
		if begin := r.Time.Truncate(time.Minute); begin.After(since) {
			since = begin
		}
	}
	if least := until.Add(-15 * time.Minute).Truncate(time.Minute); since.After(least) && f.Since.Before(least) {
		since = least
	}
	return since, nil
}

// chartStep returns the width of a bar: a length that people know.
func chartStep(span time.Duration) time.Duration {
	for _, step := range []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour} {
		if span/step <= chartPoints {
			return step
		}
	}
	return max(24*time.Hour, (span / chartPoints).Truncate(24*time.Hour))
}

// overviewCache keeps figures for a moment, so that their cost does not grow with the number of readers.
type overviewCache struct {
	mu   sync.Mutex // held while figures are counted: others wait for them
	kept map[string]keptFigures
}

type keptFigures struct {
	*figures
	until time.Time
}

// figuresAge is how old figures may be; longer, if it takes long to count them.
const figuresAge = 2 * time.Second

// get returns the figures of the period of v.
func (c *overviewCache) get(v *view, count func(*view) (*figures, error)) (*figures, error) {
	key := v.period.Query().Encode()
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept, ok := c.kept[key]; ok && v.now.Before(kept.until) {
		return kept.figures, nil
	}
	begin := time.Now()
	n, err := count(v)
	if err != nil {
		return nil, err
	}
	for key, kept := range c.kept {
		if !v.now.Before(kept.until) {
			delete(c.kept, key)
		}
	}
	if c.kept == nil {
		c.kept = make(map[string]keptFigures)
	}
	c.kept[key] = keptFigures{n, time.Now().Add(max(figuresAge, 10*time.Since(begin)))}
	return n, nil
}
