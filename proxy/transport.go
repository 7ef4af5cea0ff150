package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// TransportOptions say how origins are reached.
type TransportOptions struct {
	Egress        *Egress        // required: the guard in front of every dial
	RootCAs       *x509.CertPool // whom origins are verified by; if nil, the system's roots
	InsecureHosts []string       // canonical hosts whose certificates are not verified
	Pseudonym     string         // our name in Via, for requests of our own to an upstream proxy; if empty, they have none
}

// Transport sends requests to origins, over HTTP/1.1 or HTTP/2 as they like. Bodies pass byte for byte: no coding is
// added or taken off. It takes no proxy from the environment, where users put this very proxy.
type Transport struct {
	verified, unverified *http.Transport
	insecure             map[string]bool
	egress               *Egress
	clear                *http.Transport // for http through an upstream proxy; nil where there is none
	via                  via             // what is added to requests of our own where there is one; empty: nothing
}

// NewTransport returns a Transport with time-outs on every step but the body.
func NewTransport(o TransportOptions) *Transport {
	t := &Transport{verified: newTransport(o, false), insecure: make(map[string]bool), egress: o.Egress}
	if u := o.Egress.options.Upstream; u != nil {
		if o.Pseudonym != "" {
			t.via = newVia(o.Pseudonym)
		}
		t.clear = newTransport(o, false)
		t.clear.Proxy = http.ProxyURL(u.proxyURL())
		t.clear.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return hearOut(o.Egress.dialUpstream(ctx)) }
		t.clear.MaxIdleConnsPerHost = t.clear.MaxIdleConns // they are all to one host
	}
	if len(o.InsecureHosts) > 0 {
		t.unverified = newTransport(o, true)
	}
	for _, host := range o.InsecureHosts {
		t.insecure[host] = true
	}
	return t
}

func newTransport(o TransportOptions, insecure bool) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return hearOut(o.Egress.DialContext(ctx, network, addr))
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.RootCAs, InsecureSkipVerify: insecure},
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  60 * time.Second,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConns:           512, // in all: a crawl of 20,000 hosts may not hold 20,000 sockets
		MaxIdleConnsPerHost:    32,
		MaxResponseHeaderBytes: 256 << 10,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		ReadBufferSize:         16 << 10,
		WriteBufferSize:        4 << 10,
	}
}

// heardOut is a connection to an origin that is heard out: one that answers and closes under an upload makes writing
// fail, and the transport, which takes whatever it sees first, would not look at the answer then.
type heardOut struct {
	net.Conn
	once sync.Once
	end  chan struct{} // closed when no more is read
}

// hearOut takes what a dial returned.
func hearOut(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return &heardOut{Conn: c, end: make(chan struct{})}, nil
}

func (c *heardOut) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.once.Do(func() { close(c.end) })
	}
	return n, err
}

// Write fails when reading has come to its end, or has had the time to.
func (c *heardOut) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		select {
		case <-c.end:
		case <-time.After(lingering):
		}
	}
	return n, err
}

func (c *heardOut) Close() error {
	c.once.Do(func() { close(c.end) })
	return c.Conn.Close()
}

// RoundTrip sends r to the host of its URL.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.via != (via{}) && len(r.Header["Via"]) == 0 {
		r = r.Clone(r.Context())
		t.via.add(r.Header, r.ProtoMajor) // a robots.txt is asked for here: one that comes back to us is told by this
	}
	if t.clear != nil && r.URL.Scheme == "http" {
		return t.throughUpstream(r)
	}
	if t.insecure[r.URL.Hostname()] {
		return t.unverified.RoundTrip(r)
	}
	return t.verified.RoundTrip(r)
}

// throughUpstream sends r, for http, to the upstream proxy. Its connections carry requests for many origins, so the name
// is checked for each request and not when a connection is made.
func (t *Transport) throughUpstream(r *http.Request) (*http.Response, error) {
	o, err := origin.FromURL(r.URL)
	if err == nil {
		err = t.egress.checkName(r.Context(), o.HostPort())
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
	if resp.StatusCode == http.StatusProxyAuthRequired { // meant for us, and not for the client
		resp.Body.Close()
		return nil, answered(resp.StatusCode)
	}
	return resp, nil
}

// CloseIdleConnections closes connections that no request uses.
func (t *Transport) CloseIdleConnections() {
	t.verified.CloseIdleConnections()
	for _, more := range []*http.Transport{t.unverified, t.clear} {
		if more != nil {
			more.CloseIdleConnections()
		}
	}
}
