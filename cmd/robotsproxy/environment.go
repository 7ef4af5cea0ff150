package main

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"software.sslmate.com/src/go-pkcs12"

	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/internal/durable"
)

// variable is one variable of the environment that sends a program through the proxy.
type variable struct{ name, value string }

// loopbackNames never come through the proxy: a crawler's own webdriver or database must not.
const loopbackNames = "localhost,127.0.0.1,::1"

// environment returns the variables for programs that shall use the proxy at listen, in the order in which they are
// shown. The files that they name are in dir, but for wget's configuration: see writeTrust and writeWgetrc.
func environment(listen, dir, wgetrc string) ([]variable, error) {
	listen, err := reachable(listen)
	if err != nil {
		return nil, err
	}
	proxy, bundle := "http://"+listen, filepath.Join(dir, bundleFile)
	host, port, _ := net.SplitHostPort(listen)
	java := fmt.Sprintf("-Dhttp.proxyHost=%[1]s -Dhttp.proxyPort=%[2]s -Dhttps.proxyHost=%[1]s -Dhttps.proxyPort=%[2]s "+
		`"-Djavax.net.ssl.trustStore=%[3]s" -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=%[4]s`,
		host, port, filepath.Join(dir, javaFile), javaPassword)
	return []variable{
		{"http_proxy", proxy},
		{"HTTP_PROXY", proxy},
		{"https_proxy", proxy},
		{"HTTPS_PROXY", proxy},
		{"no_proxy", loopbackNames},
		{"NO_PROXY", loopbackNames},
		{"SSL_CERT_FILE", bundle},
		{"REQUESTS_CA_BUNDLE", bundle},
		{"CURL_CA_BUNDLE", bundle},
		{"NODE_EXTRA_CA_CERTS", bundle},
		{"NODE_USE_ENV_PROXY", "1"},
		{"GIT_SSL_CAINFO", bundle},
		{"AWS_CA_BUNDLE", bundle},
		{"WGETRC", wgetrc},
		{"JAVA_TOOL_OPTIONS", java},
	}, nil
}

// reachable returns the address by which this machine reaches a listener at listen.
func reachable(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("reading the address %q: %w", listen, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// Files that clients are handed, in the data directory. Only wgetFile names the proxy's address.
const (
	bundleFile   = "ca-bundle.pem"
	wgetFile     = "wgetrc"
	javaFile     = "truststore.p12"
	javaPassword = "changeit" // Java's own; a trust store holds nothing secret
)

// writeTrust writes into dir what clients trust through the proxy: the roots of this system, so that programs that go past
// the proxy still work, and our CA.
func writeTrust(dir string, ca *certs.Authority) error {
	return writeBundles(dir, systemRoots(dir), ca)
}

// writeBundles writes into dir what clients trust, in the two forms that they read: roots and our CA.
func writeBundles(dir string, roots []byte, ca *certs.Authority) error {
	bundle := append(roots, ca.PEM()...)
	if err := durable.Replace(filepath.Join(dir, bundleFile), bundle, 0o644); err != nil {
		return fmt.Errorf("writing the CA bundle: %w", err)
	}
	store, err := javaStore(bundle)
	if err != nil {
		return fmt.Errorf("making Java's trust store: %w", err)
	}
	if err := durable.Replace(filepath.Join(dir, javaFile), store, 0o644); err != nil {
		return fmt.Errorf("writing Java's trust store: %w", err)
	}
	return nil
}

// rootFiles are where systems keep their roots, as the Go library knows them: Debian, Fedora, openSUSE, older Red Hat,
// Alpine and macOS, FreeBSD.
var rootFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/ca-bundle.pem",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/cert.pem",
	"/usr/local/etc/ssl/cert.pem",
}

// systemRoots returns the roots that programs trust without us: those of SSL_CERT_FILE, where the user has one that is
// not ours, else the system's. A machine without any has nothing to trust, which is no fault.
func systemRoots(dir string) []byte {
	files := rootFiles
	if own := os.Getenv("SSL_CERT_FILE"); own != "" && filepath.Base(own) != bundleFile {
		files = append([]string{own}, files...)
	}
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && bytes.Contains(data, []byte("-----BEGIN CERTIFICATE-----")) {
			return append(bytes.TrimRight(data, "\n"), '\n')
		}
	}
	return nil
}

// writeWgetrc writes the configuration of wget, for a proxy at listen and the bundle in dir, to path.
func writeWgetrc(path, listen, dir string) error {
	settings, err := wgetrc(dir, listen)
	if err != nil {
		return err
	}
	if err := durable.Replace(path, settings, 0o600); err != nil {
		return fmt.Errorf("writing the configuration for wget: %w", err)
	}
	return nil
}

// wgetrc tells wget to trust the bundle: Debian's wget is built with GnuTLS, which heeds no SSL_CERT_FILE. WGETRC replaces
// the user's own file, so that one goes in front; the proxy is named again behind it, since there it goes before the
// variables.
func wgetrc(dir, listen string) ([]byte, error) {
	address, err := reachable(listen)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if own, err := os.ReadFile(ownWgetrc(dir)); err == nil {
		b.Write(own)
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "use_proxy = on\nhttp_proxy = http://%[1]s/\nhttps_proxy = http://%[1]s/\nca_certificate = %[2]s\n", address, filepath.Join(dir, bundleFile))
	return b.Bytes(), nil
}

// ownWgetrc returns the file that wget would read without us.
func ownWgetrc(dir string) string {
	if own := os.Getenv("WGETRC"); own != "" && own != filepath.Join(dir, wgetFile) {
		return own
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".wgetrc")
}

// javaStore returns the bundle as a PKCS #12 trust store, since Java reads no PEM.
func javaStore(bundle []byte) ([]byte, error) {
	var all []*x509.Certificate
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, cert)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the bundle holds no certificate")
	}
	return pkcs12.Modern.EncodeTrustStore(all, javaPassword)
}

// replaced returns the names of proxy variables that are set to something else now.
func replaced(vars []variable) (names []string) {
	for _, v := range vars {
		if old, ok := os.LookupEnv(v.name); ok && old != "" && old != v.value && strings.Contains(strings.ToLower(v.name), "proxy") {
			names = append(names, v.name)
		}
	}
	return names
}
