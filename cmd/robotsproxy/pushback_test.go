package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// A stop right after hosts have pushed back keeps their pauses, which are stored in the background.
func TestStopKeepsPauses(t *testing.T) {
	const hosts = 20
	site := robotstest.New(t)
	text := fmt.Sprintf("pacing: {max_wait: 1s}\negress:\n  allow_addresses: [127.0.0.0/8]\n  ca_file: %s\n  resolve:\n", site.CAFile())
	for i := range hosts {
		text += fmt.Sprintf("    h%d.example: 127.0.0.1\n", i)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() *server {
		s, err := startServer(filepath.Join(dir, "data"), os.Environ(), "--config", config)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	url := func(i int, path string) string { return fmt.Sprintf("http://h%d.example:%d%s", i, site.Port(), path) }
	s := start()
	for i := range hosts {
		if status := s.get(t, url(i, "/status/503?retry_after=600")); status != 503 {
			t.Errorf("host %d answers %d", i, status)
		}
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s = start()
	t.Cleanup(func() { s.stop() })
	for i := range hosts {
		if resp := s.answer(t, url(i, "/page/1")); resp.StatusCode != 429 || resp.Header.Get("Robotsproxy-Reason") != "backoff" {
			t.Errorf("after the restart host %d: %s %v, want 429 and the reason backoff", i, resp.Status, resp.Header)
		}
	}
}
