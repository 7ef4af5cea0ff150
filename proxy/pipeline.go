package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/elazarl/goproxy"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/fields"
	"github.com/robotsproxy/robotsproxy/ratelimit"
)

var (
	errClientLeft  = errors.New("the client left before the end")
	errNoStatus    = errors.New("the origin's status is none of HTTP's")
	errGoneWaiting = errors.New("the client left while it waited; nothing was sent")
)

// pipeline is what goproxy calls in place of a transport, for plain and intercepted requests alike: look up, decide,
// refuse or pace, forward. Its answers are responses, never errors, which goproxy would show to the client as text.
type pipeline struct{ *Server }

func (p pipeline) RoundTrip(req *http.Request, _ *goproxy.ProxyCtx) (resp *http.Response, _ error) {
	ex := exchangeOf(req.Context())
	defer func() {
		if v := recover(); v != nil {
			resp = ex.panicked(req, v)
			ex.upload.leave()
		}
	}()
	if ref := p.admit(req, ex); ref != nil {
		return ex.refuse(req, ref), nil
	}
	return p.forward(req, ex), nil
}

// admit takes a request through every stage before the origin. It returns nil where the request may be sent at once.
func (p pipeline) admit(req *http.Request, ex *exchange) *Refusal {
	if ex.client == nil {
		return ex.stranger()
	}
	if ref := ex.reserve(req); ref != nil {
		return ref
	}
	if err := p.options.Guard.Check(ex.origin); err != nil {
		return egressRefusal(ex, err)
	}
	if ref := connectionAuthRefusal(req.Header); ref != nil && !ex.unread {
		return ref
	}
	ex.lane = p.options.Pace.key(ex.origin.Host())
	if ref := p.stopped(ex); ref != nil {
		return ref
	}
	if ref := p.judge(req, ex); ref != nil {
		return ref
	}
	if p.servesRobots(req, ex) {
		ex.robots = ex.judged.snap
	} else if ref := p.pace(req, ex); ref != nil {
		return ref
	}
	if err := ex.begin(req.Context()); err != nil {
		ex.grant.Cancel()
		return unrecordedRefusal(err)
	}
	return nil
}

// lookAgain refuses a request that is about to be sent if its client has left, or if the operator has stopped the host since
// its place in the lane was given.
func (p pipeline) lookAgain(req *http.Request, ex *exchange) *Refusal {
	ref := p.stopped(ex)
	if req.Context().Err() != nil {
		ref = ex.gone(errGoneWaiting)
	}
	if ref != nil {
		ex.grant.Cancel()
	}
	return ref
}

// forward sends req, which was judged, and returns the origin's answer or, where there is none, ours.
func (p pipeline) forward(req *http.Request, ex *exchange) *http.Response {
	if ref := p.lookAgain(req, ex); ref != nil {
		return ex.refuse(req, ref)
	}
	if ex.robots != nil {
		return p.answerRobots(req, ex)
	}
	ex.rec.SentAt = time.Now()
	ex.carry(req)
	resp, err := p.options.Transport.RoundTrip(req)
	now := time.Now()
	ex.gotHeader()
	if err == nil {
		ex.rec.FirstByte = audit.Millis(now.Sub(ex.rec.SentAt))
		ex.hear(resp, now)
		err = ex.checkAnswer(resp)
	}
	if err != nil {
		defer ex.upload.leave()
		return ex.refuse(req, upstreamRefusal(req, ex, err))
	}
	p.receive(resp, ex, now)
	return resp
}

// checkAnswer closes an answer that cannot be passed on.
func (ex *exchange) checkAnswer(resp *http.Response) error {
	onlyConnectionAuth := fields.DropConnectionAuth(resp.Header)
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		if err := ex.handshake.Check(resp.Header); err != nil {
			resp.Body.Close()
			return fmt.Errorf("the origin's 101 answers no handshake: %w", err)
		}
	case resp.StatusCode == http.StatusUnauthorized && onlyConnectionAuth:
		resp.Body.Close()
		return errConnectionAuth
	case resp.StatusCode < http.StatusOK || resp.StatusCode > 999: // the transport lets 000 through, and in HTTP/2 1000
		resp.Body.Close()
		return errNoStatus
	}
	return nil
}

// answerRobots ends a request for /robots.txt without asking the origin, and without taking a place in its pace.
func (p pipeline) answerRobots(req *http.Request, ex *exchange) *http.Response {
	resp := robotsResponse(req, ex.robots, ex.judged.Dialect, time.Now())
	ex.rec.Status = resp.StatusCode
	resp.Body = &body{ReadCloser: resp.Body, ex: ex, resp: resp}
	return resp
}

// smallBody is up to which size a request's body is read before the request waits.
const smallBody = 64 << 10

// readSmallBody takes a small body out of the connection. net/http sees that a client has left only once the body is
// read, and a request must not be sent for a client that left while it waited. A larger body, one of unknown length, and
// one that is held back until it is asked for (Expect) stay where they are: such a client is noticed when it is sent.
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

// carry lets the request's body be sent, and its trailers behind it.
func (ex *exchange) carry(req *http.Request) {
	if req.Body != nil && req.Body != http.NoBody && !ex.held {
		req.Body = clientBody{req.Body, &ex.clientTime}
		if req.ProtoMajor == 1 {
			ex.upload = newUpload(req, ex)
			req.Body = ex.upload
		}
	}
	fields.CleanRequestTrailer(req)
}

func (ex *exchange) gotHeader() {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.header = true
}

// wantsRest reports whether an origin may read on what it has answered already. The transport takes an answer of HTTP/2 that
// is no 2xx for a no, and so is one of HTTP/1.1 taken here.
func wantsRest(resp *http.Response) bool { return resp.StatusCode < 300 && !resp.Close }

// receive prepares the origin's answer for the client: its fields, its body, and the record that ends with it.
func (p pipeline) receive(resp *http.Response, ex *exchange, now time.Time) {
	ex.rec.Status = resp.StatusCode
	switching := resp.StatusCode == http.StatusSwitchingProtocols
	fields.CleanHeader(resp.Header, switching)
	fields.DropOwnStatus(resp.Header)
	p.via.Add(resp.Header, resp.ProtoMajor)
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		resp.Header.Add("Proxy-Status", fmt.Sprintf("%s; received-status=%d", fields.OwnName, resp.StatusCode))
	}
	if ex.preference != "" {
		resp.Header.Set("Preference-Applied", ex.preference)
	}
	if p.options.ResponseFields {
		resp.Header.Set("Robotsproxy-Request-Id", ex.rec.ID.String())
		resp.Header.Set("Robotsproxy-Waited", fmt.Sprintf("%.3f", time.Duration(ex.waitedBefore+ex.rec.Waited).Seconds()))
	}
	if switching {
		ex.upgraded = resp.Body
		ex.grant.Release(ratelimit.Outcome{}) // a WebSocket gives the lane back; its end ends the record
		return
	}
	if len(resp.Trailer) > 0 && resp.Request.ProtoMajor == 1 {
		// HTTP/2 has trailers behind a body of known length; HTTP/1.1 has them behind chunks only (RFC 9112 section 7.1.2).
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
	}
	ex.length = resp.ContentLength
	early := ex.upload.answered(resp)
	if early {
		ex.length = -1 // the client may wait for what is there before it sends the rest
	}
	resp.Body = &body{ReadCloser: resp.Body, ex: ex, resp: resp, early: early && wantsRest(resp)}
}
