package policy

import (
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/robots"
)

func TestHasContact(t *testing.T) {
	for userAgent, want := range map[string]bool{
		"":                                  false,
		"NewsBot/1.0":                       false,
		"curl/8.0":                          false,
		"NewsBot/1.0 (+https://)":           false,
		"NewsBot/1.0 (+https:///bot)":       false,
		"NewsBot/1.0 (+ftp://a.example)":    false,
		"NewsBot/1.0 (+xhttps://a.example)": false,
		strings.Repeat("a", 4<<10) + " https://a.example": false,
		"NewsBot/1.0 (bot@)":                              false,
		"NewsBot/1.0 (@a.example)":                        false,
		"NewsBot/1.0 (bot@localhost)":                     false,
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36": false,
		"NewsBot/1.0 (+https://example.org/bot)":                     true,
		"NewsBot/1.0 (+HTTP://EXAMPLE.ORG)":                          true,
		"NewsBot/1.0 (+http://[2001:db8::1]/)":                       true,
		"NewsBot/1.0 (bot@example.org)":                              true,
		"NewsBot/1.0 mailto:bot+x@example.org":                       true,
		"Mozilla/5.0 (compatible; NewsBot/1.0; +http://example.org)": true,
	} {
		if got := HasContact(userAgent); got != want {
			t.Errorf("HasContact(%q) = %t", userAgent, got)
		}
	}
}

// TestRequireContact checks the mode of a refusal for want of a contact, and that nothing is fetched for it.
func TestRequireContact(t *testing.T) {
	const with, without = "NewsBot/1.0 (+https://example.org/bot)", "NewsBot/1.0"
	closed := found("User-agent: *\nDisallow: /private/\n")
	for _, row := range []struct {
		name, userAgent, target string
		mode                    Mode
		tunnel, needs           bool
		want                    string
	}{
		{"enforce, with", with, "/", Enforce, false, true, "forward allow - 0 0s -"},
		{"enforce, with, disallowed", with, "/private/", Enforce, false, true, "refuse deny robots 2 0s -"},
		{"enforce, without", without, "/", Enforce, false, false, "refuse deny identity 0 0s -"},
		{"enforce, none", "", "/robots.txt", Enforce, false, false, "refuse deny identity 0 0s -"},
		{"report, without", without, "/", Report, false, false, "forward would_deny report 0 0s -"},
		{"off, without", without, "/", Off, false, false, "forward allow off 0 0s -"},
		{"a tunnel, by its CONNECT", with, "", Enforce, true, true, "forward allow - 0 0s -"},
		{"a tunnel, without", without, "", Enforce, true, false, "refuse deny identity 0 0s -"},
	} {
		p, err := New(Options{Mode: row.mode, RequireContact: true})
		if err != nil {
			t.Fatal(err)
		}
		r := Request{Origin: mustOrigin(t, "https://a.example"), Target: row.target, UserAgent: row.userAgent, Tunnel: row.tunnel}
		var snap *robots.Snapshot
		if needs := p.NeedsRobots(r); needs != row.needs {
			t.Errorf("%s: NeedsRobots = %t", row.name, needs)
		} else if needs {
			snap = closed
		}
		if got := show(p.Decide(r, snap, now)); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
	p, err := New(Options{RequireContact: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := show(p.Judge(Request{Origin: mustOrigin(t, "https://a.example"), Target: "/"}, closed, now)); got != "forward allow - 0 0s -" {
		t.Errorf("a request of the proxy itself: %s", got)
	}
}
