// Package durable writes small files that are either complete or absent, even if the machine crashes, and reads secret
// files.
//
//	err := durable.Create("ca-key.pem", key, 0o600) // errors.Is(err, fs.ErrExist): the file exists and is unchanged
//	key, err = durable.ReadSecret("ca-key.pem")     // refuses a file that other users can read
//
// Create and Replace write a temporary file in the same folder, with its final mode, sync it, and then link or rename
// it. Create is for files that must never change; Replace is for all others, and Update for those that may belong to
// another user. They are not for large
// files, and they take no locks: of two concurrent writes one is kept, complete. CheckFolder checks whether other users
// could have written to the folder.
package durable

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Create writes data to path. It returns fs.ErrExist if path exists. It makes the folder (mode 0700) if needed. Of
// several concurrent calls, in one or more processes, exactly one succeeds; the others get fs.ErrExist.
//
// It needs a file system with hard links: unlike a rename, a link never replaces an existing file.
func Create(path string, data []byte, mode fs.FileMode) error {
	return write(path, data, mode, os.Link)
}

// Replace writes data to path and replaces an existing file. Readers see the complete old file or the complete new one.
func Replace(path string, data []byte, mode fs.FileMode) error {
	return write(path, data, mode, os.Rename)
}

// Update is Replace for a file that exists and keeps its mode, its owner and its group.
func Update(path string, data []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return write(path, data, info.Mode().Perm(), func(from, to string) error {
		if err := keepOwner(from, info); err != nil {
			return err
		}
		return os.Rename(from, to)
	})
}

// write writes and syncs a temporary file, and calls place to name it path.
func write(path string, data []byte, mode fs.FileMode, place func(from, to string) error) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the folder of %s: %w", path, err)
	}
	temp, err := writeTemp(dir, "."+filepath.Base(path)+".*", data, mode)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer os.Remove(temp) // the second name after a link, or the file after an error; absent after a rename
	if err := place(temp, path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("writing %s: bringing its folder to the disk: %w", path, err)
	}
	return nil
}

// writeTemp makes a complete, synced temporary file. The file has mode 0600 until writeTemp sets mode, before the
// write.
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

// syncDir syncs the directory entry of a new file. Windows cannot sync a directory; there the file system journals
// names.
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

// ReadSecret reads a file that only its owner can access, or that root has given to the group of this process. It refuses
// other modes, with the command that corrects them.
// It checks the mode of the open file, so that the file cannot change between check and read. On Windows the mode does
// not contain the access rights, and ReadSecret refuses nothing.
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
	if perm := info.Mode().Perm(); perm&0o077 != 0 && runtime.GOOS != "windows" && !givenByRoot(info) {
		return nil, fmt.Errorf("reading %s: users other than its owner may use it (mode %04o); run: chmod 600 %s",
			path, perm, path)
	}
	return io.ReadAll(f)
}

// givenByRoot reports whether the owner of a file is root, and this process can only read it, as a member of its group.
// Kubernetes mounts secrets in this way for a process that is not root.
func givenByRoot(info fs.FileInfo) bool {
	owner, known := ownerOf(info)
	return known && owner == 0 && os.Geteuid() != 0 && info.Mode().Perm()&0o037 == 0
}
