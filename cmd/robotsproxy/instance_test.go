package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// Only a refused connection means that no instance is running, not one that is closed or slow.
func TestInstanceThatBreaksOff(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer server.Close()
	for _, tt := range []struct {
		name, address, words string
		notRunning           bool
	}{
		{"it breaks off", server.Listener.Addr().String(), "asking robotsproxy", false},
		{"nobody listens", robotstest.Refusing(t), "no robotsproxy answers at", true},
	} {
		i := newInstance(url.URL{Scheme: "http", Host: tt.address}, "token")
		err := i.call(t.Context(), http.MethodPost, "/cache/refresh", nil, nil, nil)
		var exit *exitError
		notRunning := errors.As(err, &exit) && exit.code == exitNotRunning
		if err == nil || !strings.Contains(err.Error(), tt.words) || notRunning != tt.notRunning {
			t.Errorf("%s: %v, not running: %v; want %q, %v", tt.name, err, notRunning, tt.words, tt.notRunning)
		}
		if i.client.Timeout != 0 {
			t.Errorf("%s: the client waits %v, and a refresh of many origins may take longer", tt.name, i.client.Timeout)
		}
	}
}

// The error for another token names the place of the token.
func TestInstanceWithAnotherToken(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }))
	defer server.Close()
	dir := t.TempDir()
	for _, tt := range []struct{ tokenFile, words string }{
		{"", "its data folder is not " + dir},
		{filepath.Join(dir, "other.token"), "has another token than " + filepath.Join(dir, "other.token")},
	} {
		cfg := config.Default()
		cfg.DataDir, cfg.Admin.TokenFile = dir, tt.tokenFile
		if err := os.WriteFile(tokenFile(&cfg), []byte("token"), 0o600); err != nil {
			t.Fatal(err)
		}
		i, err := findInstance(&cfg, server.URL)
		if err != nil {
			t.Fatal(err)
		}
		if err := i.call(t.Context(), http.MethodGet, "/status", nil, nil, nil); err == nil ||
			!strings.Contains(err.Error(), tt.words) {
			t.Errorf("token file %q: %v, want %q", tt.tokenFile, err, tt.words)
		}
	}
}
