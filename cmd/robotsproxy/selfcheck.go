package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/robotsproxy/robotsproxy/internal/clientenv"
)

// check returns an error if one of the listeners does not answer a connection before ctx ends. While the proxy drains,
// only that of the admin answers.
func (s *service) check(ctx context.Context) error {
	adminAt := boundAddress(s.cfg.Admin.Listen, s.adminListener)
	if err := probe(ctx, adminAt, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		return fmt.Errorf("admin.listen: %w", err)
	}
	// Without a request, which would be refused and recorded if the listener expects TLS or a PROXY header.
	err := probe(ctx, boundAddress(s.cfg.Listen, s.proxyListener), "")
	if err != nil && !s.draining.Load() {
		return fmt.Errorf("listen: %w", err)
	}
	return nil
}

// probe returns an error unless the server at listen accepts a connection, and answers request or closes the
// connection. An empty request ends the connection. Which answer does not matter: a server at its limit is not stuck.
func probe(ctx context.Context, listen, request string) error {
	address, err := clientenv.DialAddress(listen)
	if err != nil {
		return err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	if request == "" {
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			return err
		}
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("no answer from %s: %w", address, err)
	}
	return nil
}
