//go:build unix

package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/durable"
)

// Root may change a file of a proxy that runs as another user: that one can still read it.
func TestUpdateKeepsModeAndOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := durable.Update(path, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Update of no file: %v", err)
	}
	for _, file := range []struct {
		mode     fs.FileMode
		uid, gid int
	}{
		{0o600, os.Geteuid(), os.Getegid()},
		{0o600, 65534, 65534},
		{0o640, 0, 65534}, // as Kubernetes gives a secret to a group
	} {
		if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Chown(path, file.uid, file.gid), os.Chmod(path, file.mode)); err != nil {
			if os.Geteuid() != 0 {
				t.Skip("only root can give files to another user")
			}
			t.Fatal(err)
		}
		if err := durable.Update(path, []byte("new")); err != nil {
			t.Fatal(err)
		}
		checkMode(t, path, file.mode)
		checkAlone(t, path)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if stat := info.Sys().(*syscall.Stat_t); int(stat.Uid) != file.uid || int(stat.Gid) != file.gid {
			t.Errorf("Update gave a file of %d:%d to %d:%d", file.uid, file.gid, stat.Uid, stat.Gid)
		}
		if text, err := os.ReadFile(path); string(text) != "new" || err != nil {
			t.Errorf("after Update the file is %q, %v", text, err)
		}
	}
}
