package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/fields"
	"github.com/robotsproxy/robotsproxy/internal/http1"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots"
)

// response is the answer to the client. goproxy writes to it: it copies bodies with pooled buffers, flushes each piece
// of a stream, and closes a hijacked connection at the end.
type response struct {
	http.ResponseWriter // nil if net/http has no request to answer
	ex                  *exchange
	conn                net.Conn // if not nil, the answer is written here without net/http

	robots    *robots.Snapshot  // if not nil, the answer is this file
	handshake *fields.Handshake // of a request for a WebSocket, else nil
	length    int64             // of the body; negative if unknown
	err       error             // of reading the origin's body
	upgraded  io.Closer         // the origin's side of a WebSocket
	hijacked  net.Conn          // the client's side of it
	detach    func() bool       // from Server.streams
	written   bool              // the final header was written

	mu      sync.Mutex // guards final and interim: the transport calls got1xx in another goroutine
	final   bool       // no interim response may follow
	interim int        // number of interim responses
}

// write writes an answer of the proxy to the client, in one of three ways. At a CONNECT it takes the connection from
// net/http and closes it, since package http1 checks nothing after a CONNECT. Bytes that are not a request have no
// ResponseWriter; package http1 closes their connection. A tunnel that is open has neither, and its client gets no
// answer.
func (w *response) write(req *http.Request, resp *http.Response) {
	if req.Method == http.MethodConnect {
		if conn, _, err := http.NewResponseController(w.ResponseWriter).Hijack(); err == nil {
			http1.CloseWithResponse(conn, wire(resp))
			return
		}
	}
	switch {
	case w.conn != nil:
		_ = w.conn.SetWriteDeadline(time.Now().Add(http1.LingerTime))
		_, _ = w.conn.Write(wire(resp)) // the client may have left; the record is complete
		return
	case w.ResponseWriter == nil:
		return
	}
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

// wire returns the bytes of the last response on a connection.
func wire(resp *http.Response) []byte {
	resp.Close = true
	var b bytes.Buffer
	_ = resp.Write(&b) // a Buffer takes all
	return b.Bytes()
}

// limitDrain bounds the wait for a body that is not wanted. net/http reads the rest of a small one before it sends the
// answer, so that the connection can be used again, and reads one that the client holds back (Expect) afterwards.
func limitDrain(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(http1.LingerTime))
	}
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sends the header of a stream at once: it alone shows a client that the stream has begun. An answer
// without Content-Type stays without: net/http would guess one from the body, and only the client may (RFC 9110 section
// 8.3).
func (w *response) WriteHeader(status int) {
	if h := w.Header(); h["Content-Type"] == nil {
		h["Content-Type"] = nil
	}
	if status >= http.StatusOK && w.ex.server.retiring.Load() {
		w.Header().Set("Connection", "close") // net/http makes it a GOAWAY frame in HTTP/2
	}
	if status == http.StatusSwitchingProtocols {
		w.ex.conn.Open() // before the client sees the 101 and answers in the other protocol
	}
	w.ResponseWriter.WriteHeader(status)
	w.written = true
	if w.length < 0 {
		w.Flush()
	}
}

// shortWrite is the longest write to the client that does not count as a wait for it. A busy machine may need that
// long.
const shortWrite = 10 * time.Millisecond

func (w *response) Write(p []byte) (int, error) {
	w.written = true
	w.ex.blocked.Begin()
	defer w.ex.blocked.End(shortWrite)
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher. A ResponseWriter that cannot flush buffers nothing.
func (w *response) Flush() {
	w.ex.blocked.Begin()
	defer w.ex.blocked.End(shortWrite)
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack takes over the connection for a WebSocket. release closes it: goproxy leaves the client's side open after the
// origin closed the other.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.ex.settings = w.ex.settings.withoutPolicy()
	w.hijacked = newWebSocket(conn, w.upgraded, w.ex, w.ex.settings.IdleTimeout)
	w.ex.server.track(w.hijacked)
	w.detach = context.AfterFunc(w.ex.server.streams, func() { w.ex.cancel(errStopping) })
	return w.hijacked, rw, nil
}

// release closes a connection that was hijacked.
func (w *response) release() {
	if w.hijacked != nil {
		w.detach()
		w.hijacked.Close()
		w.ex.server.untrack(w.hijacked)
	}
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// ReadFrom copies a body and flushes it as long as more is expected. io.Copy would allocate a buffer for every request.
func (w *response) ReadFrom(src io.Reader) (n int64, err error) {
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
			if w.length < 0 || n < w.length {
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

// maxInterim bounds the interim responses (1xx) to one request.
const maxInterim = 64

var errManyInterim = errors.New("the origin sends interim answers without end")

// got1xx forwards an interim response such as 103 Early Hints (RFC 8297), but not to HTTP/1.0 (RFC 9110 section 15.2).
// 100 and 101 belong to the connection to the origin. The transport bounds the size of each, but not their number.
func (w *response) got1xx(code int, header textproto.MIMEHeader) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.interim++; w.interim > maxInterim {
		return errManyInterim
	}
	if w.final || w.ex.http10 || code == http.StatusContinue || code == http.StatusSwitchingProtocols {
		return nil
	}
	h := w.Header()
	maps.Copy(h, header)
	fields.CleanHeader(h, false)
	fields.DropOwnStatus(h)
	w.ResponseWriter.WriteHeader(code)
	clear(h)
	return nil
}

// sendContinue asks a client that waits for it (Expect) to send its body.
func (w *response) sendContinue() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.final && !w.ex.http10 {
		w.ResponseWriter.WriteHeader(http.StatusContinue)
	}
}

// endInterim lets no interim response be sent after it returns.
func (w *response) endInterim() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.final = true
}

var errNoStatus = errors.New("the status of the origin's answer is not one of HTTP")

// checkAnswer reports why an answer cannot be passed on.
func (ex *exchange) checkAnswer(resp *http.Response) error {
	onlyConnectionAuth := fields.DropConnectionAuth(resp.Header)
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		if err := ex.response.handshake.Check(resp.Header); err != nil {
			return fmt.Errorf("the origin's 101 answers no handshake: %w", err)
		}
		return ex.keepOpen(func(error) { resp.Body.Close() })
	case resp.StatusCode == http.StatusUnauthorized && onlyConnectionAuth:
		return errConnectionAuth
	case resp.StatusCode < http.StatusOK || resp.StatusCode > 999: // the transport accepts 000, and in HTTP/2 1000
		return errNoStatus
	}
	return nil
}

