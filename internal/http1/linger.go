package http1

import (
	"io"
	"net"
	"time"
)

// LingerTime bounds how long Linger reads on.
const LingerTime = time.Second

// lingerBytes bounds how much Linger reads.
const lingerBytes = 256 << 10

// CloseWithResponse writes the last response on c and closes c so that the client can read it.
func CloseWithResponse(c net.Conn, response []byte) {
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(LingerTime))
	if _, err := c.Write(response); err != nil {
		return // the client has left
	}
	Linger(c)
}

// Linger ends the sending side of c and reads on for a while. The caller then closes c. A close while bytes are unread
// resets the connection, and the client may lose the response (RFC 9112 section 9.6).
func Linger(c net.Conn) {
	if CloseWrite(c) != nil || c.SetReadDeadline(time.Now().Add(LingerTime)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, c, lingerBytes) // an error ends it as well
}

// CloseWrite ends the sending side of c, or closes c if it has no CloseWrite.
func CloseWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
