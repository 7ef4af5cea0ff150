package dossier

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

//go:embed page.html
var pageText string

// Texts of clients and sites are escaped by html/template, and safe escapes control characters and marks of direction
// in them.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"n": auditview.Number, "d": auditview.Duration, "ms": func(m audit.Millis) string { return seconds(time.Duration(m)) },
	"t": moment, "clock": func(t time.Time) string { return auditview.Moment(t, nil) }, "safe": safetext.Text, "bytes": byteCount, "url": auditview.URL, "why": auditview.Why,
	"crawler": auditview.Crawler, "wide": func(n int) int64 { return int64(n) }, "cause": causeText, "ignored": ignoredText, "plural": plural,
}).Parse(pageText))

// page is what the template shows.
type page struct {
	*facts
	Options
	Period   string
	Spaced   string // the sentence about the spacing
	Plot     *plot
	Timeline *plot
	Causes   []cause
	Files    []proofFile
	Texts    []versionText
	Hidden   int64 // versions that are not in Texts
}

// cause is a deviation of gaps.
type cause struct {
	Name     string
	Requests int64
}

// proofFile is a file of the zip.
type proofFile struct{ Name, About string }

// writePage writes index.html.
func writePage(ctx context.Context, w io.Writer, f *facts, o Options) error {
	o.Gaps = slices.DeleteFunc(slices.Clone(o.Gaps), func(g Gap) bool {
		return g.Ended.Before(o.Since) || !o.Until.IsZero() && g.Began.After(o.Until)
	})
	p := page{
		facts: f, Options: o, Period: period(f, o), Spaced: spacingSentence(f.Spacing),
		Plot: f.Gaps.plot(), Timeline: timeline(f.Timeline, f.Step), Files: files(f, o),
	}
	for _, name := range slices.Sorted(maps.Keys(f.Spacing.Deviations)) {
		p.Causes = append(p.Causes, cause{name, f.Spacing.Deviations[name]})
	}
	for _, v := range f.Versions[:min(len(f.Versions), maxTexts)] {
		body, err := f.files.body(ctx, v)
		if err != nil {
			return err
		}
		p.Texts = append(p.Texts, newVersionText(v, body))
	}
	p.Hidden = int64(len(f.Versions) - len(p.Texts))
	slices.Reverse(p.Latest)
	slices.Reverse(p.LatestIgnored)
	return pageTemplate.Execute(w, &p)
}

// period describes the period that was asked for, or that of the requests.
func period(f *facts, o Options) string {
	since, until := o.Since, o.Until
	switch {
	case !since.IsZero() && !until.IsZero():
		return "from " + moment(since) + " to " + moment(until)
	case !since.IsZero():
		return "since " + moment(since)
	case !until.IsZero():
		return "before " + moment(until)
	case f.First.IsZero():
		return "at any time"
	}
	return "from " + moment(f.First) + " to " + moment(f.Last)
}

// spacingSentence answers whether the gaps were long enough.
func spacingSentence(s *proof.SpacingReport) string {
	if s.Gaps == 0 {
		return "No delay between requests was required of this host in this period, so there is nothing to compare."
	}
	longest, shortest := audit.Millis(0), s.Lanes[0].RequiredMin
	for _, l := range s.Lanes {
		if l.Gaps > 0 {
			longest, shortest = max(longest, l.Required), min(cmp.Or(shortest, l.RequiredMin), l.RequiredMin)
		}
	}
	required := seconds(time.Duration(longest))
	if shortest != longest {
		required = seconds(time.Duration(shortest)) + " to " + required
	}
	return fmt.Sprintf("%s of %s between requests %s shorter than required (%s).",
		auditview.Number(s.Violations), plural(s.Gaps, "gap"), map[bool]string{true: "was", false: "were"}[s.Violations == 1 || s.Gaps == 1], required)
}

// seconds returns d cut to the millisecond: 2.003 s.
func seconds(d time.Duration) string {
	if d >= 10*time.Minute {
		return auditview.Duration(d)
	}
	return fmt.Sprintf("%.3f s", d.Truncate(time.Millisecond).Seconds())
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return auditview.Number(n) + " " + noun + "s"
}

