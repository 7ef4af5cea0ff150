package admin

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/internal/auditquery"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
)

// listRecords lists records in the order of their IDs, the newest first unless order is oldest. In JSON it names the ID
// after which the next page begins, or null at the end.
func listRecords(q *auditQuestion) error {
	if err := q.page(); err != nil {
		return err
	}
	limit := q.filter.Limit
	q.filter.Limit++
	rows := auditview.NewRecords(q.out, q.options)
	isPage := q.options.Format == auditview.JSON
	var last audit.ID
	n := 0
	for r, err := range q.records.Records(q.Context(), q.filter) {
		if err != nil {
			return err
		}
		if n++; n > limit {
			break
		}
		if n == 1 && isPage {
			if _, err := q.out.Write([]byte(`{"records":`)); err != nil {
				return err
			}
		}
		last = r.ID
		if err := rows.Add(r); err != nil {
			return err
		}
	}
	if n == 0 && isPage {
		_, err := q.out.Write([]byte(`{"records":[],"next":null}` + "\n"))
		return err
	}
	if err := rows.Close(); err != nil || !isPage {
		return err
	}
	next := "null"
	if n > limit {
		next = strconv.Quote(last.String())
	}
	_, err := fmt.Fprintf(q.out, `,"next":%s}`+"\n", next)
	return err
}

// page reads the order of records and the cursor.
func (q *auditQuestion) page() (err error) {
	switch order := q.params.Get("order"); order {
	case "", "newest":
		q.filter.Newest = true
	case "oldest":
	default:
		return &apiError{http.StatusBadRequest, fmt.Errorf("order %q is neither newest nor oldest", order)}
	}
	if text := q.params.Get("after"); text != "" {
		if q.filter.After, err = audit.ParseID(text); err != nil {
			return &apiError{http.StatusBadRequest, fmt.Errorf("after %q is not an id of a record", text)}
		}
	}
	return nil
}

// explainRecord shows a record, and the robots.txt and the policy that decided.
func explainRecord(q *auditQuestion) error {
	r, err := auditview.Find(q.Context(), q.records, q.PathValue("id"))
	var (
		invalid   *auditview.InvalidIDError
		ambiguous *auditview.AmbiguousError
	)
	switch {
	case errors.Is(err, audit.ErrNoRecord):
		return &apiError{http.StatusNotFound, err}
	case errors.As(err, &invalid), errors.As(err, &ambiguous):
		return &apiError{http.StatusBadRequest, err}
	case err != nil:
		return err
	}
	e, err := auditview.Explain(q.Context(), q.records, r, q.now)
	if err != nil {
		return err
	}
	return e.Write(q.out, q.options)
}

func (q *auditQuestion) sums() *auditview.Sums {
	return &auditview.Sums{Records: q.records, Options: q.options, Out: q.out}
}

func topValues(q *auditQuestion) error {
	by, err := auditquery.Topic("topic", q.PathValue("topic"))
	if err != nil {
		return &apiError{http.StatusNotFound, err}
	}
	_, err = q.sums().Top(q.Context(), q.filter, by)
	return err
}

func summarize(q *auditQuestion) error {
	by, err := auditquery.Listed("by", q.list("by"), audit.Dimensions)
	if err != nil {
		return &apiError{http.StatusBadRequest, err}
	}
	_, err = q.sums().Summarize(q.Context(), auditview.Summary{Filter: q.filter, By: by})
	return err
}

func wouldDeny(q *auditQuestion) error {
	_, err := q.sums().WouldDeny(q.Context(), q.filter)
	return err
}

// listUses lists what sites stated about the use of their content, and the fetches for each purpose.
func listUses(q *auditQuestion) error {
	_, err := auditview.Uses(q.Context(), q.out, q.options, q.records, q.filter)
	return err
}

// usualPoints is how many points a timeline has without a step.
const usualPoints = 120

