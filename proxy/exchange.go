package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/fields"
	"github.com/robotsproxy/robotsproxy/internal/http1"
	"github.com/robotsproxy/robotsproxy/internal/limit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots"
)

// exchange is one request on its way: what is known of it, what it holds, and what must be given back exactly once.
type exchange struct {
	server *Server
	client *Client  // nil: a stranger
	share  string   // the client by which queues, limits and fetches are shared fairly: see Client.share
	denied *Refusal // what the stranger is told; nil: that nobody knows him
	tunnel *tunnel  // nil: outside a tunnel
	origin origin.Origin
	target string // the path and query that are judged and sent
	lane   string // whose pace is kept
	judged judgement

	conn         *http1.Conn             // nil for HTTP/2
	ctx          context.Context         // the request's: it ends when the client leaves
	cancel       context.CancelCauseFunc // ends ctx
	deadline     *deadline               // nil: the request may take as long as it likes
	wrote        atomic.Bool             // its header was written to the origin
	asked        ratelimit.Request       // of the pace
	clientTime   ratelimit.ClientTime    // the time for which the client has blocked the request
	unrepeated   *Refusal                // why the request was not sent a second time; nil: it was, or once only
	waitedBefore audit.Millis            // by sendings before the last
	writer       http.ResponseWriter
	held         bool                 // the request's body is in memory, whole
	place        *limit.Share[string] // among the requests; nil: none
	memory       *limit.Share[string] // that the request takes; nil: none
	upload       *upload              // the request's body on its way; nil: none, held, or of HTTP/2
	http10       bool                 // the client speaks HTTP/1.0
	handshake    *fields.Handshake    // the client asks for a WebSocket; nil: it does not
	upgraded     io.Closer            // the origin's side of a WebSocket
	subresource  bool                 // the request asks for a place without a Delay: see Client.Pages
	unread       bool                 // a tunnel whose octets are passed on unread: no path is judged
	preference   string               // what was made of the client's Prefer; empty where it has none
	reckoned     bool                 // the pace is only reported on
	robots       *robots.Snapshot     // not nil: the answer is this file, and the origin is not asked
	length       int64                // of the origin's body; negative: unknown
	bodyErr      error                // the origin's body broke off

	mu      sync.Mutex // guards what follows: a body may be closed while it is read
	rec     audit.Record
	begun   bool
	ended   bool
	grant   ratelimit.Grant
	header  bool // the final header was received; no 1xx may follow
	interim int  // how many 1xx came
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	ex, _ := ctx.Value(exchangeKey{}).(*exchange)
	return ex
}

// newExchange begins the record of r, whose sender is to be identified.
func (s *Server) newExchange(w http.ResponseWriter, r *http.Request, t *tunnel) *exchange {
	now := time.Now()
	ex := &exchange{server: s, tunnel: t, writer: w, conn: http1.From(r.Context()), ctx: r.Context(), http10: !r.ProtoAtLeast(1, 1)}
	ex.rec = audit.Record{
		ID: s.ids.Next(now), Time: now, Via: audit.Plain, Method: cut(r.Method, 64),
		ClientAddr: r.RemoteAddr, UserAgent: s.options.Query.Text(cut(r.UserAgent(), 1024)), Tag: cut(r.Header.Get(fields.OwnPrefix+"Tag"), 256),
	}
	return ex
}

// identify finds out who sends r: inside a tunnel, who opened that.
func (ex *exchange) identify(r *http.Request) {
	if t := ex.tunnel; t != nil {
		ex.rec.Via, ex.client, ex.share = audit.Intercepted, t.client, t.share
	} else {
		ex.client, ex.denied = ex.server.identify(r)
		ex.share = ex.client.share(r.RemoteAddr)
	}
	if ex.client != nil {
		ex.rec.Client, ex.rec.Purpose = ex.client.Name, ex.client.Purpose
	}
}

