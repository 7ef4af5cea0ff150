package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"runtime/debug"
	"time"

	"github.com/elazarl/goproxy"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/fields"
	"github.com/robotsproxy/robotsproxy/internal/http1"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/sign"
)

var (
	errClientLeft  = errors.New("the client left before the end")
	errGoneWaiting = errors.New("the client left while it waited; nothing was sent")
)

// exchange is one request and its answer. It passes through
//
//	serve -> read -> admit -> RoundTrip (forward, receive) -> end
//
// and each step can end it with a refusal instead. The embedded parts hold the state of its phases: the requester does
// not change after read, the turn ends when the header of the answer is there, and the entry ends last.
type exchange struct {
	server   *Server
	settings *settings // read once, at the beginning, and after a wait: see adopt
	requester
	turn
	entry
	response response
	delivery delivery

	ctx      context.Context         // is canceled if the client leaves, the request takes too long, or a stop ends it
	cancel   context.CancelCauseFunc // cancels ctx
	deadline *deadline               // nil without a time limit
	origin   origin.Origin
	target   string // the path and query that are judged and sent
	judged   judgement
	upload   *upload     // the body of an HTTP/1.1 request; nil if the request has none or the body is held
	page     *pageStart  // of the answer; nil if it is not read
	signed   http.Header // of the request, with the signature of the proxy; nil without one
}

// newExchange returns the exchange of r, a request inside t if t is not nil. The caller must identify its sender.
func (s *Server) newExchange(w http.ResponseWriter, r *http.Request, t *tunnel) *exchange {
	now := time.Now()
	ex := &exchange{server: s, settings: s.settings.Load(), ctx: r.Context()}
	ex.requester = requester{tunnel: t, conn: http1.From(r.Context()), http10: !r.ProtoAtLeast(1, 1)}
	ex.response = response{ResponseWriter: w, ex: ex}
	ex.entry = entry{
		recorder: ex.settings.Recorder, query: ex.settings.Query,
		from: r.RemoteAddr, addrs: ex.settings.ClientAddr,
	}
	via := audit.Plain
	if t != nil {
		via = audit.Intercepted
	}
	ex.rec = audit.Record{
		ID: s.ids.Next(now), Time: now, Via: via, Method: cut(r.Method, 64),
		ClientAddr: ex.settings.ClientAddr.Apply(r.RemoteAddr), UserAgent: ex.settings.Query.Text(cut(r.UserAgent(), 1024)),
		Tag: ex.settings.Query.Text(cut(r.Header.Get(fields.OwnPrefix+"Tag"), 256)),
	}
	ex.rec.Agent = s.agents.label(ex.rec.UserAgent)
	if t != nil && ex.rec.Agent == "" {
		ex.rec.Agent = t.agent
	}
	return ex
}

// cut returns at most n bytes of a string that a client chose.
func cut(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

// serve handles one request from its header to the end of its answer. Its deferred calls run in this order:
//
//  1. recoverPanic answers a panic and ends the record with it.
//  2. close ends the record, if it has not ended, and returns everything that the exchange holds.
//  3. handlers.end lets Close return.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, t *tunnel) {
	s.handlers.begin()
	defer s.handlers.end()
	s.active.Add(1)
	defer s.active.Add(-1)
	ex := s.newExchange(w, r, t)
	ex.ctx, ex.cancel = context.WithCancelCause(r.Context()) // net/http cancels it after the request, if nothing has
	ex.startDeadline(ex.settings.Limits.RequestTimeout)
	defer ex.close()
	defer ex.recoverPanic(r)
	if ref := ex.read(r); ref != nil {
		ex.answer(r, ref)
		return
	}
	r = r.WithContext(ex.traced()) // a copy: net/http inspects the body of the original at the end
	if ref := ex.admit(r); ref != nil {
		ex.answer(r, ref)
		ex.conn.CloseAfterBadBody(&ex.response)
		return
	}
	s.goproxy.ServeHTTP(&ex.response, r) // it calls RoundTrip and copies the answer to the client
	ex.closeAfterAnswer()
}

