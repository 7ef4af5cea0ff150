//go:build unix

package hostset

import (
	"path/filepath"
	"syscall"
	"testing"
)

// Opening a named pipe would wait for a writer.
func TestLoadRefusesPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	if s, err := Load(pipe); err == nil {
		t.Errorf("Load of a named pipe has %d patterns and no error", s.Len())
	}
}