// cut shortens what a stranger sent to what a record needs.
func cut(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

// begin tells the recorder that the decision is made. Nothing may be sent or answered before it returns nil.
func (ex *exchange) begin(ctx context.Context) error {
	if ex.begun {
		return nil
	}
	if err := ex.server.options.Recorder.Begin(ctx, &ex.rec); err != nil {
		return err
	}
	ex.begun = true
	return nil
}

// end completes the record and gives back the place in the lane. Only the first call counts.
func (ex *exchange) end(cause error) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.ended {
		return
	}
	ex.ended = true
	if cause != nil && ex.rec.Error == "" {
		ex.rec.Error = cause.Error()
	}
	ex.rec.EndedAt = time.Now()
	ex.grant.Release(ratelimit.Outcome{Ended: ex.rec.EndedAt}) // what the origin answered was told before: see hear
	if ex.clientTime.Overlapped() {
		ex.deviates(overlap)
	}
	if ex.begun {
		ex.server.options.Recorder.End(&ex.rec)
	}
}

// refuse makes ref the answer and the record's last word. A refusal that cannot be recorded becomes one that says so.
func (ex *exchange) refuse(req *http.Request, ref *Refusal) *http.Response {
	ref.complete(ex.server.options.RefusalStatus)
	ex.note(ref)
	if err := ex.begin(req.Context()); err != nil {
		ref = unrecordedRefusal(err)
		ref.complete(0)
		ex.server.unrecorded.Add(1)
		ex.server.log.Debug("a decision could not be recorded", "err", err)
	}
	resp := ref.response(req, ex.rec.ID.String())
	if ex.preference != "" {
		resp.Header.Set("Preference-Applied", ex.preference)
	}
	if errors.Is(ref.Err, errTooLong) && req.ProtoMajor == 1 {
		resp.Header.Set("Connection", "close") // its deadlines are spent
	}
	if req.Method != http.MethodHead {
		ex.rec.Bytes = resp.ContentLength
	}
	if ex.writer != nil {
		hurry(ex.writer, req)
	}
	ex.end(nil)
	return resp
}

// hurry bounds how long a body is waited for that nobody wants. net/http reads the rest of a small one before it sends the
// answer, so that the connection can be used again, and that of one that is held back (Expect) behind it.
func hurry(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(http1.LingerTime))
	}
}

// panicked is the answer to a panic: one line in the log, one record, and nothing of it for the client.
func (ex *exchange) panicked(req *http.Request, v any) *http.Response {
	ex.logPanic(v)
	return ex.refuse(req, &Refusal{Reason: policy.ReasonInternal, Err: fmt.Errorf("panic: %v", v)})
}

func (ex *exchange) logPanic(v any) {
	ex.server.log.Error("a panic while a request was served", "id", ex.rec.ID, "panic", v, "stack", string(debug.Stack()))
}

func (ex *exchange) note(ref *Refusal) {
	ex.rec.Decision, ex.rec.Reason = ref.Outcome, ref.Reason
	ex.rec.Status, ex.rec.RetryAfter = ref.Status, ref.retryAfter()
	if ref.Err != nil {
		ex.rec.Error = ex.server.options.Query.Text(ref.Err.Error())
	}
}

// enter makes a context of its own for ex, in which it can be found and which it can end. net/http ends it at the latest
// when the request is over.
func (ex *exchange) enter(ctx context.Context) {
	ex.ctx, ex.cancel = context.WithCancelCause(context.WithValue(ctx, exchangeKey{}, ex))
}

// traced returns ex's context so that ex hears from the transport: which address was reached, and what the origin says
// before its final header.
func (ex *exchange) traced() context.Context {
	wrote := func() { ex.wrote.Store(true) }
	return httptrace.WithClientTrace(ex.ctx, &httptrace.ClientTrace{GotConn: ex.gotConn, WroteHeaders: wrote, Got1xxResponse: ex.got1xx})
}

// maxInterim bounds the 1xx answers to one request.
const maxInterim = 64

