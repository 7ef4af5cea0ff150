package export

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// File writes a file that is complete or absent: write writes it beside path under another name, and at the end it is
// renamed. Only its owner may read it. An existing file is replaced only if replace is set; otherwise the error is
// fs.ErrExist. If write or the disk fails, File leaves nothing.
func File(path string, replace bool, write func(io.Writer) error) (err error) {
	if err := checkAbsent(path, replace); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err := errors.Join(fill(f, write), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := checkAbsent(path, replace); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

func fill(f *os.File, write func(io.Writer) error) error {
	out := bufio.NewWriterSize(f, 1<<20)
	if err := write(out); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return f.Sync()
}

// checkAbsent refuses to replace what is no regular file, and any file unless replace is set.
func checkAbsent(path string, replace bool) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", path)
	case !replace:
		return &fs.PathError{Op: "writing", Path: path, Err: fs.ErrExist}
	}
	return nil
}