// closeAfterAnswer ends an exchange that goproxy has answered, and closes the connection if it cannot be used again.
func (ex *exchange) closeAfterAnswer() {
	ex.abort(errClientLeft)
	switch {
	case ex.response.err != nil:
		ex.response.Flush() // the client gets the bytes that came
		ex.conn.CloseAfterBadBody(&ex.response)
		panic(http.ErrAbortHandler) // else goproxy ends a truncated body as if it were complete
	case ex.upload != nil:
		ex.upload.awaitEnd()
	default:
		ex.conn.CloseAfterBadBody(&ex.response)
	}
}

// close returns all that the exchange holds. The record ends first, so that it shows the end of the answer. The body of
// the request is abandoned before its bytes are returned to the quota. The deadline stops last: until then it bounds
// the rest.
func (ex *exchange) close() {
	ex.abort(errClientLeft)
	if ex.upload != nil {
		ex.upload.abandon()
	}
	ex.unreserve()
	ex.response.release()
	ex.deadline.stop()
}

// recoverPanic turns a panic into one 500, one line in the log and one record. The 500 does not describe the panic. If
// the answer has begun, recoverPanic aborts it. It is the only recover of this package and must be deferred directly,
// in each handler and in each goroutine that calls a part from Options.
func (ex *exchange) recoverPanic(r *http.Request) {
	v := recover()
	switch v {
	case nil:
		return
	case http.ErrAbortHandler:
		panic(v)
	}
	ex.server.log.Error("a panic while a request was served", "id", ex.rec.ID, "panic", v, "stack", string(debug.Stack()))
	err := fmt.Errorf("panic: %v", v)
	if ex.response.written {
		ex.end(err)
		panic(http.ErrAbortHandler)
	}
	ex.answer(r, &refusal{Reason: policy.ReasonInternal, Err: err})
}

// read identifies the sender of r, checks its target, and prepares its header for the origin.
func (ex *exchange) read(r *http.Request) *refusal {
	ex.identify(r)
	if ref := ex.normalise(r); ref != nil {
		return ref
	}
	return ex.prepare(r)
}

// prepare prepares r's header for the origin. It must run before goproxy removes Connection. It refuses a request for a
// WebSocket with a malformed handshake.
func (ex *exchange) prepare(r *http.Request) *refusal {
	trailers := fields.WantsTrailers(r.Header)
	webSocket := fields.WantsWebSocket(r.Header) && !ex.http10 // HTTP/1.0 has no upgrade (RFC 9110 section 7.8)
	fields.CleanHeader(r.Header, webSocket)
	fields.DropPathFields(r.Header)
	if webSocket {
		var err error
		if ex.response.handshake, err = fields.ReadHandshake(r); err != nil {
			return handshakeRefusal(err)
		}
	}
	if trailers {
		r.Header["Te"] = []string{"trailers"}
	}
	ex.server.via.Add(r.Header, r.ProtoMajor)
	r.Close = false // the client's "Connection: close" is about its own connection
	if agent := ex.outgoingAgent(); agent != "" {
		r.Header["User-Agent"] = []string{agent}
		ex.rec.SentUserAgent = agent
	}
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header["User-Agent"] = []string{""} // without the field net/http would add its own
	}
	return nil
}

// admit decides whether the request may be sent, waits for its place in the lane, and begins the record. If it returns
// nil, the request may be sent at once. A raw tunnel is admitted as one request.
func (ex *exchange) admit(req *http.Request) *refusal {
	if ex.client == nil {
		return ex.unknownClient()
	}
	if ref := ex.reserve(req); ref != nil {
		return ref
	}
	if err := ex.settings.Guard.Check(ex.origin); err != nil {
		return egressRefusal(ex, err)
	}
	if scheme := fields.ConnectionScheme(req.Header); scheme != "" && !ex.isRawTunnel() {
		return connectionAuthRefusal(scheme)
	}
	ex.stopKey = ex.settings.Pace.Key(ex.origin.Host())
	ex.server.undelivered.add(ex) // before it looks for a stop: see EndStopped
	if ref := ex.stopped(); ref != nil {
		return ref
	}
	if ref := ex.judge(req); ref != nil {
		return ref
	}
	if ex.target == "/robots.txt" && ex.servesRobots(req) {
		ex.response.robots = ex.judged.snap
	} else if ref := ex.pace(req); ref != nil {
		return ref
	}
	return ex.beginSending()
}

