package proxy

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

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// Upstream is a proxy behind this one. Where there is one, everything goes through it and nothing past it: requests for
// https, and tunnels, by CONNECT; requests for http in absolute-form, since many proxies refuse a CONNECT to port 80.
//
// It is told names, not addresses, and resolves them again. That it finds the addresses that were checked here is not
// promised: the operator chose it.
type Upstream struct {
	URL     *url.URL       // http or https, and a host; if it names no port, the scheme's
	User    *url.Userinfo  // sent as Basic credentials; if nil, none are
	RootCAs *x509.CertPool // whom an https one is verified by; if nil, the system's roots
}

// upstreamTimeout bounds a connection through the upstream proxy: to it, its TLS handshake, and its answer to CONNECT,
// for which it has to reach the origin.
const upstreamTimeout = 30 * time.Second

// addr is what is dialled.
func (u *Upstream) addr() string {
	port := u.URL.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.URL.Scheme]
	}
	return net.JoinHostPort(u.URL.Hostname(), port)
}

// UpstreamError is a failure of the upstream proxy, or between it and us. Nothing is sent by another way then.
type UpstreamError struct {
	Status int // what it answered in place of a tunnel; zero where it did not come to that
	Err    error
}

func (e *UpstreamError) Error() string { return "proxy: the upstream proxy: " + e.Err.Error() }

func (e *UpstreamError) Unwrap() error { return e.Err }

// FailedUpstream reports whether err comes from the upstream proxy, or from between it and us.
func FailedUpstream(err error) bool {
	var failure *UpstreamError
	return errors.As(err, &failure)
}

// upstreamFailure returns err as an UpstreamError; it may be one already, with other errors around it.
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

// ErrOurselves is the error of an upstream proxy that is this one.
var ErrOurselves = errors.New("it is this proxy itself")

// errorType returns the error type of RFC 9209 section 2.3, whose next hop is the upstream proxy.
func (e *UpstreamError) errorType() string {
	switch {
	case errors.Is(e.Err, ErrOurselves), e.Status == http.StatusLoopDetected:
		return "proxy_loop_detected"
	case e.Status == http.StatusProxyAuthRequired:
		return "proxy_configuration_error"
	case e.Status != 0:
		return "destination_unavailable"
	}
	return robots.ErrorType(e.Err)
}

// words says what is wrong, without an address.
func (e *UpstreamError) words() string {
	if e.Status != 0 || errors.Is(e.Err, ErrOurselves) {
		return "the upstream proxy failed: " + e.Err.Error()
	}
	return "the upstream proxy failed: " + inWords(e.errorType(), e.Err)
}

// refusal is the answer to a request that the upstream proxy did not take.
func (e *UpstreamError) refusal() *Refusal {
	ref := &Refusal{Reason: policy.ReasonUpstream, ProxyError: e.errorType(), Detail: "T" + e.words()[1:] + ".", Err: e}
	if ref.ProxyError == "proxy_loop_detected" {
		ref.Reason = policy.ReasonLoop
	}
	ref.Status = timeoutStatus(ref.ProxyError)
	return ref
}

// CheckUpstream reports an upstream proxy that is one of our own listeners, by ErrOurselves, or whose name cannot be
// resolved now, which may pass: each dial looks again.
func (e *Egress) CheckUpstream(ctx context.Context) error {
	if e.options.Upstream == nil {
		return nil
	}
	all, err := e.lookUp(ctx, e.options.Upstream.addr())
	if err != nil {
		return fmt.Errorf("proxy: looking up the upstream proxy %s: %w", e.options.Upstream.addr(), err)
	}
	for _, ap := range all {
		if e.isOwn(netip.AddrPortFrom(origin.Reached(ap.Addr()), ap.Port())) {
			return fmt.Errorf("proxy: the upstream proxy %s: %w", e.options.Upstream.addr(), ErrOurselves)
		}
	}
	return nil
}

// controlUpstream lets every address be dialled but our own: this one the operator named.
func (e *Egress) controlUpstream(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if e.isOwn(netip.AddrPortFrom(origin.Reached(ap.Addr()), ap.Port())) {
		return ErrOurselves
	}
	return nil
}

// dialUpstream connects to the upstream proxy, over TLS if its URL says so. Its error is an UpstreamError.
func (e *Egress) dialUpstream(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, upstreamTimeout)
	defer cancel()
	u := e.options.Upstream
	addr, err := e.mapped(u.addr())
	if err != nil {
		return nil, &UpstreamError{Err: err}
	}
	conn, err := e.upstream.DialContext(ctx, "tcp", addr)
	if err != nil {
		if own := e.CheckUpstream(ctx); errors.Is(own, ErrOurselves) {
			err = own // the dialler tells of the first address of several only
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

// tunnel returns a connection to addr through the upstream proxy. Its error is an UpstreamError.
func (e *Egress) tunnel(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, upstreamTimeout)
	defer cancel()
	conn, err := e.dialUpstream(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = e.options.Upstream.connect(conn, addr)
	if !stop() {
		err = &UpstreamError{Err: ctx.Err()} // whatever came of it: the connection is closed
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// connect asks on conn for a tunnel to addr. Octets behind the answer would be the origin's word before it was asked,
// which nothing that goes through a tunnel of ours expects.
func (u *Upstream) connect(conn net.Conn, addr string) error {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: addr}, Host: addr, Header: http.Header{"User-Agent": {""}}}
	if u.User != nil {
		req.Header.Set("Proxy-Authorization", u.authorization())
	}
	if err := req.Write(conn); err != nil {
		return &UpstreamError{Err: err}
	}
	r := bufio.NewReader(io.LimitReader(conn, maxHeaderBytes))
	resp, err := http.ReadResponse(r, req)
	switch {
	case err != nil:
		return &UpstreamError{Err: err}
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return answered(resp.StatusCode)
	case r.Buffered() > 0:
		return &UpstreamError{Err: errors.New("octets came before the tunnel was used")}
	}
	return nil
}

func (u *Upstream) authorization() string {
	password, _ := u.User.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))
}

// proxyURL is the upstream proxy as net/http is told of it: TLS is begun in the dial already.
func (u *Upstream) proxyURL() *url.URL {
	return &url.URL{Scheme: "http", Host: u.addr(), User: u.User}
}
