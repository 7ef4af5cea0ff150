//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/store"
)

// TestCrash kills the program amid its work, as often as CRASHES says, with kill -9. What a client was answered and
// what a site was sent is in the records then: with grouped what is older than 50 ms, and with strict all.
func TestCrash(t *testing.T) {
	long(t)
	crashes := 2
	if text := os.Getenv("CRASHES"); text != "" {
		var err error
		if crashes, err = strconv.Atoi(text); err != nil {
			t.Fatalf("CRASHES: %v", err)
		}
	}
	for durability, loses := range map[string]time.Duration{"grouped": 50 * time.Millisecond, "strict": 0} {
		t.Run(durability, func(t *testing.T) {
			c := newCrashes(t, durability)
			total := 0
			for range crashes {
				killed := c.crash()
				total += c.check(killed.Add(-loses))
			}
			t.Logf("%d answers and sendings before %d crashes are recorded", total, crashes)
			if total < 100*crashes {
				t.Errorf("%d requests are no load", total)
			}
		})
	}
}

// crashes are the clients of a program that is killed, and what they and the site saw.
type crashes struct {
	t      *testing.T
	site   *robotstest.Site
	dir    string
	config string

	mu       sync.Mutex // guards next and answered
	next     int
	answered map[string]seenAnswer // by query
}

// seenAnswer is the header of a response, as a client got it.
type seenAnswer struct {
	at     time.Time
	status int
}

func newCrashes(t *testing.T, durability string) *crashes {
	c := &crashes{t: t, site: robotstest.New(t), dir: filepath.Join(t.TempDir(), "data"), answered: make(map[string]seenAnswer)}
	c.site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private/\n"})
	c.site.SetPage("a.example", "/long", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, "a part of a long download\n")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(20 * time.Millisecond)
		}
	})
	c.config = writeFile(t, t.TempDir(), "config.yaml", siteConfig(c.site)+"pacing: {max_concurrent: 0}\nlog: {level: error}\naudit: {durability: "+durability+"}\n")
	return c
}

// crash starts the program and its clients, kills it after a while, and returns a moment just before.
func (c *crashes) crash() time.Time {
	s, err := startServer(c.dir, append(os.Environ(), "HOME="+c.t.TempDir()), "--config", c.config)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	var clients sync.WaitGroup
	for _, path := range []string{"/page/1", "/page/2", "/private/1", "/long"} {
		for _, scheme := range []string{"http", "https"} {
			clients.Go(func() { c.ask(ctx, s, scheme, path) })
		}
	}
	time.Sleep(500*time.Millisecond + rand.N(700*time.Millisecond))
	killed := time.Now()
	err = s.cmd.Process.Kill()
	cancel()
	clients.Wait()
	<-s.said
	_ = s.cmd.Wait()
	if err != nil {
		c.t.Fatal(err)
	}
	return killed
}

// ask sends requests until the program is dead. Those for a long download end after a moment or with the program.
func (c *crashes) ask(ctx context.Context, s *server, scheme, path string) {
	pem, err := os.ReadFile(s.ca)
	if err != nil {
		c.t.Error(err)
		return
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: s.proxy}), TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	port := map[string]int{"http": c.site.Port(), "https": c.site.TLSPort()}[scheme]
	for ctx.Err() == nil {
		query := c.query()
		target := fmt.Sprintf("%s://a.example:%d%s?%s", scheme, port, path, query)
		request, cancel := context.WithTimeout(ctx, time.Second)
		req, err := http.NewRequestWithContext(request, http.MethodGet, target, nil)
		if err != nil {
			c.t.Error(err)
		}
		resp, err := transport.RoundTrip(req)
		if err == nil {
			c.note(query, seenAnswer{time.Now(), resp.StatusCode})
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		cancel()
	}
}

// query returns a query that no other request has.
func (c *crashes) query() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	return fmt.Sprintf("n=%d", c.next)
}

func (c *crashes) note(query string, a seenAnswer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered[query] = a
}

// check compares what happened until a moment with the records. It returns how much that was.
func (c *crashes) check(until time.Time) (n int) {
	decisions := make(map[string]policy.Outcome)
	for _, r := range storedRecords(c.t, c.dir) {
		decisions[r.Query] = r.Decision
	}
	var missing []string
	for query, a := range c.answered {
		if a.at.After(until) {
			continue
		}
		n++
		want := map[int]policy.Outcome{200: policy.Allow, 403: policy.Deny}[a.status]
		if decisions[query] != want {
			missing = append(missing, fmt.Sprintf("%s was answered %d, %v before the end, and has the decision %q",
				query, a.status, until.Sub(a.at), decisions[query]))
		}
	}
	for _, r := range c.site.Requests() {
		_, query, _ := strings.Cut(r.Target, "?")
		if r.Start.After(until) || query == "" {
			continue
		}
		n++
		if decisions[query] != policy.Allow {
			missing = append(missing, fmt.Sprintf("%s was sent %v before the end, and has the decision %q",
				query, until.Sub(r.Start), decisions[query]))
		}
	}
	if len(missing) > 0 {
		c.t.Errorf("%d of %d are missing: %s", len(missing), n, strings.Join(missing[:min(len(missing), 10)], "\n"))
	}
	clear(c.answered)
	c.site.Reset()
	return n
}

// storedRecords returns the records of clients' requests in the database of dir.
func storedRecords(t *testing.T, dir string) (all []audit.Record) {
	t.Helper()
	records, err := store.OpenRecords(store.RecordsOptions{Path: filepath.Join(dir, "audit.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	for r, err := range records.Records(t.Context(), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, *r)
	}
	return all
}
