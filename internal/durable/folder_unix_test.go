//go:build unix

package durable_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/durable"
)

func TestCheckFolder(t *testing.T) {
	for mode, want := range map[fs.FileMode]string{
		0o700: "", 0o755: "", 0o500: "",
		0o777: "(mode 0777)", 0o775: "(mode 0775)", 0o720: "(mode 0720)", 0o702: "(mode 0702)", 0o777 | fs.ModeSticky: "(mode 1777)",
	} {
		dir := filepath.Join(t.TempDir(), "data")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		err := durable.CheckFolder(dir)
		if want == "" {
			if err != nil {
				t.Errorf("mode %v: %v", mode, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "run: chmod go-w "+dir) {
			t.Errorf("mode %v: %v, want an error with %q", mode, err, want)
		}
	}
	if err := durable.CheckFolder(filepath.Join(t.TempDir(), "nowhere"), "*"); err != nil {
		t.Errorf("a folder that does not exist: %v", err)
	}
	if err := durable.CheckFolder(os.Args[0]); err == nil {
		t.Error("a file is no folder, and was accepted")
	}
}

func TestCheckFolderFiles(t *testing.T) {
	for _, row := range []struct {
		name string
		make func(path string) error
		want string
	}{
		{"a file", func(path string) error { return os.WriteFile(path, nil, 0o600) }, ""},
		{"a link", func(path string) error { return os.Symlink("/etc/passwd", path) }, "symbolic link"},
		{"a link to nothing", func(path string) error { return os.Symlink("nowhere", path) }, "symbolic link"},
		{"a folder", func(path string) error { return os.Mkdir(path, 0o700) }, "not a regular file"},
		{"a named pipe", func(path string) error { return syscall.Mkfifo(path, 0o600) }, "not a regular file"},
		{"a file of another user", func(path string) error {
			if os.Geteuid() != 0 {
				t.Skip("only root can give files away")
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Chown(path, 65534, 65534)
		}, "belongs to the user 65534"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "with * and [")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "state.db-wal")
			if err := row.make(path); err != nil {
				t.Fatal(err)
			}
			err := durable.CheckFolder(dir, "ca.pem", "state.db*")
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("CheckFolder = %v, want %q", err, row.want)
			}
			if err := durable.CheckFolder(dir, "ca.pem"); err != nil {
				t.Errorf("CheckFolder for other files = %v", err)
			}
		})
	}
}

func TestCheckOwner(t *testing.T) {
	dir := t.TempDir()
	if err := durable.CheckOwner(dir); err != nil {
		t.Errorf("a folder of our own: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give folders away")
	}
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if err := durable.CheckOwner(dir); err == nil || !strings.Contains(err.Error(), "belongs to the user 65534") {
		t.Errorf("a folder of another user: %v", err)
	}
}
