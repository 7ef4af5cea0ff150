package rules

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"iter"
	"unicode/utf16"
	"unicode/utf8"
)

// maxLine is the number of bytes of a line that are read; the rest of the line is ignored. It is Google's limit
// rounded to a power of two, and eight times the longest URL that browsers are known to send.
const maxLine = 16 << 10

// Lines returns the lines of a robots.txt file with their numbers, as Parse reads them with the same Options: in UTF-8,
// without a byte order mark, split at CR, LF and CRLF (RFC 9309 section 2.2), and the first bytes of a line that is
// longer than the dialect reads. A line is valid until the next one.
func Lines(body []byte, opts Options) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		lines, _ := opts.lines(body)
		for lines.next() && yield(lines.number, lines.line) {
		}
	}
}

// lines returns a reader of the lines of body, and whether it omits any.
func (o Options) lines(body []byte) (lines lineReader, truncated bool) {
	s := o.Dialect.switches()
	text, truncated := readableIn(body, o.maxSize(), o.decode)
	switch {
	case s.partialMark && !marked(body):
		text = withoutPartialMark(text)
	case s.keys == keysLenient && !s.partialMark:
		text = withoutStrayBytes(text)
	}
	return lineReader{rest: text, max: s.maxLine}, truncated
}

// readable returns the lines of body that end within its first size bytes, in UTF-8, and whether it omits any. It also
// reads the next byte, which may be the end of the last line.
func readable(body []byte, size int) (text []byte, truncated bool) {
	return readableIn(body, size, decode)
}

func readableIn(body []byte, size int, decode func([]byte) []byte) (text []byte, truncated bool) {
	if len(body) <= size {
		return decode(body), false
	}
	text = decode(body[:size+1])
	return text[:bytes.LastIndexAny(text, "\r\n")+1], true
}

// decode removes a byte order mark, and converts UTF-16 with a mark to UTF-8. The RFC requires UTF-8 (2.2) and does not
// mention marks. But editors write them, and a mark that is read as text hides the first line of the file.
func decode(text []byte) []byte {
	switch {
	case bytes.HasPrefix(text, []byte("\xEF\xBB\xBF")):
		return text[3:]
	case markedUTF16(text):
		return fromUTF16(text[2:], byteOrder(text))
	case byteOrder(text) != nil:
		return text[2:]
	}
	return text
}

// byteOrder returns the byte order of a UTF-16 mark at the beginning of text, or nil.
func byteOrder(text []byte) binary.ByteOrder {
	switch {
	case bytes.HasPrefix(text, []byte("\xFF\xFE")):
		return binary.LittleEndian
	case bytes.HasPrefix(text, []byte("\xFE\xFF")):
		return binary.BigEndian
	}
	return nil
}

// markedUTF16 reports whether text begins with a mark of UTF-16 and continues in UTF-16. Otherwise only the mark is
// removed: two stray bytes must not disable the rules of a file.
func markedUTF16(text []byte) bool {
	order := byteOrder(text)
	return order != nil && isUTF16(text[2:], order)
}

// isUTF16 reports whether text may be in UTF-16: at least an eighth of its characters would be Latin, as in the names
// of fields.
func isUTF16(text []byte, order binary.ByteOrder) bool {
	latin, units := 0, len(text)/2
	for i := range units {
		if order.Uint16(text[2*i:]) < 0x100 {
			latin++
		}
	}
	return latin*8 >= units
}

func fromUTF16(text []byte, order binary.ByteOrder) []byte {
	units := make([]uint16, len(text)/2)
	for i := range units {
		units[i] = order.Uint16(text[2*i:])
	}
	out := make([]byte, 0, len(units))
	for _, r := range utf16.Decode(units) {
		out = utf8.AppendRune(out, r)
	}
	return out
}

// lineReader splits a text at CR, LF and CRLF (2.2), in one pass.
type lineReader struct {
	rest   []byte
	max    int // bytes of a line that are read; if zero, maxLine
	lf, cr int // index in rest of the next LF and CR, or its end; kept to search the file once, not once per line
	number int
	line   []byte
}

// next advances to the next line, and reports whether there is one.
func (r *lineReader) next() bool {
	if len(r.rest) == 0 {
		return false
	}
	if r.lf <= 0 {
		r.lf = indexOrEnd(r.rest, '\n')
	}
	if r.number == 0 || r.cr < 0 {
		r.cr = indexOrEnd(r.rest, '\r')
	}
	end := min(r.lf, r.cr)
	skip := end + 1
	if r.cr+1 == r.lf {
		skip++
	}
	if r.line = r.rest[:end]; end > maxLine {
		r.line = cutLine(r.line, cmp.Or(r.max, maxLine))
	}
	skip = min(skip, len(r.rest))
	r.rest = r.rest[skip:]
	r.lf -= skip
	r.cr -= skip
	r.number++
	return true
}

func indexOrEnd(b []byte, c byte) int {
	if i := bytes.IndexByte(b, c); i >= 0 {
		return i
	}
	return len(b)
}

// cutLine returns at most size bytes of line. It removes an incomplete escape at the end, which would be read as a "%"
// and match nothing.
func cutLine(line []byte, size int) []byte {
	if len(line) <= size {
		return line
	}
	line = line[:size]
	if i := bytes.LastIndexByte(line, '%'); i >= size-2 {
		line = line[:i]
	}
	return line
}
