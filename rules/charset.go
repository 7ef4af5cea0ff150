package rules

import (
	"bytes"
	"encoding/binary"
	"mime"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
)

// toUTF8 decodes a body by the charset of its Content-Type, or by the dialect's default. It returns body unchanged if
// the charset is UTF-8 or unknown, or if the body contradicts it. The label comes from a server's configuration, not
// from the author of the file, and a false label must not hide rules.
func toUTF8(body []byte, opts Options) []byte {
	if opts.ContentType == "" || marked(body) {
		return body
	}
	latin1 := opts.Dialect.switches().latin1
	_, params, _ := mime.ParseMediaType(opts.ContentType)
	label := params["charset"]
	if label == "" && latin1 {
		label = "iso-8859-1"
	}
	e, name := charset.Lookup(label)
	switch {
	case e == nil, name == "utf-8", name == "replacement", !latin1 && isUTF8(body):
		return body
	case name == "utf-16le" && !isUTF16(body, binary.LittleEndian), name == "utf-16be" && !isUTF16(body, binary.BigEndian):
		return body
	}
	text, err := e.NewDecoder().Bytes(body)
	if err != nil {
		return body
	}
	return text
}

// isUTF8 reports whether body is UTF-8 with characters outside ASCII: text in another charset hardly ever is. It
// ignores an incomplete character at the end. A body with a NUL is in another charset.
func isUTF8(body []byte) bool {
	for n := 1; n < min(utf8.UTFMax, len(body)+1); n++ {
		if last := body[len(body)-n:]; utf8.RuneStart(last[0]) && !utf8.FullRune(last) {
			body = body[:len(body)-n]
			break
		}
	}
	ascii := bytes.IndexFunc(body, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
	return !ascii && utf8.Valid(body) && bytes.IndexByte(body, 0) < 0
}

// decode returns a body, or the beginning of one, in UTF-8 and without a byte order mark.
func (o Options) decode(body []byte) []byte { return decode(toUTF8(body, o)) }

// marked reports whether a body begins with a byte order mark that determines its charset.
func marked(body []byte) bool {
	return bytes.HasPrefix(body, []byte("\xEF\xBB\xBF")) || markedUTF16(body)
}

// withoutPartialMark removes the beginning of a UTF-8 byte order mark that lacks its end.
func withoutPartialMark(body []byte) []byte {
	const mark = "\xEF\xBB\xBF"
	n := 0
	for n < len(mark) && n < len(body) && body[n] == mark[n] {
		n++
	}
	return body[n:]
}

// withoutStrayBytes removes bytes that are not UTF-8 and byte order marks from the beginning of a text, so that they do
// not hide a key on the first line.
func withoutStrayBytes(text []byte) []byte {
	const mark = '\uFEFF'
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if stray := r == utf8.RuneError && n == 1; !stray && r != mark {
			break
		}
		text = text[n:]
	}
	return text
}
