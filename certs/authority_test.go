package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func open(t testing.TB, o Options) *Authority {
	t.Helper()
	a, err := Open(o)
	if err != nil {
		t.Fatalf("Open(%+v): %v", o, err)
	}
	return a
}

func TestMake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	now := time.Now()
	a := open(t, Options{Dir: dir})
	for path, want := range map[string]fs.FileMode{
		dir: fs.ModeDir | 0o700, filepath.Join(dir, "ca.pem"): 0o644, filepath.Join(dir, "ca-key.pem"): 0o600,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("Stat(%s) = %v, %v; want mode %v", path, info.Mode(), err, want)
		}
	}
	if got, want := a.CertFile(), filepath.Join(dir, "ca.pem"); got != want || !a.Created() {
		t.Errorf("CertFile() = %s, Created() = %v; want %s, true", got, a.Created(), want)
	}
	cert := a.Certificate()
	if key, ok := cert.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		t.Errorf("public key: got %T, want one on P-256", cert.PublicKey)
	}
	if !cert.IsCA || cert.MaxPathLen != 0 || !cert.MaxPathLenZero {
		t.Errorf("IsCA, MaxPathLen, MaxPathLenZero = %v, %d, %v; want true, 0, true",
			cert.IsCA, cert.MaxPathLen, cert.MaxPathLenZero)
	}
	if want := x509.KeyUsageCertSign | x509.KeyUsageCRLSign; cert.KeyUsage != want {
		t.Errorf("KeyUsage = %b, want %b", cert.KeyUsage, want)
	}
	if len(cert.SubjectKeyId) == 0 {
		t.Error("SubjectKeyId is empty")
	}
	if err := cert.CheckSignatureFrom(cert); err != nil {
		t.Errorf("the CA's own signature: %v", err)
	}
	if cert.NotBefore.After(now.Add(-23*time.Hour)) || cert.NotAfter.Before(now.AddDate(10, 0, 0).Add(-time.Minute)) || cert.NotAfter.After(now.AddDate(10, 0, 1)) {
		t.Errorf("valid from %v to %v, want a day ago to ten years from now", cert.NotBefore, cert.NotAfter)
	}
	if name := cert.Subject.CommonName; !regexp.MustCompile(`^robotsproxy CA .*\b[a-z2-7]{6}$`).MatchString(name) || len(name) > 64 {
		t.Errorf("CommonName = %q, want robotsproxy CA, host and id in 64 octets", name)
	}
	if other := open(t, Options{Dir: t.TempDir()}); other.Certificate().Subject.String() == cert.Subject.String() {
		t.Errorf("two installations are both named %s", cert.Subject)
	}
}

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	first, second := open(t, Options{Dir: dir}), open(t, Options{Dir: dir})
	if !first.Created() || second.Created() {
		t.Errorf("Created() = %v, then %v; want true, then false", first.Created(), second.Created())
	}
	if !first.Certificate().Equal(second.Certificate()) {
		t.Error("the second Open has another certificate")
	}
	if first.leafKey.Equal(second.leafKey) {
		t.Error("two processes share the key of their leaves")
	}
}

func TestPEMAndFingerprint(t *testing.T) {
	a := open(t, Options{Dir: t.TempDir()})
	file, err := os.ReadFile(a.CertFile())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.PEM(), file) || bytes.Contains(file, []byte("PRIVATE")) {
		t.Errorf("PEM() = %s, want the certificate as in %s: %s", a.PEM(), a.CertFile(), file)
	}
	want := "(?:[0-9A-F]{2}:){31}[0-9A-F]{2}"
	if got := a.Fingerprint(); !regexp.MustCompile("^" + want + "$").MatchString(got) {
		t.Errorf("Fingerprint() = %q, want 32 octets in the form %s", got, want)
	}
}

// What stopped between key and certificate is completed: the key stays.
func TestOpenAfterCrashBetweenTheFiles(t *testing.T) {
	dir := t.TempDir()
	open(t, Options{Dir: dir})
	key, err := os.ReadFile(filepath.Join(dir, keyName))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, certName)); err != nil {
		t.Fatal(err)
	}
	a := open(t, Options{Dir: dir})
	after, err := os.ReadFile(filepath.Join(dir, keyName))
	if err != nil || !bytes.Equal(key, after) || !a.Created() {
		t.Errorf("Open without ca.pem: key kept %v, Created() %v, %v; want true, true",
			bytes.Equal(key, after), a.Created(), err)
	}
	verify(t, a, "a.example", time.Now())
}

