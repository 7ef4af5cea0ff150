// Package dossier writes the answer to the complaint of a site's owner: one zip with all requests for a host, the rules
// that were in force, the proof of their spacing, and a page that explains them to a reader who does not know the proxy.
//
//	err := dossier.Write(ctx, w, records, dossier.Options{Host: "a.example", Operator: "Example Ltd, bots@example.com"})
//
// The page needs no network and no script. The same records and options give the same bytes.
package dossier

import (
	"archive/zip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/export"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/policy"
)

// Options say what a dossier is about.
type Options struct {
	Host         string    // canonical
	Since, Until time.Time // of arrival of the requests; if zero, all
	Operator     string    // who operates the proxy, and how to reach them; if empty, the page does not say
	Gaps         []Gap     // times in which requests were not recorded
	Removals     []Removal // of records that arrived in the period
	Extra        []Extra   // more files
}

// Gap is a time in which requests, of any host, were not recorded.
type Gap struct {
	Began, Ended time.Time
	Records      int64
}

// Removal is an erasure or a pruning of records, of any host.
type Removal struct {
	Time    time.Time
	Records int64
	About   string // a sentence for the page: which records, and why they were removed
}

// Extra is a file that another package makes.
type Extra struct {
	Name  string // in the zip
	About string // a sentence for the page and README.txt: how the file was made, and how to check it
	Write func(ctx context.Context, w io.Writer) error
}

// Write writes a dossier. It reads the records of the host seven times, in memory that does not grow with their number.
func Write(ctx context.Context, w io.Writer, r audit.Reader, o Options) error {
	f, err := gather(ctx, r, o)
	if err != nil {
		return err
	}
	b := &bundle{zip: zip.NewWriter(w), at: f.Last}
	b.file("index.html", func(w io.Writer) error { return writePage(ctx, w, f, o) })
	b.file("README.txt", func(w io.Writer) error { return writeReadme(w, f, o) })
	for _, format := range []export.Format{export.CSV, export.JSONL} {
		b.file("requests."+string(format), func(w io.Writer) error {
			_, err := export.Write(w, format, r.Records(ctx, o.filter()))
			return err
		})
	}
	if f.Total.Disallowed > 0 {
		b.file(ignoredPath, func(w io.Writer) error {
			_, err := export.Write(w, export.CSV, f.ignored(ctx, r.Records(ctx, o.filter())))
			return err
		})
	}
	b.json("spacing.json", f.Spacing)
	b.json("replay.json", f.Replay)
	for _, v := range f.Versions {
		b.file(v.Path, func(w io.Writer) error {
			body, err := f.files.body(ctx, v)
			return errors.Join(err, writeBytes(w, body))
		})
		b.file(v.HeaderPath, func(w io.Writer) error { return writeBytes(w, []byte(v.header())) })
	}
	for _, sha := range f.Policies {
		b.policy(ctx, r, sha, o.Host, f.ClientNames)
	}
	for _, e := range o.Extra {
		b.file(e.Name, func(w io.Writer) error { return e.Write(ctx, w) })
	}
	return b.close()
}

func (o *Options) filter() audit.Filter {
	return audit.Filter{
		Host: o.Host, Since: o.Since, Until: o.Until,
		Vias: []audit.Via{audit.Plain, audit.Intercepted, audit.Tunnel, audit.Robots},
	}
}

// bundle is a zip in the making. After an error it does nothing more.
type bundle struct {
	zip *zip.Writer
	at  time.Time // the time of all files
	err error
}

func (b *bundle) file(name string, write func(io.Writer) error) {
	if b.err != nil {
		return
	}
	w, err := b.zip.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: b.at.UTC()})
	if err == nil {
		err = write(w)
	}
	if err != nil {
		b.err = fmt.Errorf("writing %s: %w", name, err)
	}
}

func (b *bundle) json(name string, v any) {
	b.file(name, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	})
}

// policy writes the part of a policy that concerns a host and some clients, if the policy is kept.
func (b *bundle) policy(ctx context.Context, r audit.Reader, sha, host string, clients []string) {
	text, err := r.Policy(ctx, sha)
	if err != nil {
		return // facts.Policies has only those that were there
	}
	part, err := policy.Reduce(text, host, clients)
	if err != nil {
		part = []byte("This policy is not shown, since it cannot be reduced to what concerns the host: " + err.Error() + ".\n")
	}
	b.file(policyPath(sha), func(w io.Writer) error { return writeBytes(w, part) })
}

func policyPath(sha string) string { return "policies/" + sha + ".txt" }

func (b *bundle) close() error {
	if b.err != nil {
		return b.err
	}
	return b.zip.Close()
}

func writeBytes(w io.Writer, b []byte) error {
	_, err := w.Write(b)
	return err
}

// version is a version of a robots.txt of the host.
type version struct {
	audit.File
	Number           int // of this origin, from 1
	Path, HeaderPath string
	Until            time.Time // when the next version was seen; zero: it is the last one
	Deciders         []decider // the rules of this version that decided
	Missing          bool      // the body is not kept
}

// decider is a line that decided.
type decider struct {
	Line     int
	Rule     string
	Requests map[string]int64 // by the word for the outcome
}

func newVersion(f audit.File, number int, missing bool) *version {
	name := fmt.Sprintf("%s-%s-%d-version-%d", f.Origin.Scheme(), fileName(f.Origin.Host()), f.Origin.Port(), number)
	return &version{
		File: f, Number: number, Missing: missing,
		Path: path.Join("robots", name+".txt"), HeaderPath: path.Join("robots", name+".response.txt"),
	}
}

// fileName returns a host as a part of the name of a file on any system.
func fileName(host string) string { return strings.ReplaceAll(host, ":", "_") }

// header describes the response that gave the version.
func (v *version) header() string {
	var b strings.Builder
	fmt.Fprintf(&b, "URL: %s/robots.txt\n", v.Origin)
	for _, to := range v.Redirects {
		fmt.Fprintf(&b, "redirected to: %s\n", to)
	}
	fmt.Fprintf(&b, "fetched: %s\nstatus: %d\nstate: %s\nsha256 of the body: %s\nfirst used: %s\nlast used: %s\n\n%s",
		moment(v.Fetched), v.Status, v.State, v.SHA256, moment(v.FirstSeen), moment(v.LastSeen), v.Header)
	return b.String()
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// facts are what the records say about a host.
type facts struct {
	First, Last time.Time // arrival of the first and the last request
	Total       tally
	Own         int64 // requests of the proxy itself, for robots.txt
	Crawlers    int64 // labels of User-Agents, as audit summary counts them
	Clients     []client
	ClientNames []string
	Notes       []note // deviations, interventions and exemptions
	Ignored     []note // why requests were sent although robots.txt disallows them
	Paths       []audit.Sum
	Versions    []*version
	Policies    []string // SHA-256 of those that are kept
	Lost        []string // evidence that is not kept
	Open        int64    // records without an end
	Instances   []int
	Latest      []request     // the last requests
	Step        time.Duration // of Timeline

	LatestIgnored []request // the last ones that were sent although robots.txt disallows them

	Spacing  *proof.SpacingReport
	Replay   *proof.ReplayReport
	Gaps     *series
	Timeline []audit.Point

	files *robotsFiles
}

// request is a request on the page.
type request struct {
	*audit.Record
	Outcome string
	Cause   string // why it was sent although robots.txt disallows it
}
