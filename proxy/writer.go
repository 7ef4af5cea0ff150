package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// responseWriter is what goproxy writes an answer to. It copies bodies with pooled buffers, passes on each piece of a
// body as it comes, and remembers a connection that was taken over.
type responseWriter struct {
	http.ResponseWriter
	ex       *exchange
	hijacked net.Conn
	written  bool // the final header was
}

// Unwrap is for http.ResponseController.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sends the header of a stream at once: it alone tells a client that the stream has begun. An answer without
// Content-Type stays without: net/http would guess one from the body, and only the client may do that (RFC 9110 section 8.3).
func (w *responseWriter) WriteHeader(status int) {
	if h := w.Header(); h["Content-Type"] == nil {
		h["Content-Type"] = nil
	}
	if status == http.StatusSwitchingProtocols {
		w.ex.conn.Open() // before the client hears of it and answers in the other protocol
	}
	w.ResponseWriter.WriteHeader(status)
	w.written = true
	if w.ex.length < 0 {
		w.Flush()
	}
}

// shortWrite is the longest write to the client that does not count as a wait for it. A busy machine may need that long.
const shortWrite = 10 * time.Millisecond

func (w *responseWriter) Write(p []byte) (int, error) {
	w.written = true
	w.ex.clientTime.Begin()
	defer w.ex.clientTime.End(shortWrite)
	return w.ResponseWriter.Write(p)
}

// Flush is what http.Flusher wants; a writer that cannot flush needs none.
func (w *responseWriter) Flush() {
	w.ex.clientTime.Begin()
	defer w.ex.clientTime.End(shortWrite)
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack takes over the connection, for a WebSocket. Its end is the end of the handler: goproxy leaves the client's side
// open after the origin closed its own.
func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.hijacked = newWebSocket(conn, w.ex.upgraded, w.ex, w.ex.server.options.IdleTimeout)
	w.ex.server.track(w.hijacked)
	return w.hijacked, rw, nil
}

// release ends a connection that was taken over.
func (w *responseWriter) release() {
	if w.hijacked != nil {
		w.hijacked.Close()
		w.ex.server.untrack(w.hijacked)
	}
}

// clientBody is the body of a request. It counts each read as a wait for the client.
type clientBody struct {
	io.ReadCloser
	time *ratelimit.ClientTime
}

func (b clientBody) Read(p []byte) (int, error) {
	b.time.Begin()
	defer b.time.End(0)
	return b.ReadCloser.Read(p)
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// ReadFrom copies a body, and holds nothing of it back while more is awaited. io.Copy would make a buffer of its own for
// every request.
func (w *responseWriter) ReadFrom(src io.Reader) (n int64, err error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		read, readErr := src.Read(*buf)
		if read > 0 {
			wrote, err := w.Write((*buf)[:read])
			n += int64(wrote)
			if err != nil {
				return n, err
			}
			if w.ex.length < 0 || n < w.ex.length {
				w.Flush()
			}
		}
		if readErr == io.EOF {
			return n, nil
		}
		if readErr != nil {
			return n, readErr
		}
	}
}
