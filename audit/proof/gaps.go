// Package proof answers questions about a proxy's politeness from its records alone, without its configuration: whether
// the gaps between requests were as long as required, whether the kept evidence gives the same decisions again, and what
// a new robots.txt decides otherwise.
//
//	report, err := proof.Spacing(ctx, records, audit.Filter{Host: "a.example"})
//	if err == nil && report.OK() { ... } // each gap was as long as the Delay in its record
//
// Its functions only read.
package proof

import (
	"container/heap"
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
)

// Gap is the time between a request that was sent and the requests before it in its lane, by the times of the records.
// These are in whole microseconds, so a gap may be up to a microsecond longer or shorter.
type Gap struct {
	ID       audit.ID
	Lane     string // a host, or the name that several hosts of one pace share
	SentAt   time.Time
	Known    bool          // if false, the records have no earlier request of the lane, and Length is unknown
	Length   time.Duration // since the end of all earlier requests; negative: they overlap
	Required time.Duration // the Delay that applied; zero: no Delay
	Recorded time.Duration // gap_ms of the record; zero: unknown
	// Cause says why the proxy sent the request earlier than Required: a deviation that the configuration or the
	// operator allows. It is empty if the gap is long enough, or if nothing explains that it is not.
	Cause string
	// Contradiction reports that the record claims a longer gap than its own times and those of its predecessor show.
	Contradiction bool
	// Between reports that another instance sent the request before, so that two clocks measured the gap.
	Between bool
	// Open reports that the request before has no end in its record, since the process died. The gap counts from its
	// start, and was shorter.
	Open bool
}

// Causes of a Gap that is shorter than Required, beside the deviations of audit.
const (
	CauseReleased = "released" // an earlier request gave back its place before its end: release_after, a WebSocket or a tunnel
	CauseOff      = "off"      // an earlier request was in mode off, and not paced
	CauseSpread   = "spread"   // the instances could not share the lane, and each kept a longer Delay
	// CauseNoDelay: requests of a crawler without a Delay had their places right after this one, and overtook it on the
	// way. The gap since all others is long enough.
	CauseNoDelay = "no-delay"
)

// together is the longest time by which requests that had their places at one moment are sent apart.
const together = 100 * time.Millisecond

// resolution is the precision of the times in records.
const resolution = time.Microsecond

// Judged reports whether the gap had to be as long as Required.
func (g *Gap) Judged() bool { return g.Known && g.Required > 0 && g.Cause == "" }

// Violation reports whether the gap is shorter than required without a cause.
func (g *Gap) Violation() bool { return g.Judged() && g.Length < g.Required-resolution }

// Gaps returns the gap before each request that was sent and that f selects, in order of sending. Earlier requests of
// the lane count even if f does not select them, unless they arrived before f.Since. The proxy's own requests for
// robots.txt count if they waited for a place. A Gap is valid until the next one.
//
// Records come in order of arrival, and requests wait before they are sent. Gaps therefore holds the records of the
// requests that were waiting at one moment, and a few values for each lane.
func Gaps(ctx context.Context, r audit.Reader, f audit.Filter) iter.Seq2[*Gap, error] {
	return func(yield func(*Gap, error) bool) {
		w := walk{filter: f, lanes: map[string]*lane{}, yield: yield}
		if err := w.read(ctx, r); err != nil && !w.stopped {
			yield(nil, err)
			return
		}
		for len(w.waiting) > 0 && !w.stopped {
			w.send()
		}
	}
}

// walk goes over the records in order of sending.
type walk struct {
	filter  audit.Filter
	lanes   map[string]*lane
	waiting bySending
	gap     Gap
	yield   func(*Gap, error) bool
	stopped bool // by yield
}

// read reads all records of the lanes of the host, or of all lanes. As long as hosts are the lanes, it needs no records
// of other hosts. At the first record that names another lane, it begins to read those of all hosts.
func (w *walk) read(ctx context.Context, r audit.Reader) error {
	f := audit.Filter{Since: w.filter.Since, Until: w.filter.Until, Host: w.filter.Host, Vias: everyVia}
	shared, err := w.readHosts(ctx, r, f)
	if err != nil || shared == 0 || w.stopped {
		return err
	}
	f.After = shared - 1
	names := map[string]bool{}
	for rec, err := range r.Records(ctx, f) {
		if err != nil {
			return err
		}
		names[laneOf(rec)] = true
	}
	f.Host, f.After = "", 0
	for rec, err := range r.Records(ctx, f) {
		if err != nil {
			return err
		}
		known := rec.ID < shared && rec.Lane == "" // readHosts has read it, if it is of these lanes
		if names[laneOf(rec)] && !known && !w.add(rec) {
			return nil
		}
	}
	return nil
}

