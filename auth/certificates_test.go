package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// signer signs certificates as a CA of the tests.
type signer struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newSigner(t testing.TB) signer {
	s := signer{t: t}
	pair := s.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return signer{t, pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)}
}

// issue signs template, by itself if s is no CA. Without an end it lasts an hour.
func (s signer) issue(template *x509.Certificate) tls.Certificate {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-24 * time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	parent, by := s.cert, s.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		s.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		s.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (s signer) client(name pkix.Name, end time.Time) tls.Certificate {
	return s.issue(&x509.Certificate{
		Subject: name, NotAfter: end, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// write writes the files of a listener at 127.0.0.1 that s has signed, with s as the CA of clients.
func (s signer) write(files CertificateFiles, end time.Time) {
	s.t.Helper()
	pair := s.issue(&x509.Certificate{
		NotAfter: end, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		s.t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		files.Cert:     {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		files.Key:      {Type: "PRIVATE KEY", Bytes: key},
		files.ClientCA: {Type: "CERTIFICATE", Bytes: s.cert.Raw},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

func newFiles(t testing.TB) CertificateFiles {
	dir := t.TempDir()
	return CertificateFiles{
		Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), ClientCA: filepath.Join(dir, "ca.pem"),
	}
}

// shake connects to a listener with c, as a client that trusts ca, and returns the subject that the listener sees.
func shake(t *testing.T, c *Certificates, ca signer, client ...tls.Certificate) (subject, protocol string, err error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", c.TLS())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	config := &tls.Config{RootCAs: roots, NextProtos: []string{"h2", "http/1.1"}}
	if len(client) > 0 { // sent even if the listener does not ask for its CA
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &client[0], nil }
	}
	go func() {
		conn, err := tls.Dial("tcp", l.Addr().String(), config)
		if err == nil {
			_, _ = io.Copy(io.Discard, conn) // until the listener has its handshake
			conn.Close()
		}
	}()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	secure := conn.(*tls.Conn)
	if err := secure.Handshake(); err != nil {
		return "", "", err
	}
	state := secure.ConnectionState()
	return Subject(state), state.NegotiatedProtocol, nil
}

// TestSubjects checks the subjects of certificates that a listener accepts, and that it asks for no protocol but
// HTTP/1.1.
func TestSubjects(t *testing.T) {
	ca, files := newSigner(t), newFiles(t)
	ca.write(files, time.Time{})
	c, err := LoadCertificates(files)
	if err != nil {
		t.Fatal(err)
	}
	mail := pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 1}, Value: "a"}
	for _, row := range []struct {
		name pkix.Name
		want string
	}{
		{pkix.Name{CommonName: "ci"}, "CN=ci"},
		{pkix.Name{CommonName: "ci", Organization: []string{"Example"}, OrganizationalUnit: []string{"crawl"}, Country: []string{"DE"}}, "CN=ci,OU=crawl,O=Example,C=DE"},
		{pkix.Name{CommonName: "ci,O=Example"}, `CN=ci\,O=Example`},
		{pkix.Name{CommonName: " ci"}, `CN=\ ci`},
		{pkix.Name{CommonName: "ci\x00.example"}, "CN=ci\x00.example"},
		{pkix.Name{CommonName: "ci", ExtraNames: []pkix.AttributeTypeAndValue{mail}}, "1.2.840.113549.1.9.1=#130161,CN=ci"},
		{pkix.Name{}, ""},
	} {
		got, protocol, err := shake(t, c, ca, ca.client(row.name, time.Time{}))
		if err != nil || got != row.want || protocol != "http/1.1" {
			t.Errorf("the subject of %v is %q over %s, %v; want %q over http/1.1", row.name, got, protocol, err, row.want)
		}
	}
	if got, _, err := shake(t, c, ca); err != nil || got != "" {
		t.Errorf("without a certificate the subject is %q, %v", got, err)
	}
}

// TestRefusedCertificates checks that a client with a certificate that does not verify gets no connection.
func TestRefusedCertificates(t *testing.T) {
	ca, other, files := newSigner(t), newSigner(t), newFiles(t)
	ca.write(files, time.Time{})
	c, err := LoadCertificates(files)
	if err != nil {
		t.Fatal(err)
	}
	ci := pkix.Name{CommonName: "ci"}
	for name, cert := range map[string]tls.Certificate{
		"expired":       ca.client(ci, time.Now().Add(-time.Hour)),
		"another CA":    other.client(ci, time.Time{}),
		"for a server":  ca.issue(&x509.Certificate{Subject: ci, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}),
		"by itself":     signer{t: t}.client(ci, time.Time{}),
		"another's key": {Certificate: ca.client(ci, time.Time{}).Certificate, PrivateKey: other.key},
	} {
		if subject, _, err := shake(t, c, ca, cert); err == nil {
			t.Errorf("%s: accepted as %q", name, subject)
		}
	}
}

// TestCertificatesAreReadAgain replaces the files with good and bad ones.
func TestCertificatesAreReadAgain(t *testing.T) {
	old, next, files := newSigner(t), newSigner(t), newFiles(t)
	old.write(files, time.Time{})
	c, err := LoadCertificates(files)
	if err != nil {
		t.Fatal(err)
	}
	ci := pkix.Name{CommonName: "ci"}
	accepts := func(ca signer) bool {
		subject, _, err := shake(t, c, ca, ca.client(ci, time.Time{}))
		return err == nil && subject == "CN=ci"
	}
	for _, row := range []struct{ name, want string }{
		{files.Cert, "reading the certificate"}, {files.Key, "reading the certificate"}, {files.ClientCA, "holds no certificate in PEM"},
	} {
		next.write(files, time.Time{})
		if err := os.WriteFile(row.name, []byte("broken"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.Reload(); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("Reload with a broken %s: %v, want %q", filepath.Base(row.name), err, row.want)
		}
		if !accepts(old) {
			t.Fatalf("after a broken %s the old certificates are gone", filepath.Base(row.name))
		}
	}
	next.write(files, time.Now().Add(-time.Hour))
	if err := c.Reload(); err == nil || !strings.Contains(err.Error(), "has expired") {
		t.Errorf("Reload with an expired certificate: %v", err)
	}
	next.write(files, time.Time{})
	if err := c.Reload(); err != nil || accepts(old) || !accepts(next) {
		t.Errorf("Reload: %v; the old CA counts: %t; the new one: %t", err, accepts(old), accepts(next))
	}
	if err := os.Remove(files.Key); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadCertificates(files); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("LoadCertificates without a key: %v", err)
	}
}
