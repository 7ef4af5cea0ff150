package proxy

import (
	"errors"
	"net"
	"os"
	"time"
)

// errSilent ends a WebSocket in which nobody says anything any more.
var errSilent = errors.New("the WebSocket was idle for longer than limits.idle_timeout")

// webSocket is the client's side of a WebSocket. What is said passes through it both ways, and when nothing was for the
// idle time, pings included, it ends.
type webSocket struct {
	net.Conn
	ex   *exchange
	idle time.Duration
}

func newWebSocket(c net.Conn, ex *exchange, idle time.Duration) *webSocket {
	ws := &webSocket{c, ex, idle}
	ws.wait()
	return ws
}

// wait begins the idle time anew, for both directions: it acts on a Read that is under way, too.
func (c *webSocket) wait() { _ = c.SetDeadline(time.Now().Add(c.idle)) }

// Read reads what the client says.
func (c *webSocket) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.noted(n, err)
}

// Write says to the client what the origin did. One that does not listen counts as silent.
func (c *webSocket) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.noted(n, err)
}

func (c *webSocket) noted(n int, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.ex.end(c.ex.whoLeft(errSilent))
	} else if n > 0 {
		c.wait()
	}
	return err
}