func byteCount(n int64) string {
	switch {
	case n < 10_000:
		return plural(n, "byte")
	case n < 10_000_000:
		return fmt.Sprintf("%d kB", n/1000)
	case n < 10_000_000_000:
		return fmt.Sprintf("%d MB", n/1_000_000)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}

// ignoredText explains why requests were sent although robots.txt disallows them.
func ignoredText(kind string) string {
	switch kind {
	case "exemption":
		return "an entry of the operator permits these requests"
	case "bypass":
		return "the operator had suspended the rules for a time"
	case "mode report":
		return "the operator had set the proxy to report only, so it noted that robots.txt disallows the request, and sent it"
	case "mode off":
		return "the operator had switched the rules off. The proxy read no robots.txt for these requests; they are compared with the last one that it had read before"
	}
	return ""
}

// causeText explains a deviation of a gap or of a request.
func causeText(name string) string {
	switch name {
	case audit.DeviationReported:
		return "the operator had set the proxy to report only, for this crawler or this site, so a request did not wait"
	case audit.DeviationSubresource:
		return "a browser fetched a part of a page, such as an image, together with the page"
	case audit.DeviationOverlap:
		return "a crawler read an earlier response slowly; after a second the next request no longer waited for it"
	case proof.CauseReleased:
		return "an earlier response took longer than the operator allows a request to hold back others, or was a lasting connection"
	case proof.CauseOff:
		return "an earlier request was exempt from all rules by the operator"
	case proof.CauseNoDelay:
		return "a crawler for which the site sets no delay had its turn at the same moment, and was faster"
	case proof.CauseSpread:
		return "the proxy's instances could not agree on turns for a while, and each kept a longer delay"
	case "max_crawl_delay":
		return "the operator had set an upper limit to the delay, which is shorter than what the site asks for"
	}
	return ""
}

// files describes the files of the zip.
func files(f *facts, o Options) []proofFile {
	list := []proofFile{
		{"requests.csv", "All requests for the host in the period, in order of arrival: a line each, with all fields of the record. A text that begins with =, +, - or @ has an apostrophe before it, so that a spreadsheet does not run it."},
		{"requests.jsonl", "The same records as JSON, one on each line, as the proxy wrote them."},
		{"spacing.json", "The measure of the gaps between requests, computed from sent_at and ended_at of the records alone. To check it, sort requests.jsonl by sent_at, and subtract the latest ended_at so far from each sent_at."},
	}
	list = append(list, proofFile{"replay.json", "The result of deciding all requests again by the kept robots.txt files and policies, with the records that could not be decided again, by cause."})
	for _, v := range f.Versions {
		about := fmt.Sprintf("The robots.txt of %s as it was received, in force from %s. Its SHA-256 is %s, which is robots_sha256 of the requests that it decided.",
			v.Origin, moment(v.FirstSeen), v.SHA256)
		if v.SHA256 == "" {
			about = fmt.Sprintf("The answer for the robots.txt of %s, in force from %s. It has no file that counts.", v.Origin, moment(v.FirstSeen))
		}
		list = append(list, proofFile{v.Path, about}, proofFile{v.HeaderPath, "Where that robots.txt came from: redirects, status and response header."})
	}
	if f.Total.Disallowed > 0 {
		list = append(list, proofFile{ignoredPath, "The requests that were sent although robots.txt disallows them, with the fields of requests.csv. mode, exemption and intervention say why."})
	}
	for _, sha := range f.Policies {
		list = append(list, proofFile{policyPath(sha), "The part of the operator's policy that concerns this host and its crawlers, when requests with this policy_sha256 were decided. It decides about these requests as the whole policy does. Entries for other hosts and crawlers are left out, so its own SHA-256 is another one; the operator has the whole, and replay.json was made with it."})
	}
	for _, e := range o.Extra {
		list = append(list, proofFile{e.Name, e.About})
	}
	return list
}

// writeReadme writes README.txt.
func writeReadme(w io.Writer, f *facts, o Options) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Requests for %s, %s\n\n", o.Host, period(f, o))
	if o.Operator != "" {
		fmt.Fprintf(&b, "Sent by: %s\n\n", safetext.Text(o.Operator))
	}
	b.WriteString("Open index.html in a browser. It needs no network.\n\n" +
		"These files were made by robotsproxy (https://github.com/robotsproxy/robotsproxy) from its records, with\n\n" +
		"    " + command(o) + "\n\n" +
		"robotsproxy stands between crawlers and web sites. It reads robots.txt, refuses what that disallows unless its\n" +
		"operator decides otherwise, keeps the delay between requests, and writes a record of each decision before it sends or\n" +
		"answers anything. The same records give the same files, byte by byte.\n")
	for _, file := range files(f, o) {
		fmt.Fprintf(&b, "\n%s\n%s", file.Name, wrap(safetext.Text(file.About)))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// command returns the command line that makes the dossier.
func command(o Options) string {
	line := "robotsproxy audit dossier " + o.Host
	if !o.Since.IsZero() {
		line += " --since " + o.Since.UTC().Format(time.RFC3339Nano)
	}
	if !o.Until.IsZero() {
		line += " --until " + o.Until.UTC().Format(time.RFC3339Nano)
	}
	return line
}

// wrap breaks text into indented lines of at most 100 characters.
func wrap(text string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		switch {
		case column == 0 || column+1+len(word) > 100:
			if column > 0 {
				b.WriteByte('\n')
			}
			b.WriteString("    " + word)
			column = 4 + len(word)
		default:
			b.WriteString(" " + word)
			column += 1 + len(word)
		}
	}
	return b.String() + "\n"
}

// versionText is a version of a robots.txt with its lines.
type versionText struct {
	*version
	Lines   []textLine
	Omitted int // lines
	Rest    []decider
}

// textLine is a line of a robots.txt, or the place of omitted lines if its number is 0.
type textLine struct {
	Number  int
	Text    string
	Decided string // what the line decided
}

// These bound the lines of a file on the page.
const (
	maxLines  = 120
	maxLength = 300 // of a line, in characters
)

var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n") // RFC 9309 section 2.2

// newVersionText returns the first lines of v, and all lines that decided.
func newVersionText(v *version, body []byte) versionText {
	t := versionText{version: v}
	deciding := map[int]string{}
	for _, d := range v.Deciders {
		if d.Line == 0 {
			t.Rest = append(t.Rest, d)
			continue
		}
		deciding[d.Line] = strings.TrimPrefix(deciding[d.Line]+"; "+d.words(), "; ")
	}
	lines := strings.Split(strings.TrimSuffix(lineEnds.Replace(string(body)), "\n"), "\n")
	if len(body) == 0 {
		return t
	}
	gap := false
	for i, line := range lines {
		words, decides := deciding[i+1]
		if i >= maxLines && !decides {
			t.Omitted++
			gap = true
			continue
		}
		if gap {
			t.Lines, gap = append(t.Lines, textLine{}), false
		}
		text := safetext.Text(strings.ReplaceAll(strings.TrimPrefix(line, "\ufeff"), "\t", " "))
		t.Lines = append(t.Lines, textLine{Number: i + 1, Text: auditview.Cut(text, maxLength), Decided: words})
	}
	return t
}

// words say what d decided: "refused 12 requests, allowed 3".
func (d *decider) words() string {
	var parts []string
	for _, kind := range []struct{ outcome, word string }{
		{refused, "refused"}, {ignored, "disallowed, but sent:"}, {fetched, "permitted"}, {delayed, "permitted, later told to come back"}, {failed, "permitted, then failed"}, {local, "permitted"},
	} {
		if n := d.Requests[kind.outcome]; n > 0 {
			parts = append(parts, kind.word+" "+plural(n, "request"))
		}
	}
	return strings.Join(parts, ", ")
}
