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

// ring is what a folder says at one moment: the CA that signs and, while a rotation lasts, the one that follows it. It
// is never changed.
type ring struct {
	active *pair
	next   *pair       // nil where none follows
	from   time.Time   // when next begins to sign
	file   fs.FileInfo // of ca.pem as it was read; nil where the CA is the operator's own
}

// turned reports whether the time of the next CA has come.
func (r *ring) turned(now time.Time) bool { return r.next != nil && !now.Before(r.from) }

// trusted returns the certificates that clients are told to trust.
func (r *ring) trusted() []*x509.Certificate {
	if r.next == nil {
		return r.active.certs
	}
	return append(r.active.certs[:len(r.active.certs):len(r.active.certs)], r.next.certs...)
}

// mark stands in ca.pem before the certificate of the next CA, and behind it the time from which that one signs. Who
// reads PEM passes over it (RFC 7468 section 2), so that the file is what clients trust and at the same time, in one
// piece, all that there is to know about a rotation.
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

// readRing reads ca.pem and the keys of the CAs in it. The file is looked at before it is read: if it is replaced in
// between, the next look finds another than this one.
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
		r.active = &pair{certs: certs} // its key is of no use any more, and may be gone
		return r, nil
	}
	r.active, err = match(certFile, certs, keyFile(dir, certs[0]), now)
	return r, err
}

// readNext reads what follows the mark.
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

// id is short enough for the name of a file and tells all CAs of a folder apart.
func id(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:8])
}

// keyFile returns the path of the key of cert. The CA of the first start has ca-key.pem, which is also where the key of
// any other is found if it is put there.
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

// current returns the CAs as they are now. Another process may have rotated them, so the file is looked at each time:
// that costs a microsecond of a handshake, and no client is served what was rotated away.
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

// unchanged returns nil if r is what ca.pem says, else what the file is now. A file that is gone changes nothing: who
// runs goes on with what it has.
func (a *Authority) unchanged(r *ring) fs.FileInfo {
	info, err := os.Stat(a.certFile)
	if err != nil || os.SameFile(info, r.file) && info.ModTime().Equal(r.file.ModTime()) && info.Size() == r.file.Size() {
		return nil
	}
	return info
}

// reread returns what ca.pem says now. If that cannot be read, it is told once and the CAs stay as they were.
func (a *Authority) reread(old *ring, info fs.FileInfo, now time.Time) *ring {
	r, err := readRing(a.dir, now)
	if err != nil {
		a.log.Error("the CA was changed and cannot be read; the one before goes on signing", "err", err)
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

// announce tells of a rotation that is under way.
func (a *Authority) announce(r *ring) {
	if r.next != nil {
		a.log.Warn("the CA rotates: let clients trust the next one before it signs", "next", r.next.cert().Subject.CommonName, "from", date(r.from))
	}
}

// turn makes the next CA the one that signs. It never goes back, even if the clock does: the old key is destroyed. A
// folder that cannot be written is told of, and the next start tries again.
func (a *Authority) turn(r *ring) *ring {
	a.log.Info("the next CA signs from now on", "ca", r.next.cert().Subject.CommonName, "before", r.active.cert().Subject.CommonName)
	turned := &ring{active: r.next, file: r.file}
	if err := retire(a.dir, r.active.cert(), turned); err != nil {
		a.log.Error("the old CA could not be put away", "err", err)
	}
	return turned
}

// retire ends a rotation on the disk. Its steps may be broken off after any of them and are then taken again by whoever
// opens the folder next, since ca.pem still names both CAs until the last. The old certificate is kept, so that it can
// be taken out of the trust stores that it was installed in.
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

// destroyKey removes the key of cert, and no other.
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
