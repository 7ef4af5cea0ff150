package proxy

import (
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
)

var (
	errSentAgain  = errors.New("the connection ended before an answer, or the origin did not process the request; it was sent again")
	errUnrepeated = errors.New("the request may not be sent again")
)

// repeat prepares for a second sending of a request that net/http sends again by itself: one without a body whose kept
// connection was closed under it, before an answer (RFC 9110 section 9.2.2 allows that), or one that an HTTP/2 origin did
// not process. The only notice of it is the trace, which calls this when the new connection is there, before anything is
// written to it. The second sending is a request of its own: it has its own record and its own place in the pace. If it may
// not be sent, the attempt ends here.
//
// The first sending counts as a request, since it may have arrived.
func (ex *exchange) repeat(conn net.Conn) {
	ex.endSending(time.Now())
	ref := ex.admitAgain()
	if ref == nil {
		ex.rec.SentAt = time.Now()
		return
	}
	ex.grant.Cancel()
	if ex.ctx.Err() == nil {
		ex.unrepeated = ref
		ex.cancel(errUnrepeated)
	}
	closeUnshared(conn)
}

// endSending ends the record of a sending that had no answer, gives its place in the lane back, and begins the record of the
// next.
func (ex *exchange) endSending(now time.Time) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.grant.Release(ratelimit.Outcome{Ended: now})
	first := ex.rec
	first.Reason, first.Error, first.EndedAt = policy.ReasonUpstream, errSentAgain.Error(), now
	ex.server.options.Recorder.End(&first)

	ex.waitedBefore += first.Waited
	ex.begun, ex.grant = false, ratelimit.Grant{}
	rec := &ex.rec
	rec.ID, rec.Time = ex.server.ids.Next(now), now
	rec.Waited, rec.Gap, rec.PacingMode = 0, 0, ""
	rec.SentAt, rec.UpstreamAddr = time.Time{}, ""
	noteDecision(rec, ex.judged.Decision, ex.judged.snap)
}

// admitAgain takes a request that was sent before through the stages that a second sending needs. It returns nil if the
// request may be sent at once.
func (ex *exchange) admitAgain() *Refusal {
	if ref := ex.paceAgain(); ref != nil {
		return ref
	}
	if ref := ex.stopped(); ref != nil {
		return ref
	}
	if err := ex.begin(ex.ctx); err != nil {
		return unrecordedRefusal(err)
	}
	return nil
}

// paceAgain waits for another place in the host's lane, or reckons in mode report how long that would have been.
func (ex *exchange) paceAgain() *Refusal {
	if ex.judged.Mode == policy.Off {
		return nil
	}
	if ex.judged.Mode == policy.Report {
		ex.reckon()
		return nil
	}
	ex.deadline.pause()
	defer ex.deadline.restart()
	grant, ref := ex.awaitPlace(ex.ctx)
	if ref != nil {
		return ref
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.hold(grant)
	return nil
}

// closeUnshared closes a connection of HTTP/1.1: net/http would write the request to it although its context has ended.
// One of HTTP/2, which others use as well, is written to only after a look at the context.
func closeUnshared(conn net.Conn) {
	if c, ok := conn.(*tls.Conn); ok && c.ConnectionState().NegotiatedProtocol == "h2" {
		return
	}
	conn.Close()
}
