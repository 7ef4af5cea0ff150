package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/internal/plan"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// planText shows a plan.
type planText struct {
	*plan.Plan
	plan.Pace
	BadLines int64
	Limit    int // of the rows of a table; 0: none
	Options  auditview.Options
}

func (t planText) write(w io.Writer) error {
	switch t.Options.Format {
	case auditview.JSON:
		return t.json(w)
	case auditview.CSV:
		return t.csv(w)
	}
	out := bufio.NewWriter(w)
	if err := t.table(out); err != nil {
		return err
	}
	return out.Flush()
}

// table writes the plan for people: the answer, tables, and the next command.
func (t planText) table(w io.Writer) error {
	fmt.Fprint(w, t.summary())
	for _, part := range []func(io.Writer) error{t.slowest, t.refusals, t.unknown} {
		if err := part(w); err != nil {
			return err
		}
	}
	with := slices.DeleteFunc(slices.Clone(t.Hosts), func(h plan.Host) bool { return h.SitemapCount == 0 })
	if len(with) > 0 {
		fmt.Fprintf(w, "\n%s with sitemaps, which may list the pages: robotsproxy sitemaps %s\n", counted(int64(len(with)), "host"), with[0].Origin)
	}
	return nil
}

// summary returns the lines before the tables.
func (t planText) summary() string {
	var b strings.Builder
	if t.Allowed == 0 {
		fmt.Fprintf(&b, "None of %s may be fetched.\n", counted(t.URLs, "URL"))
	} else {
		fmt.Fprintf(&b, "%s of %s may be fetched; with %s that takes about %s, if a response takes %s.\n", auditview.Number(t.Allowed),
			counted(t.URLs, "URL"), counted(int64(t.Connections), "connection"), auditview.Duration(t.Time), auditview.Duration(t.Response))
	}
	line := func(n int64, what, format string, args ...any) {
		if n > 0 {
			fmt.Fprintf(&b, "%12s  %-12s %s\n", auditview.Number(n), what, fmt.Sprintf(format, args...))
		}
	}
	h, r := t.most()
	line(t.Refused, "refused", "most by %s  %s  (%s)", h, refusalText(r), auditview.Number(r.URLs))
	line(t.Unknown, "cannot tell", "%s", counted(int64(t.UnknownHosts), "host"))
	line(t.BadLines, "no URLs", "lines of the list")
	switch {
	case t.Allowed == 0:
	case t.Longest.Time >= t.Busy:
		fmt.Fprintf(&b, "Long pole: %s, %s%s: %s.", t.Longest.Name, counted(t.Longest.Allowed, "URL"),
			delayWords(t.Longest), auditview.Duration(t.Longest.Time))
		if t.Rest > 0 {
			fmt.Fprintf(&b, " The rest ends after %s.", auditview.Duration(t.Rest))
		}
		b.WriteString("\n")
	default:
		fmt.Fprintf(&b, "The connections are the limit: the slowest host, %s, would end after %s.\n",
			t.Longest.Name, auditview.Duration(t.Longest.Time))
	}
	return b.String()
}

// delayWords returns the words about the Delay of a lane.
func delayWords(l plan.Lane) string {
	if l.Delay == 0 {
		return ""
	}
	return fmt.Sprintf(" with %s %s", l.Source, auditview.Duration(l.Delay))
}

// most returns the refusal with the most URLs, and its host.
func (t planText) most() (host string, most plan.Refusal) {
	for _, h := range t.Hosts {
		for _, r := range h.Refusals {
			if r.URLs > most.URLs {
				host, most = h.Origin.Authority(), r
			}
		}
	}
	return host, most
}

// refusalText returns what refuses: "line 6  Disallow: /cart/", or a reason.
func refusalText(r plan.Refusal) string {
	if r.Line > 0 {
		return fmt.Sprintf("line %d  %s", r.Line, safetext.Text(r.Rule))
	}
	return strings.TrimSpace(string(r.Reason) + "  " + safetext.Text(r.Rule))
}

// limited writes the first of some rows as a table, after an empty line.
func limited[T any](t planText, w io.Writer, rows []T, cells func(T) []any, columns ...auditview.Column) error {
	if len(rows) == 0 {
		return nil
	}
	shown := rows
	if t.Limit > 0 {
		shown = rows[:min(len(rows), t.Limit)]
	}
	fmt.Fprintln(w)
	p := auditview.NewPrinter(w, t.Options, columns...)
	for _, row := range shown {
		if err := p.Row(cells(row)...); err != nil {
			return err
		}
	}
	if err := p.Close(); err != nil {
		return err
	}
	if more := len(rows) - len(shown); more > 0 {
		fmt.Fprintf(w, "(%s more; --limit 0 prints all)\n", auditview.Number(int64(more)))
	}
	return nil
}

func (t planText) slowest(w io.Writer) error {
	rows := slices.DeleteFunc(slices.Clone(t.Hosts), func(h plan.Host) bool { return h.Allowed == 0 })
	return limited(t, w, rows, func(h plan.Host) []any {
		return []any{h.Origin.String(), h.Allowed, h.Refused, h.Delay, h.DelaySource, h.Time, int64(h.SitemapCount)}
	}, auditview.Column{Title: "slowest hosts", Least: 16}, auditview.Column{Title: "allowed"}, auditview.Column{Title: "refused"},
		auditview.Column{Title: "delay"}, auditview.Column{Title: "by"}, auditview.Column{Title: "takes"}, auditview.Column{Title: "sitemaps"})
}

// hostRefusal is a refusal of a host.
type hostRefusal struct {
	host string
	plan.Refusal
}

