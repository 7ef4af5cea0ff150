package robotstest

import (
	"crypto/tls"
	"net"
	"net/http"
)

// Reset ends the connection before a status line with a TCP reset. In HTTP/2, where requests share the connection, it
// resets the stream instead.
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
		conn = secure.NetConn() // avoid the alert that TLS sends before it closes
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// Truncate responds 200 with part of a chunked body, and closes the connection before the next chunk.
func Truncate(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	abort(w)
}

// serveTruncateLength sends a Content-Length of 1000 and part of the body.
func serveTruncateLength(w http.ResponseWriter, _ *http.Request, _ string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", "1000")
	abort(w)
}

func abort(w http.ResponseWriter) {
	write(w, "this is not the wh")
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// serveGarbage responds like a server of another protocol.
func serveGarbage(w http.ResponseWriter, _ *http.Request, _ string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "HTTP/1.1 only: "+err.Error(), http.StatusHTTPVersionNotSupported)
		return
	}
	defer conn.Close()
	write(conn, "220 mail.example ESMTP ready\r\n")
}
