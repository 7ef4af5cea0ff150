// Package safetext escapes untrusted text, such as a rule of a robots.txt, for a terminal, a log or a header field, so
// that it cannot affect how they work.
//
//	fmt.Println("rule:", safetext.Text("Disallow: /\x1b[31m")) // rule: Disallow: /%1B[31m
//
// All runes that are not printable (unicode.IsPrint) are unsafe: control characters of C0 and C1, DEL, line and
// paragraph separators, marks that change the direction of text, and bytes that are not UTF-8. They are
// percent-encoded, as in the path of a URL. In JSON, unsafe runes are written as \u escapes, so that a program reads
// the original text.
package safetext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns s with unsafe runes percent-encoded, for one line of a terminal, a log or a page. Line feeds are unsafe
// too; see Lines.
func Text(s string) string { return encode(s, unicode.IsPrint) }

// Lines is like Text, but keeps line feeds.
func Lines(s string) string {
	return encode(s, func(r rune) bool { return r == '\n' || unicode.IsPrint(r) })
}

// Field returns s for the value of a header field, which is ASCII (RFC 9110 section 5.5), with all other bytes
// percent-encoded.
func Field(s string) string {
	return encode(s, func(r rune) bool { return ' ' <= r && r <= '~' })
}

// UTF8 returns s with bytes that are not UTF-8 percent-encoded, for encoders that would replace them.
func UTF8(s string) string {
	return encode(s, func(rune) bool { return true })
}

// encode percent-encodes the bytes of s that are not UTF-8, and the runes that are not safe.
func encode(s string, safe func(rune) bool) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !safe(r) }) {
		return s
	}
	var b strings.Builder
	for i, n := 0, 0; i < len(s); i += n {
		var r rune
		r, n = utf8.DecodeRuneInString(s[i:])
		if invalid := r == utf8.RuneError && n == 1; !invalid && safe(r) {
			b.WriteString(s[i : i+n])
		} else {
			for _, c := range []byte(s[i : i+n]) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		}
	}
	return b.String()
}

// AppendJSON appends s as a JSON string. Unsafe runes are \u escapes; bytes that are not UTF-8, which JSON cannot
// represent, are percent-encoded.
func AppendJSON(dst []byte, s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(UTF8(s)) // encoding a string cannot fail
	return appendEscaped(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// JSONWriter returns a writer that replaces unsafe runes by \u escapes and writes to w. Each call of Write must have a
// complete JSON text, as those of json.Encoder and slog.JSONHandler have.
func JSONWriter(w io.Writer) io.Writer { return jsonWriter{w} }

type jsonWriter struct{ w io.Writer }

func (j jsonWriter) Write(p []byte) (int, error) {
	if _, err := j.w.Write(appendEscaped(nil, p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// appendEscaped appends the JSON text p with \u escapes. Unsafe runes in p, other than white space between tokens, are
// in strings.
func appendEscaped(dst, p []byte) []byte {
	for len(p) > 0 {
		r, n := utf8.DecodeRune(p)
		switch {
		case r < ' ' || unicode.IsPrint(r):
			dst = append(dst, p[:n]...)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			dst = fmt.Appendf(dst, `\u%04x\u%04x`, high, low)
		default:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		}
		p = p[n:]
	}
	return dst
}
