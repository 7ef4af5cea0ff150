package plan

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"github.com/robotsproxy/robotsproxy/origin"
)

// Spool groups URLs by their origin. It keeps their targets in a temporary file, in blocks of one origin each. A block
// begins with the offset of the block before of the same origin, and with its own length.
type Spool struct {
	file    *os.File
	size    int64 // of the file
	byName  map[origin.Origin]*Site
	sites   []*Site
	pending int // bytes of all Site.pending
}

// Site is an origin with some URLs in a Spool.
type Site struct {
	Origin  origin.Origin
	URLs    int64
	last    int64  // offset of its last block; noBlock if it has none
	pending []byte // targets that are not in the file, one on a line
}

const (
	noBlock     = -1
	blockHeader = 16
	// batchSize is the size of the targets in memory.
	batchSize = 8 << 20
)

// NewSpool returns an empty Spool. It must be closed.
func NewSpool() (*Spool, error) {
	f, err := os.CreateTemp("", "robotsproxy-plan-")
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	_ = os.Remove(f.Name()) // so that it is gone even if the process is killed; Windows allows it only in Close
	return &Spool{file: f, byName: make(map[origin.Origin]*Site)}, nil
}

// Close removes the file.
func (s *Spool) Close() error {
	err := s.file.Close()
	_ = os.Remove(s.file.Name())
	return err
}

// Sites returns the origins in the order in which they were first added.
func (s *Spool) Sites() []*Site { return s.sites }

// Add adds a URL: its origin and its target, which has no line feed.
func (s *Spool) Add(o origin.Origin, target string) error {
	site := s.byName[o]
	if site == nil {
		site = &Site{Origin: o, last: noBlock}
		s.byName[o] = site
		s.sites = append(s.sites, site)
	}
	site.URLs++
	site.pending = append(append(site.pending, target...), '\n')
	if s.pending += len(target) + 1; s.pending < batchSize {
		return nil
	}
	return s.Flush()
}

// Flush writes all targets to the file. It must be called after the last Add.
func (s *Spool) Flush() error {
	w := bufio.NewWriterSize(s.file, 1<<16)
	for _, site := range s.sites {
		if len(site.pending) == 0 {
			continue
		}
		var header [blockHeader]byte
		binary.LittleEndian.PutUint64(header[:], uint64(site.last))
		binary.LittleEndian.PutUint64(header[8:], uint64(len(site.pending)))
		_, _ = w.Write(header[:]) // errors of a bufio.Writer stay until Flush
		_, _ = w.Write(site.pending)
		site.last = s.size
		s.size += int64(blockHeader + len(site.pending))
		site.pending = nil
	}
	s.pending = 0
	if err := w.Flush(); err != nil {
		return fmt.Errorf("plan: writing the temporary file: %w", err)
	}
	return nil
}

// Targets yields the targets of a site, or an error at the end. Several goroutines may call it after Flush.
func (s *Spool) Targets(site *Site) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for at := site.last; at != noBlock; {
			var header [blockHeader]byte
			if _, err := s.file.ReadAt(header[:], at); err != nil {
				yield("", fmt.Errorf("plan: reading the temporary file: %w", err))
				return
			}
			length := int64(binary.LittleEndian.Uint64(header[8:]))
			if !targetsIn(io.NewSectionReader(s.file, at+blockHeader, length), yield) {
				return
			}
			at = int64(binary.LittleEndian.Uint64(header[:]))
		}
	}
}

// targetsIn yields the targets of a block. It returns false at the end of all.
func targetsIn(block io.Reader, yield func(string, error) bool) bool {
	lines := bufio.NewScanner(block)
	lines.Buffer(nil, 4*maxLine) // a target may be longer than its line, since octets are percent-encoded
	for lines.Scan() {
		if !yield(lines.Text(), nil) {
			return false
		}
	}
	if err := lines.Err(); err != nil {
		yield("", fmt.Errorf("plan: reading the temporary file: %w", err))
		return false
	}
	return true
}

// maxLine bounds the length of a line of a list, in bytes.
const maxLine = 64 << 10

// ErrLongLine is the error of a line of more than 64 KiB.
var ErrLongLine = errors.New("the line is longer than 64 KiB")

// Lines calls each for every line of a list of URLs, with its number and without its end, except for lines that are empty or
// begin with #. For a line that is too long it passes ErrLongLine. It returns the first error of each or of r.
func Lines(r io.Reader, each func(number int64, line string, err error) error) error {
	in := bufio.NewReaderSize(r, maxLine)
	for n := int64(1); ; n++ {
		line, err := in.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if failure := eachLine(n, line, long, each); failure != nil {
			return failure
		}
		if err != nil {
			return nil
		}
	}
}

func eachLine(n int64, line []byte, long bool, each func(int64, string, error) error) error {
	if long {
		return each(n, "", ErrLongLine)
	}
	if n == 1 {
		line = bytes.TrimPrefix(line, []byte("\ufeff")) // a byte order mark
	}
	text := strings.TrimSpace(string(line))
	if text == "" || text[0] == '#' {
		return nil
	}
	return each(n, text, nil)
}
