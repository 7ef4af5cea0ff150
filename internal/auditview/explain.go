package auditview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// AmbiguousError reports that several records have IDs that begin with a text.
type AmbiguousError struct{ Text string }

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("several records have ids that begin with %q: write more of it", e.Text)
}

// InvalidIDError reports that a text is not an ID, nor its beginning.
type InvalidIDError struct{ text string }

func (e *InvalidIDError) Error() string { return e.text }

// notKeptError is an audit.ErrNoRecord.
type notKeptError struct{ text string }

func (e *notKeptError) Error() string { return e.text }

func (e *notKeptError) Unwrap() error { return audit.ErrNoRecord }

// leastID is the least length of the beginning of an ID.
const leastID = 6

// Find returns the record with an ID, or the only one whose ID begins with text, in lower or upper case.
func Find(ctx context.Context, records audit.Reader, text string) (*audit.Record, error) {
	text = strings.ToLower(strings.TrimSpace(text))
	full := len(audit.ID(0).String())
	if len(text) < leastID || len(text) > full {
		return nil, &InvalidIDError{fmt.Sprintf("%q is not an id of %d characters, nor the first %d or more of one", text, full, leastID)}
	}
	if strings.Trim(text, "0123456789abcdefghijklmnopqrstuv") != "" {
		return nil, &InvalidIDError{fmt.Sprintf("%q is not an id: it has 0 to 9 and a to v", text)}
	}
	first, err := audit.ParseID(text + strings.Repeat("0", full-len(text)))
	if err != nil { // no record can have it
		return nil, &notKeptError{fmt.Sprintf("no record with the id %s is kept", text)}
	}
	if len(text) == full {
		r, err := records.Record(ctx, first)
		if errors.Is(err, audit.ErrNoRecord) {
			err = &notKeptError{fmt.Sprintf("no record with the id %s is kept", text)}
		}
		return r, err
	}
	var found *audit.Record
	all := []audit.Via{audit.Plain, audit.Intercepted, audit.Tunnel, audit.Robots}
	for r, err := range records.Records(ctx, audit.Filter{After: first - 1, Vias: all, Limit: 2}) {
		switch {
		case err != nil:
			return nil, err
		case !strings.HasPrefix(r.ID.String(), text):
		case found != nil:
			return nil, &AmbiguousError{text}
		default:
			copied := *r
			found = &copied
		}
	}
	if found == nil {
		return nil, &notKeptError{fmt.Sprintf("no record with an id that begins with %q is kept", text)}
	}
	return found, nil
}

// Explanation shows one record with the robots.txt that decided.
type Explanation struct {
	Record *audit.Record
	File   *audit.File // nil if there is no robots.txt, or it is not kept
	Policy []byte      // nil if it is not kept
	Now    time.Time
}

// Explain gathers what is kept about r.
func Explain(ctx context.Context, records audit.Reader, r *audit.Record, now time.Time) (*Explanation, error) {
	e := &Explanation{Record: r, Now: now}
	file, err := records.File(ctx, r)
	if err != nil && !errors.Is(err, audit.ErrNoFile) {
		return nil, err
	}
	e.File = file
	if r.PolicySHA256 == "" {
		return e, nil
	}
	if e.Policy, err = records.Policy(ctx, r.PolicySHA256); errors.Is(err, audit.ErrNoPolicy) {
		err = nil
	}
	return e, err
}

// Body writes the robots.txt unchanged.
func (e *Explanation) Body(w io.Writer) error {
	if e.Record.Via == audit.Robots {
		return fmt.Errorf("%s is the proxy's own request for a robots.txt, and none decided it; robotsproxy audit changes %s lists the versions",
			e.Record.ID, e.Record.Host)
	}
	if e.File == nil || e.File.Body == nil {
		return fmt.Errorf("the robots.txt of %s is not kept", e.Record.ID)
	}
	_, err := w.Write(e.File.Body)
	return err
}

// PolicyText writes the policy unchanged.
func (e *Explanation) PolicyText(w io.Writer) error {
	if e.Policy == nil {
		return fmt.Errorf("the policy of %s is not kept", e.Record.ID)
	}
	_, err := w.Write(e.Policy)
	return err
}

// Write writes e in a format. In CSV it is the record alone.
func (e *Explanation) Write(w io.Writer, o Options) error {
	switch o.Format {
	case JSON, JSONL:
		return e.json(w)
	case CSV:
		rs := NewRecords(w, o)
		return errors.Join(rs.Add(e.Record), rs.Close())
	}
	return e.text(w, o)
}

// json writes the record and its basis as one object.
func (e *Explanation) json(w io.Writer) error {
	b := e.Record.AppendJSON([]byte(`{"record":`))
	b = append(b, `,"robots":`...)
	if f := e.File; f == nil {
		b = append(b, "null"...)
	} else {
		b = appendFile(b, f)
	}
	b = append(b, `,"policy":`...)
	if e.Policy == nil {
		b = append(b, "null"...)
	} else {
		b = safetext.AppendJSON(b, string(e.Policy))
	}
	if base := SignatureBase(e.Record); base != "" {
		b = safetext.AppendJSON(append(b, `,"signature_base":`...), base)
	}
	_, err := w.Write(append(b, "}\n"...))
	return err
}

// appendFile appends f as a JSON object.
func appendFile(b []byte, f *audit.File) []byte {
	b = safetext.AppendJSON(append(b, `{"origin":`...), f.Origin.String())
	b = safetext.AppendJSON(append(b, `,"state":`...), f.State)
	b = fmt.Appendf(b, `,"status":%d,"size":%d`, f.Status, f.Size)
	b = safetext.AppendJSON(append(b, `,"sha256":`...), f.SHA256)
	b = append(b, `,"redirects":[`...)
	for i, u := range f.Redirects {
		if i > 0 {
			b = append(b, ',')
		}
		b = safetext.AppendJSON(b, u)
	}
	b = append(b, ']')
	b = appendValue(append(b, `,"fetched_at":`...), f.Fetched)
	b = appendValue(append(b, `,"first_seen":`...), f.FirstSeen)
	b = appendValue(append(b, `,"last_seen":`...), f.LastSeen)
	b = safetext.AppendJSON(append(b, `,"header":`...), f.Header)
	b = safetext.AppendJSON(append(b, `,"body":`...), string(f.Body))
	return append(b, '}')
}
