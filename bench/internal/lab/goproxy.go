package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/elazarl/goproxy"
)

// GoproxyOptions say what differs between the comparisons. All proxies open tunnels and keep leaves.
type GoproxyOptions struct {
	CA    *tls.Certificate // that signs leaves
	Roots *x509.CertPool   // that the certificates of origins are verified by
	HTTP2 bool             // with clients and with origins

	Dial                  func(ctx context.Context, network, addr string) (net.Conn, error)
	MaxIdleConns          int           // 0: no limit
	ResponseHeaderTimeout time.Duration // 0: none
}

// NewGoproxy returns bare goproxy.
func NewGoproxy(o GoproxyOptions) *goproxy.ProxyHttpServer {
	proxy := goproxy.NewProxyHttpServer()
	proxy.CertStore = &leafCache{leaves: make(map[string]*tls.Certificate)}
	proxy.AllowHTTP2 = o.HTTP2
	proxy.Tr = &http.Transport{
		DialContext:           o.Dial,
		TLSClientConfig:       &tls.Config{RootCAs: o.Roots},
		MaxIdleConns:          o.MaxIdleConns,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       90 * time.Second,
		ResponseHeaderTimeout: o.ResponseHeaderTimeout,
		ForceAttemptHTTP2:     o.HTTP2,
	}
	action := &goproxy.ConnectAction{Action: goproxy.ConnectMitm, TLSConfig: goproxy.TLSConfigFromCA(o.CA)}
	proxy.OnRequest().HandleConnectFunc(func(host string, _ *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		return action, host
	})
	return proxy
}

// leafCache keeps leaves, as goproxy's documentation recommends: without it each tunnel costs a key and a signature.
type leafCache struct {
	mu     sync.Mutex // guards leaves
	leaves map[string]*tls.Certificate
}

func (c *leafCache) Fetch(host string, sign func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	c.mu.Lock()
	leaf := c.leaves[host]
	c.mu.Unlock()
	if leaf != nil {
		return leaf, nil
	}
	leaf, err := sign()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaves[host] = leaf
	return leaf, nil
}
