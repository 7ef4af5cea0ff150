package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const overlap = 72 * time.Hour

// accepted reports whether a client that trusts what is in pem accepts a's leaf for a.example now.
func accepted(t *testing.T, a *Authority, pem []byte) bool {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		t.Fatalf("no certificate in %q", pem)
	}
	_, err := leafOf(t, a, "a.example").Verify(x509.VerifyOptions{DNSName: "a.example", Roots: roots})
	return err == nil
}

func rotate(t *testing.T, a *Authority, overlap time.Duration) {
	t.Helper()
	if err := a.Rotate(overlap); err != nil {
		t.Fatalf("Rotate(%v): %v", overlap, err)
	}
}

// roles returns what a folder's CAs are for.
func roles(t *testing.T, a *Authority) (all []Role) {
	t.Helper()
	cas, err := a.CAs()
	if err != nil {
		t.Fatal(err)
	}
	for _, ca := range cas {
		all = append(all, ca.Role)
	}
	return all
}

// names returns the files in dir, with ID for what tells CAs apart.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		if dash := strings.LastIndexByte(name, '-'); len(name)-dash == len("-0123456789abcdef.pem") {
			name = name[:dash] + "-ID.pem"
		}
		all = append(all, name)
	}
	return all
}

// One process serves while another rotates: what clients trust holds both CAs from that moment on, the old one signs to
// the end of the overlap, and not one leaf of it is handed out afterwards.
func TestRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		serving := open(t, Options{Dir: dir})
		old := serving.PEM()
		oldLeaf := leafOf(t, serving, "a.example")

		rotate(t, open(t, Options{Dir: dir}), overlap)
		both := serving.PEM()
		if !bytes.HasPrefix(both, old) || bytes.Count(both, []byte("BEGIN CERTIFICATE")) != 2 {
			t.Fatalf("PEM() = %s, want the old CA and the next", both)
		}
		next := both[len(old):]
		if got, want := roles(t, serving), []Role{Active, Next}; !slices.Equal(got, want) {
			t.Errorf("CAs() are %v, want %v", got, want)
		}

		time.Sleep(overlap - 2*time.Second)
		if !leafOf(t, serving, "a.example").Equal(oldLeaf) || !accepted(t, serving, old) || accepted(t, serving, next) {
			t.Error("before the end of the overlap the old CA does not sign")
		}
		time.Sleep(2 * time.Second)
		for name, a := range map[string]*Authority{"serving": serving, "started later": open(t, Options{Dir: dir})} {
			if !accepted(t, a, next) || accepted(t, a, old) || !accepted(t, a, both) {
				t.Errorf("%s: after the overlap the next CA does not sign", name)
			}
			if !bytes.Equal(a.PEM(), next) {
				t.Errorf("%s: PEM() = %s, want the next CA alone: %s", name, a.PEM(), next)
			}
			if got, want := roles(t, a), []Role{Active, Previous}; !slices.Equal(got, want) {
				t.Errorf("%s: CAs() are %v, want %v", name, got, want)
			}
		}
		if file, err := os.ReadFile(filepath.Join(dir, certName)); err != nil || !bytes.Equal(file, next) {
			t.Errorf("ca.pem = %s, %v; want the next CA alone", file, err)
		}
		if got, want := names(t, dir), []string{"ca-key-ID.pem", "ca-previous-ID.pem", "ca.pem"}; !slices.Equal(got, want) {
			t.Errorf("the folder holds %v, want %v: the old key is destroyed", got, want)
		}
	})
}

// Without an overlap the new CA signs at once, for who is serving too; rotations can follow one another.
func TestRotateNow(t *testing.T) {
	dir := t.TempDir()
	serving := open(t, Options{Dir: dir})
	for range 3 {
		old := serving.PEM()
		leafOf(t, serving, "a.example")
		rotate(t, open(t, Options{Dir: dir}), 0)
		if fresh := serving.PEM(); !accepted(t, serving, fresh) || accepted(t, serving, old) {
			t.Error("the old CA still signs")
		}
	}
	if got, want := roles(t, serving), []Role{Active, Previous, Previous, Previous}; !slices.Equal(got, want) {
		t.Errorf("CAs() are %v, want %v", got, want)
	}
	info, err := os.Stat(keyFile(dir, serving.Certificate()))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the key: %v, %v; want mode 0600", info.Mode(), err)
	}
}

