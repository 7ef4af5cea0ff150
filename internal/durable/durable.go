// Package durable keeps small files that are whole or not there, whatever moment the machine stops at, and reads those
// that nobody else may read.
//
//	err := durable.Create("ca-key.pem", key, 0o600) // errors.Is(err, fs.ErrExist): somebody was first, and theirs stays
//	key, err = durable.ReadSecret("ca-key.pem")     // refused where others than the owner may read it
//
// Both ways to write put the data into a temporary file of the same folder, with its final mode from the first moment,
// bring it to the disk, and only then give it its name. Create is for what must never change once it is there, such as
// keys; Replace is for what may. Neither is for large files, and neither locks anything: of two writers at once one is
// whole. CheckFolder finds out whether others could have written to the folder.
package durable

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Create writes data to path unless something has that name, and makes the folder (mode 0700) where there is none. Of
// several callers at once, in one process or in many, exactly one succeeds; the others get fs.ErrExist.
//
// It needs a file system with hard links: a link, unlike a rename, never takes the place of what is there.
func Create(path string, data []byte, mode fs.FileMode) error {
	return write(path, data, mode, os.Link)
}

// Replace writes data to path, in the place of what has that name. A reader sees all of the old file or all of the new.
func Replace(path string, data []byte, mode fs.FileMode) error {
	return write(path, data, mode, os.Rename)
}

// write gives its name to a file that is complete and on the disk, by place.
func write(path string, data []byte, mode fs.FileMode, place func(from, to string) error) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the folder of %s: %w", path, err)
	}
	temp, err := writeTemp(dir, "."+filepath.Base(path)+".*", data, mode)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer os.Remove(temp) // a second name after a link, gone after a rename, left over after a fault
	if err := place(temp, path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("writing %s: bringing its folder to the disk: %w", path, err)
	}
	return nil
}

// writeTemp makes a file of mode 0600 that is complete and on the disk, and gives it its mode before it has its name.
func writeTemp(dir, pattern string, data []byte, mode fs.FileMode) (name string, err error) {
	f, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return "", err
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err := f.Chmod(mode); err != nil {
		return "", err
	}
	if _, err := f.Write(data); err != nil {
		return "", err
	}
	return f.Name(), f.Sync()
}

// syncDir brings a new name to the disk. Windows has no such act: there the name is part of the file's own journal.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// ReadSecret reads a file whose mode lets only its owner at it, and refuses any other with the command that mends it.
// The mode is that of the very file that is read, so it cannot change between the look and the read. Windows keeps
// rights elsewhere than in the mode; there nothing is refused.
func ReadSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("reading %s: it is not a regular file", path)
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("reading %s: others than its owner may use it (mode %04o); run: chmod 600 %s", path, perm, path)
	}
	return io.ReadAll(f)
}
