package proxy

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// FetchesOptions are the parts that Fetches works with.
type FetchesOptions struct {
	Recorder Recorder        // if nil, nothing is recorded
	IDs      *audit.Sequence // of the records; required with Recorder
	Query    audit.QueryMode // what records keep of queries; if zero, credentials are masked
}

// Fetches records the requests that we make ourselves for robots.txt files, so that the records hold each request that an
// origin has seen from us. Its methods may be called by many goroutines at once.
type Fetches struct{ options FetchesOptions }

// NewFetches returns Fetches with these parts.
func NewFetches(o FetchesOptions) *Fetches { return &Fetches{o} }

// Admit is robots.FetcherOptions.Admit.
func (f *Fetches) Admit(_ context.Context, hop robots.Hop) (robots.Visit, error) {
	return &fetchVisit{fetches: f, hop: hop}, nil
}

// fetchVisit is one request of a fetch.
type fetchVisit struct {
	fetches *Fetches
	hop     robots.Hop
	rec     *audit.Record
}

// Begin begins the record.
func (v *fetchVisit) Begin(ctx context.Context) error {
	f := v.fetches
	if f.options.Recorder == nil {
		return nil
	}
	v.rec = f.record(v.hop)
	if err := f.options.Recorder.Begin(ctx, v.rec); err != nil {
		return &robots.LaterError{Err: unrecordedError{err}}
	}
	v.rec.SentAt = time.Now()
	return nil
}

// record returns the record of a request that is about to be sent.
func (f *Fetches) record(hop robots.Hop) *audit.Record {
	now := time.Now()
	path, query, _ := strings.Cut(hop.Target, "?")
	return &audit.Record{
		ID: f.options.IDs.Next(now), Time: now, Client: hop.Asker.Name, UserAgent: cut(hop.UserAgent, 1024), Via: audit.Robots,
		Method: http.MethodGet, Scheme: hop.To.Scheme(), Host: hop.To.Host(), Port: hop.To.Port(),
		Path: cut(f.options.Query.Path(path), 8192), Query: cut(f.options.Query.Apply(query), 8192), Decision: policy.Allow,
	}
}

// End completes the record.
func (v *fetchVisit) End(o robots.Outcome) {
	if v.rec == nil {
		return
	}
	v.rec.EndedAt = time.Now()
	v.rec.Bytes = o.Bytes
	if o.Addr != nil {
		v.rec.UpstreamAddr = addrString(o.Addr)
	}
	if o.Response != nil {
		v.rec.Status, v.rec.FirstByte = o.Response.StatusCode, audit.Millis(o.Header.Sub(v.rec.SentAt))
	}
	if o.Err != nil {
		v.rec.Error = v.fetches.options.Query.Text(o.Err.Error())
	}
	v.fetches.options.Recorder.End(v.rec)
}

// unrecordedError says that a request of our own was not made since it could not be recorded.
type unrecordedError struct{ error }

func (e unrecordedError) Unwrap() error { return e.error }
