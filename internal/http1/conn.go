// Package http1 checks the framing of HTTP/1.x requests before net/http reads them.
//
//	srv := &http.Server{Handler: h}
//	http1.Install(srv)
//	srv.Serve(http1.NewListener(l, http1.Options{Refuse: refuse}))
//
// net/http is lenient: it accepts a bare LF, unfolds lines, and ignores a Content-Length beside Transfer-Encoding. The
// next server may read such a request as two, and one of them was never judged (RFC 9112 section 11.2). A Conn passes
// to net/http the bytes of well-formed requests only. At the first fault it calls Refuse, which answers the client, and
// then the connection ends. If the fault is in the body of a request that is being served, reading that body fails
// instead.
//
// A CONNECT and an accepted upgrade end the checks: another protocol follows. HTTP/2 needs no Conn.
//
// The package knows nothing of robots.txt and does not judge targets: it checks that net/http can parse them.
package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Options configure a Conn.
type Options struct {
	// Refuse answers the bytes that are not a request, on the underlying connection. The Conn lingers afterwards. It is
	// required.
	Refuse func(net.Conn, *SyntaxError)

	// CheckHost judges a Host field beside a target in absolute-form, which net/http drops. If nil, any Host is accepted.
	CheckHost func(host string) error
}

// Conn is a client's connection that net/http reads. Its methods other than Read may be called by any goroutine. The
// methods that a nil Conn permits do nothing for it: a request of HTTP/2 has none.
type Conn struct {
	net.Conn
	refuse func(net.Conn, *SyntaxError)

	scanner scanner // of the reading goroutine: net/http has one at a time

	reason atomic.Pointer[string] // of the next final response; nil: the one of net/http

	mu        sync.Mutex   // guards the fields below
	open      bool         // another protocol follows: nothing is checked
	active    bool         // a request is being served
	requests  int64        // how many have begun
	fault     *SyntaxError // no byte after it reaches net/http
	refused   bool         // Refuse was called
	abandoned bool         // the rest of the request is not read, so no other can follow
	deadline  time.Time    // of reads
	pending   bool         // the underlying connection does not have the deadline yet
}

// tlsConn is a Conn over TLS. net/http takes the TLS state of a request from its method.
type tlsConn struct {
	*Conn
	tls *tls.Conn
}

func (c tlsConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

// New returns a connection that net/http reads in place of c. If c is a *tls.Conn, its handshake must be complete.
func New(c net.Conn, o Options) net.Conn {
	conn := &Conn{Conn: c, refuse: o.Refuse, scanner: scanner{checkHost: o.CheckHost}}
	if secure, ok := c.(*tls.Conn); ok {
		return tlsConn{conn, secure}
	}
	return conn
}

// NetConn returns the underlying connection.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// errStop ends net/http's reading. net/http answers nothing to a *net.OpError.
var errStop = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("no request can follow")}

// Read reads bytes of well-formed requests.
func (c *Conn) Read(p []byte) (int, error) {
	fault, err := c.beginRead()
	if err != nil {
		return 0, err
	}
	if fault != nil {
		return 0, c.fail(fault)
	}
	n, err := c.Conn.Read(p)
	if c.isOpen() { // it may have been opened during the read
		return n, err
	}
	valid, fault := c.scanner.scan(p[:n])
	if fault == nil {
		return n, err
	}
	c.mu.Lock()
	c.fault = fault
	c.mu.Unlock()
	if valid > 0 {
		return valid, nil
	}
	return 0, c.fail(fault)
}

// beginRead gives the underlying connection its deadline and returns the fault at which reading has stopped.
func (c *Conn) beginRead() (*SyntaxError, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.abandoned {
		return nil, errStop
	}
	if c.pending {
		c.pending = false
		if err := c.Conn.SetReadDeadline(c.deadline); err != nil {
			return nil, err
		}
	}
	return c.fault, nil
}