// isRawTunnel reports whether ex is a CONNECT. The bytes of its tunnel pass unread, so no path is judged.
func (ex *exchange) isRawTunnel() bool { return ex.rec.Via == audit.Tunnel }

// beginSending begins the record of a request that may be sent.
func (ex *exchange) beginSending() *refusal {
	if err := ex.begin(ex.ctx); err != nil {
		ex.grant.Cancel()
		return unrecordedRefusal(err)
	}
	return nil
}

// RoundTrip forwards an admitted request and returns the origin's answer, or that of a refusal. goproxy calls it in
// place of a transport. It never returns an error: goproxy would send its text to the client.
func (ex *exchange) RoundTrip(req *http.Request, _ *goproxy.ProxyCtx) (*http.Response, error) {
	if ref := ex.lookAgain(); ref != nil {
		return ex.refuse(req, ref), nil
	}
	if ex.response.robots != nil {
		return ex.answerRobots(req), nil
	}
	resp, err := ex.forward(req)
	if err != nil {
		return ex.refuse(req, upstreamRefusal(ex, err)), nil
	}
	if ref := ex.judgeResponse(resp); ref != nil {
		resp.Body.Close() // the origin need not send the rest
		return ex.refuse(req, ref), nil
	}
	ex.receive(resp)
	return resp, nil
}

// lookAgain refuses a request that is about to be sent if its client has left, or if the operator has stopped the host
// while it waited.
func (ex *exchange) lookAgain() *refusal {
	ref := ex.stopped()
	if ex.ctx.Err() != nil {
		ref = ex.gone(errGoneWaiting)
	}
	if ref != nil {
		ex.grant.Cancel()
	}
	return ref
}

