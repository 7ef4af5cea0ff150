package policy

import (
	"slices"
	"strings"
	"testing"
)

// TestOtherForms holds the forms in which a target is judged besides the written one.
func TestOtherForms(t *testing.T) {
	for _, row := range []struct {
		in   string
		want []string
	}{
		{"/", nil},
		{"/a/b.c/d-e_f?g=/../%2F//", nil},
		{"/.hidden/..b/...", nil},

		{"/a/b/../c", []string{"/a/c"}},
		{"/a/./b", []string{"/a/b"}},
		{"/..", []string{"/"}},
		{"/a/..", []string{"/"}},
		{"/a/b/.", []string{"/a/b/"}},
		{"/a/b/..", []string{"/a/"}},
		{"/%2E%2e/a", []string{"/a"}},
		{"/a/.%2e/b?x=/../y", []string{"/b?x=/../y"}},
		{"/a/../private%2Fx", []string{"/private%2Fx"}},

		{"//", []string{"/"}},
		{"/a//b///c/", []string{"/a/b/c/"}},
		{"/a//b?d//e", []string{"/a/b?d//e"}},
		{"/web/http://a.example/", []string{"/web/http:/a.example/"}},
		{"/a//../b", []string{"/a/b", "/b"}},
		{"/x/..//private", []string{"//private", "/private"}},
		{"/a//b//../../c", []string{"/a//c", "/a/c", "/c"}},

		{"/a%2Fb", nil},
		{"/%2Fprivate", nil},
		{"/a%5cb%5C", nil},
		{`/a\b`, nil},
		{"/a%252F..%252Fb", nil},
		{"/a%2F..", []string{"/"}},
		{"/a%2F.%2Fb", []string{"/a/b"}},
		{"/a%2f..%2Fb", []string{"/b"}},
		{`/a\..\b%2Fc`, []string{"/b%2Fc"}},
		{"/a%5C%2e.%5cb?c%2Fd", []string{"/b?c%2Fd"}},
		{"/a/%2F../b", []string{"/a/b", "/b"}},
		{"/a/../b/..%2Fc", []string{"/b/..%2Fc", "/c"}},
		{"/a%2Fb/../c", []string{"/c", "/a/c"}},        // one segment by RFC 3986, two by nginx
		{"/a%2Fb%2F..%2Fc", []string{"/a/c", "/c"}},    // the same
		{"/p%2Fa/..%2Fx", []string{"/p/x", "/x"}},      // the same
		{"/a%2Fb%2Fc/../../d", []string{"/d", "/a/d"}}, // the same
		{"/a%2Fb/../../c%2Fd", []string{"/c%2Fd"}},     // the same, and above the root
		{"/x%2Fy/./z", []string{"/x%2Fy/z"}},           // only beside dots
		{"/x%2Fy/a/../z", []string{"/x%2Fy/z"}},        // only beside dots
		{"/a/..%2F%2Fb", []string{"/%2Fb"}},            // only beside dots
		{"/a/..%2F/b", []string{"//b", "/b"}},

		{"/a;x/b;y=z", nil},
		{"/a/..;/b", []string{"/b"}},
		{"/a/.;/b", []string{"/a/b"}},
		{"/a/..;x=y;z/b", []string{"/b"}},
		{"/a/%2e%2e;x/b", []string{"/b"}},
		{"/a/..;x", []string{"/"}},
		{"/a/..;x%2Fb", []string{"/", "/b"}},
		{"/a/..;/../b", []string{"/a/b", "/b"}},
		{"/a/..;/..%2Fb", []string{"/..%2Fb", "/a/b", "/b"}},
	} {
		if got := otherForms(row.in); !slices.Equal(got, row.want) {
			t.Errorf("otherForms(%q) = %q, want %q", row.in, got, row.want)
		}
	}
}

// TestAmbiguous tries every path of six bytes out of those that matter: one that is not ambiguous has one form.
func TestAmbiguous(t *testing.T) {
	const bytes = `/.%2e5C\;`
	path := []byte("/-----")
	var each func(i int)
	each = func(i int) {
		if i < len(path) {
			for j := range len(bytes) {
				path[i] = bytes[j]
				each(i + 1)
			}
			return
		}
		s := string(path)
		if ambiguous(s) {
			return
		}
		for _, r := range readings {
			if got := mergeSlashes(r.removeDots(s, true)); got != s {
				t.Fatalf("ambiguous(%q) = false, and one of its forms is %q", s, got)
			}
		}
	}
	each(1)
	if ambiguous("/a/b.c/d-e_f%20g;h/%2Fi%5C%%2") {
		t.Error("a plain path is ambiguous")
	}
}

// FuzzOtherForms holds what is true of every target: no form is the written one or another form again, and a form has
// no dot segments and keeps the query.
func FuzzOtherForms(f *testing.F) {
	for _, s := range []string{"/", "/a/../b?c", "/a%2F..;x//%2e%2e\\b", "//%5c.;/..?x=/../"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		if !strings.HasPrefix(target, "/") {
			return
		}
		_, query, _ := strings.Cut(target, "?")
		seen := []string{target}
		for _, form := range otherForms(target) {
			path, q, _ := strings.Cut(form, "?")
			if slices.Contains(seen, form) || q != query || !strings.HasPrefix(path, "/") {
				t.Errorf("otherForms(%q) has %q", target, form)
			}
			if again := dotSegments(path); again {
				t.Errorf("otherForms(%q) has %q, which has dot segments", target, form)
			}
			seen = append(seen, form)
		}
	})
}

func dotSegments(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(s string) bool { return (reading{}).dots(s) != "" })
}