func (c *Conn) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// fail returns the error of a read at the fault. It depends on the place of the fault, and on whether a request is
// being served.
func (c *Conn) fail(fault *SyntaxError) error {
	c.mu.Lock()
	open, bodyFault, active, refused := c.open, c.badBody() != nil, c.active, c.refused
	c.refused = refused || !open && !bodyFault && !active
	c.mu.Unlock()
	switch {
	case open, refused: // refused: net/http accepts half a line before an error as a line, and reads on
		return errStop
	case bodyFault:
		return fault // the handler answers
	case active:
		return c.watch()
	}
	c.refuse(c.Conn, fault)
	Linger(c.Conn)
	return errStop
}

// watch discards input until the client leaves or net/http interrupts the read. During a request, net/http reads only
// to learn that the client has left.
func (c *Conn) watch() error {
	if _, err := io.Copy(io.Discard, c.Conn); err != nil {
		return err
	}
	return io.EOF
}

// BadBody returns the fault in the body of the request that is being served, nil if there is none. A nil Conn has none.
func (c *Conn) BadBody() *SyntaxError {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.badBody()
}

func (c *Conn) badBody() *SyntaxError {
	if c.fault != nil && c.fault.body > 0 && c.fault.body == c.requests {
		return c.fault
	}
	return nil // the fault is in a later request
}

// Open ends the checks: another protocol follows. A nil Conn permits it.
func (c *Conn) Open() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = true
}

// Abandon ends reading within a request. The connection is closed after the response. A nil Conn permits it.
func (c *Conn) Abandon() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abandoned = true
	_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // interrupts a read
}

// CloseAfterBadBody ends the connection after the response to a request with a malformed body. A nil Conn permits it.
func (c *Conn) CloseAfterBadBody(w http.ResponseWriter) {
	if c.BadBody() == nil {
		return
	}
	_ = http.NewResponseController(w).Flush() // the client may have left
	Linger(c.Conn)
}

// CloseWrite ends the sending side. net/http calls it before it closes a connection whose client may still send, and
// then waits without reading.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	abandoned := c.abandoned
	c.mu.Unlock()
	if abandoned {
		Linger(c.Conn)
		return nil
	}
	return CloseWrite(c.Conn)
}

// SetReadDeadline sets the deadline of the next reads. A deadline in the past also interrupts the read that is under
// way: so net/http ends its background read. net/http moves the deadline up to five times between two reads; the
// underlying connection gets the last one.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	past := !t.IsZero() && time.Until(t) <= 0
	c.deadline, c.pending = t, !past
	if past {
		return c.Conn.SetReadDeadline(t)
	}
	return nil
}

// SetDeadline sets the deadlines at once. net/http calls it when a handler hijacks the connection.
func (c *Conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = false
	return c.Conn.SetDeadline(t)
}

// setState follows net/http's ConnState.
func (c *Conn) setState(s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active = s == http.StateActive
	if c.active {
		c.requests++
		c.reason.Store(nil) // the last handler may not have written a header
	}
}

// Listener wraps each connection of a net.Listener in a Conn.
type Listener struct {
	net.Listener
	options Options
}

// NewListener returns a Listener over l.
func NewListener(l net.Listener, o Options) *Listener { return &Listener{l, o} }

// Accept returns the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return New(c, l.options), nil
}

type connKey struct{}

// Install makes srv tell each Conn when its requests begin and end, and makes From find the Conn in the contexts of its
// requests. It wraps srv.ConnState and srv.ConnContext, so these must be set before.
func Install(srv *http.Server) {
	state, connContext := srv.ConnState, srv.ConnContext
	srv.ConnState = func(nc net.Conn, s http.ConnState) {
		if c := connOf(nc); c != nil {
			c.setState(s)
		}
		if state != nil {
			state(nc, s)
		}
	}
	srv.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		if connContext != nil {
			ctx = connContext(ctx, nc)
		}
		return context.WithValue(ctx, connKey{}, connOf(nc))
	}
}

// From returns the Conn of the request with this context, nil for HTTP/2.
func From(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

func connOf(c net.Conn) *Conn {
	switch c := c.(type) {
	case *Conn:
		return c
	case tlsConn:
		return c.Conn
	}
	return nil
}
