package certs

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/durable"
)

// ring is the state of a folder at one moment: the CA that signs and, during a rotation, the next one. It is immutable.
type ring struct {
	active *pair
	next   *pair       // nil if there is no rotation
	from   time.Time   // when next begins to sign
	file   fs.FileInfo // of ca.pem when it was read; nil for a CA of CertFile
}

// turned reports whether the overlap is over.
func (r *ring) turned(now time.Time) bool { return r.next != nil && !now.Before(r.from) }

// trusted returns the certificates that clients must trust.
func (r *ring) trusted() []*x509.Certificate {
	if r.next == nil {
		return r.active.certs
	}
	return append(r.active.certs[:len(r.active.certs):len(r.active.certs)], r.next.certs...)
}

// mark begins the line in ca.pem before the certificate of the next CA. The time from which that CA signs follows it.
// PEM parsers skip the line (RFC 7468 section 2). So the file holds the certificates that clients must trust and the
// whole state of a rotation, and is replaced in one step.
const mark = "# The CA below signs from "

// encode returns ca.pem.
func (r *ring) encode() []byte {
	text := encodeAll(r.active.certs)
	if r.next != nil {
		text = fmt.Appendf(text, "%s%s\n", mark, date(r.from))
		text = append(text, encodeAll(r.next.certs)...)
	}
	return text
}

// readRing reads ca.pem and the keys of its CAs. It calls Stat before it reads: if the file is replaced between the
// two, the next Stat differs.
func readRing(dir string, now time.Time) (*ring, error) {
	certFile := filepath.Join(dir, certName)
	info, err := os.Stat(certFile)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	own, rest, rotating := bytes.Cut(data, []byte(mark))
	certs, err := parseCerts(certFile, own)
	if err != nil {
		return nil, err
	}
	r := &ring{file: info}
	if rotating {
		if err := r.readNext(certFile, rest, now); err != nil {
			return nil, err
		}
	}
	if r.turned(now) {
		r.active = &pair{certs: certs} // its key is not used any more, and may not exist
		return r, nil
	}
	r.active, err = match(certFile, certs, keyFile(dir, certs[0]), now)
	return r, err
}

// readNext parses the text after the mark.
func (r *ring) readNext(certFile string, text []byte, now time.Time) error {
	from, rest, _ := bytes.Cut(text, []byte("\n"))
	var err error
	if r.from, err = time.Parse(time.RFC3339, string(bytes.TrimSpace(from))); err != nil {
		return fmt.Errorf("reading %s: when the next CA begins to sign: %w", certFile, err)
	}
	certs, err := parseCerts(certFile, rest)
	if err != nil {
		return err
	}
	key := rotatedKeyFile(filepath.Dir(certFile), certs[0])
	if _, err := os.Lstat(key); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the key of the next CA in %s is missing: put it back, or call the rotation off: remove the line %q and all below it", err, certFile, mark+string(from))
	}
	r.next, err = match(certFile, certs, key, now)
	return err
}

// id identifies a CA in the name of a file.
func id(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:8])
}

// keyFile returns the path of the key of cert: ca-key.pem, unless a file has the name of a rotated key.
func keyFile(dir string, cert *x509.Certificate) string {
	path := rotatedKeyFile(dir, cert)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return filepath.Join(dir, keyName)
	}
	return path
}

func rotatedKeyFile(dir string, cert *x509.Certificate) string {
	return filepath.Join(dir, "ca-key-"+id(cert)+".pem")
}

// current returns the state now. Another process may have rotated the CA, so it calls Stat each time. That costs a
// microsecond of a handshake, and no client receives a leaf of a retired CA.
func (a *Authority) current(now time.Time) *ring {
	r := a.ring.Load()
	if a.dir == "" || !r.turned(now) && a.unchanged(r) == nil {
		return r
	}
	a.reading.Lock()
	defer a.reading.Unlock()
	r = a.ring.Load() // another caller may have read it just now
	if info := a.unchanged(r); info != nil {
		r = a.reread(r, info, now)
	}
	if r.turned(now) {
		r = a.turn(r)
	}
	a.ring.Store(r)
	return r
}

// unchanged returns nil if r is the state of ca.pem, else the file's present info. A missing file changes nothing.
func (a *Authority) unchanged(r *ring) fs.FileInfo {
	info, err := os.Stat(a.certFile)
	if err != nil || os.SameFile(info, r.file) && info.ModTime().Equal(r.file.ModTime()) && info.Size() == r.file.Size() {
		return nil
	}
	return info
}

// reread reads ca.pem again. If that fails, it logs the error once, and the state does not change.
func (a *Authority) reread(old *ring, info fs.FileInfo, now time.Time) *ring {
	r, err := readRing(a.dir, now)
	if err != nil {
		a.log.Error("ca.pem was changed and cannot be read; the previous CA still signs", "err", err)
		kept := *old
		kept.file = info
		return &kept
	}
	if !r.active.cert().Equal(old.active.cert()) {
		a.log.Info("another CA signs from now on", "ca", r.active.cert().Subject.CommonName, "before", old.active.cert().Subject.CommonName)
	}
	a.announce(r)
	return r
}

// announce logs a rotation that is under way.
func (a *Authority) announce(r *ring) {
	if r.next != nil {
		a.log.Warn("the CA rotates: let clients trust the next one before it signs", "next", r.next.cert().Subject.CommonName, "from", date(r.from))
	}
}

// turn makes the next CA sign. It cannot be undone, even if the clock is set back: the old key is destroyed. If the
// folder cannot be written, it logs the error, and the next start tries again.
func (a *Authority) turn(r *ring) *ring {
	a.log.Info("the next CA signs from now on", "ca", r.next.cert().Subject.CommonName, "before", r.active.cert().Subject.CommonName)
	turned := &ring{active: r.next, file: r.file}
	if err := retire(a.dir, r.active.cert(), turned); err != nil {
		a.log.Error("the old CA could not be put away", "err", err)
	}
	return turned
}

// retire completes a rotation on disk. If it stops after any step, the next Open takes all steps again, since ca.pem
// names both CAs until the last step. The old certificate is kept, so that it can be removed from trust stores.
func retire(dir string, old *x509.Certificate, turned *ring) error {
	err := durable.Create(filepath.Join(dir, previousPrefix+id(old)+".pem"), encodeCertificate(old.Raw), 0o644)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := destroyKey(dir, old); err != nil {
		return err
	}
	return durable.Replace(filepath.Join(dir, certName), turned.encode(), 0o644)
}

// destroyKey removes the key of cert, and no other key.
func destroyKey(dir string, cert *x509.Certificate) error {
	path := keyFile(dir, cert)
	key, err := loadKey(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !belongs(key, cert) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(path)
}
