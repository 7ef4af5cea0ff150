package durable_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/durable"
)

func TestCreateOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folder", "secret")
	const writers = 20
	var won atomic.Int32
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			err := durable.Create(path, []byte(strings.Repeat(string(rune('a'+i)), 1000)), 0o600)
			switch {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, fs.ErrExist):
				t.Errorf("Create(%s): got %v, want fs.ErrExist", path, err)
			}
		})
	}
	wg.Wait()
	if got := won.Load(); got != 1 {
		t.Errorf("Create by %d at once: %d succeeded, want 1", writers, got)
	}
	data, err := os.ReadFile(path)
	if err != nil || len(data) != 1000 || strings.Trim(string(data), string(data[:1])) != "" {
		t.Errorf("ReadFile(%s): got %d octets, %v; want 1000 of one writer", path, len(data), err)
	}
	checkMode(t, path, 0o600)
	checkMode(t, filepath.Dir(path), fs.ModeDir|0o700)
	checkAlone(t, path)
}

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bundle.pem")
	for _, text := range []string{"a long first text", "short"} {
		if err := durable.Replace(path, []byte(text), 0o644); err != nil {
			t.Fatalf("Replace(%s): %v", path, err)
		}
		if got, err := os.ReadFile(path); string(got) != text || err != nil {
			t.Errorf("ReadFile(%s) = %q, %v; want %q", path, got, err, text)
		}
		checkMode(t, path, 0o644)
	}
	checkAlone(t, path)
}

func TestFaultLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	occupied := filepath.Join(dir, "occupied")
	if err := os.MkdirAll(filepath.Join(occupied, "child"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.Replace(occupied, []byte("x"), 0o600); err == nil || !strings.Contains(err.Error(), "writing "+occupied) {
		t.Errorf("Replace(a folder): got %v, want an error that names it", err)
	}
	checkAlone(t, occupied)
	below := filepath.Join(dir, "file", "below")
	if err := os.WriteFile(filepath.Dir(below), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := durable.Create(below, nil, 0o600); err == nil || !strings.Contains(err.Error(), below) {
		t.Errorf("Create(below a file): got %v, want an error that names it", err)
	}
}

func TestReadSecret(t *testing.T) {
	for _, tt := range []struct {
		mode fs.FileMode
		ok   bool
	}{
		{0o600, true},
		{0o400, true},
		{0o700, true},
		{0o640, false},
		{0o604, false},
		{0o644, false},
		{0o620, false},
		{0o602, false},
		{0o610, false},
	} {
		t.Run(fmt.Sprintf("%04o", tt.mode), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "secret")
			if err := durable.Create(path, []byte("s"), tt.mode); err != nil {
				t.Fatal(err)
			}
			got, err := durable.ReadSecret(path)
			if tt.ok && (err != nil || string(got) != "s") {
				t.Errorf("ReadSecret = %q, %v; want %q", got, err, "s")
			}
			if !tt.ok && (got != nil || err == nil || !strings.Contains(err.Error(), "chmod 600 "+path)) {
				t.Errorf("ReadSecret = %q, %v; want an error with the command that mends it", got, err)
			}
		})
	}
}

func TestReadSecretOfWhatIsNone(t *testing.T) {
	dir := t.TempDir()
	if _, err := durable.ReadSecret(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadSecret(no file): got %v, want fs.ErrNotExist", err)
	}
	if _, err := durable.ReadSecret(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("ReadSecret(a folder): got %v, want that it is not a regular file", err)
	}
}

func checkMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != want {
		t.Errorf("mode of %s: got %v, want %v", path, info.Mode(), want)
	}
}

// checkAlone fails where a temporary file was left beside path.
func checkAlone(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("folder of %s: got %v, want it alone", path, entries)
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "durable")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "token")
	fmt.Println(durable.Create(path, []byte("first"), 0o600))
	fmt.Println(errors.Is(durable.Create(path, []byte("second"), 0o600), fs.ErrExist))
	secret, err := durable.ReadSecret(path)
	fmt.Println(string(secret), err)
	// Output:
	// <nil>
	// true
	// first <nil>
}