// readHosts reads the records that f selects. If they are those of some hosts, it stops at a record whose lane other
// hosts may share, and returns its ID.
func (w *walk) readHosts(ctx context.Context, r audit.Reader, f audit.Filter) (shared audit.ID, err error) {
	for rec, err := range r.Records(ctx, f) {
		if err != nil {
			return 0, err
		}
		if f.Host != "" && rec.Lane != "" {
			return rec.ID, nil
		}
		if !w.add(rec) {
			return 0, nil
		}
	}
	return 0, nil
}

var everyVia = []audit.Via{audit.Plain, audit.Intercepted, audit.Tunnel, audit.Robots}

func laneOf(r *audit.Record) string {
	if r.Lane != "" {
		return r.Lane
	}
	return r.Host
}

// These bound how far the order of sending may differ from that of arrival.
const (
	slack      = time.Minute // by which clocks of instances differ, or are set back
	maxWaiting = 1 << 20     // requests that wait at one moment
)

// add adds a record. It finishes the requests that were sent before r arrived, and reports whether to go on.
func (w *walk) add(r *audit.Record) bool {
	if sentOutsideLanes(r) {
		return true
	}
	arrived := r.ID.Time().Add(-slack)
	for len(w.waiting) > 0 && !w.stopped && (w.waiting[0].sent.Before(arrived) || len(w.waiting) >= maxWaiting) {
		w.send()
	}
	l := w.lanes[laneOf(r)]
	if l == nil {
		l = &lane{name: strings.Clone(laneOf(r))}
		w.lanes[l.name] = l
	}
	heap.Push(&w.waiting, newSending(r, l, w.filter.Selects(r) || w.selectsOwn(r)))
	return !w.stopped
}

// sentOutsideLanes reports whether r was not sent, or is a request for a robots.txt that needed no place.
func sentOutsideLanes(r *audit.Record) bool {
	return r.SentAt.IsZero() || r.Via == audit.Robots && r.PacingMode == ""
}

// selectsOwn reports whether the filter, which excludes the proxy's own requests unless it names them, selects r
// otherwise.
func (w *walk) selectsOwn(r *audit.Record) bool {
	f := w.filter
	if r.Via != audit.Robots || len(f.Vias) > 0 {
		return false
	}
	f.Vias = everyVia
	return f.Selects(r)
}

// send passes on the gap of the request that was sent first.
func (w *walk) send() {
	s := heap.Pop(&w.waiting).(*sending)
	w.gap = s.gap()
	s.lane.use(s)
	if s.selected {
		w.stopped = !w.yield(&w.gap, nil)
	}
}

// sending is the use of a lane by the request of one record.
type sending struct {
	id                    audit.ID
	lane                  *lane
	selected              bool
	sent, released, ended time.Time
	required, recorded    time.Duration
	place                 place
	deviation             string // of those that allow a shorter gap, or overlap
	fromStart, spread     bool
	open                  bool // the end is unknown
}

// place says how a request used the lane.
type place uint8

const (
	held     place = iota // it waited for its place
	reported              // mode report: the lane knew of it, and it did not wait
	off                   // mode off: the lane did not know of it
)

func newSending(r *audit.Record, l *lane, selected bool) *sending {
	s := &sending{
		id: r.ID, lane: l, selected: selected, sent: r.SentAt, released: r.ReleasedAt, ended: r.EndedAt,
		required: time.Duration(r.DelayRequired), recorded: time.Duration(r.Gap),
		fromStart: r.Spacing == "start", spread: r.PacingMode == "spread",
	}
	if s.open = s.ended.IsZero(); s.open || s.ended.Before(s.sent) {
		s.ended = s.sent
	}
	if s.released.IsZero() || s.released.After(s.ended) {
		s.released = s.ended
	}
	if r.DelaySource == "default-delay" {
		s.required = 0 // it allows bursts
	}
	switch {
	case r.PacingMode != "":
	case r.Mode == "off":
		s.place, s.required = off, 0
	default:
		s.place = reported
	}
	s.deviation = shortening(r.Deviation)
	return s
}

// shortening returns the first of some deviations by which a gap, or the next one, may be shorter than the Delay.
func shortening(deviations string) string {
	for d := range strings.SplitSeq(deviations, ",") {
		switch d {
		case audit.DeviationReported, audit.DeviationSubresource, audit.DeviationOverlap:
			return d
		}
	}
	return ""
}

func (s *sending) instance() int { return int(s.id) & (audit.Instances - 1) }

// gap returns the gap before s, after all earlier requests have used the lane.
func (s *sending) gap() Gap {
	l := s.lane
	g := Gap{ID: s.id, Lane: l.name, SentAt: s.sent, Required: s.required, Recorded: s.recorded, Known: l.used}
	if !l.used {
		return g
	}
	g.Between, g.Open = l.all.instance != s.instance(), l.all.open
	g.Length = s.since(&l.all)
	known := l.counted
	known.extendByReport(l.reports[s.instance()])
	counted := s.since(&known)
	if g.Required > 0 && g.Length < g.Required-resolution {
		g.Cause = s.cause(&known)
	}
	if g.Violation() && s.place == held && l.settledBefore(s) {
		g.Cause = CauseNoDelay
		return g
	}
	sure := known.used && s.place == held && g.Required > 0 && s.deviation == "" && !s.fromStart && !known.inexact &&
		known.instance == s.instance()
	g.Contradiction = sure && g.Recorded > counted+resolution
	return g
}

