package dossier

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/policy"
)

// series are the gaps over time, in at most maxPoints steps of equal length. A step keeps its shortest gaps, so that no
// gap that is too short vanishes in a plot of many.
type series struct {
	begin  time.Time
	width  time.Duration
	points []point
}

const maxPoints = 600

// point has the gaps of one step.
type point struct {
	step                int64
	kept, early, caused span // judged gaps that were long enough, those that were not, and those with a cause
	required            time.Duration
}

// span is the shortest and the longest gap of some. The zero span has none.
type span struct {
	n        int64
	min, max time.Duration
}

func (s *span) add(d time.Duration) { s.merge(span{1, d, d}) }

func (s *span) merge(other span) {
	switch {
	case other.n == 0:
	case s.n == 0:
		*s = other
	default:
		s.n, s.min, s.max = s.n+other.n, min(s.min, other.min), max(s.max, other.max)
	}
}

// add adds a gap, if a Delay applied to it.
func (s *series) add(g *proof.Gap) {
	if !g.Known || g.Required == 0 {
		return
	}
	if s.points == nil {
		s.begin, s.width = g.SentAt, time.Millisecond
	}
	p := point{step: int64(g.SentAt.Sub(s.begin) / s.width), required: g.Required}
	switch {
	case g.Cause != "":
		p.caused.add(g.Length)
	case g.Violation():
		p.early.add(g.Length)
	default:
		p.kept.add(g.Length)
	}
	s.append(p)
	for len(s.points) > maxPoints || s.points[len(s.points)-1].step >= maxPoints {
		s.widen()
	}
}

func (s *series) append(p point) {
	if last := len(s.points) - 1; last >= 0 && s.points[last].step >= p.step {
		s.points[last].merge(p) // lanes are in the order of sending, so a gap is never much earlier than the last one
		return
	}
	s.points = append(s.points, p)
}

func (p *point) merge(other point) {
	p.kept.merge(other.kept)
	p.early.merge(other.early)
	p.caused.merge(other.caused)
	p.required = max(p.required, other.required)
}

// widen doubles the width of the steps.
func (s *series) widen() {
	s.width *= 2
	old := s.points
	s.points = old[:0]
	for _, p := range old {
		p.step /= 2
		s.append(p)
	}
}

// Plot is a drawing on a plane of 1,000 by 1,000, with labels beside it. Its paths are stretched to the size of the page.
type plot struct {
	Paths    []stroke
	Rows     []label // of the vertical axis
	Columns  []label // of the horizontal one
	Segments []bar
}

// stroke is a path of SVG.
type stroke struct{ Class, D string }

// label is a text at a place in per cent of the height or the width.
type label struct {
	At   string
	Text string
}

// bar is a part of a column of the timeline.
type bar struct {
	Class               string
	X, Y, Width, Height string
}

// scale maps lengths to the vertical axis, logarithmically.
type scale struct{ low, high float64 }

func (s scale) y(d time.Duration) float64 {
	v := min(max(float64(d), s.low), s.high)
	return 1000 - 1000*math.Log(v/s.low)/math.Log(s.high/s.low)
}

// scale returns the range from below the shortest gap and Delay to above the longest ones. Overlaps are at its bottom,
// and gaps of more than 50 Delays at its top.
func (s *series) scale() scale {
	low, high, required := math.Inf(1), 0.0, 0.0
	for _, p := range s.points {
		required = max(required, float64(p.required))
		low = min(low, float64(p.required))
		for _, part := range []span{p.kept, p.early, p.caused} {
			if part.n > 0 {
				low = min(low, max(float64(part.min), float64(p.required)/100))
				high = max(high, float64(part.max))
			}
		}
	}
	return scale{low / 1.5, max(min(high, 50*required), 2*required) * 1.3}
}

