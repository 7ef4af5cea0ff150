package rules

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"
)

// garbage are beginnings of a file that are neither UTF-8 nor a byte order mark.
var garbage = []string{
	"\x80", "\xBF\xBF", "\xC0\xAF", "\xC3", "\xC3(", "\xE2\x28\xA1", "\xED\xA0\x80", "\xEF\x11\xBF", "\xEF\xBB", "\xEF\xBF\xBE", "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80",
	"\xFE", "\xFF", "\xFE\xFE", "\xFF\xFF", "\xFF\xFE", "\xFE\xFF", "\xFF\xFE\xFD", "\xFE\xFF\xFF", "\xFF\xFEx", "\xFE\xFF\xEF\xBB\xBF", "\x81\x30\x81", "\x00", "\x00\xFF", "\xFF\x00", "\x1F\x8B\x08",
}

// TestGarbageInFront checks that a file that begins with bytes that are not UTF-8 is still read line by line,
// regardless of its declared charset.
func TestGarbageInFront(t *testing.T) {
	types := []string{"", "text/plain", "text/plain; charset=utf-8"}
	for _, label := range []string{"us-ascii", "iso-8859-1", "iso-8859-15", "windows-1252", "windows-1251", "koi8-r", "macintosh", "gbk", "gb18030", "big5", "euc-jp", "shift_jis", "iso-2022-jp", "euc-kr", "utf-16", "utf-16le", "utf-16be", "utf-7", "nonsense"} {
		types = append(types, "text/plain; charset="+label)
	}
	for _, end := range []string{"\n", "\r", "\r\n", ": x\n", "\n\n"} {
		for _, g := range garbage {
			for _, contentType := range types {
				for _, d := range Dialects() {
					body := g + end + "User-agent: *\nDisallow: /private\n"
					set := Parse([]byte(body), Options{ContentType: contentType, Dialect: d})
					if v := set.Agent("NewsBot").Verdict("/private/x"); v.Allowed {
						t.Errorf("%q as %q in %v: allowed", body, contentType, d)
					}
				}
			}
		}
	}
}

// TestGarbageBeforeTheFirstKey checks that bytes that are not UTF-8, and repeated byte order marks, do not hide a key
// after them on the first line: the dialect of RFC 9309 ignores them.
func TestGarbageBeforeTheFirstKey(t *testing.T) {
	for _, g := range []string{
		"\x80", "\xBF\xBF", "\xC0\xAF", "\xC3", "\xEF\xBB", "\xEF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFE", "\xFF", "\xFE\xFE", "\xFF\xFE", "\xFF\xFE\xFD",
		"\xEF\xBB\xBF\xEF\xBB\xBF", "\xEF\xBB\xBF\xFF", "\xFF\xEF\xBB\xBF", "\xFE\xFF\xEF\xBB\xBF", strings.Repeat("\xFF", 20_000),
	} {
		body := []byte(g + "User-agent: *\nDisallow: /private\n")
		if v := Parse(body, Options{}).Agent("NewsBot").Verdict("/private/x"); v.Allowed || v.Line != 2 {
			t.Errorf("%.20q in front of the first key: allowed %v by line %d", g, v.Allowed, v.Line)
		}
		if f := Lint(body, Options{}); len(f) != 1 || f[0].Line != 1 || f[0].Code != codeNotUTF8 && f[0].Code != codeBOM {
			t.Errorf("%.20q in front of the first key: lint finds %v", g, f)
		}
	}
	set := Parse([]byte("\xFFUser-agent: *\nDisallow: /private\n"), Options{Dialect: DialectGoogle})
	if v := set.Agent("NewsBot").Verdict("/private/x"); !v.Allowed {
		t.Error("Google's parser misses a first line that begins with such bytes, and its dialect does not")
	}
}

// TestMarksOfUTF16 checks that a mark of UTF-16 counts if UTF-16 follows, and otherwise hides nothing.
func TestMarksOfUTF16(t *testing.T) {
	const rules = "User-agent: *\nDisallow: /private\n"
	comment := "# " + strings.Repeat("机器人协议", 20) + "\n"
	for _, row := range []struct{ name, body string }{
		{"little-endian", "\xFF\xFE" + utf16Text(rules, binary.LittleEndian)},
		{"big-endian", "\xFE\xFF" + utf16Text(rules, binary.BigEndian)},
		{"with a comment in Chinese", "\xFF\xFE" + utf16Text(comment+rules, binary.LittleEndian)},
		{"without UTF-16", "\xFF\xFE" + rules},
		{"without UTF-16, in Latin-1", "\xFE\xFF# \xE9\xE8\n" + rules},
		{"without UTF-16, with a NUL", "\xFF\xFE\x00\x00\n" + rules},
	} {
		for _, d := range Dialects() {
			if v := Parse([]byte(row.body), Options{Dialect: d}).Agent("NewsBot").Verdict("/private/x"); v.Allowed {
				t.Errorf("%s in %v: %q is allowed", row.name, d, row.body)
			}
		}
	}
}

func utf16Text(s string, order binary.AppendByteOrder) string {
	var b []byte
	for _, u := range utf16.Encode([]rune(s)) {
		b = order.AppendUint16(b, u)
	}
	return string(b)
}
