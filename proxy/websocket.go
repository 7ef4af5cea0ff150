package proxy

import (
	"errors"
	"io"
	"net"
	"time"
)

// errSilent ends a WebSocket in which nobody says anything any more.
var errSilent = errors.New("the WebSocket was idle for longer than limits.idle_timeout")

// webSocket is the client's side of a WebSocket. What is said passes through it both ways, and when nothing was for the
// idle time, pings included, both sides are closed. A deadline would not do: where one side does not listen, what the
// other says is stuck amid a write, and nobody reads.
type webSocket struct {
	net.Conn
	origin  io.Closer // the other side
	ex      *exchange
	idle    time.Duration
	silence *time.Timer
}

func newWebSocket(c net.Conn, origin io.Closer, ex *exchange, idle time.Duration) *webSocket {
	ws := &webSocket{c, origin, ex, idle, time.NewTimer(idle)}
	go ws.watch()
	return ws
}

// watch closes both sides when nothing is said any more, or when the request has ended: it took too long, or the proxy is
// stopping.
func (c *webSocket) watch() {
	defer c.silence.Stop()
	select {
	case <-c.silence.C:
		c.ex.end(c.ex.abortCause(errSilent))
	case <-c.ex.ctx.Done():
	}
	c.Close()
}

// Read reads what the client says.
func (c *webSocket) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.noted(n)
	return n, err
}

// Write says to the client what the origin did.
func (c *webSocket) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.noted(n)
	return n, err
}

// noted begins the idle time anew where something passed.
func (c *webSocket) noted(n int) {
	if n > 0 {
		c.silence.Reset(c.idle)
	}
}

// Close ends both sides.
func (c *webSocket) Close() error {
	return errors.Join(c.origin.Close(), c.Conn.Close())
}
