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
	if err := probe(ctx, boundAddress(s.cfg.Admin.Listen, s.adminListener), "/healthz"); err != nil {
		return fmt.Errorf("admin.listen: %w", err)
	}
	err := probe(ctx, boundAddress(s.cfg.Listen, s.proxyListener), "/proxy.pac")
	if err != nil && !s.draining.Load() {
		return fmt.Errorf("listen: %w", err)
	}
	return nil
}

// probe returns an error unless the server at listen accepts a connection and answers a request, or closes the
// connection. Which answer does not matter: a server at its limit, or that expects TLS, is not stuck.
func probe(ctx context.Context, listen, path string) error {
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
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, address); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("no answer from %s: %w", address, err)
	}
	return nil
}
