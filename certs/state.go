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

// state is what a folder holds at one moment: the CA that signs and, during a rotation, the next one. It is immutable.
type state struct {
	active *pair
	next   *pair       // nil if there is no rotation
	from   time.Time   // when next begins to sign
	file   fs.FileInfo // of ca.pem when it was read; nil for a CA of CertFile
}

// overlapOver reports whether the overlap is over.
func (s *state) overlapOver(now time.Time) bool { return s.next != nil && !now.Before(s.from) }

// trusted returns the certificates that clients must trust.
func (s *state) trusted() []*x509.Certificate {
	if s.next == nil {
		return s.active.certs
	}
	return append(s.active.certs[:len(s.active.certs):len(s.active.certs)], s.next.certs...)
}

// nextCAPrefix begins the line in ca.pem before the certificate of the next CA. The time from which that CA signs
// follows it. PEM parsers skip the line (RFC 7468 section 2). So the file holds the certificates that clients must
// trust and the whole state of a rotation, and is replaced in one step.
const nextCAPrefix = "# The CA below signs from "

// encode returns ca.pem.
func (s *state) encode() []byte {
	text := encodeAll(s.active.certs)
	if s.next != nil {
		text = fmt.Appendf(text, "%s%s\n", nextCAPrefix, date(s.from))
		text = append(text, encodeAll(s.next.certs)...)
	}
	return text
}

// readState reads ca.pem and the keys of its CAs. It calls Stat before it reads: if the file is replaced between the
// two, the next Stat differs.
func readState(dir string, now time.Time) (*state, error) {
	certFile := filepath.Join(dir, certName)
	info, err := os.Stat(certFile)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	own, rest, rotating := bytes.Cut(data, []byte(nextCAPrefix))
	certs, err := parseCerts(certFile, own)
	if err != nil {
		return nil, err
	}
	s := &state{file: info}
	if rotating {
		if err := s.readNext(certFile, rest, now); err != nil {
			return nil, err
		}
	}
	if s.overlapOver(now) {
		s.active = &pair{certs: certs} // its key is not used any more, and may not exist
		return s, nil
	}
	s.active, err = match(certFile, certs, keyFile(dir, certs[0]), now)
	return s, err
}

// readNext parses the text after nextCAPrefix.
func (s *state) readNext(certFile string, text []byte, now time.Time) error {
	from, rest, _ := bytes.Cut(text, []byte("\n"))
	var err error
	if s.from, err = time.Parse(time.RFC3339, string(bytes.TrimSpace(from))); err != nil {
		return fmt.Errorf("reading %s: when the next CA begins to sign: %w", certFile, err)
	}
	certs, err := parseCerts(certFile, rest)
	if err != nil {
		return err
	}
	key := rotatedKeyFile(filepath.Dir(certFile), certs[0])
	if _, err := os.Lstat(key); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the key of the next CA in %s is missing: put it back, or call the rotation off: remove the "+
			"line %q and all below it", err, certFile, nextCAPrefix+string(from))
	}
	s.next, err = match(certFile, certs, key, now)
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
func (a *Authority) current(now time.Time) *state {
	s := a.state.Load()
	if a.dir == "" || !s.overlapOver(now) && a.unchanged(s) == nil {
		return s
	}
	a.reading.Lock()
	defer a.reading.Unlock()
	s = a.state.Load() // another caller may have read it just now
	if info := a.unchanged(s); info != nil {
		s = a.reread(s, info, now)
	}
	if s.overlapOver(now) {
		s = a.completeRotation(s)
	}
	a.state.Store(s)
	return s
}

// unchanged returns nil if s is the state of ca.pem, else the file's present info. A missing file changes nothing.
func (a *Authority) unchanged(s *state) fs.FileInfo {
	info, err := os.Stat(a.certFile)
	if err != nil || os.SameFile(info, s.file) && info.ModTime().Equal(s.file.ModTime()) && info.Size() == s.file.Size() {
		return nil
	}
	return info
}

// reread reads ca.pem again. If that fails, it logs the error once, and the state does not change.
func (a *Authority) reread(old *state, info fs.FileInfo, now time.Time) *state {
	s, err := readState(a.dir, now)
	if err != nil {
		a.log.Error("ca.pem was changed and cannot be read; the previous CA still signs", "err", err)
		kept := *old
		kept.file = info
		return &kept
	}
	if !s.active.cert().Equal(old.active.cert()) {
		a.log.Info("another CA signs from now on",
			"ca", s.active.cert().Subject.CommonName, "before", old.active.cert().Subject.CommonName)
	}
	a.announce(s)
	return s
}

// announce logs a rotation that is under way.
func (a *Authority) announce(s *state) {
	if s.next != nil {
		a.log.Warn("the CA rotates: let clients trust the next one before it signs",
			"next", s.next.cert().Subject.CommonName, "from", date(s.from))
	}
}

// completeRotation makes the next CA sign. It cannot be undone, even if the clock is set back: the old key is
// destroyed. If the folder cannot be written, it logs the error, and the next start tries again.
func (a *Authority) completeRotation(s *state) *state {
	a.log.Info("the next CA signs from now on",
		"ca", s.next.cert().Subject.CommonName, "before", s.active.cert().Subject.CommonName)
	rotated := &state{active: s.next, file: s.file}
	if err := retire(a.dir, s.active.cert(), rotated); err != nil {
		a.log.Error("the old CA could not be put away", "err", err)
	}
	return rotated
}

// retire completes a rotation on disk. If it stops after any step, the next Open takes all steps again, since ca.pem
// names both CAs until the last step. The old certificate is kept, so that it can be removed from trust stores.
func retire(dir string, old *x509.Certificate, rotated *state) error {
	err := durable.Create(filepath.Join(dir, previousPrefix+id(old)+".pem"), encodeCertificate(old.Raw), 0o644)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := destroyKey(dir, old); err != nil {
		return err
	}
	return durable.Replace(filepath.Join(dir, certName), rotated.encode(), 0o644)
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
