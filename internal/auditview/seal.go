package auditview

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit/seal"
)

// faultWords say for each kind of fault, in the order of their listing, what was found.
var faultWords = []struct {
	kind      seal.FaultKind
	one, many string
}{
	{seal.Changed, "record was changed", "records were changed"},
	{seal.Swapped, "record was swapped", "records were swapped"},
	{seal.Removed, "record was removed", "records were removed"},
	{seal.Inserted, "record was inserted", "records were inserted"},
	{seal.BadText, "stored text was changed", "stored texts were changed"},
	{seal.BadErasure, "erasure is false", "erasures are false"},
	{seal.BadPrune, "pruning is not recorded", "prunings are not recorded"},
	{seal.BadTree, "range of hashes was changed", "ranges of hashes were changed"},
	{seal.BadCheckpoint, "checkpoint that was given away is of other records", "checkpoints that were given away are of other records"},
	{seal.RemovedCheckpoint, "checkpoint was removed", "checkpoints were removed"},
	{seal.BadSignature, "checkpoint is not signed by the key", "checkpoints are not signed by the key"},
}

// Verification writes the result of seal.Verify.
func Verification(w io.Writer, r *seal.Report, o Options) error {
	if o.Format == JSON {
		b, err := json.MarshalIndent(struct {
			Sound bool `json:"sound"`
			*seal.Report
		}{r.Sound(), r}, "", "  ")
		if err != nil {
			return err
		}
		_, err = w.Write(append(b, '\n'))
		return err
	}
	var b strings.Builder
	b.WriteString(verdict(r, o.Zone) + "\n")
	if len(r.Faults) > 0 {
		b.WriteByte('\n')
	}
	for _, f := range r.Faults {
		b.WriteString("  " + faultLine(f, o.Zone) + "\n")
	}
	b.WriteByte('\n')
	for _, row := range counts(r, o.Zone) {
		fmt.Fprintf(&b, "  %-15s %12s  %s\n", row.name, Number(row.n), row.text)
	}
	if len(r.Prunes) > 0 {
		b.WriteString("\nPrunings that no checkpoint confirms yet:\n")
	}
	for _, line := range Prunes(r.Prunes, o.Zone) {
		b.WriteString("  " + line + "\n")
	}
	_, err := io.WriteString(w, trimLines(b.String()))
	return err
}

// shownPrunes is the number of prunes of which each gets a line.
const shownPrunes = 20

// Prunes describes the last prunes in a line each, and counts those before.
func Prunes(prunes []seal.Prune, zone *time.Location) (lines []string) {
	if n := len(prunes) - shownPrunes; n > 0 {
		lines, prunes = append(lines, plural(int64(n), "earlier pruning", "earlier prunings")), prunes[n:]
	}
	for _, p := range prunes {
		lines = append(lines, fmt.Sprintf("%s  %s that arrived before %s (%s)", Moment(p.Time, zone),
			plural(p.Records, "record", "records"), Moment(p.Before, zone), Text(p.Why)))
	}
	return lines
}

// trimLines removes the spaces at the ends of lines.
func trimLines(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

func verdict(r *seal.Report, zone *time.Location) string {
	if r.Sound() {
		return fmt.Sprintf("Sound: %s. %s of %s; the last covers what ended before %s.",
			plural(r.Sealed, "record is as it was when it was sealed", "records are as they were when they were sealed"),
			plural(int64(r.Checkpoints), "checkpoint", "checkpoints"),
			Text(strings.Join(r.Keys, " and ")), Moment(r.Last, zone))
	}
	var found []string
	for _, words := range faultWords {
		if n := r.Counts[words.kind]; n > 0 {
			found = append(found, plural(n, words.one, words.many))
		}
	}
	return "Not sound: " + strings.Join(found, ", ") + "."
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Number(n) + " " + many
}

// faultLine describes a fault in one line.
func faultLine(f seal.Fault, zone *time.Location) string {
	parts := []string{string(f.Kind)}
	if f.ID != 0 && f.Detail == "" {
		parts = append(parts, f.ID.String(), Moment(f.ID.Time(), zone))
	}
	if r := f.Record; r != nil {
		parts = append(parts, Text(r.Method), Text(URL(r)))
	}
	switch {
	case f.Other != 0:
		parts = append(parts, "has the contents of "+f.Other.String())
	case f.Before != 0 && f.After != 0:
		parts = append(parts, "between "+f.Before.String()+" and "+f.After.String())
	case f.Before != 0:
		parts = append(parts, "after "+f.Before.String())
	case f.After != 0:
		parts = append(parts, "before "+f.After.String())
	case f.Kind == seal.Inserted:
		parts = append(parts, "it ended before the last checkpoint, which does not cover it")
	}
	if f.Detail != "" {
		parts = append(parts, Text(f.Detail))
	}
	return strings.Join(parts, "  ")
}

// count is a row of the counts.
type count struct {
	name string
	n    int64
	text string
}

func counts(r *seal.Report, zone *time.Location) []count {
	rows := []count{
		{"sealed", r.Sealed, "agree with their hashes"},
		{"not yet sealed", r.Unsealed, ""},
		{"pruned", r.Pruned, ""},
		{"erased", r.Erased, ""},
		{"texts", r.Texts, "robots.txt files and policies that have their SHA-256"},
	}
	if r.Unsealed > 0 {
		rows[1].text = "the next robotsproxy audit seal covers them"
	}
	if !r.PrunedBefore.IsZero() {
		rows[2].text = "all before " + Moment(r.PrunedBefore, zone)
	}
	if r.PrunedUnsealed {
		rows[2].text += ", which no checkpoint confirms yet"
	}
	if r.ErasuresUnsealed > 0 {
		rows[3].text = plural(int64(r.ErasuresUnsealed), "erasure that no checkpoint confirms", "erasures that no checkpoint confirms") + " yet"
	}
	if m := r.Missing; m != (seal.Missing{}) {
		rows = append(rows, count{
			"missing", m.Bodies + m.Versions + m.Policies,
			fmt.Sprintf("of which records have the SHA-256: %s (dropped to save room, or removed), %s, %s",
				plural(m.Bodies, "robots.txt file", "robots.txt files"),
				plural(m.Versions, "entry of a version", "entries of versions"), plural(m.Policies, "policy", "policies")),
		})
	}
	if r.Late > 0 {
		rows = append(rows, count{"sealed late", r.Late, "from " + r.FirstLate.String() +
			": written, or inserted, after the checkpoint that should cover them"})
	}
	if r.Unsigned > 0 {
		rows = append(rows, count{
			"not yet signed", r.Unsigned,
			"hashes after the last checkpoint: a seal is under way or was interrupted, or its checkpoint was removed",
		})
	}
	return rows
}
