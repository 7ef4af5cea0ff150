package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/browsertest"
)

// TestScreenshots writes pictures of the pages of the demo into the folder SCREENSHOTS, at each width and in both colour
// schemes.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		t.Skip("SCREENSHOTS is not set to a folder")
	}
	var said lockedBuffer
	cmd := exec.Command(binaryPath, "demo")
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	for begin := time.Now(); !strings.Contains(said.String(), "^C ends the demo"); time.Sleep(100 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("the first crawl takes over a minute:\n%s", &said)
		}
	}
	admin := strings.TrimSuffix(demoWord(t, said.String(), `(?m)^  dashboard +(\S+)`), "/")
	proxy := demoWord(t, said.String(), `(?m)^  proxy +(\S+)`)
	refused := refusalServer(t, proxy, "http://news.example/private/drafts")
	tab := browsertest.Open(t)
	pages := map[string]string{
		"overview": admin + "/", "decisions": admin + "/decisions", "hosts": admin + "/hosts", "host": admin + "/hosts/docs.example",
		"check": admin + "/check?url=http://news.example/private/drafts&agent=NewsBot", "clients": admin + "/clients?name=NewsBot",
		"settings": admin + "/settings", "refused": refused, "setup": proxy + "/",
	}
	for _, width := range []int64{1440, 768, 390} {
		for _, scheme := range []browsertest.Scheme{browsertest.Light, browsertest.Dark} {
			tab.View(width, scheme)
			shoot := func(name string) {
				path := filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, scheme))
				if err := os.WriteFile(path, tab.Screenshot(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for name, address := range pages {
				tab.Load(address)
				time.Sleep(300 * time.Millisecond) // the charts are drawn
				shoot(name)
			}
			tab.Load(admin + "/decisions?host=news.example&decision=deny")
			browsertest.Evaluate[bool](tab, "(document.querySelector('#live a').click(), true)")
			tab.WaitFor("document.querySelector('#drawer').open")
			time.Sleep(300 * time.Millisecond)
			shoot("decision")
		}
	}
	tab.Quiet()
}

// refusalServer serves the page that a browser gets for a URL through a proxy, and returns its own URL.
func refusalServer(t *testing.T, proxy, target string) string {
	t.Helper()
	at, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/html")
	req.Header.Set("User-Agent", "NewsBot/1.0 (+https://example.org/bot)")
	resp, err := (&http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(at)}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusForbidden {
		t.Fatalf("%s: %s, %v", target, resp.Status, err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/"
}
