package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// TransportOptions configure a Transport.
type TransportOptions struct {
	// Guard judges every dial. It is required.
	Guard *Guard

	// RootCAs verify origins. If nil, the system's roots.
	RootCAs *x509.CertPool

	// InsecureHosts lists hosts whose certificates are not verified, as the patterns of Options.Resolve.
	InsecureHosts []string

	// IdleConns is the number of idle connections that are kept, for up to five minutes: 32 of them to one host. If zero,
	// 512. A crawl of many hosts with a Crawl-delay makes a connection for each page if there are fewer than hosts.
	IdleConns int

	// Pseudonym is our name in the Via field of robots.txt fetches through an upstream proxy, by which a loop is detected.
	// If empty, those have no Via.
	Pseudonym string
}

// Transport is an http.RoundTripper that sends requests to origins, by HTTP/2 if the origin offers it, else HTTP/1.1.
// It does not change bodies. It ignores the proxy variables of the environment, since users set them to this proxy.
type Transport struct {
	options              TransportOptions
	verified, unverified *http.Transport
	pinned               pools // for requests whose address is pinned: see Pin
	insecure             patterns[bool]
	clear                *http.Transport // for http through an upstream proxy; nil without one
	via                  Via             // for requests without Via; zero: none is added
}

// NewTransport returns a Transport. Every step but the body has a time-out.
func NewTransport(o TransportOptions) *Transport {
	if o.IdleConns == 0 {
		o.IdleConns = 512
	}
	t := &Transport{
		options: o, verified: newTransport(o, false), unverified: newTransport(o, true), pinned: newPools(o.IdleConns),
	}
	if u := o.Guard.options.Upstream; u != nil {
		if o.Pseudonym != "" {
			t.via = NewVia(o.Pseudonym)
		}
		t.clear = newTransport(o, false)
		t.clear.Proxy = http.ProxyURL(u.proxyURL())
		t.clear.DialContext = endWithRequest(func(ctx context.Context, _, _ string) (net.Conn, error) {
			return newLingerConn(o.Guard.dialUpstream(ctx))
		})
		t.clear.MaxIdleConnsPerHost = t.clear.MaxIdleConns // all are to the upstream proxy
	}
	insecure := make(map[string]bool)
	for _, pattern := range o.InsecureHosts {
		insecure[pattern] = true
	}
	t.insecure = newPatterns(insecure)
	return t
}

// streamWindow is how many bytes of a response by HTTP/2 an origin may send before they are read. They are kept in
// memory, so the default of 4 MiB would let a thousand responses that wait take 4 GiB.
const streamWindow = 256 << 10

func newTransport(o TransportOptions, insecure bool) *http.Transport {
	return &http.Transport{
		DialContext: endWithRequest(func(ctx context.Context, network, addr string) (net.Conn, error) {
			return newLingerConn(o.Guard.DialContext(ctx, network, addr))
		}),
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.RootCAs, InsecureSkipVerify: insecure},
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  60 * time.Second,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        5 * time.Minute,
		MaxIdleConns:           o.IdleConns,
		MaxIdleConnsPerHost:    32,
		MaxResponseHeaderBytes: 256 << 10,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		ReadBufferSize:         4 << 10, // of each connection, also of an idle one; a body is read past it
		WriteBufferSize:        4 << 10,
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: streamWindow},
	}
}

// lingerTime is how long a failed Write waits for the response.
const lingerTime = time.Second

// lingerConn is a connection to an origin that may answer and close during an upload. The write then fails, and
// http.Transport would drop the response that it has not read yet. So Write waits for the reader before it fails.
type lingerConn struct {
	net.Conn
	once   sync.Once
	end    chan struct{} // closed when Read has failed or the connection is closed
	writes atomic.Int64  // see Writes
}

// newLingerConn wraps the results of a dial.
func newLingerConn(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return &lingerConn{Conn: c, end: make(chan struct{})}, nil
}

func (c *lingerConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.once.Do(func() { close(c.end) })
	}
	return n, err
}

// Write returns an error only after Read has failed, or after lingerTime.
func (c *lingerConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err == nil {
		c.writes.Add(1)
		return n, nil
	}
	select {
	case <-c.end:
	case <-time.After(lingerTime):
	}
	return n, err
}

// Writes is for the function Writes.
func (c *lingerConn) Writes() int64 { return c.writes.Load() }

func (c *lingerConn) Close() error {
	c.once.Do(func() { close(c.end) })
	return c.Conn.Close()
}

// Writes returns how often bytes were passed to the system on a connection of a Transport, as httptrace has it. It shows
// that a request has left the buffers of net/http, which httptrace does not. For other connections it returns 0, unless
// they have a method Writes.
func Writes(c net.Conn) int64 {
	if counter, ok := Wire(c).(interface{ Writes() int64 }); ok {
		return counter.Writes()
	}
	return 0
}

// Wire returns c without the TLS on it. After its Close returns, no more bytes are passed to the system.
func Wire(c net.Conn) net.Conn {
	if over, ok := c.(interface{ NetConn() net.Conn }); ok {
		return over.NetConn()
	}
	return c
}

// RoundTrip sends r to the host of its URL.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = withDialing(r)
	if t.via != (Via{}) && len(r.Header["Via"]) == 0 {
		r = r.Clone(r.Context())
		t.via.Add(r.Header, r.ProtoMajor) // a fetch of robots.txt: by Via we detect that it comes back to us
	}
	if t.clear != nil && r.URL.Scheme == "http" {
		return t.throughUpstream(r)
	}
	return t.direct(r).RoundTrip(r)
}

// direct returns the http.Transport for r without an upstream proxy.
func (t *Transport) direct(r *http.Request) *http.Transport {
	insecure, _ := t.insecure.find(r.URL.Hostname())
	if addr, ok := pinned(r.Context()); ok {
		return t.pinned.get(poolKey{addr, insecure}, func() *http.Transport { return newTransport(t.options, insecure) })
	}
	if insecure {
		return t.unverified
	}
	return t.verified
}

// throughUpstream sends r, whose scheme is http, to the upstream proxy. One connection carries requests for many
// origins, so it judges the name for each request.
func (t *Transport) throughUpstream(r *http.Request) (*http.Response, error) {
	o, err := origin.FromURL(r.URL)
	if err == nil {
		err = t.options.Guard.checkName(r.Context(), o.HostPort())
	}
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	resp, err := t.clear.RoundTrip(r)
	if err != nil {
		return nil, upstreamFailure(err)
	}
	if resp.StatusCode == http.StatusProxyAuthRequired { // addressed to us, not to the client
		resp.Body.Close()
		return nil, answered(resp.StatusCode)
	}
	return resp, nil
}

// CloseIdleConnections closes the connections that are not in use.
func (t *Transport) CloseIdleConnections() {
	t.verified.CloseIdleConnections()
	t.unverified.CloseIdleConnections()
	t.pinned.closeIdle()
	if t.clear != nil {
		t.clear.CloseIdleConnections()
	}
}
