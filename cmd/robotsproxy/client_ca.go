package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/clientenv"
	"github.com/robotsproxy/robotsproxy/internal/durable"
)

// clientCA is the CA that clients of a proxy must trust, and the folder for the files that contain it.
type clientCA struct {
	pem []byte
	dir string
}

// findClientCA returns the CA of the data folder. If it has none, or belongs to another user, findClientCA returns the
// CA of the running instance, for files in the cache folder of the caller, and says so on std.err. adminURL names that
// instance in any case. Without a running instance, the data folder gets a CA.
func findClientCA(ctx context.Context, cfg *config.Config, adminURL string, std stdio) (clientCA, error) {
	if adminURL != "" {
		base, err := adminBase(cfg, adminURL)
		if err != nil {
			return clientCA{}, err
		}
		running, err := fetchCA(ctx, base)
		if err != nil {
			return clientCA{}, err
		}
		fmt.Fprintf(std.err, "robotsproxy: the variables name the proxy at %s; --listen or --config names another\n", cfg.Listen)
		return running.keep(std)
	}
	own, err := existingCA(cfg, errorLog(std, cfg))
	running := runningCA(ctx, cfg)
	switch {
	case err == nil:
		running.compare(own, cfg, std)
		return clientCA{own.PEM(), cfg.DataDir}, nil
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
		return clientCA{}, err
	case running != nil:
		return running.keep(std)
	case errors.Is(err, fs.ErrPermission):
		return clientCA{}, usage(fmt.Errorf("%w; and no robotsproxy that could give its CA answers at %s or %s: start it, "+
			"or name it with --admin URL", err, cfg.Listen, cfg.Admin.Listen))
	}
	made, err := openCA(cfg, errorLog(std, cfg))
	if err != nil {
		return clientCA{}, err
	}
	return clientCA{made.PEM(), cfg.DataDir}, nil
}

// fetchedCA are the certificates that a running instance serves as /ca.pem.
type fetchedCA struct {
	base         url.URL
	certificates []*x509.Certificate
}

// runningCA returns the CA of the instance that runs with cfg, or nil. It asks the proxy itself and then the admin
// listener, and only at a loopback address: from elsewhere, others could replace what comes over HTTP.
func runningCA(ctx context.Context, cfg *config.Config) *fetchedCA {
	for _, listen := range []string{cfg.Listen, cfg.Admin.Listen} {
		address, err := clientenv.DialAddress(listen)
		if err != nil || !isLoopback(address) {
			continue
		}
		if ca, err := fetchCA(ctx, url.URL{Scheme: "http", Host: address}); err == nil {
			return ca
		}
	}
	return nil
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// fetchTimeout bounds the time in which an instance must give its CA.
const fetchTimeout = 2 * time.Second

func fetchCA(ctx context.Context, base url.URL) (*fetchedCA, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	page, err := newInstance(base, "").page(ctx, "/ca.pem")
	if err != nil {
		return nil, err
	}
	ca := &fetchedCA{base: base}
	if ca.certificates, err = parseCAs(page); err != nil {
		return nil, fmt.Errorf("the /ca.pem of %s: %w", base.Host, err)
	}
	return ca, nil
}

// parseCAs reads the certificates of CAs. Anything else is an error.
func parseCAs(data []byte) (cas []*x509.Certificate, err error) {
	for len(bytes.TrimSpace(data)) > 0 {
		block, rest := pem.Decode(data)
		if block == nil || block.Type != "CERTIFICATE" {
			return nil, errors.New("it is not a list of PEM certificates")
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		if !c.IsCA {
			return nil, fmt.Errorf("the certificate of %s is not that of a CA", c.Subject)
		}
		cas, data = append(cas, c), rest
	}
	if len(cas) == 0 {
		return nil, errors.New("it has no certificate")
	}
	return cas, nil
}

// keep returns ca with the caller's folder for it, and says where it comes from.
func (ca *fetchedCA) keep(std stdio) (clientCA, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return clientCA{}, fmt.Errorf("finding the cache folder for the CA of %s: %w", ca.base.Host, err)
	}
	// A folder for each instance: another one may have another CA.
	dir := filepath.Join(cache, "robotsproxy", strings.NewReplacer(":", "-", "[", "", "]", "").Replace(ca.base.Host))
	for _, check := range []error{durable.CheckOwner(dir), durable.CheckFolder(dir, "*")} {
		if check != nil {
			return clientCA{}, usage(fmt.Errorf("the cache folder: %w", check))
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return clientCA{}, fmt.Errorf("making the folder for the CA of %s: %w", ca.base.Host, err)
	}
	fmt.Fprintf(std.err, "robotsproxy: the CA comes from %s; its files are in %s\n", ca.base.String(), dir)
	var all bytes.Buffer
	for _, c := range ca.certificates {
		fmt.Fprintf(std.err, "  SHA-256 %s\n", certs.Fingerprint(c))
		_ = pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a Buffer does not fail
	}
	return clientCA{all.Bytes(), dir}, nil
}

// compare warns if the instance that answers has another CA than the data folder. The CA of the data folder counts,
// because any user of this machine could have started that instance.
func (ca *fetchedCA) compare(own *certs.Authority, cfg *config.Config, std stdio) {
	if ca == nil {
		return
	}
	known, err := own.CAs()
	if err != nil || slices.ContainsFunc(known, func(c certs.CA) bool {
		return slices.ContainsFunc(ca.certificates, c.Certificate.Equal)
	}) {
		return
	}
	fmt.Fprintf(std.err, "robotsproxy: warning: the proxy at %s has another CA (SHA-256 %s) than the data folder %s; "+
		"if you trust that proxy, run robotsproxy env --admin %s\n",
		ca.base.Host, certs.Fingerprint(ca.certificates[0]), cfg.DataDir, ca.base.String())
}
