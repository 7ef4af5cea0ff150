package audit

import "testing"

func TestFirstLines(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"", ""},
		{"a\nb\n", "a\nb\n"},
		{"a\nbc\nd\n", "a\nbc\n"},
		{"abcdefgh\nb\n", "abcdefgh\n"},
		{"abcdefgh", "abcdefgh"},
		{"fgh\nabcdefgh", "fgh\n"},
	} {
		if got := string(firstLines([]byte(row.text), 6)); got != row.want {
			t.Errorf("firstLines(%q, 6) = %q, want %q", row.text, got, row.want)
		}
	}
}
