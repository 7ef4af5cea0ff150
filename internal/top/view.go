package top

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// View draws the screen.
func (m model) View() tea.View {
	v := tea.NewView(m.draw(time.Now()))
	v.AltScreen, v.WindowTitle = true, "robotsproxy top"
	return v
}

func (m model) draw(now time.Time) string {
	lines := m.header(now)
	if m.dialog == helpDialog {
		lines = append(lines, help...)
	} else {
		lines = append(lines, m.table(now)...)
	}
	room := max(m.height-1, 0)
	lines = lines[:min(len(lines), room)]
	for len(lines) < room {
		lines = append(lines, "")
	}
	lines = append(lines, m.footer())
	for i, line := range lines {
		lines[i] = lipgloss.NewStyle().Inline(true).MaxWidth(m.width).Render(line)
	}
	return strings.Join(lines, "\n")
}

// header says how the proxy runs: three to five lines, the last of them empty.
func (m model) header(now time.Time) []string {
	bold := lipgloss.NewStyle().Bold(true)
	s := m.sample.Status
	first := bold.Render("robotsproxy "+safetext.Text(s.Version)) + "  "
	mode := "mode " + safetext.Text(s.Mode)
	if s.Mode != "enforce" {
		mode = m.style(delayed).Bold(true).Render(mode)
	}
	uptime := auditview.Duration(seconds(s.Uptime).Round(time.Second))
	first += mode + "  " + safetext.Text(s.Listen) + "  runs for " + uptime
	if !s.Ready {
		first += "  " + m.style(delayed).Render("not ready: "+safetext.Text(s.NotReady))
	}
	lines := []string{first, m.totals(bold)}
	if in := m.sample.Interventions; len(in) > 0 {
		lines = append(lines, m.style(delayed).Render("in force: "+interventionsText(in)))
	}
	if m.err != nil {
		text := fmt.Sprintf("no answer since %s: %s", m.since.Format(time.TimeOnly), safetext.Text(m.err.Error()))
		lines = append(lines, m.style(failed).Bold(true).Render(text))
	}
	return append(lines, "")
}

// totals returns the line with the counts of all hosts.
func (m model) totals(bold lipgloss.Style) string {
	s, t := m.sample, m.sample.Total
	parts := []string{
		bold.Render(fmt.Sprintf("%.1f requests/s", s.Rate)),
		auditview.Number(t.Requests) + " in " + spell(seconds(s.Window)),
		m.style(if0(t.Blocked+t.WouldDeny, blocked)).Render(auditview.Number(t.Blocked+t.WouldDeny) + " blocked"),
		m.style(if0(int64(s.Status.Waiting), delayed)).Render(auditview.Number(int64(s.Status.Waiting)) + " wait"),
		m.style(if0(int64(t.Paused), delayed)).Render(auditview.Number(int64(t.Paused)) + " paused"),
		m.style(if0(t.Failed, failed)).Render(auditview.Number(t.Failed) + " failed"),
		auditview.Number(int64(s.Status.Active)) + " active",
		auditview.Number(int64(t.Hosts)) + " hosts",
	}
	return strings.Join(parts, "  ")
}

func interventionsText(all []admin.Intervention) string {
	var parts []string
	for _, i := range all {
		text := safetext.Text(i.Host) + " " + order(i)
		if !i.Until.IsZero() {
			text += " until " + i.Until.Local().Format("15:04")
		}
		parts = append(parts, text+" ("+safetext.Text(i.Reason)+")")
	}
	return strings.Join(parts, ", ")
}

// rows returns the number of hosts on the screen.
func (m model) rows() int { return max(m.height-len(m.header(time.Time{}))-2, 1) }

