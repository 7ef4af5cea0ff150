package auditview

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// Changes shows the versions of the robots.txt files of a host: for each its differences to the version before, and how
// many recorded requests it decides otherwise.
func Changes(w io.Writer, o Options, changes []proof.Change) error {
	switch o.Format {
	case JSON:
		return writeJSON(w, append([]proof.Change{}, changes...))
	case JSONL:
		e := json.NewEncoder(safetext.JSONWriter(w))
		for _, c := range changes {
			if err := e.Encode(c); err != nil {
				return err
			}
		}
		return nil
	case CSV:
		return changesCSV(w, o, changes)
	}
	var b strings.Builder
	several := slices.ContainsFunc(changes, func(c proof.Change) bool { return c.Origin != changes[0].Origin })
	for i, c := range changes {
		if several && (i == 0 || changes[i-1].Origin != c.Origin) {
			fmt.Fprintf(&b, "%s\n", c.Origin)
		}
		writeChange(&b, o, &c)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// shownLines is the number of lines of a change for people.
const shownLines = 8

// writeChange writes the version with the lines that changed, and the effect beside the first of them.
func writeChange(b *strings.Builder, o Options, c *proof.Change) {
	head := fmt.Sprintf("Version %d, %s", c.Version, Moment(c.FirstSeen, o.Zone))
	lines := changedLines(c)
	b.WriteString(strings.TrimRight(fmt.Sprintf("%-34s%-46s%s", head, lines[0], effect(c)), " ") + "\n")
	for i, line := range lines[1:] {
		if i+1 == shownLines {
			fmt.Fprintf(b, "%34s%d more lines; --format json has all\n", "", len(lines)-shownLines)
			break
		}
		fmt.Fprintf(b, "%34s%s\n", "", line)
	}
}

// changedLines returns the changed lines, in the order of a diff: removed lines before those added at the same place.
func changedLines(c *proof.Change) (lines []string) {
	if c.State != "found" {
		lines = append(lines, answerText(c))
	}
	added := c.Added
	for _, r := range c.Removed {
		for len(added) > 0 && added[0].Line < r.Line {
			lines, added = append(lines, lineText('+', added[0])), added[1:]
		}
		lines = append(lines, lineText('-', r))
	}
	for _, a := range added {
		lines = append(lines, lineText('+', a))
	}
	switch {
	case len(lines) > 0:
	case c.Version == 1:
		lines = []string{"first seen"}
	case c.Missing:
		lines = []string{"its text, or that of the version before, is not kept"}
	default:
		lines = []string{"the same lines"}
	}
	return lines
}

func answerText(c *proof.Change) string {
	if c.Status == 0 {
		return "no answer: " + c.State
	}
	return fmt.Sprintf("answered %d: %s", c.Status, c.State)
}

func lineText(sign rune, l proof.Line) string {
	return fmt.Sprintf("%c line %d  %s", sign, l.Line, Cut(safetext.Text(strings.ReplaceAll(l.Text, "\t", " ")), 120))
}

// effect says how many requests the version decides otherwise.
func effect(c *proof.Change) string {
	if c.Version == 1 || c.Missing {
		return ""
	}
	return effectText(c.Judged, c.Refused, c.Allowed)
}

func effectText(judged, refused, allowed int64) string {
	of := " of " + Number(judged)
	switch {
	case refused > 0 && allowed > 0:
		return Number(refused) + of + " would now be refused, " + Number(allowed) + " allowed"
	case refused > 0:
		return Number(refused) + of + " would now be refused"
	case allowed > 0:
		return Number(allowed) + of + " would now be allowed"
	}
	return "0" + of + " decisions would differ"
}

func changesCSV(w io.Writer, o Options, changes []proof.Change) error {
	p := NewPrinter(
		w, o, Column{Name: "origin"}, Column{Name: "version"}, Column{Name: "first_seen"}, Column{Name: "last_seen"},
		Column{Name: "status"}, Column{Name: "state"}, Column{Name: "sha256"}, Column{Name: "added"}, Column{Name: "removed"},
		Column{Name: "decisions"}, Column{Name: "would_refuse"}, Column{Name: "would_allow"},
	)
	for _, c := range changes {
		err := p.Row(
			c.Origin, int64(c.Version), c.FirstSeen, c.LastSeen, int64(c.Status), c.State,
			c.SHA256, joined(c.Added), joined(c.Removed), c.Judged, c.Refused, c.Allowed,
		)
		if err != nil {
			return err
		}
	}
	return p.Close()
}

func joined(lines []proof.Line) string {
	var parts []string
	for _, l := range lines {
		parts = append(parts, fmt.Sprintf("line %d  %s", l.Line, l.Text))
	}
	return strings.Join(parts, "; ")
}
