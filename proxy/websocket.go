package proxy

import (
	"errors"
	"io"
	"net"
	"time"
)

// errSilent ends a WebSocket without traffic.
var errSilent = errors.New("the WebSocket was idle for longer than limits.idle_timeout")

// webSocket is the client's side of a WebSocket. The bytes of both directions pass through it, and without any for the
// idle time, pings included, it closes both sides. A read deadline does not suffice: if one side does not read, the
// copy from the other side blocks in a write.
type webSocket struct {
	net.Conn
	origin io.Closer // the other side
	ex     *exchange
	idle   time.Duration
	timer  *time.Timer
}

func newWebSocket(c net.Conn, origin io.Closer, ex *exchange, idle time.Duration) *webSocket {
	ws := &webSocket{c, origin, ex, idle, time.NewTimer(idle)}
	go ws.watch()
	return ws
}

// watch closes both sides after the idle time, or when the request has ended because it took too long or the proxy is
// stopping.
func (c *webSocket) watch() {
	defer c.timer.Stop()
	select {
	case <-c.timer.C:
		c.ex.cancel(errSilent)
	case <-c.ex.ctx.Done():
	}
	c.Close()
}

// Read reads from the client.
func (c *webSocket) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.noteTraffic(n)
	return n, err
}

// Write writes bytes of the origin to the client.
func (c *webSocket) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.noteTraffic(n)
	return n, err
}

// noteTraffic restarts the idle time if bytes passed.
func (c *webSocket) noteTraffic(n int) {
	if n > 0 {
		c.timer.Reset(c.idle)
	}
}

// Close ends both sides.
func (c *webSocket) Close() error {
	return errors.Join(c.origin.Close(), c.Conn.Close())
}
