//go:build linux

package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/elazarl/goproxy"
)

// This program becomes bare goproxy if goproxyEnv names a folder. The folder holds the CA of the web, and gets the
// proxy's own.
const goproxyEnv = "ROBOTSPROXY_BENCH_GOPROXY"

func startGoproxy(dir string, w *web) (*process, error) {
	if err := os.WriteFile(filepath.Join(dir, "web.pem"), w.ca.pem(), 0o600); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), goproxyEnv+"="+dir)
	return start(cmd, w, filepath.Join(dir, "ca.pem"))
}

// runGoproxy is the life of that process. It returns only with an error.
func runGoproxy(dir string) error {
	own, err := newAuthority("goproxy")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), own.pem(), 0o600); err != nil {
		return err
	}
	web, err := os.ReadFile(filepath.Join(dir, "web.pem"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(web)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "  proxy    http://%s\n", l.Addr())
	return http.Serve(l, newGoproxy(own, roots))
}

// newGoproxy returns a proxy that opens tunnels with a CA of P-256, as robotsproxy does, and waits as long.
func newGoproxy(own *authority, roots *x509.CertPool) *goproxy.ProxyHttpServer {
	proxy := goproxy.NewProxyHttpServer()
	proxy.CertStore = &leafCache{leaves: make(map[string]*tls.Certificate)}
	proxy.Tr = &http.Transport{
		DialContext:           (&net.Dialer{Timeout: patience, Resolver: newResolver(os.Getenv(dnsEnv))}).DialContext,
		TLSClientConfig:       &tls.Config{RootCAs: roots},
		MaxIdleConns:          512,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       90 * time.Second,
		ResponseHeaderTimeout: patience,
	}
	action := &goproxy.ConnectAction{Action: goproxy.ConnectMitm, TLSConfig: goproxy.TLSConfigFromCA(own.pair())}
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