func TestOpenAtOnce(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		authorities := make([]*Authority, 8)
		var wg sync.WaitGroup
		for i := range authorities {
			wg.Go(func() {
				a, err := Open(Options{Dir: dir})
				if err != nil {
					t.Errorf("Open by %d at once: %v", len(authorities), err)
				}
				authorities[i] = a
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		created := 0
		for _, a := range authorities {
			if !a.Certificate().Equal(authorities[0].Certificate()) {
				t.Error("two Opens at once have different certificates")
			}
			if a.Created() {
				created++
			}
		}
		if created != 1 {
			t.Errorf("%d Opens at once: %d say that they made the CA, want 1", len(authorities), created)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
			t.Errorf("ReadDir = %v, %v; want the two files alone", entries, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	cert := func(dir string) string { return filepath.Join(dir, certName) }
	key := func(dir string) string { return filepath.Join(dir, keyName) }
	for _, tt := range []struct {
		name  string
		spoil func(dir string) error
		later time.Duration
		want  []string // in the error; CERT and KEY stand for the paths
	}{
		{"key readable by the group", func(dir string) error { return os.Chmod(key(dir), 0o640) }, 0, []string{"chmod 600 KEY"}},
		{"key readable by all", func(dir string) error { return os.Chmod(key(dir), 0o604) }, 0, []string{"chmod 600 KEY"}},
		{"key readable, certificate missing", func(dir string) error {
			if err := os.Remove(cert(dir)); err != nil {
				return err
			}
			return os.Chmod(key(dir), 0o644)
		}, 0, []string{"chmod 600 KEY"}},
		{"key missing", func(dir string) error { return os.Remove(key(dir)) }, 0, []string{"KEY", "the key of CERT is missing", "put it back"}},
		{"key of another", func(dir string) error { return replaceKey(key(dir)) }, 0, []string{"KEY is not the key of CERT", "put back"}},
		{"key empty", func(dir string) error { return os.WriteFile(key(dir), nil, 0o600) }, 0, []string{"reading KEY", "no PEM block", "put back"}},
		{"key cut", func(dir string) error { return os.Truncate(key(dir), 100) }, 0, []string{"reading KEY", "no PEM block", "put back"}},
		{"key broken", func(dir string) error { return writePEM(key(dir), "PRIVATE KEY", []byte("no key")) }, 0, []string{"reading KEY", "PKCS #8"}},
		{"key encrypted", func(dir string) error { return writePEM(key(dir), "ENCRYPTED PRIVATE KEY", []byte("x")) }, 0, []string{"reading KEY", "encrypted", "openssl pkey"}},
		{"key a folder", func(dir string) error {
			if err := os.Remove(key(dir)); err != nil {
				return err
			}
			return os.Mkdir(key(dir), 0o700)
		}, 0, []string{"reading KEY", "not a regular file"}},
		{"certificate empty", func(dir string) error { return os.WriteFile(cert(dir), nil, 0o644) }, 0, []string{"reading CERT", "no PEM block", "put back"}},
		{"certificate cut", func(dir string) error { return os.Truncate(cert(dir), 200) }, 0, []string{"reading CERT", "no PEM block"}},
		{"certificate broken", func(dir string) error { return writePEM(cert(dir), "CERTIFICATE", []byte("none")) }, 0, []string{"reading CERT", "x509"}},
		{"certificate with the key", func(dir string) error { return appendFile(cert(dir), key(dir)) }, 0, []string{"reading CERT", "holds a private key"}},
		{"certificate ended", nil, 11 * 365 * 24 * time.Hour, []string{"CERT", "ended on", "start again"}},
		{"clock far behind", nil, -48 * time.Hour, []string{"CERT", "not valid before", "clock"}},
		{"folder is a file", func(dir string) error {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			return os.WriteFile(dir, nil, 0o600)
		}, 0, []string{"not a directory"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			open(t, Options{Dir: dir})
			keyPEM, err := os.ReadFile(key(dir))
			if err != nil {
				t.Fatal(err)
			}
			secret := strings.Split(string(keyPEM), "\n")[1]
			if tt.spoil != nil {
				if err := tt.spoil(dir); err != nil {
					t.Fatal(err)
				}
			}
			a, err := Open(Options{Dir: dir, Clock: func() time.Time { return time.Now().Add(tt.later) }})
			if err == nil {
				t.Fatalf("Open = %v, want an error with %q", a, tt.want)
			}
			for _, want := range append(tt.want, "certs: ") {
				want = strings.NewReplacer("CERT", cert(dir), "KEY", key(dir)).Replace(want)
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Open: got %q, want it to say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("Open: the error shows the key: %v", err)
			}
		})
	}
}

func TestOpenOptions(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{}, "needs a folder"},
		{Options{CertFile: "x"}, "together or not at all"},
		{Options{Dir: "x", KeyFile: "x"}, "together or not at all"},
		{Options{CertFile: "/nonexistent/a.pem", KeyFile: "/nonexistent/b.pem"}, "/nonexistent/a.pem"},
	} {
		if _, err := Open(tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Open(%+v): got %v, want an error with %q", tt.o, err, tt.want)
		}
	}
}

// CAs that operators bring: each kind of key in each of its forms.
func TestOwnCA(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := x509.MarshalECPrivateKey(ec)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		key   crypto.Signer
		block *pem.Block
	}{
		{"ECDSA, PKCS #8", ec, pkcs8(t, ec)},
		{"ECDSA, SEC 1", ec, &pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1}},
		{"RSA, PKCS #8", rsaKey, pkcs8(t, rsaKey)},
		{"RSA, PKCS #1", rsaKey, &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)}},
		{"Ed25519, PKCS #8", ed, pkcs8(t, ed)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parameters := pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 0}})
			o := ownCA(t, tt.key, append(parameters, pem.EncodeToMemory(tt.block)...), caTemplate())
			a := open(t, o)
			if a.Created() || a.CertFile() != o.CertFile {
				t.Errorf("Created() = %v, CertFile() = %s; want false, %s", a.Created(), a.CertFile(), o.CertFile)
			}
			verify(t, a, "a.example", time.Now())
		})
	}
}

