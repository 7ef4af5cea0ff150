package onboarding

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/robotsproxy/robotsproxy/internal/browsertest"
)

// The page fits each screen, its tabs work, and no line to paste is clipped.
func TestPageInBrowser(t *testing.T) {
	server := httptest.NewServer(Handler(openCA(t)))
	t.Cleanup(server.Close)
	tab := browsertest.Open(t)
	for _, width := range []int64{1440, 768, 390} {
		for _, scheme := range []browsertest.Scheme{browsertest.Light, browsertest.Dark} {
			t.Run(fmt.Sprintf("%d/%s", width, scheme), func(t *testing.T) {
				tab.For(t)
				tab.View(width, scheme)
				tab.Load(server.URL + "/")
				tab.Check()
				if browsertest.Evaluate[bool](tab, "[...document.querySelectorAll('.snippet code')].some(c => c.scrollWidth > c.clientWidth && c.clientWidth > 0)") {
					t.Error("a line is clipped")
				}
			})
		}
	}
	shown := "[...document.querySelectorAll('.client')].filter(c => c.offsetHeight > 0).map(c => c.id).join()"
	tab.WaitFor(shown + " === 'any'")
	for _, c := range Clients("http", "127.0.0.1:3128") {
		tab.Do(chromedp.Click(fmt.Sprintf(".tabs a[href='#%s']", c.ID)))
		tab.WaitFor(fmt.Sprintf("%s === %q && getComputedStyle(document.querySelector('.tabs a[href=\"#%s\"]')).fontWeight === '600'", shown, c.ID, c.ID))
	}
	tab.Quiet()
}

// The buttons copy the lines, also on a page that may not use the clipboard, as one that came over HTTP from another
// machine.
func TestCopyInBrowser(t *testing.T) {
	server := httptest.NewServer(Handler(openCA(t)))
	t.Cleanup(server.Close)
	tab := browsertest.Open(t)
	tab.Load(server.URL + "/#java")
	browsertest.Evaluate[bool](tab, `(Object.defineProperty(navigator, "clipboard", {value: undefined}),
		document.addEventListener("copy", () => { window.copied = getSelection().toString() }), true)`)
	tab.Do(chromedp.Click("#java .snippet:last-child button"))
	tab.WaitFor("document.querySelector('#java .snippet:last-child button').textContent === 'Copied'")
	steps := Clients("http", strings.TrimPrefix(server.URL, "http://"))[7].Steps
	if got, want := browsertest.Evaluate[string](tab, "window.copied"), steps[len(steps)-1].Lines; got != want {
		t.Errorf("copied %q, want %q", got, want)
	}
	tab.Quiet()
}

// No line names a folder, a port or a host but those of the proxy.
func TestClients(t *testing.T) {
	for _, c := range Clients("http", "[2001:db8::7]:3128") {
		if c.ID == "" || c.Name == "" || len(c.Steps) == 0 {
			t.Errorf("%+v is not complete", c)
		}
		all := ""
		for _, s := range c.Steps {
			all += s.Lines + "\n"
		}
		if !strings.Contains(all, "2001:db8::7") || strings.Contains(all, "127.0.0.1") || strings.Contains(all, "/home") {
			t.Errorf("%s: %s", c.ID, all)
		}
	}
}