// forward sends req and returns the origin's answer if it can be passed on.
func (ex *exchange) forward(req *http.Request) (*http.Response, error) {
	ex.sign(req.Header)
	ex.rec.SentAt = time.Now()
	ex.grant.Sent()
	if req.Body != nil && req.Body != http.NoBody {
		ex.attachBody(req)
	}
	fields.CleanRequestTrailer(req)
	resp, err := ex.settings.Transport.RoundTrip(ex.pin(req))
	now := time.Now()
	ex.response.endInterim()
	if err != nil {
		return nil, err
	}
	ex.delivery.answered()
	ex.rec.FirstByte = audit.Millis(now.Sub(ex.rec.SentAt))
	ex.hear(resp, now)
	if err := ex.checkAnswer(resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// sign signs h, which is complete but for the framing of its request.
func (ex *exchange) sign(h http.Header) {
	signer := ex.settings.Signer
	if ex.client.Signer != nil {
		signer = ex.client.Signer
	}
	if s, ok := signer.Sign(h, ex.origin, time.Now()); ok {
		ex.signed = h
		ex.rec.SetSignature(s.Agent, s.KeyID, s.Nonce, s.Created)
	}
}

// signAgain replaces the signature for a second sending: that of the first has been seen, and may have expired while the
// second waited.
func (ex *exchange) signAgain() {
	h := ex.signed
	if h == nil {
		return
	}
	sign.Remove(h)
	ex.signed = nil
	ex.rec.SetSignature("", "", "", time.Time{})
	ex.sign(h)
}

// refuse ends the exchange with ref, and returns the answer. If the refusal cannot be recorded, the answer is 503
// instead.
func (ex *exchange) refuse(req *http.Request, ref *refusal) *http.Response {
	ref.complete(ex.settings.RefusalStatus)
	ex.noteRefusal(ref)
	if err := ex.begin(context.WithoutCancel(ex.ctx)); err != nil { // the end of ctx may be what is answered
		ref = unrecordedRefusal(err)
		ref.complete(0)
		ex.server.unrecorded.Add(1)
		ex.server.log.Debug("a decision could not be recorded", "err", err)
	}
	ref.Facts = func() *facts { return factsOf(ex) }
	resp := ref.response(req, ex.rec.ID.String())
	ex.conn.SetReason(ref.phrase(req.Method))
	if ex.preference != "" {
		resp.Header.Set("Preference-Applied", ex.preference)
	}
	if req.ProtoMajor == 1 && ref.endsConnection() {
		resp.Header.Set("Connection", "close")
	}
	if req.Method != http.MethodHead {
		ex.rec.Bytes = resp.ContentLength
	}
	ex.response.endInterim() // the transport may be running after a panic
	if ex.response.ResponseWriter != nil {
		limitDrain(ex.response.ResponseWriter, req)
	}
	ex.end(nil)
	if ex.upload != nil {
		ex.upload.abandon()
	}
	return resp
}

// answer ends the exchange with ref, and writes the answer to the client.
func (ex *exchange) answer(req *http.Request, ref *refusal) {
	ex.response.write(req, ex.refuse(req, ref))
}

// reject serves a request that is refused before its target is known: it identifies the sender and answers with ref.
func (ex *exchange) reject(req *http.Request, ref *refusal) {
	ex.server.handlers.begin()
	defer ex.server.handlers.end()
	defer ex.recoverPanic(req)
	ex.identify(req)
	ex.answer(req, ref)
}

// end completes the record and returns the place in the lane. Only the first call counts.
func (ex *exchange) end(cause error) {
	if ex.ended {
		return
	}
	now := time.Now()
	ex.delivery.answered()
	ex.server.undelivered.remove(ex)
	if stop := stopOf(cause); stop != nil {
		ex.rec.Intervention = stop.decision.Intervention
	}
	// hear has passed the origin's answer to the lane.
	if at := ex.grant.Release(ratelimit.Outcome{Ended: now}); !at.IsZero() {
		ex.released = at
	}
	if ex.blocked.Overlapped() {
		ex.rec.AddDeviation(audit.DeviationOverlap)
	}
	ex.notePage()
	ex.complete(now, cause)
}

// abort ends an exchange that has not ended, with the cause if it is known, and else with err: the proxy is stopping,
// the request took too long, a WebSocket was idle, an operator stopped its host, or the client left or sent a malformed body. A WebSocket ends
// without an error when either side closes it.
func (ex *exchange) abort(err error) {
	switch ended := context.Cause(ex.ctx); {
	case errors.Is(ended, errStopping), errors.Is(ended, errTooLong), errors.Is(ended, errSilent), stopOf(ended) != nil:
		err = ended
	case ex.conn.BadBody() != nil:
		err = ex.conn.BadBody()
	case ended != nil:
		err = errClientLeft
	case ex.response.upgraded != nil:
		err = nil
	}
	ex.end(err)
}

type exchangeKey struct{}

// exchangeOf returns the exchange of r. It is in the context because goproxy passes only the request to its handlers.
func exchangeOf(r *http.Request) *exchange { return r.Context().Value(exchangeKey{}).(*exchange) }

// traced returns the context for the transport, which reports its connections and interim responses to the exchange.
func (ex *exchange) traced() context.Context {
	wrote := func() {
		ex.wrote.Store(true)
		ex.delivery.wroteHeader()
	}
	trace := &httptrace.ClientTrace{GotConn: ex.gotConn, WroteHeaders: wrote, Got1xxResponse: ex.response.got1xx}
	return httptrace.WithClientTrace(context.WithValue(ex.ctx, exchangeKey{}, ex), trace)
}

// gotConn is called with each connection for the request, in the goroutine that called RoundTrip.
func (ex *exchange) gotConn(info httptrace.GotConnInfo) {
	if ex.wrote.Swap(false) && !ex.repeat(info.Conn) {
		return
	}
	if stop := ex.delivery.connected(info.Conn); stop != nil {
		ex.cancel(stop)
		closeUnshared(info.Conn)
		return
	}
	ex.rec.UpstreamAddr = addrString(info.Conn.RemoteAddr())
}

// addrString returns a.String(). For a TCP address it takes a third of the time.
func addrString(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok {
		ap := tcp.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()).String()
	}
	return a.String()
}
