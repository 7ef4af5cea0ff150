package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/egress"
)

func newGuard(cfg *config.Config) (*egress.Guard, error) {
	upstream, err := newUpstream(cfg)
	if err != nil {
		return nil, err
	}
	o := guardOptions(cfg)
	o.Upstream = upstream
	return egress.New(o), nil
}

// keepNames is the least time for which the addresses of a name are kept.
const keepNames = 30 * time.Second

func guardOptions(cfg *config.Config) egress.Options {
	ports := make([]egress.PortRange, len(cfg.Egress.Ports))
	for i, r := range cfg.Egress.Ports {
		ports[i] = egress.PortRange(r)
	}
	return egress.Options{
		Allow: cfg.Egress.AllowAddresses, Deny: cfg.Egress.DenyAddresses, Ports: ports, Resolve: cfg.Egress.Resolve,
		KeepNames: keepNames,
	}
}

func newTransport(cfg *config.Config, guard *egress.Guard, pseudonym string) (*egress.Transport, error) {
	roots, err := originRoots(cfg.Egress.CAFile)
	if err != nil {
		return nil, usage(err)
	}
	return egress.NewTransport(egress.TransportOptions{
		Guard: guard, RootCAs: roots, InsecureHosts: cfg.Egress.InsecureHosts, Pseudonym: pseudonym, IdleConns: idleConns(),
	}), nil
}

// originRoots returns the system's roots and those of file, or, without a file, nil, which means the system's.
func originRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading egress.ca_file: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the system's roots: %w", err)
	}
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("egress.ca_file %s holds no certificate in PEM", file)
	}
	return roots, nil
}

// newUpstream returns the upstream proxy, or nil. It ignores the variables of the environment, in which users set this
// proxy.
func newUpstream(cfg *config.Config) (*egress.Upstream, error) {
	if cfg.Egress.UpstreamProxy == "" {
		return nil, nil
	}
	at, err := url.Parse(cfg.Egress.UpstreamProxy)
	if err != nil {
		return nil, usage(fmt.Errorf("egress.upstream_proxy: %w", err))
	}
	u := &egress.Upstream{URL: at}
	if u.RootCAs, err = originRoots(cfg.Egress.CAFile); err != nil {
		return nil, usage(err)
	}
	if path := cfg.Egress.UpstreamProxyCredentialsFile; path != "" {
		if u.User, err = readUserinfo(path); err != nil {
			return nil, usage(fmt.Errorf("egress.upstream_proxy_credentials_file: %w", err))
		}
	}
	return u, nil
}

// unresolvedUpstream is the warning for an upstream proxy without an address.
const unresolvedUpstream = "the name of egress.upstream_proxy cannot be resolved; " +
	"as long as that is so, every request fails"

// checkUpstream returns an error if the upstream proxy is this proxy. It passes other errors, which may be temporary,
// to warn.
func checkUpstream(guard *egress.Guard, warn func(error)) error {
	err := guard.CheckUpstream(context.Background())
	if err == nil || errors.Is(err, egress.ErrOurselves) {
		return err
	}
	warn(err)
	return nil
}

// protectListeners protects the configured addresses of the listeners, before they are open. It ignores a name that
// cannot be resolved: opening the listener will report it.
func protectListeners(guard *egress.Guard, cfg *config.Config) {
	for _, address := range []string{cfg.Listen, cfg.Admin.Listen} {
		at, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			continue
		}
		if at.IP == nil {
			at.IP = net.IPv6unspecified // the address that a listener without a host reports
		}
		guard.Protect(at)
	}
}

// readUserinfo reads a file with one line, user:password. Its errors do not contain that line.
func readUserinfo(path string) (*url.Userinfo, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	line := strings.TrimRight(string(data), "\r\n")
	user, password, ok := strings.Cut(line, ":")
	if !ok || user == "" || strings.ContainsFunc(line, unicode.IsControl) {
		return nil, fmt.Errorf("%s does not hold one line of the form user:password", path)
	}
	return url.UserPassword(user, password), nil
}
