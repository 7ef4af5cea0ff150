package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"time"
)

// TransportOptions say how origins are reached.
type TransportOptions struct {
	Egress        *Egress        // required: the guard in front of every dial
	RootCAs       *x509.CertPool // whom origins are verified by; if nil, the system's roots
	InsecureHosts []string       // canonical hosts whose certificates are not verified
}

// Transport sends requests to origins, over HTTP/1.1 or HTTP/2 as they like. Bodies pass byte for byte: no coding is
// added or taken off. It takes no proxy from the environment, where users put this very proxy.
type Transport struct {
	verified, unverified *http.Transport
	insecure             map[string]bool
}

// NewTransport returns a Transport with time-outs on every step but the body.
func NewTransport(o TransportOptions) *Transport {
	t := &Transport{verified: newTransport(o, false), insecure: make(map[string]bool)}
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
		DialContext:            o.Egress.DialContext,
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

// RoundTrip sends r to the host of its URL.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.insecure[r.URL.Hostname()] {
		return t.unverified.RoundTrip(r)
	}
	return t.verified.RoundTrip(r)
}

// CloseIdleConnections closes connections that no request uses.
func (t *Transport) CloseIdleConnections() {
	t.verified.CloseIdleConnections()
	if t.unverified != nil {
		t.unverified.CloseIdleConnections()
	}
}
