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

// Request is one request as it reached the site.
type Request struct {
	Start time.Time // when its head was read
	// End is when the last piece of the answer was about to be sent, or the connection of a WebSocket to be closed: so it is
	// never later than the moment the other side knew that it had all. Zero while the request is being answered.
	End       time.Time
	TLS       bool
	Proto     string // "HTTP/1.1", "HTTP/2.0"
	Method    string
	Host      string // as sent, with the port if there was one
	Target    string // as sent, in whatever form
	UserAgent string
	Header    http.Header // without Host, as net/http has it
	Status    int         // of the answer; 0 while there is none, and where there was none
}

// String returns the request in one line, for failures and scripts: "GET https://a.example/page/1 200".
func (r Request) String() string {
	scheme := "http"
	if r.TLS {
		scheme = "https"
	}
	return fmt.Sprintf("%s %s://%s%s %d", r.Method, scheme, r.Host, r.Target, r.Status)
}

// Requests returns everything that reached the site since it started or was Reset, in order of arrival.
func (s *Site) Requests() []Request {
	if s.recorder == nil {
		return nil
	}
	return s.recorder.requests()
}

// Reset forgets the recorded requests.
func (s *Site) Reset() {
	if s.recorder != nil {
		s.recorder.reset()
	}
}

// recorder keeps requests in order of arrival.
type recorder struct {
	mu   sync.Mutex // guards kept and what its entries point to
	kept []*Request
}

// begin records r. The clock is read under the lock, so that starts and order agree.
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

// end completes entry, once: the first call says the time.
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

// record answers r with next and records both.
func (rec *recorder) record(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	entry := rec.begin(r)
	defer rec.end(entry) // a handler that breaks off has ended too
	response := &recorded{ResponseWriter: w, recorder: rec, entry: entry, left: -1}
	next(response, r)
	response.finish()
}

// recorded is a ResponseWriter that tells the recorder what becomes of the answer.
type recorded struct {
	http.ResponseWriter
	recorder *recorder
	entry    *Request
	final    bool  // the status is known, or not ours to know
	left     int64 // octets of Content-Length still to be written; -1 where the handler's return is the end
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
			w.recorder.end(w.entry) // before the write: after it, the next request may already be here
		}
	}
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher. What it sends has a status.
func (w *recorded) Flush() { _ = w.FlushError() }

// FlushError is what http.ResponseController looks for before Flush.
func (w *recorded) FlushError() error {
	if !w.final {
		w.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker. A handler that takes the connection writes its own status, which is not recorded
// unless WriteHeader said it before.
func (w *recorded) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.final = true
	return &hijacked{Conn: conn, end: func() { w.recorder.end(w.entry) }}, buffered, nil
}

// hijacked is a connection whose request ends when it is about to be closed.
type hijacked struct {
	net.Conn
	end func()
}

// Close implements net.Conn.
func (c *hijacked) Close() error {
	c.end()
	return c.Conn.Close()
}

// Unwrap lets http.ResponseController find deadlines and full duplex.
func (w *recorded) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// finish gives a status to an answer whose handler gave none.
func (w *recorded) finish() {
	if !w.final {
		w.recorder.setStatus(w.entry, http.StatusOK)
	}
}