// timeline counts records in steps of time.
func timeline(q *auditQuestion) error {
	if q.filter.Until.IsZero() {
		q.filter.Until = q.now
	}
	span := q.filter.Until.Sub(q.filter.Since)
	step := max(time.Minute, (span / usualPoints).Truncate(time.Minute))
	if text := q.params.Get("step"); text != "" {
		var err error
		if step, err = auditquery.Step("step", text); err != nil {
			return &apiError{http.StatusBadRequest, err}
		}
	}
	if span/step > mostRows {
		return &apiError{http.StatusBadRequest, fmt.Errorf("a step of %v gives more than %d points: write a longer one", step, mostRows)}
	}
	points, err := q.records.Timeline(q.Context(), q.filter, step)
	if err != nil {
		return err
	}
	if points == nil {
		points = []audit.Point{}
	}
	writeJSON(q.out, Timeline{q.filter.Since, q.filter.Until, inSeconds(step), points})
	return nil
}

// Timeline is the response to /api/v1/audit/timeline. Steps without records have no point.
type Timeline struct {
	Since  time.Time     `json:"since"`
	Until  time.Time     `json:"until"`
	Step   float64       `json:"step_seconds"`
	Points []audit.Point `json:"points"`
}

// spacing measures the gaps between requests.
func spacing(q *auditQuestion) error {
	limit := q.filter.Limit
	q.filter.Limit = 0
	report, err := proof.Spacing(q.Context(), q.records, q.filter)
	if err != nil {
		return err
	}
	report.Lanes = bounded(report.Lanes, limit)
	if q.options.Format != auditview.JSON {
		return auditview.Spacing(q.out, q.options, report, q.filter.Host)
	}
	writeJSON(q.out, report)
	return nil
}

// changes lists the versions of the robots.txt files of a host with their differences, the newest first.
func changes(q *auditQuestion) error {
	if err := q.oneHost(); err != nil {
		return err
	}
	limit := q.filter.Limit
	q.filter.Limit = 0
	all, err := proof.Changes(q.Context(), q.records, q.filter)
	if err != nil {
		return err
	}
	return auditview.Changes(q.out, q.options, bounded(all, limit))
}

// oneHost checks that the question names a host, and not a pattern.
func (q *auditQuestion) oneHost() error {
	if q.filter.Host == "" || strings.HasPrefix(q.filter.Host, "*") {
		return &apiError{http.StatusBadRequest, fmt.Errorf("host %q is not one host, such as a.example", q.params.Get("host"))}
	}
	return nil
}

// bounded returns at most limit of all, and never nil.
func bounded[T any](all []T, limit int) []T { return append([]T{}, all[:min(len(all), limit)]...) }

// AuditFile is a version of the robots.txt of an origin, in the response to /api/v1/audit/files.
type AuditFile struct {
	Origin    string    `json:"origin"`
	State     string    `json:"state"`
	Status    int       `json:"status"`
	SHA256    string    `json:"sha256"`
	Size      int       `json:"size"`
	Redirects []string  `json:"redirects"`
	Header    string    `json:"header"`
	FetchedAt time.Time `json:"fetched_at"`
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
}

// listAuditFiles lists the versions of the robots.txt files of a host, the oldest first.
func listAuditFiles(q *auditQuestion) error {
	if err := q.oneHost(); err != nil {
		return err
	}
	files, err := q.records.Files(q.Context(), q.filter.Host)
	if err != nil {
		return err
	}
	list := []AuditFile{}
	for _, f := range files[:min(len(files), mostRows)] {
		list = append(list, AuditFile{
			f.Origin.String(), f.State, f.Status, f.SHA256, f.Size, append([]string{}, f.Redirects...), f.Header, f.Fetched, f.FirstSeen, f.LastSeen,
		})
	}
	writeJSON(q.out, list)
	return nil
}

// showBody writes a robots.txt unchanged.
func showBody(q *auditQuestion) error {
	sum := q.PathValue("sha256")
	if b, err := hex.DecodeString(sum); err != nil || len(b) != 32 {
		return &apiError{http.StatusBadRequest, fmt.Errorf("%q is not a SHA-256 of 64 hexadecimal digits", sum)}
	}
	body, err := q.records.Body(q.Context(), sum)
	switch {
	case errors.Is(err, audit.ErrNoFile):
		return &apiError{http.StatusNotFound, fmt.Errorf("no robots.txt with the SHA-256 %s is kept", sum)}
	case err != nil:
		return err
	}
	q.out.(http.ResponseWriter).Header().Set("Content-Type", "application/octet-stream")
	_, err = q.out.Write(body)
	return err
}
