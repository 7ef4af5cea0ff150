package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// ErrUnavailable is returned by Begin while records cannot be written and the buffer is full.
var ErrUnavailable = errors.New("audit: records cannot be written and the buffer is full")

const (
	flushEvery = 50 * time.Millisecond // longest time that a finished record is in memory only
	flushBytes = 256 << 10             // written at once: a write costs the scheduler more than its bytes
	retryEvery = time.Second           // after a failed write
)

// JSONLOptions configure a JSONL.
type JSONLOptions struct {
	Path     string       // of the file, created with mode 0600 if needed; "-" is standard output
	Buffer   int          // maximum number of records begun or unwritten at once; if zero, 100,000
	Continue bool         // if the buffer is full, go on unrecorded, counted by Lost; if false, Begin refuses
	Logger   *slog.Logger // receives failures and recoveries of writing; if nil, nothing is logged
}

// JSONL writes records as JSON, one object per line, in batches of at most 50 ms. Written records are in the operating
// system's cache: they survive the end of the process. If the disk fails, records wait in memory, up to the buffer, and
// are written when it works again.
type JSONL struct {
	options JSONLOptions
	out     io.WriteCloser

	mu      sync.Mutex // guards the fields below
	pending []byte
	spare   []byte // second buffer: one is filled while the other is written
	records int    // begun and not yet written
	ended   int    // of those, ended
	taken   int    // of those, taken by writeAll
	lost    int64  // ended and dropped
	proceed bool   // see JSONLOptions.Continue
	closed  bool

	wake chan struct{} // signals that records are pending
	next chan reopening
	quit chan struct{} // closed by Close
	done chan struct{} // closed by writeAll
}

// OpenJSONL opens o.Path for appending. It removes an incomplete last line, left by a crash, unless another process
// writes to the file.
func OpenJSONL(o JSONLOptions) (*JSONL, error) {
	if o.Path == "" {
		return nil, errors.New("audit: no path for the JSON lines")
	}
	out, err := openLines(o.Path)
	if err != nil {
		return nil, err
	}
	return newJSONL(o, out), nil
}

func newJSONL(o JSONLOptions, out io.WriteCloser) *JSONL {
	if o.Buffer == 0 {
		o.Buffer = 100_000
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w := &JSONL{
		options: o, proceed: o.Continue, out: out, wake: make(chan struct{}, 1), next: make(chan reopening),
		quit: make(chan struct{}), done: make(chan struct{}),
	}
	go w.writeAll()
	return w
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

// Begin reserves a place for r. It returns ErrUnavailable if no more records can be kept.
func (w *JSONL) Begin(_ context.Context, _ *Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.records >= w.options.Buffer && !w.proceed {
		return ErrUnavailable
	}
	w.records++
	return nil
}

// End writes r, which is complete. The caller must end each begun record once.
func (w *JSONL) End(r *Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.ended >= w.options.Buffer {
		w.records--
		w.lost++
		return
	}
	w.ended++
	w.pending = append(appendRecord(w.pending, r), '\n')
	if w.ended-w.taken == 1 || len(w.pending) >= flushBytes {
		select {
		case w.wake <- struct{}{}:
		default: // already signaled
		}
	}
}

// SetContinue replaces JSONLOptions.Continue.
func (w *JSONL) SetContinue(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.proceed = on
}

// Lost returns the number of records that were dropped.
func (w *JSONL) Lost() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// Close writes the pending records and closes the file. It returns an error if records were begun but not written.
func (w *JSONL) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	w.mu.Unlock()
	close(w.quit)
	<-w.done
	err := w.out.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.records > 0 { // begun, and not ended or not written
		return fmt.Errorf("audit: %d records could not be written to %s", w.records, w.options.Path)
	}
	return err
}

// writeAll writes all records, in one goroutine. It waits for a record, and then for a batch.
func (w *JSONL) writeAll() {
	defer close(w.done)
	for {
		select {
		case <-w.wake:
			w.gather()
			w.flush()
		case r := <-w.next:
			w.flush()
			r.done <- w.swap(r.out)
		case <-w.quit:
			w.flush()
			return
		}
	}
}

// reopening asks writeAll to continue in another file.
type reopening struct {
	out  io.WriteCloser
	done chan error
}

// Reopen continues in a new file of the same path, after the old one was renamed. The records that have ended are
// written to the old file first, and then it is closed, so that no record is lost or torn. If the new file cannot be
// opened, the old one continues. While the old one cannot be written, Reopen waits, at most until Close.
func (w *JSONL) Reopen() error {
	out, err := openLines(w.options.Path)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	select {
	case w.next <- reopening{out, done}:
		return <-done
	case <-w.done:
		return errors.Join(errors.New("audit: the records are closed"), out.Close())
	}
}

// swap replaces the file.
func (w *JSONL) swap(out io.WriteCloser) error {
	old := w.out
	w.out = out
	if err := old.Close(); err != nil {
		return fmt.Errorf("audit: closing the old file of the records: %w", err)
	}
	return nil
}

// gather waits until a batch is large enough, or for flushEvery.
func (w *JSONL) gather() {
	timer := time.NewTimer(flushEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.wake: // the batch is large
	case <-w.quit:
	}
}

// flush writes all pending records. After an error it continues at the exact byte, so that no line is torn. It stops
// trying only during Close.
func (w *JSONL) flush() {
	for {
		batch, n := w.take()
		if n == 0 {
			return
		}
		failed, whole := false, batch
		for len(batch) > 0 {
			wrote, err := w.out.Write(batch)
			batch = batch[wrote:]
			if err == nil {
				continue
			}
			if !failed {
				failed = true
				w.options.Logger.Error("records cannot be written; they wait in memory", "path", w.options.Path, "err", err)
			}
			if !w.pause() {
				return
			}
		}
		if failed {
			w.options.Logger.Info("records are written again", "path", w.options.Path, "records", n)
		}
		w.written(n, whole)
	}
}

// pause waits before a write is retried. It reports false if Close was called.
func (w *JSONL) pause() bool {
	select {
	case <-time.After(retryEvery):
		return true
	case <-w.quit:
		return false
	}
}

// take removes the pending lines and returns them with their number. They count as records until they are written.
func (w *JSONL) take() (batch []byte, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n = w.ended - w.taken
	w.taken = w.ended
	batch, w.pending, w.spare = w.pending, w.spare[:0], nil
	return batch, n
}

// written subtracts n written records and reuses their buffer, unless it grew too large while the disk failed.
func (w *JSONL) written(n int, buffer []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cap(buffer) <= 4*flushBytes {
		w.spare = buffer
	}
	w.records -= n
	w.ended -= n
	w.taken -= n
}
