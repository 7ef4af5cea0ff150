package lab

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// OpenTunnel sends a CONNECT to a proxy, and shakes hands inside the tunnel. All must be done within a minute.
func OpenTunnel(proxy, authority string, config *tls.Config) (*tls.Conn, error) {
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	secure, err := secureTunnel(conn, authority, config)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secure, conn.SetDeadline(time.Time{})
}

func secureTunnel(conn net.Conn, authority string, config *tls.Config) (*tls.Conn, error) {
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority); err != nil {
		return nil, err
	}
	// The reader cannot have buffered bytes after the answer: a TLS server does not send first.
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("CONNECT %s was answered %s", authority, resp.Status)
	}
	secure := tls.Client(conn, config)
	return secure, secure.Handshake()
}
