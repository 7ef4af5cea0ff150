package rules

import "strings"

// Patterns and paths are compared byte by byte in one normal form (2.2.2):
//
//	unreserved bytes are decoded                         %7Ejoe  ->  ~joe
//	bytes outside of reserved and unreserved, encoded    ツ      ->  %E3%83%84
//	hexadecimal digits are in upper case                 %2f     ->  %2F
//	a "%" that begins no escape is itself encoded        100%    ->  100%25
//	a literal "*" or "$" is encoded                      a$b     ->  a%24b
//
// Departure: the RFC's table of examples can be read so that reserved bytes are encoded too. Here they stay as
// written, so "%2F" is not "/": servers give them different resources, and Google's parser, the 1996 draft and
// crawler-commons distinguish them. The last line of the table is the exception of section 2.2.3: "%2A" and "%24" in a
// rule match those characters in either form.

// Classes of bytes.
const (
	unreserved = 1 << iota
	reserved   // and always in normal form: without "*", "$" and "#"
	hexadecimal
)

var classes = func() (t [256]uint8) {
	for c := range t {
		switch c := byte(c); {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~", c) >= 0:
			t[c] |= unreserved
		case strings.IndexByte(":/?[]@!&'()+,;=", c) >= 0:
			t[c] |= reserved
		}
		if '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' {
			t[c] |= hexadecimal
		}
	}
	return t
}()

// byteseq is text of either Go type.
type byteseq interface{ ~string | ~[]byte }

// isPlain reports whether s has no escapes and no special characters, and so is in normal form.
func isPlain[T byteseq](s T) bool {
	for i := range len(s) {
		if classes[s[i]]&(unreserved|reserved) == 0 {
			return false
		}
	}
	return true
}

// isNormal reports whether s is in normal form.
func isNormal(s string) bool {
	for i := 0; i < len(s); i++ {
		if classes[s[i]]&(unreserved|reserved) != 0 {
			continue
		}
		if s[i] != '%' || !isEscape(s, i) ||
			classes[unescape(s, i)]&unreserved != 0 || isLowerHex(s[i+1]) || isLowerHex(s[i+2]) {
			return false
		}
		i += 2
	}
	return true
}

// appendOctet appends the normal form of the byte or escape at s[i], and returns the index of the next.
func appendOctet[T byteseq](dst []byte, s T, i int) ([]byte, int) {
	c := s[i]
	if classes[c]&(unreserved|reserved) != 0 {
		return append(dst, c), i + 1
	}
	if c != '%' || !isEscape(s, i) {
		return appendEscape(dst, c), i + 1
	}
	if c = unescape(s, i); classes[c]&unreserved != 0 {
		return append(dst, c), i + 3
	}
	return appendEscape(dst, c), i + 3
}

func isEscape[T byteseq](s T, i int) bool {
	return i+2 < len(s) && classes[s[i+1]]&hexadecimal != 0 && classes[s[i+2]]&hexadecimal != 0
}

// unescape decodes the escape at i.
func unescape[T byteseq](s T, i int) byte { return fromHex(s[i+1])<<4 | fromHex(s[i+2]) }

func fromHex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

func isLowerHex(c byte) bool { return c >= 'a' }

func appendEscape(dst []byte, c byte) []byte {
	const digits = "0123456789ABCDEF"
	return append(dst, '%', digits[c>>4], digits[c&15])
}

// pathOf returns the path and query of a request target, which may be an absolute URL. A target that begins with "//"
// is a path, as in the request line of HTTP (RFC 9112 section 3.2.1).
func pathOf(target string) string {
	if strings.HasPrefix(target, "/") {
		return target
	}
	scheme, rest, ok := strings.Cut(target, "://")
	if !ok || !isScheme(scheme) {
		return target
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		return rest[i:]
	}
	return ""
}

// pathOf is the function pathOf. In a dialect with targets that begin with a host, without a scheme, it removes the
// host. A target that begins with "//" is a path in every dialect.
func (s *switches) pathOf(target string) string {
	path := pathOf(target)
	if !s.authority || path == "" || path[0] == '/' || len(path) != len(target) {
		return path
	}
	i := strings.IndexAny(path, "/?;#")
	if i < 0 {
		return ""
	}
	return path[i:]
}

// isScheme implements the scheme of RFC 3986, section 3.1.
func isScheme(s string) bool {
	for i := range len(s) {
		c := lowerASCII(s[i])
		if ('a' > c || c > 'z') && (i == 0 || strings.IndexByte("0123456789+-.", c) < 0) {
			return false
		}
	}
	return s != ""
}

func withoutFragment(path string) string {
	path, _, _ = strings.Cut(path, "#")
	return path
}

// appendPath appends the normal form of a path and query, without a fragment and with a leading slash.
func appendPath(dst []byte, path string) []byte {
	path = withoutFragment(path)
	if !strings.HasPrefix(path, "/") {
		dst = append(dst, '/')
	}
	for i := 0; i < len(path); {
		dst, i = appendOctet(dst, path, i)
	}
	return dst
}
