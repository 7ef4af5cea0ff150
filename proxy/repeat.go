package proxy

import (
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

var errUnpaced = errors.New("the request may not be sent again")

// repace takes another place in the pace for a request that net/http sends again by itself: one without a body whose kept
// connection was closed under it, before an answer (RFC 9110 section 9.2.2 allows that), or one that an HTTP/2 origin did
// not process. Nobody is told of it but the trace, which calls this once the new connection is there, and before anything
// is written to it. If the pace has no place that is near enough, the attempt ends here.
//
// The first sending counts as a request, since nobody knows whether it arrived.
func (ex *exchange) repace(conn net.Conn) {
	if ex.grant.IsZero() {
		return // mode report or off: nothing is changed
	}
	ex.grant.Release(ratelimit.Outcome{})
	ex.asked.Ride = false
	ex.clock.pause()
	grant, ref := pipeline{ex.server}.place(ex.ctx, ex)
	ex.clock.restart()
	if ref != nil {
		if ex.ctx.Err() == nil {
			ex.unpaced = ref
			ex.cancel(errUnpaced)
		}
		closeUnshared(conn)
		return
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.hold(grant)
	ex.rec.SentAt = time.Now()
}

// closeUnshared closes a connection of HTTP/1.1: net/http would write the request to it although its context has ended.
// One of HTTP/2, which others use as well, is written to only after a look at the context.
func closeUnshared(conn net.Conn) {
	if c, ok := conn.(*tls.Conn); ok && c.ConnectionState().NegotiatedProtocol == "h2" {
		return
	}
	conn.Close()
}
