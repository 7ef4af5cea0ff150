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

// part sends the last answer on c and closes it so that the client can read it: while octets are unread, a close resets
// the connection, and takes the answer with it (RFC 9112 section 9.6).
func part(c net.Conn, answer []byte) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(lingering))
	if _, err := c.Write(answer); err != nil {
		return // the client is gone
	}
	if err := closeWrite(c); err == nil {
		_, _ = io.CopyN(io.Discard, c, lingerOctets)
	}
}

// closeWrite ends what we send on c, and leaves open what we receive. A connection that cannot do that is closed whole.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
