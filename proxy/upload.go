package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/fields"
	"github.com/robotsproxy/robotsproxy/internal/http1"
	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// upload is the body of a request of HTTP/1.1 on its way to the origin, which may answer before it has all of it, and
// read on or not (RFC 9112 section 9.5, RFC 9113 section 8.1). net/http would hold the answer back then, and read the rest
// itself to throw it away, of which the origin would miss a piece without knowing. So it is told to leave the body alone,
// and a goroutine reads that here: for the origin while it wants it, and for nobody when it does not, since many a client
// sends all before it reads its answer.
//
// The origin gets every octet, or sees the body break off. The client gets its answer, and with it the end of the
// connection where the end of the body has not come.
type upload struct {
	*io.PipeReader // for the transport
	pipe           *io.PipeWriter
	body           io.Reader // net/http's
	ex             *exchange
	awaits         bool // the client: until it is asked for the body (Expect)
	known          bool // how long the answer is, so that the client needs no more to see its end

	begin, end sync.Once
	unasked    bool          // nobody read any of the body: it is net/http's
	released   chan struct{} // closed when the transport has sent the body, or wants no more of it
	over       chan struct{} // closed when the body is read no more
	whole      atomic.Bool   // it was read to its end
	moved      chan struct{} // told of every piece, read or taken
	given      bool          // up: it does not go on
}

// errCutShort is what the transport gets in place of the rest of a body that did not go on.
var errCutShort = errors.New("the request did not go on behind its answer")

func newUpload(req *http.Request, ex *exchange) *upload {
	u := &upload{
		body: req.Body, ex: ex, awaits: req.Header.Get("Expect") != "",
		released: make(chan struct{}), over: make(chan struct{}), moved: make(chan struct{}, 1),
	}
	u.PipeReader, u.pipe = io.Pipe()
	return u
}

// Read is the transport's.
func (u *upload) Read(p []byte) (int, error) {
	u.start()
	defer u.move()
	return u.PipeReader.Read(p)
}

// Close is the transport's as well.
func (u *upload) Close() error {
	u.end.Do(func() { close(u.released) })
	return u.PipeReader.Close()
}

func (u *upload) start() { u.begin.Do(func() { go u.run() }) }

// asked reports whether the body is read here. If it is not, it will not be.
func (u *upload) asked() bool {
	u.begin.Do(func() {
		u.unasked = true
		u.pipe.CloseWithError(errCutShort)
		close(u.over)
	})
	return !u.unasked
}

// maxUnwanted is how many octets of a body are read for nobody, which is more than most clients send before they read
// their answer.
const maxUnwanted = 64 << 20

// run reads the body to its end, or until too much of it was for nobody.
func (u *upload) run() {
	defer close(u.over)
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	if u.awaits {
		u.ex.response.sendContinue() // before the first read, at which net/http would write it amid interim responses
	}
	for unwanted := 0; unwanted < maxUnwanted; {
		n, err := u.body.Read(*buf)
		u.whole.Store(err == io.EOF)
		u.move()
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

func (u *upload) move() {
	select {
	case u.moved <- struct{}{}:
	default: // it is known already
	}
}

// answered prepares for the origin's answer, and reports whether that comes before the body was sent.
func (u *upload) answered(resp *http.Response) (early bool) {
	if u == nil {
		return false
	}
	if !u.awaits {
		u.start() // the body comes without being asked for, and the transport may be about to read it
	}
	if !u.asked() || u.isReleased() && u.whole.Load() {
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

// sent waits until the transport lets go of the body. The client may see the end of its answer already, or not.
func (u *upload) sent(answered bool) { u.await(u.released, answered) }

// settle waits, behind the answer, for the end of the body, so that the connection can be used again.
func (u *upload) settle() { u.await(u.over, u.known) }

// patience bounds the wait for a client that sends the body of an answered request, while it sends nothing.
const patience = 30 * time.Second

// await waits for what while the body goes on. It may be the client that waits, unless it is answered.
func (u *upload) await(what <-chan struct{}, answered bool) {
	pause := http1.LingerTime
	if answered {
		pause = patience
	}
	quiet := time.NewTimer(pause)
	defer quiet.Stop()
	for !u.given {
		select {
		case <-what:
			return
		case <-u.moved:
			quiet.Reset(pause)
		case <-quiet.C:
			u.given = true
		case <-u.ex.ctx.Done():
			u.given = true
		}
	}
}

// leave ends the reading of the body, which must not outlive the handler. Where its end has not come, the connection ends
// with the answer: where the next request would begin is not known.
func (u *upload) leave() {
	if u == nil || !u.asked() {
		return
	}
	u.pipe.CloseWithError(errCutShort)
	if !u.whole.Load() {
		closeBehind(u.ex.response.ResponseWriter)
		u.ex.conn.Abandon()
	}
	<-u.over
}

// closeBehind has net/http close the connection when the answer is written, as it does for a body beyond a limit.
func closeBehind(w http.ResponseWriter) {
	_, _ = http.MaxBytesReader(w, io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1)) // it fails
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

// smallBody is the size up to which a request's body is read before the request waits.
const smallBody = 64 << 10

// readSmallBody reads a small body out of the connection. net/http notices that a client has left only after the body was
// read, and a request must not be sent for a client that left while it waited. A larger body, one of unknown length, and
// one that the client holds back (Expect) stay in the connection: if such a client leaves, it is noticed during sending.
func (ex *exchange) readSmallBody(req *http.Request) error {
	if !isSmallBody(req) {
		return nil
	}
	data := bytes.NewBuffer(make([]byte, 0, req.ContentLength+bytes.MinRead))
	if _, err := data.ReadFrom(req.Body); err != nil {
		return fmt.Errorf("reading the request's body: %w", err)
	}
	req.Body, ex.held = io.NopCloser(data), true
	return nil
}

// isSmallBody reports whether the request's body is read before the request waits.
func isSmallBody(req *http.Request) bool {
	return req.ContentLength > 0 && req.ContentLength <= smallBody && req.Header.Get("Expect") == ""
}

// attachBody prepares the request's body for the transport, and its trailers.
func (ex *exchange) attachBody(req *http.Request) {
	if req.Body != nil && req.Body != http.NoBody && !ex.held {
		req.Body = clientBody{req.Body, &ex.blocked}
		if req.ProtoMajor == 1 {
			ex.upload = newUpload(req, ex)
			req.Body = ex.upload
		}
	}
	fields.CleanRequestTrailer(req)
}
