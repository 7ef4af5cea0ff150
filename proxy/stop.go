package proxy

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/policy"
)

// stopError ends a request to a host that an operator has stopped.
type stopError struct {
	decision policy.Decision
	policy   *policy.Policy // that made it
}

func (e *stopError) Error() string { return "an operator ended it: " + e.decision.Intervention }

// stopOf returns the stopError in err, or nil.
func stopOf(err error) *stopError {
	stop, _ := errors.AsType[*stopError](err) // unlike errors.As, it allocates nothing
	return stop
}

// stopped refuses a request to a host that is stopped now.
func (ex *exchange) stopped() *refusal {
	p, host := ex.server.settings.Load().Policy, ex.origin.Host()
	d, stopped := p.Stopped(host, time.Now())
	if !stopped {
		return nil
	}
	d.Mode = p.Mode(host, ex.client.Client)
	ex.rec.SetPolicy(p)
	return ex.stoppedRefusal(d)
}

// Ended is what EndStopped has ended.
type Ended struct {
	Answered   int // requests that had not been sent, and were answered 503
	Tunnels    int // raw tunnels that were closed
	WebSockets int // that were closed
}

// EndStopped applies new interventions to the requests in flight. Those that wait for a host whose Slow or Bypass has
// changed are judged again, and wait anew if they must.
//
// It ends the requests to hosts that a Stop of the Policy holds for: it answers those that have not been sent,
// and closes raw tunnels and WebSockets. It lets requests end of which the origin has the header. After EndStopped
// returns, no header of a request to such a host is sent until the Stop ends. Call it after Reload.
//
// A request is in s.undelivered before it looks for a stop, and EndStopped begins after the Policy is in force. So
// either the request sees the stop, or EndStopped sees the request.
func (s *Server) EndStopped() Ended {
	var ended Ended
	var sending []*exchange
	p, now := s.settings.Load().Policy, time.Now()
	for _, ex := range s.undelivered.list() {
		d, stopped := p.Stopped(ex.origin.Host(), now)
		if !stopped {
			ex.delivery.judgeAgain(func(before *policy.Policy) bool { return differ(before, p, ex.origin.Host(), now) })
			continue
		}
		cause := &stopError{d, p}
		switch state, closeBoth := ex.delivery.stop(cause); state {
		case notSent:
			ex.cancel(cause)
			ended.Answered++
		case beingSent:
			sending = append(sending, ex)
		case isOpen:
			ex.cancel(cause) // before the end of the connection, which would be the cause otherwise
			closeBoth(cause)
			if ex.isRawTunnel() {
				ended.Tunnels++
			} else {
				ended.WebSockets++
			}
		}
	}
	for _, ex := range sending {
		ex.delivery.awaitHeader(now.Add(maxSending))
		if conn := ex.delivery.unfinished(); conn != nil {
			ex.cancel(ex.delivery.stopped)
			egress.Wire(conn).Close()
			ended.Answered++
		}
	}
	return ended
}

// differ reports whether the Slow or the Bypass of a host differs in two policies.
func differ(a, b *policy.Policy, host string, now time.Time) bool {
	return a.Floor(host, now) != b.Floor(host, now) || a.Bypassed(host, now) != b.Bypassed(host, now)
}

// maxSending is how long EndStopped waits for a header that is being sent, before it closes the connection. A header
// takes some microseconds, unless the origin does not read, or its bytes wait for those of a body in a buffer.
const maxSending = 100 * time.Millisecond

// deliveryState is how far a request is on its way to the origin.
type deliveryState uint8

const (
	notSent   deliveryState = iota // nothing was sent: a stop ends the request
	beingSent                      // it has a connection, and its header may be on the way
	wasSent                        // the origin has the header, or the exchange has ended
	isOpen                         // it is a raw tunnel or a WebSocket: a stop closes it
)

// delivery follows a request on its way to the origin, for EndStopped.
type delivery struct {
	stopped *stopError // why nothing more may be sent; nil: it may; does not change once set

	mu     sync.Mutex // guards stopped and the other fields
	state  deliveryState
	conn   net.Conn    // in beingSent
	wrote  bool        // in beingSent: the header is in the buffer of conn; for HTTP/2: it was sent
	writes int64       // of conn until then
	close  func(error) // in isOpen

	policy *policy.Policy // by which it was judged, while it waits for its place
	leave  func()         // ends that wait
}

// waits is called with the policy by which the request was judged, before it waits for its place, and with the function
// that ends the wait. Both are nil after the wait.
func (d *delivery) waits(p *policy.Policy, leave func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.policy, d.leave = p, leave
}

// judgeAgain ends the wait for a place if the policy by which the request was judged is of no use any more.
func (d *delivery) judgeAgain(useless func(*policy.Policy) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leave != nil && useless(d.policy) {
		d.leave()
	}
}

// connected is called with the connection for the request, before anything is written to it. It returns an error if
// nothing may be written.
func (d *delivery) connected(c net.Conn) *stopError {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped == nil {
		d.state, d.conn, d.wrote = beingSent, c, false
	}
	return d.stopped
}

// wroteHeader is called when the header is in the buffer of the connection, and for HTTP/2 when it was sent.
func (d *delivery) wroteHeader() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == beingSent {
		d.wrote, d.writes = true, egress.Writes(d.conn)
	}
}

// answered is called when the origin has answered, and when the exchange has ended.
func (d *delivery) answered() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state, d.conn, d.close = wasSent, nil, nil
}

// again is called when the request is about to be sent a second time.
func (d *delivery) again() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state, d.conn = notSent, nil
}

// keepOpen is called when the request has become a raw tunnel or a WebSocket, with the function that closes it. It
// returns an error if a stop has ended the request.
func (ex *exchange) keepOpen(closeBoth func(error)) error {
	d := &ex.delivery
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped != nil {
		ex.cancel(d.stopped)
		return d.stopped
	}
	d.state, d.close = isOpen, closeBoth
	return nil
}

// stop lets nothing more be sent, except what is being sent now. It returns how far the request is, and what closes it
// if it is open. For a request that was stopped before it returns wasSent.
func (d *delivery) stop(cause *stopError) (deliveryState, func(error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped != nil {
		return wasSent, nil
	}
	d.stopped = cause
	return d.state, d.close
}

// awaitHeader waits until no header is being sent, or until the deadline.
func (d *delivery) awaitHeader(deadline time.Time) {
	for d.unfinished() != nil && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
}

// unfinished returns the connection on which the header is being sent, or nil.
func (d *delivery) unfinished() net.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state != beingSent || d.wrote && (isShared(d.conn) || egress.Writes(d.conn) > d.writes) {
		return nil
	}
	return d.conn
}

// undelivered holds the requests that a stop may end. The zero value is empty.
type undelivered struct {
	mu  sync.Mutex // guards all
	all map[*exchange]struct{}
}

func (u *undelivered) add(ex *exchange) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all == nil {
		u.all = make(map[*exchange]struct{})
	}
	u.all[ex] = struct{}{}
}

func (u *undelivered) remove(ex *exchange) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.all, ex)
}

func (u *undelivered) list() []*exchange {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make([]*exchange, 0, len(u.all))
	for ex := range u.all {
		all = append(all, ex)
	}
	return all
}
