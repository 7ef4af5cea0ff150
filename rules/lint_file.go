package rules

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// file checks a whole file.
func (l *linter) file(body []byte) {
	l.encoding(body)
	text, truncated := readable(body, l.options.maxSize())
	if page(text) {
		l.addAt(1, 1, codeHTML, "Serve the file as plain text, or answer 404 if there is no file.",
			"This is a web page, and %s", l.rulesOfPage(body))
		return
	}
	lines := lineReader{rest: withoutStrayBytes(text)}
	for left := len(lines.rest); lines.next(); left = len(lines.rest) {
		l.number, l.line = lines.number, lines.line
		const longestEnd = len("\r\n")
		l.lineFaults(left-len(lines.rest) > len(lines.line)+longestEnd)
		l.record()
	}
	l.endGroup()
	if truncated {
		l.tooLarge(body, len(text), lines.number)
	}
	l.unite()
	l.report()
}

// encoding checks the byte order marks at the beginning.
func (l *linter) encoding(body []byte) {
	switch {
	case bytes.HasPrefix(body, []byte("\xEF\xBB\xBF")):
		l.addAt(1, 1, codeBOM, "Save the file as UTF-8 without a byte order mark.",
			"The file begins with a byte order mark, and crawlers that do not expect one miss the first line")
	case markedUTF16(body):
		l.addAt(1, 1, codeUTF16, "Save the file as UTF-8.",
			"The file is in UTF-16, which most crawlers do not understand (RFC 9309 section 2.2 requires UTF-8)")
	case byteOrder(body) != nil:
		l.addAt(1, 1, codeBOM, "Save the file as UTF-8 without a byte order mark.",
			"The file begins with the byte order mark of UTF-16 but is not in UTF-16, and most crawlers miss the first line")
	case len(withoutStrayBytes(body)) < len(body):
		l.addAt(1, 1, codeNotUTF8, "Save the file as UTF-8 without these bytes.",
			"The file begins with bytes that are not UTF-8, and most crawlers miss the first line")
	}
}

// page reports whether text is a web page: no line of a robots.txt begins with "<".
func page(text []byte) bool {
	for line := range bytes.Lines(text[:min(len(text), 4096)]) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return line[0] == '<'
		}
	}
	return false
}

// rulesOfPage returns a clause with the number of rules in a web page: some have a robots.txt in a "pre" element.
func (l *linter) rulesOfPage(body []byte) string {
	set := Parse(body, Options{MaxSize: l.options.MaxSize, Dialect: l.options.Dialect})
	switch n := len(set.rules); n {
	case 0:
		return "it has no rules"
	case 1:
		return fmt.Sprintf("crawlers apply the rule in line %d", set.rules[0].line)
	default:
		return fmt.Sprintf("crawlers apply the %d rules in it", n)
	}
}

// lineFaults checks a line independently of its content. A comment has no faults, since it has no effect.
func (l *linter) lineFaults(cut bool) {
	text, _, commented := bytes.Cut(l.line, []byte("#"))
	if cut && !commented {
		l.add(codeLineTooLong, len(l.line), "Write shorter patterns.",
			"The line is longer than the %d bytes that are read", maxLine)
	}
	if i := bytes.IndexByte(text, 0); i >= 0 {
		l.add(codeNUL, i, "Remove the NUL. Many NULs indicate UTF-16 without a byte order mark.",
			"The line has a NUL, which this program reads as white space and others as the end of the line")
	}
	if utf8.Valid(text) {
		return
	}
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			if len(text)-i < utf8.UTFMax && cut && !commented {
				return // the limit cuts a character
			}
			l.add(codeNotUTF8, i, "Save the file as UTF-8, or write other characters of a path percent-encoded.",
				"The byte 0x%02X is not UTF-8, so the meaning of the line depends on the encoding", text[i])
			return
		}
		i += n
	}
}

// tooLarge reports the lines and rules after the limit, up to the line last.
func (l *linter) tooLarge(body []byte, read, last int) {
	lost := lineReader{rest: decode(body)}
	lost.rest = lost.rest[min(read, len(lost.rest)):]
	count := 0
	for lost.next() {
		if f, ok := l.split(lost.line, 0); ok && (f.key == keyAllow || f.key == keyDisallow) {
			count++
		}
	}
	l.addAt(max(last, 1), 1, codeTooLarge,
		"Put the most important rules first, and shorten the file, for example with wildcards.",
		"The file has %d bytes, and crawlers need not read more than %d: %d lines after this one, with %d rules, are ignored",
		len(body), l.options.maxSize(), lost.number, count)
}
