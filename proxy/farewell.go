package proxy

import (
	"io"
	"net"
	"time"
)

// A connection that was answered for the last time is read on for a while, so that its client has the answer before the
// end.
const (
	lingering    = time.Second
	lingerOctets = 256 << 10
)

// part sends the last answer on c and closes it so that the client can read it.
func part(c net.Conn, answer []byte) {
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(lingering))
	if _, err := c.Write(answer); err != nil {
		return // the client is gone
	}
	linger(c)
}

// linger ends what we send on c and reads on for a while, before c is closed: while octets are unread, a close resets the
// connection, and then the client may never see its answer (RFC 9112 section 9.6).
func linger(c net.Conn) {
	if closeWrite(c) != nil || c.SetReadDeadline(time.Now().Add(lingering)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, c, lingerOctets) // the connection is closed whatever comes
}

// closeWrite ends what we send on c, and leaves open what we receive. A connection that cannot do that is closed whole.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
