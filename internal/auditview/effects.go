package auditview

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// Effect shows a change of a robots.txt: its difference, and the requests that it decides otherwise. Formats are Table
// and JSONL.
func Effect(w io.Writer, o Options, e *proof.Effect) error {
	if o.Format == JSONL {
		return json.NewEncoder(safetext.JSONWriter(w)).Encode(e)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  changed %s  %s\n", e.Origin, Moment(e.Time, o.Zone), effectText(e.Judged, e.Refused, e.Allowed))
	if e.Before.State != e.After.State {
		fmt.Fprintf(&b, "  %s before, %s now\n", e.Before.State, e.After.State)
	}
	for line := range strings.Lines(e.Diff) {
		fmt.Fprintf(&b, "  %s\n", plainLine(line))
	}
	for _, d := range e.Delays {
		fmt.Fprintf(&b, "  Delay of %s: %s before, %s now\n", safetext.Text(d.Agent), delayText(d.Before), delayText(d.After))
	}
	for _, x := range e.Examples {
		fmt.Fprintf(&b, "  %s\n", plainLine(fmt.Sprintf("%s  %s  %s before, %s now", x.Agent, x.Path, rulingText(x.Before), rulingText(x.After))))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// plainLine returns a line of a foreign text for a terminal.
func plainLine(line string) string {
	return Cut(safetext.Text(strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", " ")), 200)
}

func delayText(seconds float64) string {
	if seconds == 0 {
		return "none"
	}
	return Duration(time.Duration(seconds * float64(time.Second)))
}

func rulingText(r proof.Ruling) string {
	word := map[bool]string{true: "allowed", false: "refused"}[r.Allowed]
	if r.Line == 0 {
		return word
	}
	return fmt.Sprintf("%s by line %d  %s", word, r.Line, r.Rule)
}
