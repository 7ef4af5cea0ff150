package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/store"
)

// In the last thirty days each start and "ca show" warn that the CA expires.
func TestNoticeOfTheEnd(t *testing.T) {
	for _, tt := range []struct {
		left time.Duration
		want bool
	}{{29 * 24 * time.Hour, true}, {31 * 24 * time.Hour, false}} {
		t.Run(tt.left.String(), func(t *testing.T) {
			dir := t.TempDir()
			config := writeOwnCA(t, dir, tt.left)
			s, err := startServer(filepath.Join(dir, "data"), os.Environ(), "--config", config)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
			show, err := exec.Command(binaryPath, "ca", "show", "--config", config).CombinedOutput()
			if err != nil {
				t.Error(err)
			}
			for _, said := range []string{s.log.String(), string(show)} {
				if got := strings.Contains(said, "the CA ends on"); got != tt.want {
					t.Errorf("%v before the end it is told: %v, want %v: %s", tt.left, got, tt.want, said)
				}
			}
		})
	}
}

// A running proxy gives the warning once a day.
func TestDailyNoticeOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		writeOwnCA(t, dir, 32*24*time.Hour)
		ca, err := certs.Open(certs.Options{CertFile: filepath.Join(dir, "own.pem"), KeyFile: filepath.Join(dir, "own-key.pem")})
		if err != nil {
			t.Fatal(err)
		}
		state, err := store.Open(store.Options{Path: filepath.Join(dir, "state.db")})
		if err != nil {
			t.Fatal(err)
		}
		defer state.Close()
		var log bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 4*24*time.Hour+time.Hour)
		defer cancel()
		(&components{ca: ca, state: state}).runDaily(ctx, slog.New(slog.NewTextHandler(&log, nil)))
		for _, want := range []string{"in 30 days", "in 29 days", "in 28 days"} {
			if strings.Count(log.String(), want) != 1 {
				t.Errorf("the log of four days does not say once %q: %s", want, &log)
			}
		}
	})
}

// writeOwnCA creates a CA that expires soon, and returns a configuration with it.
func writeOwnCA(t *testing.T, dir string, left time.Duration) (config string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "own"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(left),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	config, cert, keyFile := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "own.pem"), filepath.Join(dir, "own-key.pem")
	for path, text := range map[string][]byte{
		config:  fmt.Appendf(nil, "intercept: {ca_cert: %s, ca_key: %s}\n", cert, keyFile),
		cert:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return config
}
