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
	errSentAgain = errors.New("the connection ended before an answer, or the origin did not process the request; " +
		"it was sent again")
	errUnrepeated = errors.New("the request may not be sent again")
)

// repeat prepares for a second sending. net/http sends a request again if it has no body and its kept connection was
// closed before an answer (RFC 9110 section 9.2.2), or if an HTTP/2 origin did not process it. The only notice is the
// trace, which calls repeat with the new connection before anything is written to it. The first sending counts as a
// request, since it may have arrived; the second has a record and a place in the lane for itself. If it may not be
// sent, it ends here, and repeat reports false.
func (ex *exchange) repeat(conn net.Conn) (ok bool) {
	ex.endSending(time.Now())
	ref := ex.admitAgain()
	if ref == nil {
		ex.signAgain() // net/http has written the header of the first sending, and reads it again after this call
		ex.rec.SentAt = time.Now()
		ex.grant.Sent()
		return true
	}
	ex.grant.Cancel()
	if ex.ctx.Err() == nil {
		ex.unrepeated = ref
		ex.cancel(errUnrepeated)
	}
	closeUnshared(conn)
	return false
}

// endSending ends the record of a sending without an answer, releases its place in the lane, and starts the next
// record.
func (ex *exchange) endSending(now time.Time) {
	ex.delivery.again()
	released := ex.grant.Release(ratelimit.Outcome{Ended: now})
	first := ex.rec
	first.Reason, first.Error = policy.ReasonUpstream, errSentAgain.Error()
	first.SetEnd(released, now)
	ex.recorder.End(&first)

	ex.waitedBefore += first.Waited
	ex.begun, ex.grant = false, ratelimit.Grant{}
	rec := &ex.rec
	rec.ID, rec.Time = ex.server.ids.Next(now), now
	rec.Waited, rec.Gap, rec.PacingMode = 0, 0, ""
	rec.SentAt, rec.UpstreamAddr = time.Time{}, ""
	rec.SetDecision(ex.judged.Decision, ex.judged.snap)
}

// admitAgain is admit for a second sending. The request was judged already; takePlace judges it again if it has waited.
func (ex *exchange) admitAgain() *refusal {
	if ref := ex.takePlace(); ref != nil {
		return ref
	}
	if ref := ex.stopped(); ref != nil {
		return ref
	}
	return ex.beginSending()
}

// closeUnshared closes a connection of HTTP/1.1: net/http would write the request to it although the context has ended.
// On a connection of HTTP/2, which other requests share, net/http checks the context before it writes.
func closeUnshared(conn net.Conn) {
	if !isShared(conn) {
		conn.Close()
	}
}

// isShared reports whether conn is a connection of HTTP/2.
func isShared(conn net.Conn) bool {
	c, ok := conn.(*tls.Conn)
	return ok && c.ConnectionState().NegotiatedProtocol == "h2"
}
