package robotstest

import (
	"crypto/tls"
	"net"
	"net/http"
)

// Reset ends the connection before a status line: with a TCP reset, or in HTTP/2, where the connection is not the
// request's own, with a reset of the stream.
func Reset(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if ours, ok := conn.(*hijacked); ok {
		ours.end()
		conn = ours.Conn
	}
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn() // without the alert that TLS would send before it closes
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// Truncate answers 200 and some of a body in chunks, then ends the connection where the next chunk should be.
func Truncate(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	breakOff(w)
}

// serveTruncateLength promises 1000 octets.
func serveTruncateLength(w http.ResponseWriter, _ *http.Request, _ string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", "1000")
	breakOff(w)
}

func breakOff(w http.ResponseWriter) {
	write(w, "this is not the wh")
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// serveGarbage answers like a server of another protocol.
func serveGarbage(w http.ResponseWriter, _ *http.Request, _ string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "HTTP/1.1 only: "+err.Error(), http.StatusHTTPVersionNotSupported)
		return
	}
	defer conn.Close()
	write(conn, "220 mail.example ESMTP ready\r\n")
}
