package sampleweb

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start returns a client of a web, which does not follow redirects.
func start(t *testing.T) *http.Client {
	t.Helper()
	web, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(web.URL())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{
		Proxy: http.ProxyURL(at), TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := web.Close(); err != nil {
			t.Error(err)
		}
	})
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// Each site treats requests as its description says, over http and https.
func TestSites(t *testing.T) {
	client := start(t)
	for _, row := range []struct {
		url    string
		status int
		text   string // in the body or the Location
	}{
		{"http://news.example/", 200, `<a href="/private/drafts">Drafts</a>`},
		{"http://NEWS.example:80/today", 200, "Today"},
		{"http://news.example/nothing", 404, "There is no such page"},
		{"http://news.example/robots.txt", 200, "Disallow: /private/\nAllow: /private/press/"},
		{"http://shop.example/chairs?sort=price", 200, "Chairs by price"},
		{"http://docs.example/robots.txt", 200, "Crawl-delay: 2"},
		{"https://bank.example/robots.txt", 200, "Disallow: /account/"},
		{"http://old.example/robots.txt", 301, "http://www.old.example/robots.txt"},
		{"http://www.old.example/robots.txt", 200, "Disallow: /cgi-bin/"},
		{"http://wall.example/robots.txt", 200, "Checking your browser"},
		{"http://wall.example/", 403, "Checking your browser"},
		{"http://slow.example/robots.txt", 404, "There is no such page"},
		{"http://wire.example/robots.txt", 503, "repaired"},
		{"http://wire.example/", 200, "Telegrams"},
		{"http://nosuch.example/", 404, `<a href="https://bank.example/">`},
		{"https://nosuch.example/", 404, "There is no such site here"},
	} {
		resp, err := client.Get(row.url)
		if err != nil {
			t.Errorf("GET %s: %v", row.url, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		got := string(body) + resp.Header.Get("Location")
		if err != nil || resp.StatusCode != row.status || !strings.Contains(got, row.text) {
			t.Errorf("GET %s = %d, %v, %q; want %d and %q", row.url, resp.StatusCode, err, got, row.status, row.text)
		}
	}
}

// The fourth page of the site with a limit is refused, however often its robots.txt was fetched.
func TestLimit(t *testing.T) {
	client := start(t)
	var got []int
	for _, path := range []string{"/", "/robots.txt", "/", "/", "/", "/"} {
		resp, err := client.Get("http://api.example" + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		got = append(got, resp.StatusCode)
		if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != retryAfter {
			t.Errorf("the 429 has Retry-After %q, want %s", resp.Header.Get("Retry-After"), retryAfter)
		}
	}
	if want := []int{200, 200, 200, 200, 429, 200}; !slices.Equal(got, want) {
		t.Errorf("the statuses are %v, want %v", got, want)
	}
}

// Links lead a crawler to all pages of each site, and to no page of another one.
func TestCrawl(t *testing.T) {
	crawler := Crawler{UserAgent: "NewsBot", Client: start(t)}
	got := crawler.Crawl(t.Context(), []string{"http://news.example/", "https://bank.example/"})
	want := []string{
		"http://news.example/", "http://news.example/private/drafts", "http://news.example/private/press/2026",
		"http://news.example/today", "http://news.example/weather",
		"https://bank.example/", "https://bank.example/account/login", "https://bank.example/rates",
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("Crawl visits %q, want %q", got, want)
	}
}

// The end of the context ends a crawl, also one that waits for a slow site.
func TestCrawlEnds(t *testing.T) {
	crawler := Crawler{Client: start(t), Pause: time.Hour}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	pages := crawler.Crawl(ctx, []string{"http://slow.example/", "http://news.example/"})
	crawler.Revisit(ctx, pages, time.Hour)
	if took := time.Since(began); took > time.Second {
		t.Errorf("the crawl ended after %v", took)
	}
}
