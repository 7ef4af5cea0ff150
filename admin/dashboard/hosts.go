package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// Lane is the queue of a host now.
type Lane struct {
	Waiting     int // requests
	InFlight    int
	Floor       time.Duration // the operator's least Delay
	PausedUntil time.Time     // zero: the host is not paused
	PauseSource string
}

// delay returns the Delay of a request like the last of rows that was sent, the newest first, and its source. That of the
// operator counts as it is now.
func (l Lane) delay(rows []audit.Record) (delay time.Duration, source string) {
	if i := slices.IndexFunc(rows, func(r audit.Record) bool { return !r.SentAt.IsZero() }); i >= 0 {
		delay, source = time.Duration(rows[i].DelayRequired), rows[i].DelaySource
	}
	if source == floorSource {
		delay, source = 0, ""
	}
	if l.Floor > delay {
		return l.Floor, floorSource
	}
	return delay, source
}

// floorSource is the source of a Delay that the operator has set.
const floorSource = "floor"

// hostsPage is the data of hosts.html.
type hostsPage struct {
	Search string
	Sort   string
	Rows   []hostRow
	More   bool // than these, or than are searched
}

// hostRow is a row about one host.
type hostRow struct {
	audit.Sum
	Host string
	Lane
	Last  audit.Record // its last request of the period
	Delay time.Duration
	Files []robotsFile
}

// robotsFile is the robots.txt of an origin.
type robotsFile struct {
	Origin string
	*robots.Snapshot
}

const (
	hostRows   = 50
	maxHosts   = 1000 // that are searched
	maxOrigins = 8    // of a host
)

// hosts lists the hosts of a period.
func (h *Handler) hosts(v *view) error {
	if h.options.Records == nil {
		return h.notKept()
	}
	q := v.URL.Query()
	p := hostsPage{Search: strings.TrimSpace(q.Get("host")), Sort: cmp.Or(q.Get("sort"), "requests")}
	order, ok := hostOrders[p.Sort]
	if !ok {
		return &fault{http.StatusBadRequest, "sort is none of requests, blocked, waited and host"}
	}
	f := audit.Filter{Since: v.period.Since, Until: v.period.Until, Limit: maxHosts + 1}
	sums, err := h.options.Records.Sums(v.ctx(), f, audit.ByHost)
	if err != nil {
		return err
	}
	p.More = len(sums) > maxHosts
	sums = slices.DeleteFunc(sums[:min(len(sums), maxHosts)], func(s audit.Sum) bool { return !strings.Contains(s.Values[0], strings.ToLower(p.Search)) })
	slices.SortStableFunc(sums, order)
	p.More = p.More || len(sums) > hostRows
	for _, s := range sums[:min(len(sums), hostRows)] {
		row, err := h.hostRow(v, s)
		if err != nil {
			return err
		}
		p.Rows = append(p.Rows, row)
	}
	return v.render("Hosts", "hosts.html", p)
}

// hostOrders are the orders of the list.
var hostOrders = map[string]func(a, b audit.Sum) int{
	"requests": func(a, b audit.Sum) int { return cmp.Compare(b.Requests, a.Requests) },
	"blocked":  func(a, b audit.Sum) int { return cmp.Compare(b.Blocked, a.Blocked) },
	"waited":   func(a, b audit.Sum) int { return cmp.Compare(b.Waited, a.Waited) },
	"host":     func(a, b audit.Sum) int { return cmp.Compare(a.Values[0], b.Values[0]) },
}

// hostRow returns the row of a host, with its queue and files now.
func (h *Handler) hostRow(v *view, s audit.Sum) (row hostRow, err error) {
	row = hostRow{Sum: s, Host: s.Values[0]}
	last, err := h.lastOf(v, audit.Filter{Since: v.period.Since, Until: v.period.Until, Host: row.Host}, hostLast)
	if err != nil {
		return row, err
	}
	if len(last) > 0 {
		row.Last = last[0]
	}
	row.Lane = h.lane(row.Host)
	row.Delay, _ = row.Lane.delay(last)
	row.Files, err = h.files(v, row.Host)
	return row, err
}

func (h *Handler) lane(host string) Lane {
	if h.options.Lane == nil {
		return Lane{}
	}
	return h.options.Lane(host)
}

// files returns the robots.txt files in force of the origins of a host.
func (h *Handler) files(v *view, host string) (all []robotsFile, err error) {
	if h.options.Files == nil {
		return nil, nil
	}
	if own := h.options.Files.Own(host); len(own) > 0 {
		return []robotsFile{{"the operator's file for " + own[0].Host, own[0].Snapshot}}, nil
	}
	origins, err := h.options.History.Origins(v.ctx(), host, maxOrigins)
	if err != nil {
		return nil, err
	}
	for _, o := range origins {
		snap, err := h.options.Files.Peek(v.ctx(), o)
		if errors.Is(err, robots.ErrNoSnapshot) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, robotsFile{o.String(), snap})
	}
	return all, nil
}

// Fetches reports whether the file is that of the site, and not the operator's own.
func (f robotsFile) Fetches() bool { return strings.Contains(f.Origin, "://") }

// Mix returns the parts of the requests of a row for a bar of a width of 60: allowed, throttled, blocked, failed.
func (r hostRow) Mix() (parts []mixPart) {
	blocked := r.Blocked + r.WouldDeny
	rest := max(0, r.Requests-blocked-r.Throttled-r.Failed)
	x := 0
	for _, part := range []mixPart{{"allowed", 0, int(rest)}, {"delayed", 0, int(r.Throttled)}, {"blocked", 0, int(blocked)}, {"error", 0, int(r.Failed)}} {
		if part.Width == 0 {
			continue
		}
		part.X, part.Width = x, max(1, 60*part.Width/int(max(1, r.Requests)))
		x += part.Width
		parts = append(parts, part)
	}
	return parts
}