// since returns the time from m to the start of s.
func (s *sending) since(m *mark) time.Duration {
	if s.fromStart && !m.end.After(s.sent) {
		return s.sent.Sub(m.start)
	}
	return s.sent.Sub(m.end)
}

// cause returns why the gap before s, which counts from the end of all requests, may be shorter than the Delay. known is
// the use of the lane that the instance of s knew of.
func (s *sending) cause(known *mark) string {
	switch {
	case s.place == reported:
		return audit.DeviationReported
	case s.deviation == audit.DeviationReported, s.deviation == audit.DeviationSubresource:
		return s.deviation
	case s.since(known) >= s.required-resolution:
		return s.lane.all.causeFor(s)
	case s.spread && known.instance != s.instance():
		return CauseSpread
	}
	return ""
}

// lane remembers the requests that were sent so far.
type lane struct {
	name    string
	used    bool
	all     mark             // of all requests, until they ended
	counted mark             // of those that had places, until they gave them back
	reports map[int]*sending // the last one of each instance in mode report, which only this instance knows of

	settled mark       // as counted, without recent
	recent  []*sending // without a Delay, and sent within together
}

// settledBefore reports whether the gap before s is long enough without the recent requests.
func (l *lane) settledBefore(s *sending) bool {
	l.settle(s.sent)
	known := l.settled
	known.extendByReport(l.reports[s.instance()])
	return len(l.recent) > 0 && s.since(&known) >= s.required-resolution
}

// settle moves the requests that are not recent any more at a time.
func (l *lane) settle(now time.Time) {
	l.recent = slices.DeleteFunc(l.recent, func(s *sending) bool {
		old := s.sent.Before(now.Add(-together))
		if old {
			l.settled.extend(s, s.released, "")
		}
		return old
	})
}

// mark is the latest use of a lane.
type mark struct {
	used       bool
	start, end time.Time
	instance   int    // of the request that ended last
	cause      string // why the end does not count for the lane; empty: it does
	startCause string // why the start does not
	inexact    bool   // the lane counted from a moment that the record does not have
	open       bool   // the end is not known
}

// use marks the lane as used by s.
func (l *lane) use(s *sending) {
	l.used = true
	cause := ""
	switch {
	case s.place == off:
		cause = CauseOff
	case s.place == reported:
		cause = audit.DeviationReported
	case s.released.Before(s.ended) && s.deviation == audit.DeviationOverlap:
		cause = audit.DeviationOverlap
	case s.released.Before(s.ended):
		cause = CauseReleased
	}
	l.all.extend(s, s.ended, cause)
	l.settle(s.sent)
	switch s.place {
	case held:
		l.counted.extend(s, s.released, "")
		if s.required == 0 {
			l.recent = append(l.recent, s)
		} else {
			l.settled.extend(s, s.released, "")
		}
	case reported:
		if l.reports == nil {
			l.reports = make(map[int]*sending)
		}
		l.reports[s.instance()] = s
	}
}

// extend extends m to the use by s, which counts until end.
func (m *mark) extend(s *sending, end time.Time, cause string) {
	m.used, m.start, m.startCause = true, s.sent, cause
	if end.After(m.end) {
		m.end, m.instance, m.cause, m.inexact, m.open = end, s.instance(), cause, false, s.open
	}
}

// extendByReport extends m to the start of the last request in mode report of an instance; nil: there was none. The
// requests of that instance keep their Delay to it.
func (m *mark) extendByReport(last *sending) {
	if last == nil {
		return
	}
	m.used = true
	if last.sent.After(m.start) {
		m.start = last.sent
	}
	if !m.end.After(last.sent) {
		m.end, m.instance, m.inexact = last.sent, last.instance(), true
	}
}

// causeFor returns why the time from m to s, which s.since returns, does not count for the lane.
func (m *mark) causeFor(s *sending) string {
	if s.fromStart && !m.end.After(s.sent) {
		return m.startCause
	}
	return m.cause
}

// bySending is a heap of requests by the time at which they were sent.
type bySending []*sending

func (b bySending) Len() int { return len(b) }

func (b bySending) Less(i, j int) bool {
	if c := b[i].sent.Compare(b[j].sent); c != 0 {
		return c < 0
	}
	return b[i].id < b[j].id
}

func (b bySending) Swap(i, j int) { b[i], b[j] = b[j], b[i] }

func (b *bySending) Push(s any) { *b = append(*b, s.(*sending)) }

func (b *bySending) Pop() any {
	last := (*b)[len(*b)-1]
	(*b)[len(*b)-1] = nil
	*b = slices.Delete(*b, len(*b)-1, len(*b))
	return last
}
