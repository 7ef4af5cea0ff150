package egress

import (
	"net/url"
	"testing"
)

func TestUpstreamAddr(t *testing.T) {
	for text, want := range map[string]string{
		"http://p.example": "p.example:80", "https://p.example": "p.example:443", "http://p.example:3128": "p.example:3128", "http://[::1]": "[::1]:80",
	} {
		at, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := (&Upstream{URL: at}).addr(); got != want {
			t.Errorf("the address of %s is %s, want %s", text, got, want)
		}
	}
}