// table returns the heads of the columns, and a line for each host on the screen.
func (m model) table(now time.Time) []string {
	hosts := m.sample.Hosts
	if len(hosts) == 0 {
		if m.query.Host != "" {
			window := spell(seconds(m.sample.Window))
			return []string{"No host of the last " + window + " has " + m.query.Host + " in its name. Esc shows all."}
		}
		return []string{"Nothing has come through in the last " + spell(seconds(m.sample.Window)) + "."}
	}
	first := min(m.first, max(len(hosts)-m.rows(), 0))
	hosts = hosts[first:min(first+m.rows(), len(hosts))]
	shown := slices.DeleteFunc(slices.Clone(columns), func(c column) bool { return m.width < c.least })
	widths := m.widths(shown, hosts, now)
	var heads []string
	for i, c := range shown {
		style := lipgloss.NewStyle().Bold(true)
		if c.sort == m.query.Sort {
			style = style.Underline(true).UnderlineSpaces(true)
		}
		heads = append(heads, pad(c.title, widths[i], c.left, style))
	}
	lines := []string{strings.Join(heads, "  ")}
	for n := range hosts {
		lines = append(lines, m.row(shown, widths, &hosts[n], first+n == m.index(), now))
	}
	return lines
}

func (m model) row(shown []column, widths []int, l *admin.Lane, selected bool, now time.Time) string {
	var cells []string
	for i, c := range shown {
		var style lipgloss.Style
		if c.colour != nil && !selected {
			style = m.style(c.colour(l))
		}
		cells = append(cells, pad(c.text(l, now), widths[i], c.left, style))
	}
	line := strings.Join(cells, "  ")
	if selected {
		return lipgloss.NewStyle().Reverse(true).Render(line)
	}
	return line
}

// widths returns the widths of the columns. The host gets what the numbers leave, and the state the rest of that.
func (m model) widths(shown []column, hosts []admin.Lane, now time.Time) []int {
	widths := make([]int, len(shown))
	used := 2 * (len(shown) - 1)
	state := -1
	for i, c := range shown {
		widths[i] = utf8.RuneCountInString(c.title)
		for n := range hosts {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text(&hosts[n], now)))
		}
		switch {
		case i == 0:
		case c.left:
			state = i
		default:
			used += widths[i]
		}
	}
	room := max(m.width-used, 0)
	if state < 0 {
		widths[0] = room
		return widths
	}
	widths[0] = min(widths[0], max(room-min(widths[state], room/2), 0))
	widths[state] = max(room-widths[0], 0)
	return widths
}

// pad returns text in style, cut or filled to a width.
func pad(text string, width int, left bool, style lipgloss.Style) string {
	text = auditview.Cut(text, width)
	space := strings.Repeat(" ", max(width-utf8.RuneCountInString(text), 0))
	if left {
		return style.Render(text) + space
	}
	return space + style.Render(text)
}

// footer returns the dialog, the result of the last change, or the keys.
func (m model) footer() string {
	switch {
	case m.note != "":
		return safetext.Text(m.note)
	case m.dialog == filterDialog:
		return "host: " + tail(m.input, m.width-8) + "_"
	case m.dialog == stopDialog:
		prompt := "why stop " + safetext.Text(m.target) + "? "
		return prompt + tail(m.input, m.width-utf8.RuneCountInString(prompt)-2) + "_"
	case m.dialog == helpDialog:
		return "any key goes back"
	}
	keys := "q quit  ? help  / filter  < > sort  x stop host  u resume  space freeze"
	if m.frozen {
		keys = m.style(delayed).Render("frozen") + "  " + keys
	}
	if m.query.Host != "" {
		keys = "host: " + safetext.Text(m.query.Host) + "  " + keys
	}
	return keys
}

// tail returns the end of s in the given columns.
func tail(s string, columns int) string {
	r := []rune(s)
	return string(r[max(len(r)-max(columns, 0), 0):])
}

var help = []string{
	"up down j k    select a host; pgup, pgdown, home and end go further",
	"< >            sort by the column before or after; the column is underlined",
	"h r b f w d n  sort by host, requests, blocked, failed, queue, delay, next",
	"t s            sort by the time waited, by the state",
	"/              show the hosts with a text in their names; esc shows all",
	"x              stop the selected host: nothing more is sent to it",
	"u              resume the selected host: end its stop, slow and bypass",
	"space          freeze the figures; again to go on",
	"q              quit",
	"",
	"queue: requests that wait.  delay: between two requests.  next: until the next",
	"waited: all requests together.  paused: the site answered 429 or 503",
}
