package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// LinesOptions configure Lines.
type LinesOptions struct {
	Path    string       // of the file, created with mode 0600 if needed; "-" is standard output
	MaxSize int64        // in bytes; a file that would grow beyond it is renamed. If zero, the file is not renamed.
	Keep    int          // number of renamed files that are kept: PATH.1 is the newest. If zero, 1
	Logger  *slog.Logger // receives failures of renaming; if nil, nothing is logged
}

// Lines are records as JSON, one object per line, for a Recorder. Written records are in the operating system's cache:
// they survive the end of the process. Several processes may write to the same file.
type Lines struct {
	options LinesOptions
	out     io.WriteCloser
	buffer  []byte
	rest    []byte // of the buffer, to be written
	stuck   bool   // the file could not be renamed
}

// OpenLines opens o.Path for appending. It removes an incomplete last line, left by a crash, unless another process
// writes to the file.
func OpenLines(o LinesOptions) (*Lines, error) {
	if o.Path == "" {
		return nil, errors.New("audit: no path for the JSON lines")
	}
	out, err := openLines(o.Path)
	if err != nil {
		return nil, err
	}
	return newLines(o, out), nil
}

func newLines(o LinesOptions, out io.WriteCloser) *Lines {
	o.Keep = max(o.Keep, 1)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Lines{options: o, out: out}
}

// Close closes the file.
func (l *Lines) Close() error { return l.out.Close() }

// write appends a batch. After an error it must be called again with the same batch: it continues at the exact byte, so
// that no line is torn.
func (l *Lines) write(_ context.Context, batch []Entry) error {
	if len(l.rest) == 0 {
		l.encode(batch)
		l.follow()
	}
	for len(l.rest) > 0 {
		n, err := l.out.Write(l.rest)
		l.rest = l.rest[n:]
		if err != nil {
			return fmt.Errorf("audit: writing JSON lines: %w", err)
		}
	}
	return nil
}

// keepBuffer is the size up to which the buffer is used again. It is larger than most batches.
const keepBuffer = 1 << 20

func (l *Lines) encode(batch []Entry) {
	if cap(l.buffer) > keepBuffer {
		l.buffer = nil
	}
	l.buffer = l.buffer[:0]
	for i := range batch {
		l.buffer = append(appendRecord(l.buffer, &batch[i].Record), '\n')
	}
	l.rest = l.buffer
}

// follow makes the rest go to the file of the path: another process may have renamed the old one. If the rest would
// exceed its size, follow renames it. If the file was moved away, the old one continues until Recorder.Reopen.
func (l *Lines) follow() {
	own, ok := l.out.(*os.File)
	if !ok || l.options.MaxSize == 0 {
		return
	}
	var err error
	switch l.place(own) {
	case elsewhere:
		err = l.reopen()
	case full:
		err = l.rotate(own)
	}
	if err != nil && !l.stuck {
		l.options.Logger.Error("the file of the records is not renamed; it continues", "path", l.options.Path, "err", err)
	}
	l.stuck = err != nil
}

// The places of a file.
const (
	here      = iota
	elsewhere // the path has another file
	full      // the path has this file, without room for the rest
)

func (l *Lines) place(own *os.File) int {
	now, err := os.Stat(l.options.Path)
	if l.stuck && errors.Is(err, fs.ErrNotExist) {
		return elsewhere // the file was renamed, and the new one could not be opened
	}
	if err != nil || !now.Mode().IsRegular() {
		return here
	}
	info, err := own.Stat()
	switch {
	case err != nil || !info.Mode().IsRegular():
		return here
	case !os.SameFile(now, info):
		return elsewhere
	case info.Size() > 0 && info.Size()+int64(len(l.rest)) > l.options.MaxSize:
		return full
	}
	return here
}

// rotate renames the file and opens a new one. A lock on the folder makes other processes wait that would do the same.
func (l *Lines) rotate(own *os.File) error {
	folder, err := os.Open(filepath.Dir(l.options.Path))
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := lockExclusive(folder); err != nil {
		return err
	}
	if l.place(own) == full {
		if err := l.rename(); err != nil {
			return err
		}
	}
	return l.reopen()
}

// rename renames the file to PATH.1, and the older ones to the next number. The oldest one is replaced.
func (l *Lines) rename() error {
	for n := l.options.Keep - 1; n >= 0; n-- {
		err := os.Rename(l.numbered(n), l.numbered(n+1))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (l *Lines) numbered(n int) string {
	if n == 0 {
		return l.options.Path
	}
	return fmt.Sprintf("%s.%d", l.options.Path, n)
}

// reopen continues in the file that the path has now.
func (l *Lines) reopen() error {
	out, err := openLines(l.options.Path)
	if err != nil {
		return err
	}
	return l.swap(out)
}

// swap replaces the file.
func (l *Lines) swap(out io.WriteCloser) error {
	old := l.out
	l.out = out
	if err := old.Close(); err != nil {
		return fmt.Errorf("audit: closing the old file of the records: %w", err)
	}
	return nil
}

func openLines(path string) (io.WriteCloser, error) {
	if path == "-" {
		return stdout{}, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("audit: making the folder of the records: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("audit: opening the records: %w", err)
	}
	if err := repair(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("audit: mending the last line of %s: %w", path, err)
	}
	return f, nil
}

// stdout writes to standard output. Its Close does not close standard output.
type stdout struct{}

// atomicWrite is the length up to which a pipe does not mix a write with those of other processes (PIPE_BUF in Linux).
const atomicWrite = 4096

// Write writes whole lines, up to atomicWrite bytes at a time, because two processes write to one pipe during an
// upgrade.
func (stdout) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var wrote int
		wrote, err = os.Stdout.Write(firstLines(b[n:], atomicWrite))
		n += wrote
	}
	return n, err
}

func (stdout) Close() error { return nil }

// firstLines returns the whole lines at the start of b that have at most size bytes together, or the first line if that
// is longer.
func firstLines(b []byte, size int) []byte {
	if len(b) <= size {
		return b
	}
	end := bytes.LastIndexByte(b[:size], '\n')
	if end < 0 {
		end = bytes.IndexByte(b, '\n')
	}
	if end < 0 {
		return b
	}
	return b[:end+1]
}

// repair truncates f after its last complete line. Every process that has the file open holds a shared lock, so with
// the exclusive lock no other process can be writing a line.
func repair(f *os.File) error {
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	alone, err := tryLockExclusive(f)
	if err != nil || !alone {
		return err
	}
	end, err := lastLineEnd(f)
	if err != nil {
		return err
	}
	if err := f.Truncate(end); err != nil {
		return err
	}
	return lockShared(f)
}

// lastLineEnd returns the offset after the last line feed. It reads backwards in blocks, so its cost depends on the
// length of the last line, not on the size of the file.
func lastLineEnd(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	block := make([]byte, 4096)
	for end := info.Size(); end > 0; {
		start := max(0, end-int64(len(block)))
		n, err := f.ReadAt(block[:end-start], start)
		if err != nil && err != io.EOF {
			return 0, err
		}
		if i := bytes.LastIndexByte(block[:n], '\n'); i >= 0 {
			return start + int64(i) + 1, nil
		}
		end = start
	}
	return 0, nil
}
