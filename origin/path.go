package origin

import (
	"net/url"
	"strings"
)

// RawPath returns the path of u as it was written, with only those octets percent-encoded that a path must not contain
// (RFC 3986 section 3.3). It is for the field RawPath of another URL. URL.EscapedPath encodes parentheses and other
// sub-delims too if the path contains one such octet, and robots.txt tells "(" from "%28" (RFC 9309 section 2.2.2).
func RawPath(u *url.URL) string {
	if !strings.ContainsFunc(u.RawPath, notPathRune) {
		return u.RawPath
	}
	const hex = "0123456789ABCDEF"
	b := make([]byte, 0, len(u.RawPath)+16)
	for _, c := range []byte(u.RawPath) {
		if notPathRune(rune(c)) {
			b = append(b, '%', hex[c>>4], hex[c&15])
			continue
		}
		b = append(b, c)
	}
	return string(b)
}

// notPathRune reports whether a path must not contain r: it is not a pchar, "/" or "%". Brackets, which a path should not
// contain either, stay: clients send them, and net/url keeps them.
func notPathRune(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-._~!$&'()*+,;=:@/%[]", r))
}