var errManyInterim = errors.New("the origin sends interim answers without end")

func (ex *exchange) gotConn(info httptrace.GotConnInfo) {
	if ex.wrote.Swap(false) {
		ex.repeat(info.Conn)
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if !ex.ended {
		ex.rec.UpstreamAddr = addrString(info.Conn.RemoteAddr())
	}
}

// addrString is what String returns for an address, at a third of its cost for TCP's.
func addrString(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok {
		ap := tcp.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()).String()
	}
	return a.String()
}

// got1xx forwards 103 Early Hints (RFC 8297) and its like, but not to HTTP/1.0, which has none (RFC 9110 section 15.2).
// 100 and 101 are answered on each side by itself. The transport bounds each of them, but not how many there are.
func (ex *exchange) got1xx(code int, header textproto.MIMEHeader) error {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.interim++; ex.interim > maxInterim {
		return errManyInterim
	}
	if ex.header || ex.ended || ex.http10 || code == http.StatusContinue || code == http.StatusSwitchingProtocols {
		return nil
	}
	h := ex.writer.Header()
	for name, values := range header {
		h[name] = values
	}
	fields.CleanHeader(h, false)
	fields.DropOwnStatus(h)
	ex.writer.WriteHeader(code)
	clear(h)
	return nil
}

// body counts what passes and ends the exchange at its end, however that comes.
type body struct {
	io.ReadCloser
	ex    *exchange
	resp  *http.Response // the transport fills its Trailer at the end
	whole bool           // it was read to its end
	early bool           // it is there before its request was sent, and the origin may read on
}

func (b *body) Read(p []byte) (n int, err error) {
	defer b.recovered(&err)
	n, err = b.ReadCloser.Read(b.holdBack(p))
	b.ex.rec.Bytes += int64(n)
	switch err {
	case nil:
	case io.EOF:
		b.whole = true
		fields.CleanTrailer(b.resp.Trailer)
		b.ex.end(nil)
	default:
		b.ex.bodyErr = err
		b.ex.breakOff(err)
	}
	return n, err
}

// recovered makes of a panic an error of reading, before goproxy closes the body and the exchange ends as if the client
// had left.
func (b *body) recovered(err *error) {
	if v := recover(); v != nil {
		b.ex.logPanic(v)
		*err = fmt.Errorf("panic: %v", v)
		b.ex.bodyErr = *err
		b.ex.end(*err)
	}
}

// breakOff ends what has not come to its own end, because of err or of what is behind it.
func (ex *exchange) breakOff(err error) {
	if !ex.over() {
		ex.end(ex.whoLeft(err))
	}
}

func (ex *exchange) over() bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return ex.ended
}

// whoLeft returns err, or what is behind it: the client left or sent a broken body, or the proxy is stopping.
func (ex *exchange) whoLeft(err error) error {
	switch ended := context.Cause(ex.ctx); {
	case errors.Is(ended, errStopping), errors.Is(ended, errTooLong):
		return ended
	case ex.conn.BadBody() != nil:
		return ex.conn.BadBody()
	case ended != nil:
		return errClientLeft
	}
	return err
}

// holdBack keeps the last octet of an early answer of HTTP/1.1 back until its request is sent: 50 ms after it has read that,
// the transport closes the connection.
func (b *body) holdBack(p []byte) []byte {
	left := b.resp.ContentLength - b.ex.rec.Bytes
	switch {
	case !b.early || b.resp.ProtoMajor != 1 || left < 1 || left > int64(len(p)):
		return p
	case left > 1:
		return p[:left-1]
	}
	b.ex.upload.sent(false)
	return p
}

// Close ends the answer, and in HTTP/2 the whole stream: an early one waits until its request is sent.
func (b *body) Close() error {
	if b.early && b.whole && b.resp.ProtoMajor == 2 {
		b.ex.upload.sent(b.ex.upload.known)
	}
	err := b.ReadCloser.Close()
	b.ex.breakOff(errClientLeft)
	return err
}
