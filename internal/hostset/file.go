package hostset

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Fault is a line of a file that is not a pattern.
type Fault struct {
	Line int // from 1
	Text string
}

// FileError lists the faults of a file.
type FileError struct {
	Path   string
	Faults []Fault // the first few
	Count  int     // of all faults
}

// Error returns one line for each fault, in the form that editors read, after a heading if there are several.
func (e *FileError) Error() string {
	var b strings.Builder
	if e.Count > 1 {
		fmt.Fprintf(&b, "%d faults", e.Count)
		if e.Count > len(e.Faults) {
			fmt.Fprintf(&b, ", of which the first %d are", len(e.Faults))
		}
		b.WriteByte('\n')
	}
	for i, f := range e.Faults {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s:%d: %s", e.Path, f.Line, f.Text)
	}
	return b.String()
}

const (
	maxFaults = 10        // that a FileError lists
	maxLine   = 4 << 10   // bytes of a line without its comment
	maxFile   = 256 << 20 // bytes: about 10 million patterns, of which each has its place in 32 bits
)

// Load reads a file with one pattern on each line, in any form that Canonical accepts. It ignores blank lines, a "#" and
// the text after it, spaces around a pattern, a byte order mark, and the CR of a line end. If a line is not a pattern,
// Load returns a FileError and no Set.
func Load(path string) (*Set, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // opening a named pipe would wait for a writer
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s has more than %d MiB", path, maxFile>>20)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := &Set{names: make([]byte, 0, info.Size()+1)} // a name takes as much as its line
	r := &reader{set: s, lines: bufio.NewReaderSize(io.LimitReader(f, maxFile), maxLine), faults: FileError{Path: path}}
	if err := r.read(); err != nil {
		return nil, err
	}
	s.index()
	return s, nil
}

// reader adds the patterns of a file to a Set.
type reader struct {
	set    *Set
	lines  *bufio.Reader
	line   int // number of the current line
	faults FileError
}

func (r *reader) read() error {
	for {
		line, long, err := r.lines.ReadLine()
		switch {
		case err == io.EOF && r.faults.Count > 0:
			return &r.faults
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		r.line++
		r.addLine(line, long)
		if err := r.skip(long); err != nil {
			return err
		}
	}
}

// addLine adds the pattern of a line. If long is true, line is only the beginning.
func (r *reader) addLine(line []byte, long bool) {
	if r.line == 1 {
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	line, _, commented := bytes.Cut(line, []byte("#"))
	if long && !commented {
		r.fault(fmt.Sprintf("the line is longer than %d bytes", maxLine))
		return
	}
	pattern := string(bytes.TrimSpace(line))
	if pattern == "" {
		return
	}
	if err := r.set.add(pattern); err != nil {
		r.fault(fmt.Sprintf("found %.60q, expected a host such as a.example, or *.example for the hosts below it%s",
			pattern, hint(pattern, err)))
	}
}

// hint returns the mistake in a pattern that Canonical refuses with err.
func hint(pattern string, err error) string {
	switch {
	case strings.ContainsAny(pattern, "/^|"):
		return "; write the host alone, without scheme, port and path"
	case strings.ContainsAny(pattern, " \t"):
		return "; write one host on a line"
	case strings.HasPrefix(pattern, "."):
		return "; write *" + pattern
	}
	if cause := errors.Unwrap(err); cause != nil {
		err = cause // without the host, which the fault has
	}
	return "; " + strings.TrimPrefix(err.Error(), "origin: ")
}

func (r *reader) fault(text string) {
	r.faults.Count++
	if len(r.faults.Faults) < maxFaults {
		r.faults.Faults = append(r.faults.Faults, Fault{r.line, text})
	}
}

// skip reads to the end of a line that is longer than the buffer.
func (r *reader) skip(long bool) error {
	for long {
		var err error
		if _, long, err = r.lines.ReadLine(); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}
