package ratelimit

import "testing"

func TestDomain(t *testing.T) {
	for host, want := range map[string]string{
		"a.example":           "a.example",
		"www.a.example":       "a.example",
		"x.y.z.example.co.uk": "example.co.uk",
		"co.uk":               "co.uk",
		"localhost":           "localhost",
		"me.github.io":        "me.github.io", // sites of different owners
		"192.0.2.7":           "192.0.2.7",
		"2001:db8::1":         "2001:db8::1",
		"":                    "",
	} {
		if got := Domain(host); got != want {
			t.Errorf("Domain(%q) = %q, want %q", host, got, want)
		}
	}
}