// Rotating at once ends an overlap; it makes no third CA.
func TestRotateNowEndsAnOverlap(t *testing.T) {
	a := open(t, Options{Dir: t.TempDir()})
	old := a.PEM()
	rotate(t, a, overlap)
	next := a.PEM()[len(old):]
	rotate(t, a, 0)
	if !bytes.Equal(a.PEM(), next) || !accepted(t, a, next) {
		t.Errorf("PEM() = %s, want the next CA of the overlap: %s", a.PEM(), next)
	}
}

func TestRotateRefuses(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own := open(t, ownCA(t, key, pem.EncodeToMemory(pkcs8(t, key)), caTemplate()))
	underWay := open(t, Options{Dir: t.TempDir()})
	rotate(t, underWay, overlap)
	for _, tt := range []struct {
		name    string
		a       *Authority
		overlap time.Duration
		want    string
	}{
		{"the operator's own", own, overlap, "the operator's own"},
		{"the operator's own, at once", own, 0, "the operator's own"},
		{"negative", underWay, -1, "must not be negative"},
		{"under way", underWay, time.Hour, "a rotation is under way"},
		{"past the end", open(t, Options{Dir: t.TempDir()}), 11 * 365 * 24 * time.Hour, "choose a shorter one"},
	} {
		before := tt.a.PEM()
		if err := tt.a.Rotate(tt.overlap); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "certs: rotating: ") {
			t.Errorf("%s: Rotate(%v): got %v, want an error with %q", tt.name, tt.overlap, err, tt.want)
		}
		if !bytes.Equal(tt.a.PEM(), before) {
			t.Errorf("%s: the refused Rotate changed the CA", tt.name)
		}
	}
}

// A leaf ends with the CA that signed it, and the last warning is the last CA's.
func TestRotateNearTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open(t, Options{Dir: t.TempDir()})
		end := a.Certificate().NotAfter
		if !a.Ends().Equal(end) {
			t.Errorf("Ends() = %v, want %v", a.Ends(), end)
		}
		time.Sleep(time.Until(end) - 2*time.Hour)
		rotate(t, a, time.Hour)
		if leaf := leafOf(t, a, "a.example"); !leaf.NotAfter.Equal(end) {
			t.Errorf("the old CA's leaf ends %v, want %v, with its CA", leaf.NotAfter, end)
		}
		time.Sleep(time.Hour)
		if leaf := leafOf(t, a, "a.example"); time.Until(leaf.NotAfter).Round(time.Minute) != leafLife {
			t.Errorf("the new CA's leaf ends %v, want %v from now", leaf.NotAfter, leafLife)
		}
		if left := time.Until(a.Ends()); left < 9*365*24*time.Hour {
			t.Errorf("Ends() is %v from now, want the new CA's end", left)
		}
	})
}

// linked returns a folder with the files of dir.
func linked(t *testing.T, dir string) string {
	t.Helper()
	other := t.TempDir()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Link(filepath.Join(dir, e.Name()), filepath.Join(other, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return other
}

// Whatever step a rotation is broken off after, the next start finds a CA that works, and brings to its end what was
// begun.
func TestRotateBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a := open(t, Options{Dir: dir})
		old := a.Certificate()
		path := func(name string) string { return filepath.Join(dir, name) }
		check := func(after string, want *x509.Certificate) {
			t.Helper()
			a := open(t, Options{Dir: linked(t, dir)})
			if !a.Certificate().Equal(want) || !accepted(t, a, a.PEM()) {
				t.Errorf("after %s: %s signs, want %s", after, a.Certificate().Subject, want.Subject)
			}
		}

		next, err := makePair(dir, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		check("the new key", old)
		rotating := &state{active: a.state.Load().active, next: next, from: time.Now().Add(overlap)}
		if err := os.WriteFile(path(certName), rotating.encode(), 0o644); err != nil {
			t.Fatal(err)
		}
		check("ca.pem", old)
		time.Sleep(overlap)
		check("the end of the overlap", next.cert())
		if err := os.WriteFile(path(previousPrefix+id(old)+".pem"), encodeCertificate(old.Raw), 0o644); err != nil {
			t.Fatal(err)
		}
		check("the old certificate is put away", next.cert())
		if err := os.Remove(path(keyName)); err != nil {
			t.Fatal(err)
		}
		check("the old key is destroyed", next.cert())
		again := open(t, Options{Dir: dir})
		if got, want := names(t, dir), []string{"ca-key-ID.pem", "ca-previous-ID.pem", "ca.pem"}; !slices.Equal(got, want) || !again.Certificate().Equal(next.cert()) {
			t.Errorf("at the end the folder holds %v, want %v", got, want)
		}
	})
}

