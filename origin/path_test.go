package origin_test

import (
	"net/url"
	"testing"

	"github.com/robotsproxy/robotsproxy/origin"
)

// A path keeps what it may contain as written, and stays the same path.
func TestRawPath(t *testing.T) {
	for written, want := range map[string]string{
		"/<script>alert(3)</script>": "/%3Cscript%3Ealert(3)%3C/script%3E",
		"/(x)<%28y%29":               "/(x)%3C%28y%29",
		"/a b'!*$&+,;=:@[]~":         "/a%20b'!*$&+,;=:@[]~",
		"/ü(%C3%BC)":                 "/%C3%BC(%C3%BC)",
		"/a%2Fb(\"|\\^`{})":          "/a%2Fb(%22%7C%5C%5E%60%7B%7D)",
		"/(x)":                       "/(x)",
		"/plain":                     "/plain",
		"":                           "",
	} {
		u, err := url.Parse("http://a.example" + written)
		if err != nil {
			t.Fatal(err)
		}
		sent := url.URL{Path: u.Path, RawPath: origin.RawPath(u)}
		if got := sent.EscapedPath(); got != want || sent.Path != u.Path {
			t.Errorf("%q is sent as %q, want %q", written, got, want)
		}
	}
}
