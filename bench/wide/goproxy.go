//go:build linux

package main

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/robotsproxy/robotsproxy/bench/internal/lab"
)

// This program becomes bare goproxy if goproxyEnv names a folder. The folder holds the CA of the web, and gets the
// proxy's own.
const goproxyEnv = "ROBOTSPROXY_BENCH_GOPROXY"

func startGoproxy(dir string, w *web) (*process, error) {
	if err := os.WriteFile(filepath.Join(dir, "web.pem"), w.ca.PEM(), 0o600); err != nil {
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

// runGoproxy is the life of that process, which opens tunnels with a CA of P-256, as robotsproxy does, and waits as long.
// It returns only with an error.
func runGoproxy(dir string) error {
	own, err := lab.NewAuthority("goproxy")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), own.PEM(), 0o600); err != nil {
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
	proxy := lab.NewGoproxy(lab.GoproxyOptions{
		CA: own.Pair(), Roots: roots,
		Dial:                  (&net.Dialer{Timeout: patience, Resolver: newResolver(os.Getenv(dnsEnv))}).DialContext,
		MaxIdleConns:          512,
		ResponseHeaderTimeout: patience,
	})
	return http.Serve(l, proxy)
}
