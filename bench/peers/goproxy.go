//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/elazarl/goproxy"

	"github.com/robotsproxy/robotsproxy/bench/internal/lab"
)

// This program becomes bare goproxy if goproxyEnv names its kind. The current folder contains the CA of the origin, and
// gets the proxy's own.
const (
	goproxyEnv     = "ROBOTSPROXY_BENCH_GOPROXY"
	goproxyAddrEnv = "ROBOTSPROXY_BENCH_ADDR"

	asIs  = "as-is"
	tuned = "tuned"
)

// runGoproxy is the life of that process. It returns only with an error.
func runGoproxy(kind string) error {
	ca := &goproxy.GoproxyCa
	if kind == tuned {
		own, err := lab.NewAuthority("goproxy")
		if err != nil {
			return err
		}
		ca = own.Pair()
	}
	if err := os.WriteFile("ca.pem", pemOf(ca), 0o600); err != nil {
		return err
	}
	web, err := os.ReadFile("web.pem")
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(web)
	proxy := lab.NewGoproxy(lab.GoproxyOptions{CA: ca, Roots: roots, HTTP2: kind == tuned, MaxIdleConns: 512, Dial: dialHost})
	return http.ListenAndServe(os.Getenv(goproxyAddrEnv), proxy)
}

func pemOf(ca *tls.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Certificate[0]})
}

// dialHost finds the many hosts on this machine, as egress.resolve does in robotsproxy.
func dialHost(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(host, domain) || host == "localhost" {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}
