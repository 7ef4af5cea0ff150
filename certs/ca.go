package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/durable"
)

const (
	certName = "ca.pem"
	keyName  = "ca-key.pem"

	caYears  = 10
	backdate = 24 * time.Hour // for clients whose clocks are slow
)

// pair is a CA's certificate, any of its issuers' after it, and the key of the first.
type pair struct {
	certs []*x509.Certificate
	key   crypto.Signer
}

func (p *pair) cert() *x509.Certificate { return p.certs[0] }

// complete makes the missing files of the first start in dir, and reports whether it made a CA.
//
// It stores the key first, and never replaces it. The certificate is made for the key that has the name. So if a
// process stops between the two, the next start makes a certificate for its key. If several processes start at once,
// all use one key, and the first certificate stays.
func complete(dir string, now time.Time) (created bool, err error) {
	certFile, keyFile := filepath.Join(dir, certName), filepath.Join(dir, keyName)
	if _, err := os.Lstat(certFile); !errors.Is(err, fs.ErrNotExist) {
		return false, nil // readState checks it
	}
	if _, err := os.Lstat(keyFile); errors.Is(err, fs.ErrNotExist) {
		if err := createKey(keyFile); err != nil && !errors.Is(err, fs.ErrExist) {
			return false, err
		}
	}
	key, err := loadKey(keyFile)
	if err != nil {
		return false, err
	}
	der, err := selfSign(key, now)
	if err != nil {
		return false, err
	}
	err = durable.Create(certFile, encodeCertificate(der), 0o644)
	if errors.Is(err, fs.ErrExist) {
		return false, nil // another process made it first
	}
	return err == nil, err
}

func createKey(path string) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	return storeKey(path, key)
}

func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the CA's key: %w", err)
	}
	return key, nil
}

// storeKey writes key to path. It returns fs.ErrExist if path exists.
func storeKey(path string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding the CA's key: %w", err)
	}
	return durable.Create(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

// selfSign returns a certificate for key that may sign leaves but not CAs (RFC 5280 section 4.2.1.9).
func selfSign(key crypto.Signer, now time.Time) ([]byte, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"robotsproxy"}, CommonName: caName()},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.AddDate(caYears, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the CA's certificate: %w", err)
	}
	return der, nil
}

// caName returns a name that is unique in a list of trusted CAs. It has the machine's name for people, and six random
// characters, since software may take two CAs with one name and different keys for a forgery.
func caName() string {
	id := strings.ToLower(rand.Text()[:6])
	host, err := os.Hostname()
	if err != nil || host == "" {
		return "robotsproxy CA " + id
	}
	host = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r) {
			return r
		}
		return '-'
	}, host)
	return fmt.Sprintf("robotsproxy CA %s %s", host[:min(len(host), 40)], id) // 62 at most; see maxCommonName
}

// match returns the pair of the certificates in certFile and the key in keyFile. It returns an error if clients would
// not accept the leaves of the pair now.
func match(certFile string, certs []*x509.Certificate, keyFile string, now time.Time) (*pair, error) {
	key, err := loadKey(keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the key of %s is missing: put it back, or move the certificate away and start again "+
			"with another CA", err, certFile)
	}
	if err != nil {
		return nil, err
	}
	if err := check(certs[0], now); err != nil {
		return nil, fmt.Errorf("%s: %w", certFile, err)
	}
	if !belongs(key, certs[0]) {
		return nil, fmt.Errorf("%s is not the key of %s: put back the one that belongs to it, or move both away and start "+
			"again with another CA", keyFile, certFile)
	}
	return &pair{certs: certs, key: key}, nil
}

func belongs(key crypto.Signer, cert *x509.Certificate) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(cert.PublicKey)
}

// check returns an error if clients would not accept the leaves of cert.
func check(cert *x509.Certificate, now time.Time) error {
	switch {
	case !cert.BasicConstraintsValid || !cert.IsCA:
		return errors.New("it is not the certificate of a CA: make one with basicConstraints CA:TRUE")
	case cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("its key may not sign certificates: make a CA with keyUsage keyCertSign")
	case now.Before(cert.NotBefore):
		return fmt.Errorf("it is not valid before %s: set this machine's clock (now %s)", date(cert.NotBefore), date(now))
	case now.After(cert.NotAfter):
		return expired(cert)
	}
	return nil
}

func expired(cert *x509.Certificate) error {
	return fmt.Errorf("the CA's certificate ended on %s: move it and its key away, start again with another CA, and let "+
		"clients trust that", date(cert.NotAfter))
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// readCerts reads the certificates of the file path: see parseCerts.
func readCerts(path string) ([]*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseCerts(path, data)
}

// parseCerts parses the PEM certificates of the file path, the CA's first. It refuses a file with a private key:
// clients receive this file.
func parseCerts(path string, data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if strings.Contains(block.Type, "PRIVATE KEY") {
			return nil, fmt.Errorf("reading %s: it holds a private key: move the key to another file, since clients receive "+
				"this one", path)
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("reading %s: the file contains no PEM block of type CERTIFICATE: put back the CA's "+
			"certificate, or move it and its key away and start again with another CA", path)
	}
	return certs, nil
}

// loadKey reads the private key of a PEM file that only its owner can read. Its errors never quote the file.
func loadKey(path string) (crypto.Signer, error) {
	data, err := durable.ReadSecret(path)
	if err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if !strings.HasSuffix(block.Type, "PRIVATE KEY") {
			continue // openssl writes "EC PARAMETERS" before the key
		}
		key, err := parseKey(block)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		return key, nil
	}
	return nil, fmt.Errorf("reading %s: the file contains no PEM block of type PRIVATE KEY: put back the CA's key, or "+
		"move it and the certificate away and start again with another CA", path)
}

func parseKey(block *pem.Block) (crypto.Signer, error) {
	if block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "" {
		return nil, errors.New("the key is encrypted: decrypt it with openssl pkey, into a file of mode 0600")
	}
	var key any
	var err error
	switch block.Type {
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	}
	if err != nil {
		return nil, fmt.Errorf("the key is not a private key in PKCS #8, SEC 1 or PKCS #1: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T cannot sign", key)
	}
	return signer, nil
}
