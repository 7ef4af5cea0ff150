package certs

import (
	"crypto/x509"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/durable"
)

// Rotate makes the next CA. Clients must trust both from now on. The old CA signs until the overlap is over, and the
// new one from then on. If overlap is zero, the new one signs at once; that also completes a rotation that is under
// way.
//
// It is atomic: the new key is on disk before ca.pem names the new certificate in one step. Of two rotations at once,
// the later write counts. Rotate refuses a CA of CertFile.
func (a *Authority) Rotate(overlap time.Duration) error {
	if err := a.rotate(overlap, a.now()); err != nil {
		return fmt.Errorf("certs: rotating: %w", err)
	}
	return nil
}

func (a *Authority) rotate(overlap time.Duration, now time.Time) error {
	if a.dir == "" {
		return fmt.Errorf("the CA of %s is the operator's own: make another with the tools that made it", a.certFile)
	}
	if overlap < 0 {
		return fmt.Errorf("an overlap of %s: it must not be negative", overlap)
	}
	r := a.current(now)
	follow := &state{active: r.active, next: r.next, from: now.Add(overlap).Truncate(time.Second)}
	switch end := r.active.cert().NotAfter; {
	case r.next != nil && overlap > 0:
		return fmt.Errorf("a rotation is under way: %q signs from %s (rotate without an overlap to end it)",
			r.next.cert().Subject.CommonName, date(r.from))
	case follow.from.After(end):
		return fmt.Errorf("the CA ends on %s, before an overlap of %s is over: choose a shorter one", date(end), overlap)
	case r.next == nil:
		var err error
		if follow.next, err = makePair(a.dir, now); err != nil {
			return err
		}
		if err := chownLike(rotatedKeyFile(a.dir, follow.next.cert()), keyFile(a.dir, r.active.cert())); err != nil {
			return fmt.Errorf("giving the new key to the owner of the old one: %w", err)
		}
	}
	if err := durable.Replace(a.certFile, follow.encode(), 0o644); err != nil {
		return err
	}
	a.current(now)
	return nil
}

// makePair makes a CA and stores its key. The certificate is not stored yet.
func makePair(dir string, now time.Time) (*pair, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	der, err := selfSign(key, now)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the CA's new certificate: %w", err)
	}
	return &pair{certs: []*x509.Certificate{cert}, key: key}, storeKey(rotatedKeyFile(dir, cert), key)
}

// Role is the part that a CA has in a folder.
type Role string

const (
	Active   Role = "active"   // signs; clients must trust it
	Next     Role = "next"     // will sign; clients must trust it
	Previous Role = "previous" // has signed; its key is destroyed, and clients should no longer trust it
)

// CA is a present or former CA of a folder.
type CA struct {
	Role        Role
	Certificate *x509.Certificate
	File        string    // path of the certificate
	From        time.Time // when a Next begins to sign, else zero
}

const previousPrefix = "ca-previous-"

// CAs returns the CA that signs, the next one, and the retired ones.
func (a *Authority) CAs() ([]CA, error) {
	r := a.current(a.now())
	all := []CA{{Role: Active, Certificate: r.active.cert(), File: a.certFile}}
	if r.next != nil {
		all = append(all, CA{Role: Next, Certificate: r.next.cert(), File: a.certFile, From: r.from})
	}
	if a.dir == "" {
		return all, nil
	}
	previous, err := readPrevious(a.dir)
	if err != nil {
		return nil, fmt.Errorf("certs: %w", err)
	}
	return append(all, previous...), nil
}

// readPrevious returns the retired CAs of dir.
func readPrevious(dir string) (all []CA, err error) {
	names, err := fs.Glob(os.DirFS(dir), previousPrefix+"*.pem")
	if err != nil {
		return nil, fmt.Errorf("looking for previous CAs in %s: %w", dir, err)
	}
	for _, name := range names {
		file := filepath.Join(dir, name)
		certs, err := readCerts(file)
		if err != nil {
			return nil, err
		}
		all = append(all, CA{Role: Previous, Certificate: certs[0], File: file})
	}
	return all, nil
}

// Ends returns when the last CA that clients must trust expires. The operator must rotate before.
func (a *Authority) Ends() time.Time {
	r := a.current(a.now())
	if r.next != nil {
		return r.next.cert().NotAfter
	}
	return r.active.cert().NotAfter
}
