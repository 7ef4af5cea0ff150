package origin

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

func TestParseCanonical(t *testing.T) {
	for _, row := range []struct{ name, in, want string }{
		{"6454 4/lower case", "HTTP://A.Example/x", "http://a.example"},
		{"6454 4/default port written out", "http://a.example:80/", "http://a.example"},
		{"6454 4/default https port", "https://a.example:443", "https://a.example"},
		{"6454 4/another port is another origin", "https://a.example:8443", "https://a.example:8443"},
		{"3986 3.2.3/leading zeros", "http://a.example:00080/", "http://a.example"},
		{"3986 3.2.3/empty port", "http://a.example:/", "http://a.example"},
		{"1034 3.1/trailing dot", "http://a.example./", "http://a.example"},
		{"5891/IDN", "http://Bücher.example/", "http://xn--bcher-kva.example"},
		{"5891/punycode in upper case", "http://XN--BCHER-KVA.example", "http://xn--bcher-kva.example"},
		{"5891/ideographic full stop", "http://a。example/", "http://a.example"},
		{"3986 3.2.2/IPv4", "http://192.0.2.1:80", "http://192.0.2.1"},
		{"3986 3.2.2/IPv4 with trailing dot", "http://192.0.2.1./", "http://192.0.2.1"},
		{"5952 4/IPv6", "http://[2001:DB8:0:0::1]:80/", "http://[2001:db8::1]"},
		{"5952 4/IPv6 with port", "https://[2001:db8::1]:8443/", "https://[2001:db8::1]:8443"},
		{"4291 2.5.5.2/IPv4-mapped", "http://[::ffff:127.0.0.1]/", "http://127.0.0.1"},
		{"4291 2.5.5.2/IPv4-mapped in hexadecimal, with port", "http://[::FFFF:7f00:1]:8080/", "http://127.0.0.1:8080"},
		{"4291 2.5.5.2/IPv4-mapped, written out", "https://[0:0:0:0:0:ffff:c000:0201]:443", "https://192.0.2.1"},
		{"4291 2.5.5.1/IPv4-compatible is IPv6", "http://[::127.0.0.1]", "http://[::7f00:1]"},
		{"2765/IPv4-translated is IPv6", "http://[::ffff:0:127.0.0.1]", "http://[::ffff:0:7f00:1]"},
		{"6052 2.1/NAT64 keeps itself", "http://[64:ff9b::127.0.0.1]", "http://[64:ff9b::7f00:1]"},
		{"underscore", "http://a_b.example/", "http://a_b.example"},
		{"userinfo is no part of it", "http://u:p@a.example/", "http://a.example"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o, err := Parse(row.in)
			if err != nil || o.String() != row.want {
				t.Errorf("Parse(%q) = %q, %v; want %q", row.in, o, err, row.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, row := range []struct{ name, in, want string }{
		{"scheme", "ftp://a.example/", "neither http nor https"},
		{"no scheme", "a.example", "neither http nor https"},
		{"opaque", "http:a.example", "no authority"},
		{"no host", "http:///x", "empty"},
		{"port out of range", "http://a.example:65536/", "between 1 and 65535"},
		{"port zero", "http://a.example:0/", "between 1 and 65535"},
		{"decimal IPv4", "http://2130706433/", "number"},
		{"octal IPv4", "http://0177.0.0.1/", "number"},
		{"hexadecimal IPv4", "http://0x7f.1/", "number"},
		{"short IPv4", "http://127.1/", "number"},
		{"empty label", "http://a..example/", "label"},
		{"two trailing dots", "http://a.example../", "label"},
		{"long label", "http://" + strings.Repeat("a", 64) + ".example/", "label"},
		{"long name", "http://" + strings.Repeat("a.", 130) + "example/", "253"},
		{"octets that are no text", "http://\xb3.example/", "no name in Unicode"},
		{"wildcard", "http://*.example/", "does not belong"},
		{"space", "http://a%20b.example/", "invalid URL escape"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o, err := Parse(row.in)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("Parse(%q) = %q, %v; want an error with %q", row.in, o, err, row.want)
			}
			if !o.IsZero() {
				t.Errorf("Parse(%q) = %q beside its error, want the zero Origin", row.in, o)
			}
		})
	}
}

func TestSplitAuthority(t *testing.T) {
	for _, row := range []struct {
		in   string
		host string
		port uint16
		ok   bool
	}{
		{"a.example:443", "a.example", 443, true},
		{"A.example", "a.example", 0, true},
		{"[::1]:8443", "::1", 8443, true},
		{"[::1]", "::1", 0, true},
		{"::1", "", 0, false},
		{"a.example/private", "", 0, false},
		{"a.example:80/private", "", 0, false},
		{"u@a.example", "", 0, false},
		{"a.example:+80", "", 0, false},
		{"a example", "", 0, false},
		{"[a.example]", "", 0, false},
		{"[::ffff:192.0.2.1]:80", "192.0.2.1", 80, true},
		{"[fe80::1%25eth0]", "", 0, false},
		{"[::ffff:127.0.0.1%25lo]", "", 0, false},
		{"[::1].", "", 0, false},
		{"[::1.]", "", 0, false},
		{"", "", 0, false},
		{":80", "", 0, false},
	} {
		host, port, err := SplitAuthority(row.in)
		if host != row.host || port != row.port || (err == nil) != row.ok {
			t.Errorf("SplitAuthority(%q) = %q, %d, %v; want %q, %d, ok=%t", row.in, host, port, err, row.host, row.port, row.ok)
		}
	}
}

func TestFormsForDiallingAndHostField(t *testing.T) {
	o, err := New("https", "2001:db8::1", 443)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := o.HostPort()+" "+o.Authority(), "[2001:db8::1]:443 [2001:db8::1]"; got != want {
		t.Errorf("HostPort and Authority of %v = %q, want %q", o, got, want)
	}
}

func TestKey(t *testing.T) {
	for host, want := range map[string]string{
		"a.example":           "a.example",
		"192.0.2.1":           "192.0.2.1",
		"2001:db8::1":         "2001:db8::1",
		"64:ff9b::c000:201":   "192.0.2.1",
		"64:ff9b::7f00:1":     "127.0.0.1",
		"64:ff9b::1":          "0.0.0.1",
		"64:ff9b::1:c000:201": "64:ff9b::1:c000:201", // outside of 64:ff9b::/96
		"64:ff9b:1::c000:201": "64:ff9b:1::c000:201", // RFC 8215: where its IPv4 address is, only the network knows
		"64.ff9b.example":     "64.ff9b.example",
		"*":                   "*",
	} {
		if got := Key(host); got != want {
			t.Errorf("Key(%q) = %q, want %q", host, got, want)
		}
	}
}

// What an origin writes of itself is read back as the same origin.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"http://a.example", "https://[::1]:8443/x", "http://BÜCHER.example.:80", "http://1.2.3.4.:080"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		o, err := Parse(s)
		if err != nil {
			return
		}
		again, err := Parse(o.String())
		if err != nil || again != o {
			t.Errorf("Parse(%q) = %q, but Parse of that = %q, %v", s, o, again, err)
		}
		if u, err := url.Parse(o.String()); err != nil || u.Host != o.Authority() {
			t.Errorf("url.Parse(%q) = %v, %v; want the authority %q", o, u, err, o.Authority())
		}
	})
}

func ExampleParse() {
	a, _ := Parse("HTTP://Bücher.Example.:080/path")
	b, _ := Parse("http://xn--bcher-kva.example")
	fmt.Println(a, a == b)
	// Output: http://xn--bcher-kva.example true
}
