package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// CheckFolder returns an error if users other than the owner can write to the folder dir, since they could replace its
// files. It also returns an error if they may have done so before: if a file in dir that matches one of the patterns
// (filepath.Match) is a symbolic link or another irregular file, or belongs to a user other than the folder's owner,
// the user of this process and root. Each error ends with the command that corrects it. A folder that does not exist is
// not an error.
//
// On Windows the mode does not contain the access rights, and CheckFolder refuses nothing.
func CheckFolder(dir string, patterns ...string) error {
	folder, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && runtime.GOOS == "windows" {
		return nil
	}
	if err != nil {
		return err
	}
	if !folder.IsDir() {
		return fmt.Errorf("%s is not a folder", dir)
	}
	if folder.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("users other than its owner may write to the folder %s (mode %04o) and replace its files; run: "+
			"chmod go-w %s", dir, octal(folder.Mode()), dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		matches := func(pattern string) bool { ok, _ := filepath.Match(pattern, e.Name()); return ok }
		if !slices.ContainsFunc(patterns, matches) {
			continue
		}
		if err := checkFile(filepath.Join(dir, e.Name()), folder); err != nil {
			return err
		}
	}
	return nil
}

// checkFile returns an error if another user may have put the file at path into folder.
func checkFile(path string, folder fs.FileInfo) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // another process has just removed it
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link, which others may have made; put the file itself there, or run: rm %s",
			path, path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file; run: rm -r %s", path, path)
	}
	owner, known := ownerOf(info)
	if want, _ := ownerOf(folder); known && owner != want && owner != os.Geteuid() && owner != 0 {
		return fmt.Errorf("%s belongs to the user %d, and its folder to the user %d; if you trust the file run: chown %d %s",
			path, owner, want, want, path)
	}
	return nil
}

// CheckOwner returns an error if the folder dir belongs to a user other than root and the user of this process. A
// folder that does not exist is not an error.
func CheckOwner(dir string) error {
	folder, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	user := os.Geteuid()
	if owner, known := ownerOf(folder); known && owner != user && owner != 0 {
		return fmt.Errorf("the folder %s (mode %04o) belongs to the user %d, who may write to it; run as that user, or "+
			"run: chown -R %d %s", dir, octal(folder.Mode()), owner, user, dir)
	}
	return nil
}

// octal returns the mode as the argument of chmod.
func octal(mode fs.FileMode) fs.FileMode {
	n := mode.Perm()
	if mode&fs.ModeSticky != 0 {
		n |= 0o1000
	}
	return n
}
