// Package certs makes and keeps the certificate authority (CA) by which robotsproxy intercepts HTTPS, and issues its
// certificates.
//
//	ca, err := certs.Open(certs.Options{Dir: "/var/lib/robotsproxy"})
//	config := &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return ca.Leaf("a.example") }}
//
// Open loads the CA, or makes one on the first start: ca.pem, which clients must trust, and ca-key.pem, which only its
// owner can read. Leaf issues a certificate for one host, keeps it, and issues another before it expires. All leaves
// share one key. Each Open makes a new one, which is never stored.
//
// Rotate makes the next CA. During an overlap clients must trust both, and the old one signs. Then the new one signs,
// and the key of the old one is destroyed. Every Authority of the folder, in this process and in others, follows
// without a new Open.
//
// Each installation has its own key. This package never returns or logs it: with it one can read the traffic of every
// client that trusts the CA. The package does not decide which hosts to sign for: the caller asks only for the host of
// a CONNECT. It revokes nothing; leaves are valid for a week.
package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// Options configure an Authority. Either Dir or both files are needed.
type Options struct {
	// Dir is the folder of ca.pem and ca-key.pem. Open makes it, with mode 0700, and the files, if they do not exist.
	Dir string

	// Existing makes Open return fs.ErrNotExist for a Dir without ca.pem. If false, Open makes a CA.
	Existing bool

	// CertFile and KeyFile are the PEM files of a CA that the operator provides. If set, Dir is not used. After the CA's
	// certificate, CertFile may contain those of its issuers, which are sent to clients as well. The key is in PKCS #8,
	// SEC 1 or PKCS #1, not encrypted.
	CertFile, KeyFile string

	// Clock returns the time for which certificates must be valid. If nil, time.Now.
	Clock func() time.Time

	// Logger receives rotations. If nil, nothing is logged.
	Logger *slog.Logger
}

// Authority is a CA and the leaves that it has issued. It is safe for concurrent use.
type Authority struct {
	dir      string // empty for a CA of CertFile
	certFile string
	created  bool
	clock    func() time.Time
	log      *slog.Logger

	state   atomic.Pointer[state]
	reading sync.Mutex // held to store another state

	leafKey *ecdsa.PrivateKey
	leaves  *leaves
	signing singleflight.Group // by CA and host
	issued  atomic.Int64       // leaves
}

// Issued returns the number of leaves that a has signed since Open.
func (a *Authority) Issued() int64 { return a.issued.Load() }

// Open loads the CA that o names, or makes one in o.Dir. Several processes may do so at once: they get the same CA.
func Open(o Options) (*Authority, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Authority{clock: o.Clock, log: o.Logger, leaves: newLeaves(maxLeafBytes)}
	var err error
	switch {
	case (o.CertFile == "") != (o.KeyFile == ""):
		return nil, errors.New("certs: the certificate and the key of a CA are given together or not at all")
	case o.CertFile != "":
		err = a.openOwn(o.CertFile, o.KeyFile)
	case o.Dir != "":
		err = a.openDir(o.Dir, o.Existing)
	default:
		return nil, errors.New("certs: Open needs a folder, or the certificate and key files of a CA")
	}
	if err != nil {
		return nil, fmt.Errorf("certs: %w", err)
	}
	if a.leafKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("certs: making the key of the leaves: %w", err)
	}
	return a, nil
}

func (a *Authority) openOwn(certFile, keyFile string) error {
	certs, err := readCerts(certFile)
	if err != nil {
		return err
	}
	ca, err := match(certFile, certs, keyFile, a.now())
	a.certFile = certFile
	a.state.Store(&state{active: ca})
	return err
}

// openDir opens the CA of a folder, and completes a rotation whose overlap is over.
func (a *Authority) openDir(dir string, existing bool) (err error) {
	a.dir, a.certFile = dir, filepath.Join(dir, certName)
	if !existing {
		if a.created, err = complete(dir, a.now()); err != nil {
			return err
		}
	}
	r, err := readState(dir, a.now())
	if err != nil {
		return err
	}
	a.state.Store(r)
	a.announce(a.current(a.now()))
	return nil
}

// now returns the wall clock's time. It drops the monotonic reading, which stops while the machine sleeps: clients
// compare dates.
func (a *Authority) now() time.Time { return a.clock().Round(0) }

// Created reports whether Open made the CA. Clients cannot trust a new CA yet.
func (a *Authority) Created() bool { return a.created }

// CertFile returns the path of the CA's certificate.
func (a *Authority) CertFile() string { return a.certFile }

// Certificate returns the certificate of the CA that signs now. The caller must not modify it.
func (a *Authority) Certificate() *x509.Certificate { return a.current(a.now()).active.cert() }

// PEM returns the certificates that clients must trust: the CA's, those of its issuers in CertFile, and during a
// rotation that of the next CA.
func (a *Authority) PEM() []byte { return encodeAll(a.current(a.now()).trusted()) }

// Fingerprint returns the SHA-256 of the certificate of the CA that signs now, as the function Fingerprint formats it.
func (a *Authority) Fingerprint() string { return Fingerprint(a.Certificate()) }

// Fingerprint returns the SHA-256 of cert as browsers and openssl show it: "5F:0A:...".
func Fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")
}

func encodeAll(certs []*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, cert := range certs {
		b.Write(encodeCertificate(cert.Raw))
	}
	return b.Bytes()
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
