package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/config"
)

// A damaged database of records ends the start with an error that names the file.
func TestDamagedRecords(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := writeFile(t, dir, "audit.db", strings.Repeat("not a database ", 100))
	cfg, _, err := config.Load(config.Options{Path: writeFile(t, t.TempDir(), "config.yaml", "data_dir: "+dir+"\n"), Env: []string{"HOME=" + dir}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := newComponents(cfg, slog.New(slog.DiscardHandler), observer{})
	if c != nil && err == nil {
		_ = c.close()
	}
	if err == nil || !strings.Contains(err.Error(), filepath.Base(path)) {
		t.Errorf("newComponents = %v, want an error about %s", err, path)
	}
}
