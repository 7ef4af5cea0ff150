package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/auditquery"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
)

// Limits for questions about records. Questions read as much of the records as they need, so a heavy one ends at
// questionTime, and few are answered at a time.
const (
	questionTime = 30 * time.Second
	questions    = 4
	mostRows     = 10_000
	defaultRows  = 100
)

// auditQuestion is a question about records, and its answer.
type auditQuestion struct {
	*http.Request
	records audit.Reader
	now     time.Time
	params  url.Values
	filter  audit.Filter
	out     io.Writer
	options auditview.Options
}

// auditRoute is an operation that answers a question.
type auditRoute struct {
	pattern string
	answer  func(*auditQuestion) error
	params  []string           // besides those that select records
	since   string             // the default of since
	formats []auditview.Format // besides JSON
}

var (
	filterParams = []string{"since", "until", "host", "client", "agent", "tag", "decision", "reason", "path", "rule", "via"}
	rowFormats   = []auditview.Format{auditview.JSONL, auditview.CSV}
)

func (h *Handler) auditRoutes() (routes []route) {
	for _, a := range []auditRoute{
		{"GET /audit/records", listRecords, []string{"limit", "after", "order"}, "", rowFormats},
		{"GET /audit/records/{id}", explainRecord, nil, "", nil},
		{"GET /audit/top/{topic}", topValues, []string{"limit"}, "", rowFormats},
		{"GET /audit/summary", summarize, []string{"limit", "by"}, "", rowFormats},
		{"GET /audit/would-deny", wouldDeny, []string{"limit"}, "", rowFormats},
		{"GET /audit/usage", listUses, []string{"limit"}, "", rowFormats},
		{"GET /audit/timeline", timeline, []string{"step"}, "24h", nil},
		{"GET /audit/spacing", spacing, []string{"limit"}, "24h", rowFormats},
		{"GET /audit/changes", changes, []string{"limit"}, "", rowFormats},
		{"GET /audit/files", listAuditFiles, nil, "", nil},
		{"GET /audit/bodies/{sha256}", showBody, nil, "", nil},
	} {
		routes = append(routes, route{pattern: a.pattern, serve: h.asking(a)})
	}
	return routes
}

// asking returns the handler of a.
func (h *Handler) asking(a auditRoute) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out := &reply{ResponseWriter: w}
		if err := h.answer(a, out, r); err != nil {
			out.fail(err)
		}
	}
}

// answer answers one question, when there is a place for it.
func (h *Handler) answer(a auditRoute, out *reply, r *http.Request) error {
	ctx, end, err := h.begin(r.Context())
	if err != nil {
		return err
	}
	defer end()
	q, err := newQuestion(a, r.WithContext(ctx))
	if err != nil {
		return &apiError{http.StatusBadRequest, err}
	}
	// Until the end of its body a response holds a place and a transaction of the store.
	_ = http.NewResponseController(out.ResponseWriter).SetWriteDeadline(time.Now().Add(h.options.questionTime))
	q.records, q.out = h.options.Records, out
	out.Header().Set("Content-Type", contentTypes[q.options.Format])
	return h.inTime(ctx, a.answer(q))
}

// begin waits for a place to answer a question about records. The answer must end with the context. Then end must be
// called.
func (h *Handler) begin(parent context.Context) (ctx context.Context, end func(), err error) {
	if h.options.Records == nil {
		return nil, nil, &apiError{http.StatusConflict, errors.New("audit.store is none: the records are only in the JSON lines of " +
			"audit.jsonl. Set audit.store to sqlite or postgres, and start robotsproxy again")}
	}
	ctx, cancel := context.WithTimeout(parent, h.options.questionTime)
	select {
	case h.questions <- struct{}{}:
		return ctx, func() { <-h.questions; cancel() }, nil
	case <-ctx.Done():
		cancel()
		return nil, nil, &apiError{http.StatusServiceUnavailable, errors.New("other questions are being answered; ask again later")}
	}
}

// inTime returns err, or the error of an answer that took too long.
func (h *Handler) inTime(ctx context.Context, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &apiError{http.StatusServiceUnavailable, fmt.Errorf("the answer would take longer than %v: "+
			"a shorter time (since, until) or a host takes less", h.options.questionTime)}
	}
	return err
}

// newQuestion reads the parameters of r.
func newQuestion(a auditRoute, r *http.Request) (*auditQuestion, error) {
	q := &auditQuestion{Request: r, now: time.Now().UTC(), params: r.URL.Query()}
	known := append(append(a.params, "format"), filterParams...)
	for name := range q.params {
		if _, err := auditquery.Listed("parameter", []string{name}, known); err != nil {
			return nil, err
		}
	}
	v := q.params
	words := auditquery.Words{
		Since: v.Get("since"), Until: v.Get("until"), Host: v.Get("host"), Client: v.Get("client"), Agent: v.Get("agent"), Tag: v.Get("tag"),
		Path: v.Get("path"), Rule: v.Get("rule"), Decisions: q.list("decision"), Reasons: q.list("reason"), Vias: q.list("via"),
	}
	if words.Since == "" {
		words.Since = a.since
	}
	var err error
	if q.filter, err = words.Filter(q.now); err != nil {
		return nil, err
	}
	if q.filter.Limit, err = q.limit(); err != nil {
		return nil, err
	}
	q.options.Format, err = q.format(a.formats)
	return q, err
}

// list returns the words of a parameter that may be repeated, or have several words with commas.
func (q *auditQuestion) list(name string) (words []string) {
	for _, v := range q.params[name] {
		if v != "" {
			words = append(words, strings.Split(v, ",")...)
		}
	}
	return words
}

func (q *auditQuestion) limit() (int, error) {
	text := q.params.Get("limit")
	if text == "" {
		return defaultRows, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostRows {
		return 0, fmt.Errorf("limit %q is not a number from 1 to %d", text, mostRows)
	}
	return n, nil
}

// contentTypes are the media types of formats.
var contentTypes = map[auditview.Format]string{
	auditview.JSON: "application/json", auditview.JSONL: "application/jsonl", auditview.CSV: "text/csv; charset=utf-8; header=present",
}

// format returns the format that the request asks for: by its parameter, or by the first type in Accept.
func (q *auditQuestion) format(more []auditview.Format) (auditview.Format, error) {
	all := append([]auditview.Format{auditview.JSON}, more...)
	if text := q.params.Get("format"); text != "" {
		found, err := auditquery.Listed("format", []string{text}, all)
		if err != nil {
			return "", err
		}
		return found[0], nil
	}
	for accepted := range strings.SplitSeq(strings.Join(q.Header["Accept"], ","), ",") {
		kind, _, _ := mime.ParseMediaType(accepted)
		f := map[string]auditview.Format{
			"application/json": auditview.JSON, "application/jsonl": auditview.JSONL, "application/x-ndjson": auditview.JSONL, "text/csv": auditview.CSV,
		}[kind]
		if slices.Contains(all, f) {
			return f, nil
		}
	}
	return auditview.JSON, nil
}

// reply is a response that begins with its body, so that an error before it becomes a problem.
type reply struct {
	http.ResponseWriter
	begun bool
}

func (w *reply) Write(b []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(b)
}

// fail answers with err. A response that has begun breaks off, so that the client does not take it for complete.
func (w *reply) fail(err error) {
	if w.begun {
		panic(http.ErrAbortHandler)
	}
	writeError(w.ResponseWriter, err)
}
