package rules

import "strings"

// form is the normal form in which patterns and paths are compared.
type form uint8

const (
	formNormal               form = iota // the RFC's normal form; see appendOctet
	formWritten                          // as written; patterns encode bytes outside of ASCII, escapes in upper case
	formEncoded                          // as written, with bytes that are invalid in a URL encoded
	formDecodedButSlash                  // decoded, except "%2F"; a path without an empty query or empty parameters, as in Python
	formDecodedButDelimiters             // decoded, except "%26", "%2F", "%3D" and "%3F"
)

// appendPattern appends the normal form of a pattern.
func (f form) appendPattern(dst, pattern []byte) []byte {
	if f != formWritten {
		return appendForm(f, dst, pattern)
	}
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '%' && isEscape(pattern, i):
			dst = appendEscape(dst, unescape(pattern, i))
			i += 2
		case c >= 0x80:
			dst = appendEscape(dst, c)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// appendPath appends the normal form of a path and query, without a fragment and with a leading slash.
func (f form) appendPath(dst []byte, path string) []byte {
	if f == formNormal {
		return appendPath(dst, path)
	}
	path = withoutFragment(path)
	if path == "" || path[0] != '/' {
		dst = append(dst, '/')
	}
	if f != formDecodedButSlash {
		return appendForm(f, dst, path)
	}
	path, query, _ := strings.Cut(path, "?")
	dst = appendForm(f, dst, withoutEmptyParameters(path))
	if query == "" {
		return dst
	}
	return appendForm(f, append(dst, '?'), query)
}

// isNormal reports whether a path is in normal form. If not, it may still be.
func (f form) isNormal(path string) bool {
	if f == formDecodedButSlash && strings.ContainsAny(path, "?;") {
		return false
	}
	return strings.HasPrefix(path, "/") && isPlain(path)
}

// withoutEmptyParameters removes a ";" at the end of a path, unless an earlier one in the last segment begins the
// parameters.
func withoutEmptyParameters(path string) string {
	last := path[strings.LastIndexByte(path, '/')+1:]
	if before, _, ok := strings.Cut(last, ";"); ok && len(before) == len(last)-1 {
		return path[:len(path)-1]
	}
	return path
}

// appendForm appends s in the form that patterns and paths share. It never decodes a NUL: the order of the rules
// relies on their absence.
func appendForm[T byteseq](f form, dst []byte, s T) []byte {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case f == formWritten:
			dst = append(dst, c)
		case f == formEncoded:
			if classes[c]&(unreserved|reserved) != 0 || c == '%' || c == '*' || c == '$' {
				dst = append(dst, c)
			} else {
				dst = appendEscape(dst, c)
			}
		case c == '%' && isEscape(s, i):
			if v := unescape(s, i); f.keeps(v) {
				dst = appendEscape(dst, v)
			} else {
				dst = append(dst, v)
			}
			i += 2
		case c == 0:
			dst = appendEscape(dst, c)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// keeps reports whether the escape of c is not decoded.
func (f form) keeps(c byte) bool {
	switch c {
	case '/', 0:
		return true
	case '&', '=', '?':
		return f == formDecodedButDelimiters
	}
	return false
}
