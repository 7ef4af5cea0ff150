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

// Rotate makes the CA that follows this one. Clients are told to trust both from now on; the old CA signs until overlap
// is over, and the new one from then. With no overlap the new one signs at once, and while a rotation is under way that
// ends it.
//
// It is whole or did not happen: the new key is on the disk before ca.pem, in one step, names the new certificate. Of
// two rotations at the same moment the one that writes last counts. A CA of the operator's own is refused.
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
		return fmt.Errorf("an overlap of %s is none", overlap)
	}
	r := a.current(now)
	follow := &ring{active: r.active, next: r.next, from: now.Add(overlap).Truncate(time.Second)}
	switch end := r.active.cert().NotAfter; {
	case r.next != nil && overlap > 0:
		return fmt.Errorf("a rotation is under way: %q signs from %s (rotate without an overlap to end it)", r.next.cert().Subject.CommonName, date(r.from))
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

// makePair makes a CA whose key is on the disk and whose certificate is not yet.
func makePair(dir string, now time.Time) (*pair, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	der, err := selfSign(key, now)
	if err != nil {
		return nil, fmt.Errorf("signing the CA's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the CA's new certificate: %w", err)
	}
	return &pair{certs: []*x509.Certificate{cert}, key: key}, storeKey(rotatedKeyFile(dir, cert), key)
}

// Role says what a CA is for now.
type Role string

const (
	Active   Role = "active"   // it signs, and clients are to trust it
	Next     Role = "next"     // it will sign, and clients are to trust it
	Previous Role = "previous" // it has signed; its key is destroyed and clients should forget it
)

// CA is one of those that a folder has had.
type CA struct {
	Role        Role
	Certificate *x509.Certificate
	File        string    // where the certificate is
	From        time.Time // when it begins to sign; zero for all but the next
}

const previousPrefix = "ca-previous-"

// CAs returns the CA that signs, the one that follows it, and those that have been rotated away.
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

// readPrevious returns the CAs of dir that were rotated away.
func readPrevious(dir string) (all []CA, err error) {
	names, err := fs.Glob(os.DirFS(dir), previousPrefix+"*.pem")
	if err != nil {
		return nil, fmt.Errorf("looking for previous CAs in %s: %w", dir, err)
	}
	for _, name := range names {
		file := filepath.Join(dir, name)
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		certs, err := parseCerts(file, data)
		if err != nil {
			return nil, err
		}
		all = append(all, CA{Role: Previous, Certificate: certs[0], File: file})
	}
	return all, nil
}

// Ends returns when the last CA ends that clients are told to trust. Before that another one is needed.
func (a *Authority) Ends() time.Time {
	r := a.current(a.now())
	if r.next != nil {
		return r.next.cert().NotAfter
	}
	return r.active.cert().NotAfter
}