// receive prepares the origin's answer for the client: its fields, its body, and the record that ends with the body.
func (ex *exchange) receive(resp *http.Response) {
	ex.rec.Status = resp.StatusCode
	switching := resp.StatusCode == http.StatusSwitchingProtocols
	ex.receiveHeader(resp, switching)
	if switching {
		ex.response.upgraded = resp.Body
		ex.released = ex.grant.Release(ratelimit.Outcome{}) // a WebSocket returns its place at once; the record ends with it
		return
	}
	if len(resp.Trailer) > 0 && resp.Request.ProtoMajor == 1 {
		// HTTP/2 has trailers after a body of known length; HTTP/1.1 has them after chunks only (RFC 9112 section 7.1.2).
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
	}
	if ex.settings.UsageHTML {
		ex.page = newPage(resp)
	}
	ex.response.length = resp.ContentLength
	early := ex.upload != nil && ex.upload.answered(resp)
	if early {
		ex.response.length = -1 // the client may wait for the first bytes before it sends the rest
	}
	resp.Body = &body{ReadCloser: resp.Body, ex: ex, resp: resp, early: early && wantsRest(resp)}
}

func (ex *exchange) receiveHeader(resp *http.Response, webSocket bool) {
	fields.CleanHeader(resp.Header, webSocket)
	fields.DropOwnStatus(resp.Header)
	ex.server.via.Add(resp.Header, resp.ProtoMajor)
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		resp.Header.Add("Proxy-Status", fmt.Sprintf("%s; received-status=%d", fields.OwnName, resp.StatusCode))
	}
	if ex.preference != "" {
		resp.Header.Set("Preference-Applied", ex.preference)
	}
	if ex.settings.ResponseFields {
		resp.Header.Set("Robotsproxy-Request-Id", ex.rec.ID.String())
		resp.Header.Set("Robotsproxy-Waited", fmt.Sprintf("%.3f", time.Duration(ex.waitedBefore+ex.rec.Waited).Seconds()))
	}
}

// answerRobots answers a request for /robots.txt without asking the origin, and without a place in the lane.
func (ex *exchange) answerRobots(req *http.Request) *http.Response {
	resp := ex.response.robots.Response(req, ex.judged.Dialect, time.Now())
	ex.rec.Status = resp.StatusCode
	resp.Body = &body{ReadCloser: resp.Body, ex: ex, resp: resp}
	return resp
}

// wantsRest reports whether an origin that has answered early may still read the request. The transport stops sending
// after an answer of HTTP/2 that is not 2xx, and the proxy does the same for HTTP/1.1.
func wantsRest(resp *http.Response) bool { return resp.StatusCode < 300 && !resp.Close }

// body is the body of an answer. It counts the bytes, and ends the exchange when it is read to its end or breaks off.
type body struct {
	io.ReadCloser
	ex    *exchange
	resp  *http.Response // the transport fills its Trailer at the end
	whole bool           // it was read to its end
	early bool           // it came before its request was sent, and the origin may still read that
}

func (b *body) Read(p []byte) (n int, err error) {
	n, err = b.ReadCloser.Read(b.holdBack(p))
	b.ex.rec.Bytes += int64(n)
	b.ex.page.add(p[:n])
	switch err {
	case nil:
	case io.EOF:
		b.whole = true
		fields.CleanTrailer(b.resp.Trailer)
		b.ex.end(nil)
	default:
		b.ex.response.err = err
		b.ex.abort(err)
	}
	return n, err
}

// holdBack keeps the last byte of an early answer of HTTP/1.1 back until its request is sent: 50 ms after it has read
// the last byte, the transport closes the connection.
func (b *body) holdBack(p []byte) []byte {
	left := b.resp.ContentLength - b.ex.rec.Bytes
	switch {
	case !b.early || b.resp.ProtoMajor != 1 || left < 1 || left > int64(len(p)):
		return p
	case left > 1:
		return p[:left-1]
	}
	b.ex.upload.awaitSent(false)
	return p
}

// Close ends the origin's side, which in HTTP/2 is the whole stream: an early answer waits until its request is sent.
func (b *body) Close() error {
	if b.early && b.whole && b.resp.ProtoMajor == 2 {
		b.ex.upload.awaitSent(b.ex.upload.known)
	}
	return b.ReadCloser.Close()
}