// Of rotations at the same moment one counts, and the CA works before and after its turn.
// If the key of the next CA is missing, the error names a remedy, and the remedy works.
func TestNextCAWithoutItsKey(t *testing.T) {
	dir := t.TempDir()
	a, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	rotate(t, a, overlap)
	if err := os.Remove(rotatedKeyFile(dir, a.state.Load().next.cert())); err != nil {
		t.Fatal(err)
	}
	_, err = Open(Options{Dir: dir})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "put it back, or call the rotation off: remove the line \""+nextCAPrefix) {
		t.Errorf("Open without the next CA's key: %v", err)
	}
	text, err := os.ReadFile(a.certFile)
	if err != nil {
		t.Fatal(err)
	}
	own, _, _ := bytes.Cut(text, []byte(nextCAPrefix))
	if err := os.WriteFile(a.certFile, own, 0o644); err != nil {
		t.Fatal(err)
	}
	if a, err = Open(Options{Dir: dir}); err != nil || !slices.Equal(roles(t, a), []Role{Active}) {
		t.Errorf("Open once the rotation is called off: %v", err)
	}
}

func TestRotateAtOnce(t *testing.T) {
	for range 10 {
		dir := t.TempDir()
		open(t, Options{Dir: dir})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				a, err := Open(Options{Dir: dir})
				if err == nil {
					_ = a.Rotate(overlap) // the later ones are told that one is under way
					_, err = a.Leaf("a.example")
				}
				if err != nil {
					t.Errorf("rotating at once: %v", err)
				}
			})
		}
		wg.Wait()
		for _, later := range []time.Duration{0, overlap} {
			a := open(t, Options{Dir: dir, Clock: func() time.Time { return time.Now().Add(later) }})
			verify(t, a, "a.example", time.Now().Add(later))
		}
	}
}

// Many ask for leaves while the next CA's turn comes: each is of the CA whose time it is.
func TestRotateUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open(t, Options{Dir: t.TempDir()})
		old := a.Certificate()
		rotate(t, a, time.Minute)
		from := time.Now().Add(time.Minute).Truncate(time.Second)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for range 120 {
					time.Sleep(time.Duration(900+i) * time.Millisecond)
					asked := time.Now()
					leaf := leafOf(t, a, "a.example")
					if byOld := leaf.CheckSignatureFrom(old) == nil; byOld != asked.Before(from) {
						t.Errorf("at %v a leaf by the old CA: %v; the next signs from %v", asked, byOld, from)
					}
				}
			})
		}
		wg.Wait()
	})
}

// A file that cannot be read does not stop a running Authority, and is logged once.
func TestServingOutlivesABrokenFile(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"gone":   os.Remove,
		"empty":  func(path string) error { return os.WriteFile(path, nil, 0o644) },
		"no end": func(path string) error { return appendText(path, nextCAPrefix) },
		"no key": func(path string) error {
			other, err := makePair(filepath.Dir(path)+"2", time.Now())
			return errors.Join(err, os.WriteFile(path, encodeAll(other.certs), 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			dir := filepath.Join(t.TempDir(), "state")
			a := open(t, Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			before := a.PEM()
			if err := spoil(a.CertFile()); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if !bytes.Equal(a.PEM(), before) || !accepted(t, a, before) {
					t.Error("the CA does not sign any more")
				}
			}
			if n := strings.Count(log.String(), "\n"); n > 1 || n == 0 && name != "gone" {
				t.Errorf("the log has %d lines, want 1: %s", n, &log)
			}
			if err := a.Rotate(0); name == "gone" && err != nil {
				t.Errorf("Rotate: %v", err)
			}
		})
	}
}

func appendText(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// A folder that cannot be written is logged, and the next CA signs nevertheless.
func TestTurnWithoutTheDisk(t *testing.T) {
	now := time.Now()
	var log bytes.Buffer
	dir := filepath.Join(t.TempDir(), "state")
	a := open(t, Options{Dir: dir, Clock: func() time.Time { return now }, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	rotate(t, a, overlap)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // so that no folder can be made in its place
		t.Fatal(err)
	}
	old := a.Certificate()
	now = now.Add(overlap)
	if a.Certificate().Equal(old) {
		t.Error("the old CA still signs")
	}
	verify(t, a, "a.example", now)
	if !strings.Contains(log.String(), "could not be put away") {
		t.Errorf("log = %q, want it to tell of the disk", &log)
	}
	now = now.Add(-time.Hour)
	if a.Certificate().Equal(old) {
		t.Error("the clock went back, and the CA with it")
	}
	if _, err := os.Stat(filepath.Join(dir+".away", keyName)); errors.Is(err, fs.ErrNotExist) {
		t.Error("the old key was destroyed before its certificate was put away")
	}
}
