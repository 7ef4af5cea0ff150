// Package certs makes and keeps the certificate authority by which robotsproxy reads HTTPS, and the certificates that
// it issues.
//
//	ca, err := certs.Open(certs.Options{Dir: "/var/lib/robotsproxy"})
//	config := &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return ca.Leaf("a.example") }}
//
// Open loads the authority, or makes one on the first start: ca.pem, which clients are told to trust, and ca-key.pem,
// which nobody else may read. Leaf issues a certificate for one host, keeps it, and issues another before it ends; all
// leaves share one key, which is made anew by each Open and never stored.
//
// Rotate makes the CA that follows. For an overlap clients are told to trust both and the old one goes on signing; then
// the new one signs and the old one's key is destroyed. Every Authority of the folder follows, in this process and in
// others, without being opened again.
//
// Each installation has a key of its own. It is never returned, shown or logged by this package, and who has it can
// read the traffic of every client that trusts the certificate. The package does not decide for whom to sign: a caller
// asks only for the host that a client asked to be connected to. It revokes nothing; leaves live for days instead.
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
	// Dir is the folder of ca.pem and ca-key.pem. Open makes it, with mode 0700, and them where there are none.
	Dir string

	// Existing has Open refuse a Dir without ca.pem, by fs.ErrNotExist. If false, it makes one.
	Existing bool

	// CertFile and KeyFile are the PEM files of a CA of the operator's own; if set, Dir is not used. Behind the CA's
	// certificate CertFile may hold those of its issuers, which clients are then sent too. The key is PKCS #8, SEC 1 or
	// PKCS #1, and not encrypted.
	CertFile, KeyFile string

	// Clock tells the time of which certificates are valid. If nil, time.Now.
	Clock func() time.Time

	// Logger is told of rotations. If nil, nothing is logged.
	Logger *slog.Logger
}

// Authority is a certificate authority and the leaves it has issued. It is safe for concurrent use.
type Authority struct {
	dir      string // empty where the CA is the operator's own
	certFile string
	created  bool
	clock    func() time.Time
	log      *slog.Logger

	ring    atomic.Pointer[ring]
	reading sync.Mutex // held by who stores another ring

	leafKey *ecdsa.PrivateKey
	leaves  *leaves
	signing singleflight.Group // by CA and host
}

// Open loads the certificate authority that o names, or makes one in o.Dir. Any number of processes may do so at the
// same moment: they end up with the same one.
func Open(o Options) (*Authority, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Authority{clock: o.Clock, log: o.Logger, leaves: newLeaves(maxLeaves)}
	var err error
	switch {
	case (o.CertFile == "") != (o.KeyFile == ""):
		return nil, errors.New("certs: the certificate and the key of a CA are given together or not at all")
	case o.CertFile != "":
		err = a.openOwn(o.CertFile, o.KeyFile)
	case o.Dir != "":
		err = a.openDir(o.Dir, o.Existing)
	default:
		return nil, errors.New("certs: neither a folder for the CA nor the files of one are given")
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
	ca, err := load(certFile, keyFile, a.now())
	a.certFile = certFile
	a.ring.Store(&ring{active: ca})
	return err
}

// openDir opens the CA of a folder, and ends a rotation whose time has come.
func (a *Authority) openDir(dir string, existing bool) (err error) {
	a.dir, a.certFile = dir, filepath.Join(dir, certName)
	if !existing {
		if a.created, err = complete(dir, a.now()); err != nil {
			return err
		}
	}
	r, err := readRing(dir, a.now())
	if err != nil {
		return err
	}
	a.ring.Store(r)
	a.announce(a.current(a.now()))
	return nil
}

// now is the time on the wall. The monotonic reading is dropped, since it stands still while the machine sleeps, and
// what counts is the date that clients compare with.
func (a *Authority) now() time.Time { return a.clock().Round(0) }

// Created reports whether Open made the CA, so that clients cannot trust it yet.
func (a *Authority) Created() bool { return a.created }

// CertFile returns the path of the CA's certificate.
func (a *Authority) CertFile() string { return a.certFile }

// Certificate returns the certificate of the CA that signs now. It is shared and must not be changed.
func (a *Authority) Certificate() *x509.Certificate { return a.current(a.now()).active.cert() }

// PEM returns what clients are to trust now: the CA's certificate and, where CertFile holds them, those of its issuers.
// While a rotation lasts, the certificate of the next CA follows.
func (a *Authority) PEM() []byte { return encodeAll(a.current(a.now()).trusted()) }

// Fingerprint returns the SHA-256 of the certificate of the CA that signs now; see the function of that name.
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
