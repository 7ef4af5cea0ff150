package rules

import (
	"bytes"
	"mime"

	"golang.org/x/net/html/charset"
)

// toUTF8 decodes a body by the charset that its Content-Type names, or that the dialect takes for granted in a response
// that names none. It returns body itself where that is UTF-8, is not known, or where a byte order mark, which is more
// certain than a server's configuration, says what body is in.
func toUTF8(body []byte, opts Options) []byte {
	if opts.ContentType == "" || marked(body) {
		return body
	}
	_, params, _ := mime.ParseMediaType(opts.ContentType)
	label := params["charset"]
	if label == "" && opts.Dialect.switches().latin1 {
		label = "iso-8859-1"
	}
	e, name := charset.Lookup(label)
	if e == nil || name == "utf-8" || name == "replacement" {
		return body
	}
	text, err := e.NewDecoder().Bytes(body)
	if err != nil {
		return body
	}
	return text
}

// decode returns a body, or the beginning of one, in UTF-8 and without a byte order mark.
func (o Options) decode(body []byte) []byte { return decode(toUTF8(body, o)) }

// marked reports whether a body begins with a byte order mark.
func marked(body []byte) bool {
	return bytes.HasPrefix(body, []byte("\xEF\xBB\xBF")) || bytes.HasPrefix(body, []byte("\xFF\xFE")) ||
		bytes.HasPrefix(body, []byte("\xFE\xFF"))
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
