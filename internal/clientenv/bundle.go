package clientenv

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"software.sslmate.com/src/go-pkcs12"

	"github.com/robotsproxy/robotsproxy/internal/durable"
)

// Names of the files in Options.Dir.
const (
	bundleFile = "ca-bundle.pem"
	javaFile   = "truststore.p12"
)

// javaPassword is Java's default. A trust store holds no secret.
const javaPassword = "changeit"

// Refresh replaces the proxy's certificates in the files that Write wrote into dir: old are removed, and ca (PEM) is
// added. The other certificates stay as they were. Refresh does nothing if dir has no bundle.
func Refresh(dir string, old []*x509.Certificate, ca []byte) error {
	bundle, err := os.ReadFile(filepath.Join(dir, bundleFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the CA bundle: %w", err)
	}
	var kept bytes.Buffer
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		isBlock := func(c *x509.Certificate) bool { return bytes.Equal(c.Raw, block.Bytes) }
		if !slices.ContainsFunc(old, isBlock) {
			_ = pem.Encode(&kept, block) // a bytes.Buffer returns no error
		}
	}
	return writeBundles(dir, kept.Bytes(), ca)
}

// writeBundles writes roots and ca into dir, as PEM and as Java's trust store.
func writeBundles(dir string, roots, ca []byte) error {
	bundle := slices.Concat(roots, ca)
	if err := durable.Replace(filepath.Join(dir, bundleFile), bundle, 0o644); err != nil {
		return fmt.Errorf("writing the CA bundle: %w", err)
	}
	store, err := javaStore(bundle)
	if err != nil {
		return fmt.Errorf("encoding Java's trust store: %w", err)
	}
	if err := durable.Replace(filepath.Join(dir, javaFile), store, 0o644); err != nil {
		return fmt.Errorf("writing Java's trust store: %w", err)
	}
	return nil
}

// javaStore returns bundle as a PKCS #12 trust store: Java reads no PEM.
func javaStore(bundle []byte) ([]byte, error) {
	var all []*x509.Certificate
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, cert)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the bundle holds no certificate")
	}
	return pkcs12.Modern.EncodeTrustStore(all, javaPassword)
}

// rootFiles are the places of the system's roots, as crypto/x509 knows them: Debian, Fedora, openSUSE, older Red Hat,
// Alpine and macOS, FreeBSD.
var rootFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/ca-bundle.pem",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/cert.pem",
	"/usr/local/etc/ssl/cert.pem",
}

// systemRoots returns the certificates that programs trust without the proxy, so that those that bypass it still work:
// the user's SSL_CERT_FILE, unless an earlier call of Write set it, or the first of rootFiles. A machine without either
// has no roots, which is not an error.
func systemRoots() []byte {
	files := rootFiles
	if user := os.Getenv("SSL_CERT_FILE"); user != "" && filepath.Base(user) != bundleFile {
		files = append([]string{user}, files...)
	}
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && bytes.Contains(data, []byte("-----BEGIN CERTIFICATE-----")) {
			return append(bytes.TrimRight(data, "\n"), '\n')
		}
	}
	return nil
}
