package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// TestDataDirOfOthers checks that no command uses a data directory that others may write to, and that the command in
// the error message fixes it.
func TestDataDirOfOthers(t *testing.T) {
	long(t)
	for _, mode := range []fs.FileMode{0o777, 0o775, 0o770, 0o702, 0o777 | fs.ModeSticky} {
		for _, command := range []string{"serve", "run -- true", "env", "ca path", "ca show", "ca rotate", "cache ls", "validate"} {
			dir := filepath.Join(t.TempDir(), "data")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, mode); err != nil {
				t.Fatal(err)
			}
			out, err := commandWith(dir, command)
			bits := mode.Perm()
			if mode&fs.ModeSticky != 0 {
				bits |= 0o1000
			}
			want := fmt.Sprintf("write to the folder %s (mode %04o)", dir, bits)
			var exit *exec.ExitError
			status := map[bool]int{false: exitUsage, true: exitFailed}[strings.HasPrefix(command, "run")]
			if !errors.As(err, &exit) || exit.ExitCode() != status || !strings.Contains(out, want) || !strings.Contains(out, "run: chmod go-w "+dir+"\n") {
				t.Errorf("%s with mode %v: %v, %s; want the exit status %d and %q", command, mode, err, out, status, want)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
				t.Errorf("%s with mode %v left %v, %v", command, mode, entries, err)
			}
			if err := exec.Command("chmod", "go-w", dir).Run(); err != nil {
				t.Fatal(err)
			}
			if out, err := commandWith(dir, "env"); err != nil {
				t.Errorf("after chmod go-w: %v, %s", err, out)
			}
		}
	}
}

// commandWith runs a command line with a data directory, on free ports.
func commandWith(dir, line string) (string, error) {
	words := strings.Fields(line)
	at := len(words)
	if i := slices.Index(words, "--"); i >= 0 {
		at = i
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) // for serve, if it starts
	defer cancel()
	cmd := exec.CommandContext(ctx, binaryPath, slices.Insert(words, at, "--data-dir", dir)...)
	cmd.Env = append(os.Environ(), "ROBOTSPROXY_LISTEN=127.0.0.1:0", "ROBOTSPROXY_ADMIN_LISTEN=127.0.0.1:0")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestPlantedFiles checks that files that others have put into the data directory are neither read nor written,
// whatever their mode is.
func TestPlantedFiles(t *testing.T) {
	const text = "this is not yours\n"
	for _, name := range []string{"admin.token", "audit.jsonl", "ca.pem", "ca-key.pem", "ca-bundle.pem", "state.db", "state.db-wal", "state.db-shm", "state.db-journal", "truststore.p12", "wgetrc"} {
		for _, kind := range []string{"link", "link to nothing", "file of another user"} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "data")
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				victim, path := filepath.Join(filepath.Dir(dir), "victim"), filepath.Join(dir, name)
				if kind != "link to nothing" {
					if err := os.WriteFile(victim, []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				plant := func() error { return os.Symlink(victim, path) }
				if kind == "file of another user" {
					if os.Geteuid() != 0 {
						t.Skip("only root can give files away")
					}
					plant = func() error {
						return errors.Join(os.Rename(victim, path), os.Chown(path, 65534, 65534), os.Symlink(path, victim))
					}
				}
				if err := plant(); err != nil {
					t.Fatal(err)
				}
				out, err := commandWith(dir, "serve")
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.ExitCode() != exitUsage || !strings.Contains(out, path) {
					t.Errorf("serve: %v, %s; want an error about %s", err, out, path)
				}
				data, err := os.ReadFile(victim)
				if kind == "link to nothing" {
					if !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("the link was followed: %v", err)
					}
				} else if string(data) != text {
					t.Errorf("the file is now %q, %v", data, err)
				}
			})
		}
	}
}

// TestDataFiles checks that every file that the program creates in the data directory is in dataFiles.
func TestDataFiles(t *testing.T) {
	s := startSite(t, robotstest.New(t), "\n")
	for _, command := range []string{"env", "ca rotate --now", "ca rotate", "env"} {
		if out, err := commandWith(s.dir, command); err != nil {
			t.Errorf("%s: %v, %s", command, err, out)
		}
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.ContainsFunc(dataFiles, func(p string) bool { ok, _ := filepath.Match(p, e.Name()); return ok }) {
			t.Errorf("%s is none of dataFiles", e.Name())
		}
	}
	if len(entries) < len(dataFiles) {
		t.Errorf("the data directory holds only %v", entries)
	}
}

// TestDataDirOfAnotherUser checks that a proxy rejects a folder of another user, and that root may manage the CA there.
func TestDataDirOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give folders away")
	}
	dir := filepath.Join(t.TempDir(), "data")
	if out, err := commandWith(dir, "env"); err != nil {
		t.Fatalf("env: %v, %s", err, out)
	}
	if err := exec.Command("chown", "-R", "65534", dir).Run(); err != nil {
		t.Fatal(err)
	}
	out, err := commandWith(dir, "serve")
	if err == nil || !strings.Contains(out, "the folder "+dir+" (mode 0700) belongs to the user 65534") {
		t.Errorf("serve: %v, %s", err, out)
	}
	if out, err := commandWith(dir, "ca show"); err != nil {
		t.Errorf("ca show: %v, %s", err, out)
	}
}