// mixPart is a part of a bar.
type mixPart struct {
	Class    string
	X, Width int
}

// hostPage is the data of host.html.
type hostPage struct {
	Host     string
	Origin   string // of its last request, or of a file that is kept
	Total    audit.Sum
	Lane     Lane
	Next     time.Duration // the wait of a request now
	Delay    time.Duration // of the last request
	Source   string
	Files    []hostFile
	Versions []proof.Change
	Spacing  *spacing
	Rows     []audit.Record
	Stops    []policy.Intervention // in force for the host
}

// hostFile is a robots.txt with its lines.
type hostFile struct {
	robotsFile
	Lines []line
}

const (
	spacingRows = 2000 // requests in the plot
	hostLast    = 10   // rows of the last requests
	maxVersions = 20
)

// host shows one host: its file and versions, its queue, and the gaps between its requests.
func (h *Handler) host(v *view) error {
	if h.options.Records == nil {
		return h.notKept()
	}
	host, err := origin.Host(v.PathValue("host"))
	if err != nil {
		return &fault{http.StatusBadRequest, err.Error()}
	}
	p := hostPage{Host: host, Lane: h.lane(host)}
	f := audit.Filter{Since: v.period.Since, Until: v.period.Until, Host: host}
	if p.Total, err = h.total(v, f); err != nil {
		return err
	}
	if p.Rows, err = h.lastOf(v, f, hostLast); err != nil {
		return err
	}
	p.Delay, p.Source = p.Lane.delay(p.Rows)
	if h.options.Judge != nil {
		p.Next = h.options.Judge.Wait(host, p.Delay)
	}
	if p.Spacing, err = h.spacing(v, f); err != nil {
		return err
	}
	files, err := h.files(v, host)
	if err != nil {
		return err
	}
	for _, f := range files {
		p.Files = append(p.Files, hostFile{f, fileLines(f.Body, 0, 0, false, -1)})
	}
	p.Origin = host
	switch {
	case len(p.Rows) > 0:
		if o, err := origin.New(p.Rows[0].Scheme, host, p.Rows[0].Port); err == nil {
			p.Origin = o.String() + "/"
		}
	case len(files) > 0 && !files[0].Snapshot.Origin.IsZero():
		p.Origin = files[0].Origin + "/"
	}
	// No request arrives after now: the versions are compared, and no requests are judged.
	if p.Versions, err = proof.Changes(v.ctx(), h.options.Records, audit.Filter{Host: host, Since: v.now.Add(time.Hour)}); err != nil {
		return err
	}
	p.Versions = p.Versions[:min(len(p.Versions), maxVersions)]
	if h.options.Interventions != nil {
		for _, i := range h.options.Interventions.Interventions() {
			if policy.MatchHost(i.Host, host) && !i.Expired(v.now) {
				p.Stops = append(p.Stops, i)
			}
		}
	}
	if len(p.Rows)+len(p.Files)+len(p.Versions) == 0 {
		return &fault{http.StatusNotFound, "No request for " + host + " is recorded in this period, and its robots.txt is not kept."}
	}
	return v.render(host, "host.html", p)
}

// lastOf returns the last n requests of f.
func (h *Handler) lastOf(v *view, f audit.Filter, n int) (rows []audit.Record, err error) {
	f.Newest, f.Limit = true, n
	for r, err := range h.options.Records.Records(v.ctx(), f) {
		if err != nil {
			return nil, err
		}
		rows = append(rows, *r)
	}
	return rows, nil
}

// spacing are the gaps between requests, for the script, and how many were too short.
type spacing struct {
	proof.SpacingSum `json:"-"`
	Part             bool      `json:"-"` // only the last requests of the period
	Smallest         float64   `json:"-"` // seconds
	Times            []float64 `json:"times"`
	Gaps             []float64 `json:"gaps"`     // seconds
	Required         []float64 `json:"required"` // seconds
	Kinds            []int     `json:"kinds"`    // 0: long enough, 1: too short, 2: shorter with a cause
}

// spacing measures the gaps before the last requests of f.
func (h *Handler) spacing(v *view, f audit.Filter) (*spacing, error) {
	s := &spacing{Times: []float64{}, Gaps: []float64{}, Required: []float64{}, Kinds: []int{}}
	n := 0
	newest := f
	newest.Newest, newest.Limit = true, spacingRows
	for r, err := range h.options.Records.Records(v.ctx(), newest) {
		if err != nil {
			return nil, err
		}
		if n++; n == spacingRows {
			f.Since, s.Part = r.Time, true
		}
	}
	report, err := proof.SpacingOf(proof.Gaps(v.ctx(), h.options.Records, f), func(g *proof.Gap) {
		if !g.Known || g.Required == 0 {
			return
		}
		kind := 0
		switch {
		case g.Violation():
			kind = 1
		case g.Cause != "":
			kind = 2
		}
		s.Times = append(s.Times, float64(g.SentAt.UnixMicro())/1e6)
		s.Gaps = append(s.Gaps, max(g.Length, time.Millisecond).Seconds())
		s.Required = append(s.Required, g.Required.Seconds())
		s.Kinds = append(s.Kinds, kind)
	})
	if err != nil {
		return nil, err
	}
	s.SpacingSum = report.SpacingSum
	return s, nil
}
