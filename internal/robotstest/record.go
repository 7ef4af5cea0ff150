package robotstest

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Request is a request as the site received it.
type Request struct {
	Start time.Time // when its header was read
	// End is the time just before the last part of the response was sent, or before the connection of a WebSocket was
	// closed. So it is never later than the time at which the client had the whole response. Zero until then.
	End       time.Time
	TLS       bool
	Proto     string // "HTTP/1.1", "HTTP/2.0"
	Method    string
	Host      string // as sent, with any port
	Target    string // as sent
	UserAgent string
	Header    http.Header // without Host, as in net/http
	Status    int         // of the response; 0 if it has none yet, or never had one
}

// String returns the request in one line, for test failures and scripts: "GET https://a.example/page/1 200".
func (r Request) String() string {
	scheme := "http"
	if r.TLS {
		scheme = "https"
	}
	return fmt.Sprintf("%s %s://%s%s %d", r.Method, scheme, r.Host, r.Target, r.Status)
}

// Requests returns all requests since the start or the last Reset, in order of arrival.
func (s *Site) Requests() []Request {
	if s.recorder == nil {
		return nil
	}
	return s.recorder.requests()
}

// Reset deletes the recorded requests.
func (s *Site) Reset() {
	if s.recorder != nil {
		s.recorder.reset()
	}
}

// recorder stores requests in order of arrival.
type recorder struct {
	mu   sync.Mutex // guards kept and its entries
	kept []*Request
}

// begin records r. It reads the clock under the lock, so that start times and order agree.
func (rec *recorder) begin(r *http.Request) *Request {
	entry := &Request{
		TLS:       r.TLS != nil,
		Proto:     r.Proto,
		Method:    r.Method,
		Host:      r.Host,
		Target:    r.RequestURI,
		UserAgent: r.UserAgent(),
		Header:    r.Header.Clone(),
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	entry.Start = time.Now()
	rec.kept = append(rec.kept, entry)
	return entry
}

func (rec *recorder) setStatus(entry *Request, status int) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	entry.Status = status
}

// end sets the end time of entry. Only the first call has an effect.
func (rec *recorder) end(entry *Request) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if entry.End.IsZero() {
		entry.End = time.Now()
	}
}

func (rec *recorder) requests() []Request {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	all := make([]Request, len(rec.kept))
	for i, entry := range rec.kept {
		all[i] = *entry
	}
	return all
}

func (rec *recorder) reset() {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.kept = nil
}

// record calls next to answer r, and records both.
func (rec *recorder) record(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	entry := rec.begin(r)
	defer rec.end(entry) // also if next panics
	response := &recorded{ResponseWriter: w, recorder: rec, entry: entry, left: -1}
	next(response, r)
	response.finish()
}

// recorded is a ResponseWriter that records the status and the end of the response.
type recorded struct {
	http.ResponseWriter
	recorder *recorder
	entry    *Request
	final    bool  // the status is recorded, or the handler hijacked the connection
	left     int64 // bytes of Content-Length not yet written; -1 if the response ends with the handler
}

func (w *recorded) WriteHeader(status int) {
	if interim := status < 200 && status != http.StatusSwitchingProtocols; !interim && !w.final {
		w.final = true
		w.recorder.setStatus(w.entry, status)
		if n, err := strconv.ParseInt(w.Header().Get("Content-Length"), 10, 64); err == nil {
			w.left = n
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorded) Write(p []byte) (int, error) {
	if !w.final {
		w.WriteHeader(http.StatusOK)
	}
	if w.left >= 0 {
		if w.left -= int64(len(p)); w.left <= 0 {
			w.recorder.end(w.entry) // before the write: after it, the next request may already have arrived
		}
	}
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher. It sets the status 200 if the handler has set none.
func (w *recorded) Flush() { _ = w.FlushError() }

// FlushError is like Flush; http.ResponseController prefers it.
func (w *recorded) FlushError() error {
	if !w.final {
		w.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker. A handler that hijacks the connection writes its own status, which is recorded only
// if the handler called WriteHeader before.
func (w *recorded) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.final = true
	return &hijacked{Conn: conn, end: func() { w.recorder.end(w.entry) }}, buffered, nil
}

// hijacked is a connection that ends its request just before it is closed.
type hijacked struct {
	net.Conn
	end func()
}

// Close implements net.Conn.
func (c *hijacked) Close() error {
	c.end()
	return c.Conn.Close()
}

// Unwrap gives http.ResponseController access to deadlines and full duplex.
func (w *recorded) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// finish records the status 200 if the handler has set no status.
func (w *recorded) finish() {
	if !w.final {
		w.recorder.setStatus(w.entry, http.StatusOK)
	}
}
