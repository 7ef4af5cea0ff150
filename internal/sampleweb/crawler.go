package sampleweb

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"sync"
	"time"
)

// Crawler is a simple crawler that ignores robots.txt. It follows the links of a page to others of its host.
type Crawler struct {
	UserAgent string
	Client    *http.Client  // through the proxy that the crawler needs
	Pause     time.Duration // between two requests for one host
}

// maxPage limits how much of a page is read, in bytes.
const maxPage = 64 << 10

var linkPattern = regexp.MustCompile(`<a href="([^"]*)"`)

// Crawl visits all pages that links from first lead to, each once, those of different hosts concurrently. It returns
// their URLs. It ends early if ctx does.
func (c Crawler) Crawl(ctx context.Context, first []string) []string {
	var mu sync.Mutex // guards all
	var all []string
	var running sync.WaitGroup
	for _, page := range first {
		running.Go(func() {
			visited := c.crawlHost(ctx, page)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, visited...)
		})
	}
	running.Wait()
	return all
}

// crawlHost visits all pages that links from first to its own host lead to.
func (c Crawler) crawlHost(ctx context.Context, first string) []string {
	pages, known := []string{first}, map[string]bool{first: true}
	for i := 0; i < len(pages) && ctx.Err() == nil; i++ {
		if i > 0 {
			wait(ctx, c.Pause)
		}
		found, err := c.visit(ctx, pages[i])
		if err != nil {
			continue // the proxy has a record of it
		}
		for _, page := range found {
			if !known[page] {
				known[page], pages = true, append(pages, page)
			}
		}
	}
	return pages
}

// visit requests a page and returns its links to pages of its own host.
func (c Crawler) visit(ctx context.Context, page string) (links []string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return nil, fmt.Errorf("sampleweb: %w", err)
	}
	r.Header.Set("User-Agent", c.UserAgent)
	resp, err := c.Client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("sampleweb: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err != nil {
		return nil, fmt.Errorf("sampleweb: reading %s: %w", page, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, nil
	}
	for _, match := range linkPattern.FindAllSubmatch(text, -1) {
		if to, err := r.URL.Parse(string(match[1])); err == nil && sameHost(to, r.URL) {
			links = append(links, to.String())
		}
	}
	return links, nil
}

func sameHost(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }

// Revisit visits one of pages after each pause, until ctx ends. There must be a page.
func (c Crawler) Revisit(ctx context.Context, pages []string, pause time.Duration) {
	for wait(ctx, pause); ctx.Err() == nil; wait(ctx, pause) {
		_, _ = c.visit(ctx, pages[rand.IntN(len(pages))]) // the proxy has a record of an error
	}
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
