package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/elazarl/goproxy"

	"github.com/robotsproxy/robotsproxy/bench/internal/lab"
)

// The test binary becomes bare goproxy where goproxyEnv names one of two kinds: stock is what its README shows, with
// the built-in RSA CA and HTTP/1.1 on both sides; tuned has a P-256 CA and HTTP/2 on both sides, as robotsproxy has.
const (
	goproxyEnv = "ROBOTSPROXY_BENCH_GOPROXY"
	siteCAEnv  = "ROBOTSPROXY_BENCH_SITE_CA" // path of the CA that origins are verified by
	ownCAEnv   = "ROBOTSPROXY_BENCH_CA"      // path to write goproxy's own CA to

	stock = "stock"
	tuned = "tuned"
)

// startGoproxy starts the test binary again as a goproxy of that kind.
func startGoproxy(tb testing.TB, kind string, o *origins) *process {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	own := filepath.Join(tb.TempDir(), "ca.pem")
	env := []string{goproxyEnv + "=" + kind, siteCAEnv + "=" + o.site.CAFile(), ownCAEnv + "=" + own}
	p := start(tb, env, self)
	p.trust(tb, own)
	return p
}

// runGoproxy is the life of that process. It returns only with an error.
func runGoproxy(kind string) error {
	ca, err := goproxyCA(kind)
	if err != nil {
		return err
	}
	if err := os.WriteFile(os.Getenv(ownCAEnv), pemOf(ca), 0o600); err != nil {
		return err
	}
	proxy, err := newGoproxy(kind, ca)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "goproxy %s\n  proxy    http://%s\n", kind, l.Addr())
	return http.Serve(l, proxy)
}

func newGoproxy(kind string, ca *tls.Certificate) (*goproxy.ProxyHttpServer, error) {
	data, err := os.ReadFile(os.Getenv(siteCAEnv))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(data)
	return lab.NewGoproxy(lab.GoproxyOptions{CA: ca, Roots: roots, HTTP2: kind == tuned, Dial: dialLoopback}), nil
}

// dialLoopback finds every host on this machine, as egress.resolve does in robotsproxy.
func dialLoopback(ctx context.Context, network, addr string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	return d.DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
}

func goproxyCA(kind string) (*tls.Certificate, error) {
	if kind == stock {
		return &goproxy.GoproxyCa, nil
	}
	ca, err := lab.NewAuthority("goproxy")
	if err != nil {
		return nil, err
	}
	return ca.Pair(), nil
}

func pemOf(ca *tls.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Certificate[0]})
}
