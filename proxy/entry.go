package proxy

import (
	"context"
	"net/http"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/fields"
)

// entry is the audit record of an exchange. It is begun once the decision is made, and ended exactly once. Only the
// goroutine that handles the request uses it, or the one that runs a raw tunnel.
type entry struct {
	recorder Recorder
	query    audit.QueryMode
	from     string // the address of the client, with its port
	addrs    audit.AddrMode

	rec      audit.Record
	released time.Time // when the request gave back its place in the lane; zero: it has not, or had no place
	begun    bool
	failed   error // of begin, which is not tried again: the Recorder may have kept the refusal
	ended    bool
}

// begin passes the record to the Recorder. The proxy sends and answers nothing before it returns nil.
func (e *entry) begin(ctx context.Context) error {
	if e.begun || e.failed != nil {
		return e.failed
	}
	e.failed = e.recorder.Begin(ctx, &e.rec)
	e.begun = e.failed == nil
	e.rec.Evidence = audit.Evidence{} // else a tunnel would hold a policy that a reload has replaced
	return e.failed
}

// complete ends the record. The caller checks that it has not ended.
func (e *entry) complete(now time.Time, cause error) {
	e.ended = true
	if cause != nil && e.rec.Error == "" {
		e.rec.Error = withoutAddr(cause.Error(), e.from, e.addrs)
	}
	e.rec.SetEnd(e.released, now)
	if e.begun {
		e.recorder.End(&e.rec)
	}
}

// noteRefusal records that ref is the answer.
func (e *entry) noteRefusal(ref *refusal) {
	e.rec.Decision, e.rec.Reason = ref.Outcome, ref.Reason
	e.rec.Status, e.rec.RetryAfter = ref.Status, ref.retryAfter()
	if ref.Err != nil {
		e.rec.Error = e.query.Text(withoutAddr(ref.Err.Error(), e.from, e.addrs))
	}
}

// noteUsage records the preferences and the price in the header of a response. It returns the preferences in the order
// of the record.
func (e *entry) noteUsage(h http.Header) []string {
	e.rec.CrawlerPrice = fields.CrawlerPrice(h)
	preferences := fields.ResponseUsage(h)
	if len(preferences) > 0 {
		e.rec.AddUsage(e.query.Text(fields.UsageText("header", preferences)))
	}
	return preferences
}
