package proof

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
)

// SpacingReport says whether all requests kept the Delay of their hosts.
type SpacingReport struct {
	SpacingSum
	Lanes []LaneSpacing `json:"lanes"` // those with findings first, then by number of gaps
}

// LaneSpacing describes the gaps of one lane. Smallest, P1, P50 and Max are of the judged gaps; P1 and P50 are exact up
// to 256 gaps, and to a two-thousandth beyond.
type LaneSpacing struct {
	Lane string `json:"host"`
	SpacingSum
	Smallest    audit.Millis `json:"smallest_ms"`
	P1          audit.Millis `json:"p1_ms"`
	P50         audit.Millis `json:"p50_ms"`
	Max         audit.Millis `json:"max_ms"`
	Required    audit.Millis `json:"required_ms"`     // the longest Delay that applied
	RequiredMin audit.Millis `json:"required_min_ms"` // the shortest one

	Findings []SpacingFinding `json:"findings"` // the first 100
}

// SpacingSum counts the gaps of one lane, or of all.
type SpacingSum struct {
	Requests       int64            `json:"requests"` // that were sent
	Gaps           int64            `json:"n"`        // that had to be as long as a Delay
	Violations     int64            `json:"violations"`
	Contradictions int64            `json:"contradictions"` // between a record and the times of its predecessor
	Deviations     map[string]int64 `json:"deviations"`     // shorter gaps, by cause: see Gap.Cause
	Open           int64            `json:"open"`           // gaps after a request without a recorded end
	Between        int64            `json:"between"`        // gaps between requests of two instances
	Overlap        audit.Millis     `json:"overlap_ms"`     // the longest time for which a judged request ran beside another one
	Instances      []int            `json:"instances"`
	// ClockDifference is the greatest excess of a recorded gap, which Redis measures, over the times of two instances.
	ClockDifference audit.Millis `json:"clock_difference_ms"`
}

// SpacingFinding is a request that was sent too early, or whose record contradicts the times.
type SpacingFinding struct {
	ID       audit.ID     `json:"id"`
	SentAt   time.Time    `json:"sent_at"`
	Gap      audit.Millis `json:"gap_ms"`
	Required audit.Millis `json:"delay_required_ms"`
	Recorded audit.Millis `json:"recorded_gap_ms"`
	Kind     FindingKind  `json:"kind"`
	Between  bool         `json:"between_instances,omitempty"`
}

// FindingKind is a fault of a gap.
type FindingKind string

const (
	Violation     FindingKind = "violation"     // the gap is shorter than the Delay
	Contradiction FindingKind = "contradiction" // the record has a longer gap than the times of the requests show
)

// maxFindings bounds the findings of each lane.
const maxFindings = 100

// OK reports whether the report has no findings.
func (s *SpacingSum) OK() bool { return s.Violations == 0 && s.Contradictions == 0 }

// Spacing measures the gaps between all requests that were sent and that f selects, and compares them with the Delays
// that their records require: see Gaps. Its memory grows with the numbers of lanes and of their different gaps.
func Spacing(ctx context.Context, r audit.Reader, f audit.Filter) (*SpacingReport, error) {
	return SpacingOf(Gaps(ctx, r, f), func(*Gap) {})
}

// SpacingOf is Spacing of the results of Gaps. It calls each with every gap.
func SpacingOf(gaps iter.Seq2[*Gap, error], each func(*Gap)) (*SpacingReport, error) {
	m := measures{}
	for g, err := range gaps {
		if err != nil {
			return nil, err
		}
		m.add(g)
		each(g)
	}
	return m.report(), nil
}

// measures are the measured lanes by name.
type measures map[string]*measure

// measure is the LaneSpacing of a lane in the making.
type measure struct {
	LaneSpacing
	lengths lengths
}

func newSpacingSum() SpacingSum {
	return SpacingSum{Deviations: map[string]int64{}, Instances: []int{}}
}

func newLaneSpacing(lane string) LaneSpacing {
	return LaneSpacing{Lane: lane, SpacingSum: newSpacingSum(), Findings: []SpacingFinding{}}
}

func (m measures) add(g *Gap) {
	l := m[g.Lane]
	if l == nil {
		l = &measure{LaneSpacing: newLaneSpacing(g.Lane)}
		m[g.Lane] = l
	}
	l.add(g)
	if instance := int(g.ID) & (audit.Instances - 1); !slices.Contains(l.Instances, instance) {
		l.Instances = append(l.Instances, instance)
	}
}

func (l *measure) add(g *Gap) {
	l.Requests++
	if g.Cause != "" {
		l.Deviations[g.Cause]++
	}
	if g.Judged() {
		l.judge(g)
	}
	switch {
	case g.Violation():
		l.Violations++
		l.find(g, Violation)
	case g.Contradiction:
		l.Contradictions++
		l.find(g, Contradiction)
	}
}

func (l *measure) judge(g *Gap) {
	length, required := audit.Millis(g.Length), audit.Millis(g.Required)
	if l.Gaps == 0 {
		l.Smallest, l.Max, l.RequiredMin = length, length, required
	}
	l.Gaps++
	l.lengths.add(g.Length)
	l.Smallest, l.Max = min(l.Smallest, length), max(l.Max, length)
	l.RequiredMin, l.Required = min(l.RequiredMin, required), max(l.Required, required)
	l.Overlap = max(l.Overlap, -length)
	if g.Open {
		l.Open++
	}
	if g.Between {
		l.Between++
		l.ClockDifference = max(l.ClockDifference, audit.Millis(g.Recorded)-length)
	}
}

func (l *measure) find(g *Gap, kind FindingKind) {
	if len(l.Findings) < maxFindings {
		l.Findings = append(l.Findings, SpacingFinding{
			ID: g.ID, SentAt: g.SentAt, Gap: audit.Millis(g.Length), Required: audit.Millis(g.Required),
			Recorded: audit.Millis(g.Recorded), Kind: kind, Between: g.Between,
		})
	}
}

func (m measures) report() *SpacingReport {
	r := &SpacingReport{SpacingSum: newSpacingSum(), Lanes: make([]LaneSpacing, 0, len(m))}
	for _, l := range slices.SortedFunc(maps.Values(m), compareMeasures) {
		slices.Sort(l.Instances)
		l.P1, l.P50 = audit.Millis(l.lengths.quantile(0.01)), audit.Millis(l.lengths.quantile(0.5))
		l.P1, l.P50 = min(max(l.P1, l.Smallest), l.Max), min(max(l.P50, l.Smallest), l.Max)
		r.Lanes = append(r.Lanes, l.LaneSpacing)
		r.add(&l.SpacingSum)
	}
	return r
}

func compareMeasures(a, b *measure) int {
	return cmp.Or(
		cmp.Compare(b.Violations+b.Contradictions, a.Violations+a.Contradictions),
		cmp.Compare(b.Gaps, a.Gaps), cmp.Compare(a.Lane, b.Lane),
	)
}

// add adds the counts of a lane.
func (s *SpacingSum) add(l *SpacingSum) {
	s.Requests += l.Requests
	s.Gaps += l.Gaps
	s.Violations += l.Violations
	s.Contradictions += l.Contradictions
	s.Open += l.Open
	s.Between += l.Between
	s.Overlap = max(s.Overlap, l.Overlap)
	s.ClockDifference = max(s.ClockDifference, l.ClockDifference)
	for cause, n := range l.Deviations {
		s.Deviations[cause] += n
	}
	for _, i := range l.Instances {
		if at, found := slices.BinarySearch(s.Instances, i); !found {
			s.Instances = slices.Insert(s.Instances, at, i)
		}
	}
}