func (t planText) refusals(w io.Writer) error {
	var rows []hostRefusal
	for _, h := range t.Hosts {
		for _, r := range h.Refusals {
			rows = append(rows, hostRefusal{h.Origin.String(), r})
		}
		if h.OtherRefusals > 0 {
			rows = append(rows, hostRefusal{h.Origin.String(), plan.Refusal{Rule: "other lines", URLs: h.OtherRefusals}})
		}
	}
	slices.SortStableFunc(rows, func(a, b hostRefusal) int { return cmp.Compare(b.URLs, a.URLs) })
	return limited(t, w, rows, func(r hostRefusal) []any { return []any{r.host, r.URLs, string(r.Reason), lineText(r.Line), r.Rule} },
		auditview.Column{Title: "refused by", Least: 16}, auditview.Column{Title: "URLs"}, auditview.Column{Title: "reason"},
		auditview.Column{Title: "line"}, auditview.Column{Title: "rule", Least: 16})
}

// lineText returns a number of a line, empty for 0.
func lineText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func (t planText) unknown(w io.Writer) error {
	rows := slices.DeleteFunc(slices.Clone(t.Hosts), func(h plan.Host) bool { return h.Unknown == 0 })
	slices.SortStableFunc(rows, func(a, b plan.Host) int { return cmp.Compare(b.Unknown, a.Unknown) })
	return limited(t, w, rows, func(h plan.Host) []any { return []any{h.Origin.String(), h.Unknown, h.Cause} },
		auditview.Column{Title: "cannot tell", Least: 16}, auditview.Column{Title: "URLs"}, auditview.Column{Title: "why", Least: 16})
}

// csv writes a row for each host, with the refusal that has the most URLs.
func (t planText) csv(w io.Writer) error {
	var columns []auditview.Column
	for _, name := range []string{
		"origin", "robots_state", "urls", "allowed", "refused", "unknown", "reason", "line", "rule", "rule_urls",
		"delay_ms", "delay_source", "time_ms", "sitemaps", "cause",
	} {
		columns = append(columns, auditview.Column{Name: name})
	}
	p := auditview.NewPrinter(w, t.Options, columns...)
	for _, h := range t.Hosts {
		var r plan.Refusal
		if len(h.Refusals) > 0 {
			r = h.Refusals[0]
		}
		err := p.Row(h.Origin.String(), h.State, h.URLs, h.Allowed, h.Refused, h.Unknown, string(r.Reason), int64(r.Line), r.Rule, r.URLs,
			h.Delay, h.DelaySource, h.Time, int64(h.SitemapCount), h.Cause)
		if err != nil {
			return err
		}
	}
	return p.Close()
}

// planJSON is a plan as JSON.
type planJSON struct {
	URLs         int64        `json:"urls"`
	Allowed      int64        `json:"allowed"`
	Refused      int64        `json:"refused"`
	Unknown      int64        `json:"unknown"`
	UnknownHosts int          `json:"unknown_hosts"`
	BadLines     int64        `json:"bad_lines"`
	Clients      int          `json:"clients"`
	Response     audit.Millis `json:"response_ms"`
	Time         audit.Millis `json:"time_ms"`
	Longest      string       `json:"longest,omitempty"`
	LongestTime  audit.Millis `json:"longest_ms"`
	Rest         audit.Millis `json:"rest_ms"`
	Hosts        []hostJSON   `json:"hosts"`
}

// hostJSON is a host of a plan as JSON.
type hostJSON struct {
	Origin        string         `json:"origin"`
	RobotsState   string         `json:"robots_state,omitempty"`
	URLs          int64          `json:"urls"`
	Allowed       int64          `json:"allowed"`
	Refused       int64          `json:"refused"`
	Unknown       int64          `json:"unknown"`
	RefusedBy     []plan.Refusal `json:"refused_by"`
	OtherRefusals int64          `json:"refused_by_others,omitempty"`
	Delay         audit.Millis   `json:"delay_ms"`
	DelaySource   string         `json:"delay_source,omitempty"`
	Time          audit.Millis   `json:"time_ms"`
	Sitemaps      []string       `json:"sitemaps"`
	SitemapCount  int            `json:"sitemap_count"`
	Cause         string         `json:"cause,omitempty"`
}

func (t planText) json(w io.Writer) error {
	all := planJSON{
		URLs: t.URLs, Allowed: t.Allowed, Refused: t.Refused, Unknown: t.Unknown, UnknownHosts: t.UnknownHosts, BadLines: t.BadLines,
		Clients: t.Connections, Response: audit.Millis(t.Response), Time: audit.Millis(t.Time),
		Longest: t.Longest.Name, LongestTime: audit.Millis(t.Longest.Time), Rest: audit.Millis(t.Rest), Hosts: []hostJSON{},
	}
	for _, h := range t.Hosts {
		one := hostJSON{
			Origin: h.Origin.String(), RobotsState: h.State, URLs: h.URLs, Allowed: h.Allowed, Refused: h.Refused, Unknown: h.Unknown,
			RefusedBy: []plan.Refusal{}, OtherRefusals: h.OtherRefusals, Delay: audit.Millis(h.Delay), DelaySource: h.DelaySource,
			Time: audit.Millis(h.Time), Sitemaps: []string{}, SitemapCount: h.SitemapCount, Cause: h.Cause,
		}
		for _, r := range h.Refusals {
			r.Rule = safetext.UTF8(r.Rule)
			one.RefusedBy = append(one.RefusedBy, r)
		}
		for _, s := range h.Sitemaps {
			one.Sitemaps = append(one.Sitemaps, safetext.UTF8(s))
		}
		all.Hosts = append(all.Hosts, one)
	}
	e := json.NewEncoder(safetext.JSONWriter(w))
	e.SetEscapeHTML(false)
	return e.Encode(all)
}