// An Ed25519 key is a slice of octets, which fmt would show wherever it gets hold of it.
func TestKeyIsNotShown(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := open(t, ownCA(t, key, pem.EncodeToMemory(pkcs8(t, key)), caTemplate()))
	secret := strings.Trim(fmt.Sprint([]byte(key[:8])), "[]")
	if shown := fmt.Sprintf("%v %+v", a, a); strings.Contains(shown, secret) {
		t.Errorf("Sprintf shows the key: %s", shown)
	}
}

// A CA below another is sent with its issuer, so that clients that know the issuer alone accept it.
func TestOwnCAWithIssuer(t *testing.T) {
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rootTemplate, template := caTemplate(), caTemplate()
	rootTemplate.Subject.CommonName = "root"
	rootTemplate.MaxPathLen, rootTemplate.MaxPathLenZero = 1, false
	rootDER := sign(t, rootTemplate, rootTemplate, rootKey.Public(), rootKey)
	root, err := x509.ParseCertificate(rootDER)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	o := ownCA(t, key, pem.EncodeToMemory(pkcs8(t, key)), template)
	chain := append(encodeCertificate(sign(t, template, root, key.Public(), rootKey)), encodeCertificate(rootDER)...)
	if err := os.WriteFile(o.CertFile, chain, 0o644); err != nil {
		t.Fatal(err)
	}
	a := open(t, o)
	if !bytes.Equal(a.PEM(), chain) {
		t.Errorf("PEM() = %s, want the CA and its issuer: %s", a.PEM(), chain)
	}
	tlsCert, err := a.Leaf("a.example")
	if err != nil {
		t.Fatal(err)
	}
	if len(tlsCert.Certificate) != 3 || !bytes.Equal(tlsCert.Certificate[2], rootDER) {
		t.Fatalf("Leaf: a chain of %d, want leaf, CA and issuer", len(tlsCert.Certificate))
	}
	roots, sent := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(root)
	sent.AddCert(a.Certificate())
	if _, err := leafOf(t, a, "a.example").Verify(x509.VerifyOptions{DNSName: "a.example", Roots: roots, Intermediates: sent}); err != nil {
		t.Errorf("Leaf, for a client that knows the issuer: %v", err)
	}
}

func TestOwnCARefused(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		edit func(c *x509.Certificate)
		mode fs.FileMode
		want string
	}{
		{"a server's certificate", func(c *x509.Certificate) { c.IsCA, c.MaxPathLenZero = false, false }, 0o600, "not the certificate of a CA"},
		{"a CA that signs nothing", func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }, 0o600, "may not sign certificates"},
		{"a key that others read", func(*x509.Certificate) {}, 0o644, "chmod 600"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			template := caTemplate()
			tt.edit(template)
			o := ownCA(t, key, pem.EncodeToMemory(pkcs8(t, key)), template)
			if err := os.Chmod(o.KeyFile, tt.mode); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Open(%+v): got %v, want an error with %q", o, err, tt.want)
			}
		})
	}
}

func caTemplate() *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: "the operator's CA"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(30 * 24 * time.Hour),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
}

// ownCA writes the files of a CA that signs itself.
func ownCA(t *testing.T, key crypto.Signer, keyPEM []byte, template *x509.Certificate) Options {
	t.Helper()
	dir := t.TempDir()
	o := Options{CertFile: filepath.Join(dir, "own.pem"), KeyFile: filepath.Join(dir, "own.key")}
	der := sign(t, template, template, key.Public(), key)
	if err := os.WriteFile(o.CertFile, encodeCertificate(der), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(o.KeyFile, keyPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	return o
}

func sign(t *testing.T, template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func pkcs8(t *testing.T, key crypto.Signer) *pem.Block {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &pem.Block{Type: "PRIVATE KEY", Bytes: der}
}

func replaceKey(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return createKey(path)
}

func writePEM(path, kind string, data []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600)
}

func appendFile(to, from string) error {
	a, err := os.ReadFile(to)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, slices.Concat(a, b), 0o644)
}
