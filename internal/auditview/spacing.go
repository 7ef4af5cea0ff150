package auditview

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// Spacing shows whether the gaps between requests were as long as required: a sentence, the requests that came too
// early, and if several hosts were asked for, a table of them. In JSON it is one object for one host, and otherwise an
// array.
func Spacing(w io.Writer, o Options, s *proof.SpacingReport, host string) error {
	switch {
	case o.Format == JSON && host != "" && len(s.Lanes) == 1:
		return writeJSON(w, s.Lanes[0])
	case o.Format == JSON:
		return writeJSON(w, append([]proof.LaneSpacing{}, s.Lanes...))
	case o.Format == JSONL:
		e := json.NewEncoder(safetext.JSONWriter(w))
		for _, l := range s.Lanes {
			if err := e.Encode(l); err != nil {
				return err
			}
		}
		return nil
	case o.Format == CSV:
		return lanes(w, o, s.Lanes)
	}
	return spacingText(w, o, s, host)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(safetext.JSONWriter(w))
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// spacingText writes s for people.
func spacingText(w io.Writer, o Options, s *proof.SpacingReport, host string) error {
	for _, line := range spacingLines(s, host) {
		if _, err := fmt.Fprintln(w, safetext.Text(line)); err != nil {
			return err
		}
	}
	judged := slices.DeleteFunc(slices.Clone(s.Lanes), func(l proof.LaneSpacing) bool { return l.Gaps == 0 && l.OK() })
	if len(judged) > 1 {
		if err := above(w, func() error { return lanes(w, o, judged) }); err != nil {
			return err
		}
	}
	if s.OK() {
		return nil
	}
	return above(w, func() error { return findings(w, o, judged) })
}

// above writes an empty line, and then a table.
func above(w io.Writer, table func() error) error {
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return table()
}

// spacingLines returns the sentences about s.
func spacingLines(s *proof.SpacingReport, host string) (lines []string) {
	if s.Gaps == 0 {
		return []string{nothingJudged(s, host)}
	}
	verb := "were"
	if s.Violations == 1 || s.Gaps == 1 {
		verb = "was"
	}
	first := fmt.Sprintf("%s of %s %s shorter than required", Number(s.Violations), counted(s.Gaps, "gap"), verb)
	if l := onlyLane(s); l != nil {
		first += fmt.Sprintf(" (%s). Smallest %s, median %s", required(l), exact(l.Smallest), exact(l.P50))
	} else {
		first += fmt.Sprintf(", at %s", counted(int64(len(s.Lanes)), "host"))
	}
	if n := len(s.Instances); n > 1 {
		first += fmt.Sprintf(", over %d instances", n)
	}
	lines = append(lines, first+".")
	if s.Contradictions > 0 {
		lines = append(lines, counted(s.Contradictions, "record")+
			" with a gap_ms that is longer than the gap between the times: a record was changed, or the clock was set.")
	}
	if s.Overlap > 0 {
		lines = append(lines, fmt.Sprintf("A request that had to wait ran beside another one for up to %s.", exact(s.Overlap)))
	}
	if len(s.Deviations) > 0 {
		lines = append(lines, "Shorter with a cause, and not counted: "+causesText(s.Deviations)+".")
	}
	if s.Open > 0 {
		lines = append(lines, counted(s.Open, "gap")+" after a request whose end was not recorded, counted from its start.")
	}
	if s.Between > 0 {
		lines = append(lines, between(s))
	}
	return lines
}

// onlyLane returns the lane with all judged gaps, if there is one.
func onlyLane(s *proof.SpacingReport) *proof.LaneSpacing {
	for i := range s.Lanes {
		if s.Lanes[i].Gaps == s.Gaps {
			return &s.Lanes[i]
		}
	}
	return nil
}

func nothingJudged(s *proof.SpacingReport, host string) string {
	to := ""
	if host != "" {
		to = " to " + host
	}
	if s.Requests == 0 {
		return "No request" + to + " was sent in this time."
	}
	text := fmt.Sprintf("None of %s%s had to wait for a Delay after another one.", counted(s.Requests, "request"), to)
	if len(s.Deviations) > 0 {
		text += " Shorter with a cause: " + causesText(s.Deviations) + "."
	}
	return text
}

// between says how far the clocks of instances can be trusted.
func between(s *proof.SpacingReport) string {
	text := counted(s.Between, "gap") + " between requests of two instances, measured by two clocks"
	if s.ClockDifference > 0 {
		text += fmt.Sprintf("; by the clock of Redis they were up to %s longer", exact(s.ClockDifference))
	}
	return text + "."
}

func causesText(deviations map[string]int64) string {
	var parts []string
	for _, cause := range slices.Sorted(maps.Keys(deviations)) {
		parts = append(parts, fmt.Sprintf("%s %s", cause, Number(deviations[cause])))
	}
	return strings.Join(parts, ", ")
}

// required returns the Delays of l: "2 s", or "2 s to 5 s".
func required(l *proof.LaneSpacing) string {
	text := Duration(time.Duration(l.Required))
	if l.RequiredMin != l.Required {
		return Duration(time.Duration(l.RequiredMin)) + " to " + text
	}
	return text
}

// exact returns m in whole milliseconds, rounded down, so that a gap of 1.9996 s is not shown as 2.000 s.
func exact(m audit.Millis) string {
	d := time.Duration(m)
	if d >= 10*time.Minute {
		return Duration(d)
	}
	return fmt.Sprintf("%.3f s", d.Truncate(time.Millisecond).Seconds())
}

// lanes writes a row for each lane.
func lanes(w io.Writer, o Options, all []proof.LaneSpacing) error {
	p := NewPrinter(
		w, o,
		Column{Name: "host", Title: "host", Least: leastText}, Column{Name: "n", Title: "gaps"}, Column{Name: "violations", Title: "too short"},
		Column{Title: "required"}, Column{Name: "required_ms"}, Column{Name: "smallest_ms", Title: "smallest"}, Column{Name: "p1_ms", Title: "p1"},
		Column{Name: "p50_ms", Title: "median"}, Column{Name: "max_ms", Title: "longest"}, Column{Name: "overlap_ms", Title: "overlap"},
		Column{Name: "contradictions"}, Column{Name: "requests"}, Column{Name: "required_min_ms"}, Column{Name: "between"},
		Column{Name: "open"}, Column{Name: "deviations", Title: "with a cause"},
	)
	for _, l := range all {
		err := p.Row(
			l.Lane, l.Gaps, l.Violations, figure(required(&l)), time.Duration(l.Required), time.Duration(l.Smallest), time.Duration(l.P1),
			time.Duration(l.P50), time.Duration(l.Max), time.Duration(l.Overlap), l.Contradictions, l.Requests,
			time.Duration(l.RequiredMin), l.Between, l.Open, causesText(l.Deviations),
		)
		if err != nil {
			return err
		}
	}
	return p.Close()
}

// findings writes a row for each finding.
func findings(w io.Writer, o Options, lanes []proof.LaneSpacing) error {
	p := NewPrinter(
		w, o, Column{Title: "sent"}, Column{Title: "id"}, Column{Title: "host", Least: leastText}, Column{Title: "gap"},
		Column{Title: "required"}, Column{Title: "recorded"}, Column{Title: "finding"},
	)
	for _, l := range lanes {
		for _, f := range l.Findings {
			recorded := ""
			if f.Recorded > 0 {
				recorded = exact(f.Recorded)
			}
			kind := string(f.Kind)
			if f.Between {
				kind += ", two instances"
			}
			err := p.Row(f.SentAt, f.ID.String(), l.Lane, exact(f.Gap), exact(f.Required), recorded, kind)
			if err != nil {
				return err
			}
		}
	}
	return p.Close()
}
