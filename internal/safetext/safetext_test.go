package safetext

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// hostile is what a terminal or a reader may act on: C0, DEL, C1, as runes and as bytes, separators of lines, and marks
// of direction.
func hostile() (all []string) {
	for c := range 0x20 {
		all = append(all, string(rune(c)))
	}
	for c := 0x7F; c < 0xA0; c++ {
		all = append(all, string(rune(c)))
	}
	for c := 0x80; c < 0x100; c++ {
		all = append(all, string([]byte{byte(c)}))
	}
	for _, r := range "\u061C\u200B\u200E\u200F\u2028\u2029\u202A\u202B\u202C\u202D\u202E\u2066\u2067\u2068\u2069\uFEFF\U000E0041" {
		all = append(all, string(r))
	}
	return append(all, "\xC3", "\xE2\x80", "\xED\xA0\x80", "\xC0\x9B", "\xF4\x90\x80\x80")
}

// harmful reports whether s holds any of hostile, or is not UTF-8. It does not depend on unicode.IsPrint.
func harmful(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
		return r < 0x20 || 0x7F <= r && r < 0xA0 || strings.ContainsRune("\u061C\u200B\u200E\u200F\u2028\u2029\u202A\u202B\u202C\u202D\u202E\u2066\u2067\u2068\u2069\uFEFF\U000E0041", r)
	})
}

func TestHostileText(t *testing.T) {
	for _, h := range hostile() {
		s := "a" + h + "b"
		want := "a"
		for _, c := range []byte(h) {
			want += fmt.Sprintf("%%%02X", c)
		}
		want += "b"
		if got := Text(s); got != want || harmful(got) {
			t.Errorf("Text(%q) = %q, want %q", s, got, want)
		}
		if got := Field(s); got != want {
			t.Errorf("Field(%q) = %q, want %q", s, got, want)
		}
		if h == "\n" {
			want = s
		}
		if got := Lines(s); got != want {
			t.Errorf("Lines(%q) = %q, want %q", s, got, want)
		}
	}
}

func TestTextIsKept(t *testing.T) {
	for s, field := range map[string]string{
		"":                        "",
		"line 2: Disallow: /a%1B": "line 2: Disallow: /a%1B",
		"/café/日本/🦊":              "/caf%C3%A9/%E6%97%A5%E6%9C%AC/%F0%9F%A6%8A",
		"a\uFFFDb":                "a%EF%BF%BDb", // what was replaced before is no byte that is not UTF-8
	} {
		if got := Text(s); got != s {
			t.Errorf("Text(%q) = %q", s, got)
		}
		if got := Field(s); got != field {
			t.Errorf("Field(%q) = %q, want %q", s, got, field)
		}
	}
}

func TestJSON(t *testing.T) {
	for _, h := range append(hostile(), "<script>&", `"\`, "café 🦊") {
		s := "a" + h + "b"
		b := AppendJSON([]byte("x"), s)
		var back string
		if err := json.Unmarshal(b[1:], &back); err != nil || harmful(string(b)) {
			t.Errorf("AppendJSON(%q) = %q, %v", s, b, err)
		}
		want := s
		if !utf8.ValidString(s) {
			want = Text(s)
		}
		if back != want {
			t.Errorf("AppendJSON(%q) is read back as %q, want %q", s, back, want)
		}
	}
	if got, want := string(AppendJSON(nil, "<\x1b\u009b\u202e\U000E0041é>")), `"<\u001b\u009b\u202e\udb40\udc41é>"`; got != want {
		t.Errorf("AppendJSON = %s, want %s", got, want)
	}
}

func TestJSONWriter(t *testing.T) {
	var b strings.Builder
	e := json.NewEncoder(JSONWriter(&b))
	e.SetIndent("", "\t")
	in := map[string]string{"rule\u202e": "\u009b31m\x7f\u2028é"}
	if err := e.Encode(in); err != nil {
		t.Fatal(err)
	}
	if want := "{\n\t\"rule\\u202e\": \"\\u009b31m\\u007f\\u2028é\"\n}\n"; b.String() != want {
		t.Errorf("wrote %s, want %s", b.String(), want)
	}
	var back map[string]string
	if err := json.Unmarshal([]byte(b.String()), &back); err != nil || back["rule\u202e"] != in["rule\u202e"] {
		t.Errorf("it is read back as %q, %v", back, err)
	}
}

func ExampleText() {
	fmt.Println("rule:", Text("Disallow: /\x1b[31m\u202e"))
	// Output: rule: Disallow: /%1B[31m%E2%80%AE
}
