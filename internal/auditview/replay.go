package auditview

import (
	"fmt"
	"io"
	"strings"

	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// shownDifferences is the number of decisions in a list for people.
const shownDifferences = 20

// Replay writes whether recorded decisions come out the same, and those that do not. JSON is the whole report; JSON lines
// and CSV have the decisions that come out otherwise.
func Replay(w io.Writer, o Options, r *proof.ReplayReport) error {
	switch o.Format {
	case JSON:
		return writeJSON(w, r)
	case JSONL, CSV:
		return differences(w, o, append(r.Differences[:len(r.Differences):len(r.Differences)], r.OtherRules...))
	}
	if _, err := fmt.Fprintln(w, safetext.Text(replaySentence(r))); err != nil {
		return err
	}
	if err := shortList(w, o, r.Differences, r.Differing); err != nil || r.Changed == 0 {
		return err
	}
	const changed = "\n%s of another version of the rules engine come out otherwise, which may be due to the program:\n"
	if _, err := fmt.Fprintf(w, changed, counted(r.Changed, "decision")); err != nil {
		return err
	}
	return shortList(w, o, r.OtherRules, r.Changed)
}

// replaySentence says how many decisions come out the same, and why others could not be made again.
func replaySentence(r *proof.ReplayReport) string {
	text := fmt.Sprintf("%s of %s come out the same.", Number(r.Same), counted(r.Replayed, "decision"))
	if r.Records == 0 {
		text = "There are no records."
	}
	for _, cause := range proof.MissingCauses {
		if n := r.Missing[cause]; n > 0 {
			text += fmt.Sprintf(" %s could not be replayed (%s).", Number(n), cause)
		}
	}
	if r.Unjudged > 0 {
		text += fmt.Sprintf(" %s no decision to replay: fetches of robots.txt files, and requests that were answered before.",
			plural(r.Unjudged, "record has", "records have"))
	}
	return text
}

// shortList writes the first of n differences.
func shortList(w io.Writer, o Options, list []proof.ReplayDifference, n int64) error {
	if n == 0 {
		return nil
	}
	shown := list[:min(len(list), shownDifferences)]
	if err := above(w, func() error { return differences(w, o, shown) }); err != nil || n == int64(len(shown)) {
		return err
	}
	_, err := fmt.Fprintf(w, "%s more; --format json has them\n", Number(n-int64(len(shown))))
	return err
}

func differences(w io.Writer, o Options, list []proof.ReplayDifference) error {
	p := NewPrinter(
		w, o, Column{Name: "id", Title: "id"}, Column{Name: "time", Title: "time"}, Column{Name: "host", Title: "host", Least: 12},
		Column{Name: "path", Title: "path", Least: 12}, Column{Name: "field", Title: "field"},
		Column{Name: "recorded", Title: "recorded", Least: 12}, Column{Name: "replayed", Title: "replayed", Least: 12},
		Column{Name: "rules_version"},
	)
	for _, d := range list {
		recorded, replayed := dash(o, d.Recorded), dash(o, d.Replayed)
		if err := p.Row(d.ID.String(), d.Time, d.Host, d.Path, d.Field, recorded, replayed, int64(d.RulesVersion)); err != nil {
			return err
		}
	}
	return p.Close()
}

// dash returns "-" for an empty text in a table.
func dash(o Options, text string) string {
	if strings.TrimSpace(text) == "" && (o.Format == Table || o.Format == "") {
		return "-"
	}
	return text
}
