package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/http1"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// heldBody is a request's body that was read before the request waits.
type heldBody struct{ *bytes.Buffer }

func (heldBody) Close() error { return nil }

// readSmallBody reads a small body out of the connection. net/http notices that a client has left only after the body
// was read, and a request must not be sent for a client that left while it waited. A larger body, one of unknown
// length, and one that the client holds back (Expect) stay in the connection: if such a client leaves, it is noticed
// during sending.
func (ex *exchange) readSmallBody(req *http.Request) *refusal {
	data := bytes.NewBuffer(make([]byte, 0, req.ContentLength+bytes.MinRead))
	_, err := data.ReadFrom(req.Body)
	req.Body = heldBody{data}
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ex.ctx), errTooLong):
		return ex.gone(err)
	}
	err = fmt.Errorf("reading the request's body: %w", err)
	return &refusal{Reason: policy.ReasonBadRequest, Detail: "The body of the request broke off.", Err: err}
}

// attachBody prepares the request's body for the transport.
func (ex *exchange) attachBody(req *http.Request) {
	if _, ok := req.Body.(heldBody); ok {
		return
	}
	req.Body = clientBody{req.Body, &ex.blocked}
	if req.ProtoMajor == 1 {
		ex.upload = newUpload(req, ex)
		req.Body = ex.upload
	}
}

// clientBody counts each read of a request's body as a wait for the client.
type clientBody struct {
	io.ReadCloser
	time *ratelimit.ClientTime
}

func (b clientBody) Read(p []byte) (int, error) {
	b.time.Begin()
	defer b.time.End(0)
	return b.ReadCloser.Read(p)
}

// upload is the body of an HTTP/1.1 request on its way to the origin. The origin may answer before it has read the
// body, and may or may not read on (RFC 9112 section 9.5, RFC 9113 section 8.1). net/http would delay that answer and
// discard the rest of the body, so that the origin would miss a part without notice. With full duplex it leaves the
// body to a goroutine here, which reads for the origin as long as the origin wants it, and then discards the rest,
// since many clients send everything before they read the answer.
//
// The origin gets every byte or an error. The client gets its answer; if the end of the body has not come by then, the
// connection ends with the answer.
type upload struct {
	*io.PipeReader // for the transport
	pipe           *io.PipeWriter
	body           io.Reader // net/http's
	ex             *exchange
	expects        bool // the client waits for 100 Continue
	known          bool // the answer has a Content-Length, so that the client sees its end

	start    sync.Once
	unread   bool          // nothing was read here, and net/http has the body; valid after start
	release  sync.Once     // closes released
	released chan struct{} // closed when the transport has sent the body, or wants no more of it
	done     chan struct{} // closed when the body is read no more
	whole    atomic.Bool   // the body was read to its end
	progress chan struct{} // receives after each piece that is read or sent
	gaveUp   bool          // the body stalled
}

// errCutShort is the transport's error for the rest of a body that was abandoned.
var errCutShort = errors.New("the request did not continue after its answer")

func newUpload(req *http.Request, ex *exchange) *upload {
	u := &upload{
		body: req.Body, ex: ex, expects: req.Header.Get("Expect") != "",
		released: make(chan struct{}), done: make(chan struct{}), progress: make(chan struct{}, 1),
	}
	u.PipeReader, u.pipe = io.Pipe()
	return u
}

// Read is called by the transport.
func (u *upload) Read(p []byte) (int, error) {
	u.startReading()
	defer u.noteProgress()
	return u.PipeReader.Read(p)
}

// Close is called by the transport, possibly more than once.
func (u *upload) Close() error {
	u.release.Do(func() { close(u.released) })
	return u.PipeReader.Close()
}

func (u *upload) startReading() { u.start.Do(func() { go u.run() }) }

// leaveUnread leaves the body to net/http if its reading has not started here, and reports whether it was left.
func (u *upload) leaveUnread() bool {
	u.start.Do(func() {
		u.unread = true
		u.pipe.CloseWithError(errCutShort)
		close(u.done)
	})
	return u.unread
}

// maxUnwanted bounds the bytes of a body that are read and discarded. Most clients send less before they read their
// answer.
const maxUnwanted = 64 << 20

// run reads the body to its end, or until it has discarded too much.
func (u *upload) run() {
	defer close(u.done)
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	if u.expects {
		u.ex.response.sendContinue() // net/http would write it at the first read, amid interim responses
	}
	for unwanted := 0; unwanted < maxUnwanted; {
		n, err := u.body.Read(*buf)
		u.whole.Store(err == io.EOF)
		u.noteProgress()
		if n > 0 {
			if _, closed := u.pipe.Write((*buf)[:n]); closed != nil {
				unwanted += n
			}
		}
		if err != nil {
			u.pipe.CloseWithError(err)
			return
		}
	}
}

func (u *upload) noteProgress() {
	select {
	case u.progress <- struct{}{}:
	default: // one notice is enough
	}
}

// answered prepares for the origin's answer, and reports whether it came before the body was sent.
func (u *upload) answered(resp *http.Response) (early bool) {
	if !u.expects {
		u.startReading() // the client sends the body in any case, and the transport may be about to read it
	}
	if u.leaveUnread() || u.isReleased() && u.whole.Load() {
		return false
	}
	u.known = resp.Header.Get("Content-Length") != ""
	return http.NewResponseController(u.ex.response.ResponseWriter).EnableFullDuplex() == nil
}

func (u *upload) isReleased() bool {
	select {
	case <-u.released:
		return true
	default:
		return false
	}
}

// awaitSent waits until the transport releases the body. The argument says whether the client sees the end of its
// answer by now.
func (u *upload) awaitSent(answered bool) { u.await(u.released, answered) }

// awaitEnd waits, after the answer, for the end of the body, so that the connection can be used again.
func (u *upload) awaitEnd() { u.await(u.done, u.known) }

// maxStall bounds the wait for the next piece of the body of a request whose client has its answer.
const maxStall = 30 * time.Second

// await waits for event as long as the body makes progress. The wait is short if the client may be waiting too: for the
// end of an answer that it cannot see.
func (u *upload) await(event <-chan struct{}, answered bool) {
	pause := http1.LingerTime
	if answered {
		pause = maxStall
	}
	stall := time.NewTimer(pause)
	defer stall.Stop()
	for !u.gaveUp {
		select {
		case <-event:
			return
		case <-u.progress:
			stall.Reset(pause)
		case <-stall.C:
			u.gaveUp = true
		case <-u.ex.ctx.Done():
			u.gaveUp = true
		}
	}
}

// abandon ends the reading of the body, which must not outlive the handler. If the end of the body has not come, the
// connection ends with the answer: the start of the next request is not known.
func (u *upload) abandon() {
	if u.leaveUnread() {
		return
	}
	u.pipe.CloseWithError(errCutShort)
	if !u.whole.Load() {
		closeAfterResponse(u.ex.response.ResponseWriter)
		u.ex.conn.Abandon()
	}
	<-u.done
}

// closeAfterResponse makes net/http close the connection after the response, as it does for a body that exceeds the
// limit of a MaxBytesReader. A "Connection: close" field would come too late: the header may be sent already.
func closeAfterResponse(w http.ResponseWriter) {
	_, _ = http.MaxBytesReader(w, io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1)) // it fails
}
