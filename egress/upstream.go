package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// Upstream is another proxy that carries every connection to an origin. Requests for https and tunnels use CONNECT;
// requests for http use absolute-form, since many proxies refuse a CONNECT to port 80.
//
// The upstream proxy receives names and resolves them again. It may find other addresses than the guard judged: the
// operator trusts it.
type Upstream struct {
	URL     *url.URL       // scheme http or https, and a host; if it has no port, the scheme's default
	User    *url.Userinfo  // for Basic authentication; may be nil
	RootCAs *x509.CertPool // verify an https upstream proxy; if nil, the system's roots
}

// upstreamTimeout limits the time to connect through the upstream proxy: the dial, the TLS handshake and the response
// to CONNECT, which includes the upstream proxy's own dial.
const upstreamTimeout = 30 * time.Second

// maxConnectBytes limits the response header to CONNECT.
const maxConnectBytes = 64 << 10

// addr returns the host:port of the upstream proxy.
func (u *Upstream) addr() string {
	port := u.URL.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.URL.Scheme]
	}
	return net.JoinHostPort(u.URL.Hostname(), port)
}

// UpstreamError is a failure to reach the upstream proxy, or a failure of that proxy. The request is not sent another
// way.
type UpstreamError struct {
	Status int // of its response to CONNECT, or 407; zero if there was none
	Err    error
}

func (e *UpstreamError) Error() string { return "egress: the upstream proxy: " + e.Err.Error() }

func (e *UpstreamError) Unwrap() error { return e.Err }

// ProxyErrorType returns the error type of RFC 9209 section 2.3, or "" if e.Err determines it.
func (e *UpstreamError) ProxyErrorType() string {
	switch {
	case errors.Is(e.Err, ErrOurselves), e.Status == http.StatusLoopDetected:
		return "proxy_loop_detected"
	case e.Status == http.StatusProxyAuthRequired:
		return "proxy_configuration_error"
	case e.Status != 0:
		return "destination_unavailable"
	}
	return ""
}

// ClientText describes e for a client, without addresses. text describes e.Err.
func (e *UpstreamError) ClientText(text string) string {
	if e.ProxyErrorType() != "" {
		text = e.Err.Error()
	}
	return "the upstream proxy failed: " + text
}

// UpstreamFailed reports whether err is, or wraps, an UpstreamError.
func UpstreamFailed(err error) bool {
	var failure *UpstreamError
	return errors.As(err, &failure)
}

// upstreamFailure returns the UpstreamError that err wraps, or a new one that wraps err.
func upstreamFailure(err error) *UpstreamError {
	var failure *UpstreamError
	if errors.As(err, &failure) {
		return failure
	}
	return &UpstreamError{Err: err}
}

func answered(status int) *UpstreamError {
	return &UpstreamError{Status: status, Err: fmt.Errorf("it answered %d %s", status, http.StatusText(status))}
}

// ErrOurselves is the error for an upstream proxy whose address is one of our own listeners.
var ErrOurselves = errors.New("it is this proxy itself")

// CheckUpstream returns an error that wraps ErrOurselves if the upstream proxy is one of our own listeners. It returns
// another error if the name does not resolve now, which may be temporary: each dial resolves it again.
func (g *Guard) CheckUpstream(ctx context.Context) error {
	if g.options.Upstream == nil {
		return nil
	}
	all, err := g.lookUp(ctx, g.options.Upstream.addr())
	if err != nil {
		return fmt.Errorf("egress: looking up the upstream proxy %s: %w", g.options.Upstream.addr(), err)
	}
	for _, ap := range all {
		if g.isOwn(ap) {
			return fmt.Errorf("egress: the upstream proxy %s: %w", g.options.Upstream.addr(), ErrOurselves)
		}
	}
	return nil
}

// controlUpstream is control for the upstream proxy: it prohibits our own listeners only.
func (g *Guard) controlUpstream(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if g.isOwn(ap) {
		return ErrOurselves
	}
	return nil
}

// dialUpstream connects to the upstream proxy, over TLS if its scheme is https. The error is an *UpstreamError.
func (g *Guard) dialUpstream(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, upstreamTimeout)
	defer cancel()
	u := g.options.Upstream
	addr, err := g.mapped(u.addr())
	if err != nil {
		return nil, &UpstreamError{Err: err}
	}
	conn, err := g.upstream.DialContext(ctx, "tcp", addr)
	if err != nil {
		if own := g.CheckUpstream(ctx); errors.Is(own, ErrOurselves) {
			err = own // net.Dialer returns the error of one of several addresses
		}
		return nil, &UpstreamError{Err: err}
	}
	if u.URL.Scheme != "https" {
		return conn, nil
	}
	secure := tls.Client(conn, &tls.Config{ServerName: u.URL.Hostname(), RootCAs: u.RootCAs, MinVersion: tls.VersionTLS12})
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, &UpstreamError{Err: err}
	}
	return secure, nil
}

// tunnel connects to addr through the upstream proxy. The error is an *UpstreamError.
func (g *Guard) tunnel(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, upstreamTimeout)
	defer cancel()
	conn, err := g.dialUpstream(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = g.options.Upstream.connect(conn, addr)
	if !stop() {
		err = &UpstreamError{Err: ctx.Err()} // the connection is closed, whatever connect returned
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// connect sends a CONNECT for addr on conn. It refuses bytes that follow the response: the client speaks first in every
// protocol that we carry.
func (u *Upstream) connect(conn net.Conn, addr string) error {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: addr}, Host: addr, Header: http.Header{"User-Agent": {""}}}
	if u.User != nil {
		req.Header.Set("Proxy-Authorization", u.authorization())
	}
	if err := req.Write(conn); err != nil {
		return &UpstreamError{Err: err}
	}
	r := bufio.NewReader(io.LimitReader(conn, maxConnectBytes))
	resp, err := http.ReadResponse(r, req)
	switch {
	case err != nil:
		return &UpstreamError{Err: err}
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return answered(resp.StatusCode)
	case r.Buffered() > 0:
		return &UpstreamError{Err: errors.New("it sent bytes before the tunnel was used")}
	}
	return nil
}

func (u *Upstream) authorization() string {
	password, _ := u.User.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))
}

// proxyURL returns the URL for http.Transport.Proxy. Its scheme is http, since dialUpstream has done the TLS handshake.
func (u *Upstream) proxyURL() *url.URL {
	return &url.URL{Scheme: "http", Host: u.addr(), User: u.User}
}