// plot draws the gaps: of each step a line from the shortest to the longest one, with a dot at the shortest, and the
// required Delay. It returns nil if there is nothing to draw.
func (s *series) plot() *plot {
	if len(s.points) == 0 {
		return nil
	}
	sc := s.scale()
	steps := float64(s.points[len(s.points)-1].step + 1)
	var ranges, kept, caused, early, required strings.Builder
	for _, p := range s.points {
		x := (float64(p.step) + 0.5) / steps * 1000
		if p.kept.max > p.kept.min {
			fmt.Fprintf(&ranges, "M%.1f %.1fV%.1f", x, sc.y(p.kept.min), sc.y(p.kept.max))
		}
		dot(&kept, x, sc, p.kept)
		dot(&caused, x, sc, p.caused)
		dot(&early, x, sc, p.early)
		s.step(&required, x, sc.y(p.required))
	}
	required.WriteString("H1000")
	return &plot{
		Paths: []stroke{
			{"ranges", ranges.String()},
			{"kept", kept.String()},
			{"required", required.String()},
			{"caused", caused.String()},
			{"early", early.String()},
		},
		Rows: rows(sc), Columns: columns(s.begin, time.Duration(steps)*s.width),
	}
}

// dot draws the shortest gap as a line without length, which has round ends.
func dot(b *strings.Builder, x float64, sc scale, s span) {
	if s.n > 0 {
		fmt.Fprintf(b, "M%.1f %.1fh0", x, sc.y(s.min))
	}
}

// step extends the line of the required Delay to x, and then to the height y.
func (*series) step(b *strings.Builder, x, y float64) {
	if b.Len() == 0 {
		fmt.Fprintf(b, "M0 %.1f", y)
		return
	}
	fmt.Fprintf(b, "H%.1fV%.1f", x, y)
}

// rows labels round lengths, not too close to each other.
func rows(sc scale) (labels []label) {
	last := 2000.0
	for _, d := range []time.Duration{
		time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond,
		500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 3 * time.Hour, 12 * time.Hour,
		24 * time.Hour, 7 * 24 * time.Hour,
	} {
		y := sc.y(d)
		if float64(d) < sc.low || float64(d) > sc.high || last-y < 80 {
			continue
		}
		labels, last = append(labels, label{percent(y / 10), auditview.Duration(d)}), y
	}
	return labels
}

// columns labels the beginning, the middle and the end of a period.
func columns(begin time.Time, d time.Duration) (labels []label) {
	layout := "2 Jan 15:04"
	switch {
	case d < 10*time.Minute:
		layout = "15:04:05"
	case d > 60*24*time.Hour:
		layout = "2 Jan 2006"
	}
	for _, part := range []float64{0, 0.5, 1} {
		at := begin.Add(time.Duration(part * float64(d))).UTC()
		labels = append(labels, label{percent(part * 100), at.Format(layout)})
	}
	return labels
}

func percent(v float64) string { return fmt.Sprintf("%.2f%%", v) }

// classes are the classes of the bars of a timeline, from the bottom, with the decisions that they count.
var classes = []struct {
	name      string
	decisions []policy.Outcome
}{
	{"fetched", []policy.Outcome{policy.Allow, policy.Exempt, policy.WouldDeny, policy.WouldThrottle}},
	{"refused", []policy.Outcome{policy.Deny}},
	{"delayed", []policy.Outcome{policy.Throttle}},
	{"failed", []policy.Outcome{policy.Error}},
}

// timeline draws a bar for each step. It returns nil for less than two steps.
func timeline(points []audit.Point, step time.Duration) *plot {
	if len(points) < 2 {
		return nil
	}
	begin, end := points[0].Time, points[len(points)-1].Time.Add(step)
	most := int64(1)
	for _, p := range points {
		total := int64(0)
		for _, n := range p.Decisions {
			total += n
		}
		most = max(most, total)
	}
	p := &plot{Columns: columns(begin, end.Sub(begin)), Rows: []label{{"0%", auditview.Number(most)}, {"100%", "0"}}}
	width := 1000 * float64(step) / float64(end.Sub(begin))
	for _, pt := range points {
		p.Segments = append(p.Segments, bars(pt, width*float64(pt.Time.Sub(begin))/float64(step), width, most)...)
	}
	return p
}

func bars(pt audit.Point, x, width float64, most int64) (bars []bar) {
	bottom := 1000.0
	for _, c := range classes {
		n := int64(0)
		for d, count := range pt.Decisions {
			if slices.Contains(c.decisions, d) {
				n += count
			}
		}
		if n == 0 {
			continue
		}
		height := 1000 * float64(n) / float64(most)
		bottom -= height
		bars = append(bars, bar{
			Class: c.name, X: fmt.Sprintf("%.2f", x), Y: fmt.Sprintf("%.2f", bottom),
			Width: fmt.Sprintf("%.2f", width*0.9), Height: fmt.Sprintf("%.2f", height),
		})
	}
	return bars
}
