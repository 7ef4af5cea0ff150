package rules

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
)

// Lines numbers the lines as Parse does.
func TestLines(t *testing.T) {
	const file = "# one\r\nUser-agent: *\r\r\n\nDisallow: /a\n\rDisallow: /b"
	want := []string{"1 # one", "2 User-agent: *", "3 ", "4 ", "5 Disallow: /a", "6 ", "7 Disallow: /b"}
	for name, tt := range map[string]struct {
		body string
		opts Options
	}{
		"plain":        {file, Options{}},
		"with a mark":  {"\uFEFF" + file, Options{}},
		"UTF-16":       {"\xFF\xFE" + utf16Text(file, binary.LittleEndian), Options{}},
		"by charset":   {utf16Text(file, binary.BigEndian), Options{ContentType: "text/plain; charset=utf-16be"}},
		"stray bytes":  {"\xA0\uFEFF" + file, Options{Dialect: DialectRFC9309}},
		"cut in /beta": {file + "eta", Options{MaxSize: len(file) + 1}},
	} {
		var got []string
		for n, line := range Lines([]byte(tt.body), tt.opts) {
			got = append(got, fmt.Sprintf("%d %s", n, line))
		}
		want := want
		if name == "cut in /beta" {
			want = want[:6]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		set := Parse([]byte(tt.body), tt.opts)
		for path, line := range map[string]int{"/a": 5, "/b": 7} {
			if v := set.Agent("x").Verdict(path); line <= len(want) && v.Line != line {
				t.Errorf("%s: %s is decided by line %d, want %d", name, path, v.Line, line)
			}
		}
	}
}
