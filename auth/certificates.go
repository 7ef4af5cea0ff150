package auth

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// Certificates are the certificate of a listener with TLS, and the CAs of its clients. LoadCertificates returns them;
// the zero value is not usable. All methods may be called concurrently.
type Certificates struct {
	files   CertificateFiles
	current atomic.Pointer[tls.Config]
}

// CertificateFiles are the paths of files in PEM.
type CertificateFiles struct {
	Cert     string // the listener's certificate, followed by those that lead to its CA
	Key      string // its private key
	ClientCA string // the CAs that sign the certificates of clients; if empty, clients are not asked for one
}

// LoadCertificates reads files. It returns an error for a certificate that has expired or does not belong to the key.
func LoadCertificates(files CertificateFiles) (*Certificates, error) {
	c := &Certificates{files: files}
	if err := c.Reload(); err != nil {
		return nil, err
	}
	return c, nil
}

// Reload reads the files again, for the connections that begin afterwards. If it returns an error, the certificates
// stay as they were.
func (c *Certificates) Reload() error {
	config, err := c.files.load(time.Now())
	if err != nil {
		return fmt.Errorf("auth: %w", err)
	}
	c.current.Store(config)
	return nil
}

// TLS returns the configuration of the listener. It follows Reload. The listener speaks HTTP/1.1 only. A client without
// a certificate is accepted; one whose certificate is not signed by a CA of ClientCA, or is not valid now, fails the
// handshake. Each connection has a whole handshake, so that no session outlives a certificate or its CA.
func (c *Certificates) TLS() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS12,
		SessionTicketsDisabled: true,
		GetConfigForClient:     func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load(), nil },
	}
}

func (f CertificateFiles) load(now time.Time) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate %s and the key %s: %w", f.Cert, f.Key, err)
	}
	if end := pair.Leaf.NotAfter; now.After(end) {
		return nil, fmt.Errorf("the certificate %s has expired, on %s", f.Cert, end.UTC().Format(time.DateOnly))
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		SessionTicketsDisabled: true,
	}
	if f.ClientCA == "" {
		return config, nil
	}
	config.ClientAuth = tls.VerifyClientCertIfGiven
	config.ClientCAs, err = readCAs(f.ClientCA)
	return config, err
}

func readCAs(path string) (*x509.CertPool, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the CAs of clients: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", path)
	}
	return pool, nil
}

// Subject returns the subject of the certificate that the client of a connection has proved to own, as RFC 2253 writes
// it: "CN=ci,OU=crawl,O=Example". "openssl x509 -noout -subject -nameopt RFC2253" prints the same, except that here an
// attribute without a short name in RFC 2253 is its OID and "#" with its value in hexadecimal. It is empty if the
// client sent no certificate, or one without a subject that can be read.
func Subject(state tls.ConnectionState) string {
	if len(state.VerifiedChains) == 0 {
		return ""
	}
	var subject pkix.RDNSequence
	if rest, err := asn1.Unmarshal(state.PeerCertificates[0].RawSubject, &subject); err != nil || len(rest) > 0 {
		return ""
	}
	return subject.String()
}
